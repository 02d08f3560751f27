"""Training of a translation model: loss, likelihood and translations in validation."""

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.core.heads import at_least_float32
from triptych.domains.translation.config import Config
from triptych.domains.translation.data import Batch, EncodedPairs, read_training_data
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.metrics import LikelihoodScores, score_translations
from triptych.domains.translation.model import Tokenizers
from triptych.domains.translation.render import draw
from triptych.domains.translation.sources import Pair
from triptych.text.batches import evaluation_batches
from triptych.text.tokenizer import PAD
from triptych.training.engine.module import ATTENTION, TrainingModule
from triptych.training.engine.objective import Predictions
from triptych.training.finetune.rows import RowMap, WordRows, same_symbols
from triptych.training.loading.loader import FixedBatches, ResumableLoader

SHOWN = 20
"""Translations that are logged as a table after a validation."""


def smoothed_cross_entropy(logits: Tensor, expected: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy of each target in nats, 0 for padding.

    The share `smoothing` of each target distribution is uniform over all tokens but padding
    (1706.03762, section 5.4); `F.cross_entropy` would give padding its share too.

    logits [..., V], expected int64 [...] -> [...], float32 or wider.
    """
    log_p = at_least_float32(logits).log_softmax(-1)  # [..., V]
    target_log_p = log_p.gather(-1, expected.unsqueeze(-1)).squeeze(-1)  # [...]
    uniform_log_p = (log_p.sum(-1) - log_p[..., PAD]) / (log_p.shape[-1] - 1)  # [...]
    nats = -((1.0 - smoothing) * target_log_p + smoothing * uniform_log_p)  # [...]
    return nats.masked_fill(expected == PAD, 0.0)


class TranslationTrainingModule(LikelihoodScores, TrainingModule):
    """Training of a translation model on sentence pairs."""

    config: Config

    def __init__(
        self, config: Config, tokenizers: Tokenizers, validation: Sequence[Pair] = ()
    ) -> None:
        super().__init__(config.build_model(tokenizers), config, tokenizers.to_plain())
        self.tokenizers = tokenizers
        self.generated_pairs = list(validation)
        """Pairs whose sources are translated after each validation."""
        self.hypotheses: list[str] = []
        """Translations of `generated_pairs` at the last validation."""

    def row_maps(self, other: dict[str, Any]) -> list[RowMap]:
        """Return the rows of equal tokens, whatever the merges that make them."""
        before, now = Tokenizers.from_plain(other), self.tokenizers
        source = ("model.source_embedding.table.weight",)
        target = ("model.target_embedding.table.weight", "model.head.logits.weight")
        if before.shared and now.shared:
            both = source + target
            return [same_symbols("tokens", before.source.symbols, now.source.symbols, both)]
        return [
            same_symbols("source tokens", before.source.symbols, now.source.symbols, source),
            same_symbols("target tokens", before.target.symbols, now.target.symbols, target),
        ]

    def word_rows(self) -> WordRows:
        table = self.model.get_parameter("source_embedding.table.weight")
        return WordRows(table, self.tokenizers.source.words)

    def predictions(self, model: Any, batch: Batch) -> Predictions:
        """Return the predictions of a batch, with the smoothed loss in nats."""
        x, expected = model.training_features(
            batch.source, batch.source_padding, batch.target_input, batch.expected
        )  # [B, L, D], [B, L]
        loss = partial(smoothed_cross_entropy, smoothing=self.config.model.label_smoothing)
        return Predictions(x, model.head, expected, expected != PAD, loss)

    def generation_metrics(self) -> dict[str, float]:
        if not self.generated_pairs:
            return {}
        sources, references = zip(*self.generated_pairs, strict=True)
        model = self._in_use()
        self.hypotheses = [best[0] for best in model.texts(model.search(sources, beam=1))]
        tokenizer = self.config.data.source.bleu_tokenizer()
        return score_translations(self.hypotheses, references, tokenizer=tokenizer)[0]

    def _in_use(self) -> TranslationModel:
        """Return the model itself in use: a search without double precision is enough here."""
        model = TranslationModel(self.settings, self.model, self.tokenizers)
        model.repeats_near_ties = False
        return model

    def log_samples(self, folder: Path) -> None:
        """Write a table of translations and the cross-attention of the first sentence."""
        shown = list(zip(self.generated_pairs, self.hypotheses, strict=True))[:SHOWN]
        if not shown:
            return
        from sacrebleu import sentence_chrf

        with (folder / "translations.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["source", "reference", "translation", "exact match", "chrF"])
            for (source, reference), hypothesis in shown:
                same = "yes" if reference == hypothesis else "no"
                score = sentence_chrf(hypothesis, [reference]).score
                writer.writerow([source, reference, hypothesis, same, f"{score:.0f}"])
        for attended in self._in_use().attention([shown[0][0][0]], beam=1):
            (folder / ATTENTION).write_bytes(draw(attended))


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[TranslationTrainingModule, ResumableLoader, FixedBatches]:
    """Return the training module and both loaders; UserError where no training pair is left."""
    tokenizers, loader, pairs = read_training_data(
        config.data, seed=config.run.seed, vocabulary=vocabulary
    )
    torch.manual_seed(config.run.seed)
    task = TranslationTrainingModule(config, tokenizers, pairs[: config.data.validation_lines])
    validation = evaluation_batches(EncodedPairs.of(pairs, tokenizers), config.data.max_tokens)
    return task, loader, validation
