"""Evaluation of a trained music model: likelihoods, scores given some voices, statistics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.sampling import SampleRequest
from triptych.domains.base import TrainedModel
from triptych.domains.music.comparison import (
    NamedPiece,
    compare_with_training,
)
from triptych.domains.music.data import Batch, evaluation_batches, read_pieces
from triptych.domains.music.domain import (
    MusicScoreRequest,
)
from triptych.domains.music.generation import sample_pieces
from triptych.domains.music.metrics import (
    MusicScores,
    batch_sums,
    count_models,
    mean_by_position,
    score_given,
    token_nll,
)
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.statistics import means_and_deviations, piece_statistics
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.synthetic import known_entropy
from triptych.errors import UserError
from triptych.files.splits import ALL, source_to_score
from triptych.training.engine.evaluate import Evaluation, in_double, sum_scores
from triptych.types import Progress


class MusicTrained(MusicScores, TrainedModel):
    """A trained music model: its windows and its tokenizer."""

    settings_class = MusicSettings
    settings: MusicSettings
    full_model: DecoderOnly

    @property
    def tokenizer(self) -> MusicTokenizer:
        """Tokenizer of the model's music."""
        return self.settings.tokenizer

    def check_melody(self, *, given: bool = False) -> None:
        """Raise UserError where a melody is given to a model without an encoder, or none to one."""
        if given and self.settings.model.melody is None:
            raise UserError(
                "melody is given, and this model has no encoder of melodies; expected one that was "
                "trained with model.melody, such as configs/music/chorales-melody.yaml"
            )
        if not given and self.settings.model.melody is not None:
            raise UserError(
                "this model accompanies a melody, and none is given: give sample a MIDI file as "
                "melody, or attention one of a whole piece as primer; statistics and kept notes "
                "are for models without a melody"
            )


def score_split(
    trained: MusicTrained, request: MusicScoreRequest, progress: Progress | None = None
) -> Evaluation:
    """Score every token of every piece of a split, in nats per token and per note.

    Windows longer than in training also give the nats per token within and beyond the trained
    length. The details have the nats per token by position; with overlap 0 each window scores all
    of its positions. Raises UserError for missing data and for windows that the model cannot serve.
    """
    split, bucket = request.split, request.bucket
    scorer = with_windows(trained, request)
    trained_on, windows = trained.data_settings, scorer.settings
    tokenizer = trained.tokenizer
    source, read = _pieces(trained, request)
    pieces = [tokenizer.tokens(piece.content) for piece in read]
    train: list[Ids] = []
    if split != ALL and source.trains_baselines:
        with suppress(UserError):
            train = [tokenizer.tokens(piece.content) for piece in source.load("train", tokenizer)]
    batches = evaluation_batches(
        pieces, windows, batch_size=request.batch_size or trained_on.batch_size
    )
    trained_length, length = trained.settings.sequence_length, windows.sequence_length
    nats = torch.zeros(length, dtype=torch.float64)
    tokens = torch.zeros(length, dtype=torch.int64)

    def score(batch: Batch) -> dict[str, Tensor]:
        nll = token_nll(scorer.model, batch)  # [B, L]
        nats[: nll.shape[1]] += in_double(nll).sum(0).cpu()
        tokens[: nll.shape[1]] += batch.scored.sum(0).cpu()
        return batch_sums(batch, nll)

    sums = sum_scores(scorer.model, score, batches, progress)
    metrics = trained.metrics(sums)
    parts = mean_by_position(nats, tokens, [0, trained_length, length])
    if len(parts) == 2:
        metrics["nats_per_token_within"] = parts[0]["nats_per_token"]
        metrics["nats_per_token_beyond"] = parts[1]["nats_per_token"]
    details: dict[str, Any] = {
        "dtype": trained.dtype,
        "tokens": int(sums["tokens"]),
        "notes": int(sums["notes"]),
        "vocabulary_size": tokenizer.vocabulary_size,
        "sequence_length": length,
        "overlap": windows.overlap,
        "nats_per_token_of": count_models(tokenizer, train, pieces),
        "by_position": {
            "trained_length": trained_length,
            "sequence_length": length,
            "overlap": windows.overlap,
            "positions_per_bucket": bucket,
            "buckets": mean_by_position(nats, tokens, [*range(0, length, bucket), length]),
        },
        **known_entropy(source),
    }
    return Evaluation(trained.domain, split, metrics, len(pieces), details)


def score_given_voices(
    trained: MusicTrained, request: MusicScoreRequest, progress: Progress | None = None
) -> dict[str, Any]:
    """Score the notes of a split that `request.keep` does not name, see `metrics.score_given`.

    Each piece is scored up to the length of the model's window. Returns JSON types. Raises
    UserError for missing data, and for voices and bars that a piece lacks.
    """
    pieces, kept = kept_tokens(trained, request)
    asked = {"keep": request.keep, "particles": request.particles, "seed": request.seed}
    scores = score_given(
        trained.model,
        trained.tokenizer,
        pieces,
        kept,
        particles=request.particles,
        generator=torch.Generator(trained.full_model.start.device).manual_seed(request.seed),
        progress=progress,
    )
    return {**asked, **scores}


def kept_tokens(
    trained: MusicTrained, request: MusicScoreRequest
) -> tuple[list[Ids], list[NDArray[np.bool_]]]:
    """Return the first window of each piece, and which of its tokens `request.keep` names."""
    trained.check_melody()
    assert request.keep is not None
    tokenizer, length = trained.tokenizer, trained.settings.sequence_length
    _, read = _pieces(trained, request)
    pieces = [tokenizer.encode(piece.content)[:length] for piece in read]
    kept = [
        tokenizer.kept(ids, request.keep, piece.name)
        for ids, piece in zip(pieces, read, strict=True)
    ]
    return pieces, kept


def sample_statistics(
    trained: MusicTrained, request: MusicScoreRequest, progress: Progress | None = None
) -> dict[str, Any]:
    """Return statistics of `request.statistics` samples and of the pieces of a split, JSON types.

    The key statistics has mean and deviation of each measure, see `piece_statistics`. The key
    memorisation has the longest run of tokens, and of intervals between notes, that each sample and
    each held-out piece shares with the training pieces. Raises UserError for missing data and for a
    split without pieces.
    """
    trained.check_melody()
    tokenizer, split, sample_length = trained.tokenizer, request.split, request.sample_length
    n_tokens = None if sample_length is None else sample_length * tokenizer.tokens_per_unit

    def named(pieces: list[Piece], n_tokens: int | None = None) -> list[NamedPiece]:
        return [
            NamedPiece.of(piece.name, tokenizer.encode(piece.content)[:n_tokens], tokenizer)
            for piece in pieces
        ]

    source, read = _pieces(trained, request)
    pieces = named(read, n_tokens)
    if not pieces:
        raise UserError(f"the split {split} has no pieces to compare samples with")
    if sample_length is None:
        median = np.median([len(piece.tokens) for piece in pieces])
        sample_length = max(1, round(median / tokenizer.tokens_per_unit))
    drawn = sample_pieces(
        trained.model,
        trained.settings,
        SampleRequest(request.statistics, seed=request.seed, progress=progress),
        length=sample_length,
    )
    samples = [
        NamedPiece.of(f"sample-{number:02d}", tokens, tokenizer)
        for number, tokens in enumerate(drawn)
    ]
    groups = {split: pieces, "samples": samples}
    statistics = {
        "pieces": {group: len(members) for group, members in groups.items()},
        "sample_length": sample_length,
        "sample_unit": tokenizer.unit,
        "seed": request.seed,
        "groups": {
            group: means_and_deviations(
                [piece_statistics(piece.notes, tokenizer) for piece in some]
            )
            for group, some in groups.items()
        },
    }
    try:
        trained_from = trained.data_settings.source if split == ALL else source
        training = named(trained_from.load("train", tokenizer))
        if not training:
            raise UserError("the source has no training pieces")
    except UserError as error:
        memorisation: dict[str, Any] = {"not_computed": str(error)}
    else:
        if split == "train":  # its pieces would be found in themselves
            del groups[split]
        memorisation = {
            "training_pieces": len(training),
            "runs": compare_with_training(groups, training, tokenizer),
        }
    return {"statistics": statistics, "memorisation": memorisation}


def with_windows(trained: MusicTrained, request: MusicScoreRequest) -> MusicTrained:
    """Return the same model for the windows of a request.

    Raises UserError for windows that it cannot serve.
    """
    own, bar = trained.settings, trained.tokenizer.bar
    length, overlap = request.sequence_length or own.sequence_length, request.overlap
    if overlap is None:
        overlap = own.overlap * length // own.sequence_length // bar * bar
    if (length, overlap) == (own.sequence_length, own.overlap):
        return trained
    try:
        windows = replace(own, sequence_length=length, overlap=overlap)
        model = windows.build_model().to(next(trained.full_model.parameters()))
        model.load_state_dict(trained.full_model.state_dict())
    # RuntimeError: the shape of a parameter depends on the length.
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(
            f"the model cannot be scored with windows of {length:,} tokens: {reason}"
        ) from error
    return type(trained)(windows, model).with_dtype(trained.dtype)


def _pieces(trained: MusicTrained, request: MusicScoreRequest) -> tuple[PieceSource, list[Piece]]:
    """Return the source to score and the pieces of its split; UserError for missing data."""
    source = source_to_score(trained.data_settings.source, request.split, request.data)
    return source, read_pieces(source, request.split, trained.tokenizer)[: request.limit]
