"""Training on music: the loss, scores in validation, and sampled pieces."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triptych.core.heads import at_least_float32
from triptych.core.models.base import NO_CONDITION, Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.sampling import SampleRequest
from triptych.domains.music.attention import attention_png, find_query, note_attention
from triptych.domains.music.config import Config
from triptych.domains.music.data import (
    Batch,
    evaluation_batches,
    read_training_and_validation,
    training_batches,
)
from triptych.domains.music.generation import sample_pieces
from triptych.domains.music.metrics import MusicScores, condition_of, count_models, values_of
from triptych.domains.music.midi import write_piece
from triptych.domains.music.notes import Ids
from triptych.domains.music.voice_leading import VoiceLeading
from triptych.errors import UserError
from triptych.training.engine.module import ATTENTION, TrainingModule
from triptych.training.engine.objective import Predictions
from triptych.training.finetune.rows import OTHER_VOCABULARY, RowMap, same_symbols
from triptych.training.loading.loader import FixedBatches, ResumableLoader

COUNTED_PIECES = 10_000
"""Training pieces, from the first on, in the count models that a run prints."""


class MusicTrainingModule(MusicScores, TrainingModule):
    """LightningModule of an autoregressive model of music."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config.build_model(), config, config.model.tokenizer.vocabulary)
        self.sequence_length = config.data.sequence_length
        self.sampled_melody: Ids | None = None
        """Melody of the pieces of `log_samples`."""

    def row_maps(self, other: dict[str, Any]) -> list[RowMap]:
        symbols = self.settings.tokenizer.symbols
        names = ("embedding.table.weight", "head.logits.weight", "head.logits.bias")
        weights = tuple(f"model.{name}" for name in names)
        return [same_symbols("symbols", other["symbols"], symbols, weights)]

    def predictions(self, model: DecoderOnly, batch: Batch) -> Predictions:
        values = values_of(batch)
        condition = condition_of(model, batch)
        features = model.features(values, batch.previous, condition)  # [B, L, D]
        further: Tensor | float = 0.0
        penalty = self.config.model.parallel_penalty
        if penalty and model.training:
            further = penalty * expected_parallels(model, features, values, batch.scored, condition)
        return Predictions(features, model.head, values, batch.scored, further=further)

    def log_samples(self, folder: Path) -> None:
        """Sample pieces at temperature 1 from the run's seed, as MIDI, sound and drawing.

        Also the attention weights of the last note of the first: last layer, mean of all heads.
        """
        data, tokenizer = self.config.data, self.settings.tokenizer
        if not data.samples:
            return
        pieces = sample_pieces(
            self.model,
            self.settings,
            SampleRequest(data.samples, seed=self.config.run.seed),
            seconds=data.sample_seconds,
            melody=self.sampled_melody,
        )
        for number, ids in enumerate(pieces):
            write_piece(tokenizer.to_score(ids), folder / f"piece-{number:02d}")
        first = tokenizer.without_end(pieces[0])
        with suppress(UserError):  # a piece without notes
            query = find_query(tokenizer, first, None)
            attention = note_attention(self.model, self.settings, first, query)
            drawing = attention_png(attention, tokenizer.to_score(first))
            (folder / ATTENTION).write_bytes(drawing)


def expected_parallels(
    model: DecoderOnly,
    features: Tensor,
    values: Tensor,
    scored: Tensor,
    condition: Condition = NO_CONDITION,
) -> Tensor:
    """Return the mean number of parallels that the model expects at a token, given those before.

    features [B, L, D + V], of values int64 [B, L]; scored: bool [B, L], tokens of the mean. As a
    part of the loss it is a rule that holds in expectation (posterior regularisation, Ganchev et
    al. 2010, section 2).
    """
    assert isinstance(model.term, VoiceLeading)
    index = torch.arange(values.shape[1], device=values.device)  # [L]
    given = model.conditioner.for_term(model.conditioner.start(condition, *values.shape))
    parallels = model.term.parallels(model.past(values), index, given)  # [B, L, V]
    p = at_least_float32(model.head(features)).softmax(-1)  # [B, L, V]
    expected = (p * parallels).sum(-1)  # [B, L]
    return expected.masked_fill(~scored, 0).sum() / scored.sum().clamp(min=1)


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[MusicTrainingModule, ResumableLoader, FixedBatches]:
    """See `Domain.prepare`."""
    data, tokenizer = config.data, config.model.tokenizer
    if vocabulary is not None:
        tokenizer.check_vocabulary(
            vocabulary, "the model whose weights the run starts with", hint=OTHER_VOCABULARY
        )
    torch.manual_seed(config.run.seed)
    # Before the pieces are read, which takes minutes.
    task = MusicTrainingModule(config)
    train, validation = read_training_and_validation(data, tokenizer)
    if (reader := task.settings.window_melody) is not None and len(validation):
        task.sampled_melody = reader.tokenizer.melody(validation[0].astype(np.int64))
    loader = training_batches(train, data, task.settings, seed=config.run.seed)
    batches = evaluation_batches(validation, task.settings, batch_size=data.batch_size)
    whole = [train.tokens[row] for row in train.whole]
    baselines = count_models(tokenizer, whole[:COUNTED_PIECES], validation)
    print(
        f"{len(whole):,} pieces ({sum(map(len, whole)):,} tokens) for training and "
        f"{len(validation):,} for validation; baselines in nats per token: "
        + ", ".join(f"{name} {nats:.3f}" for name, nats in baselines.items()),
        file=sys.stderr,
    )
    return task, loader, batches
