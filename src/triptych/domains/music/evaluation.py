"""Evaluation of a trained music model: likelihoods, scores given some voices, statistics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.sampling import SampleRequest
from triptych.domains.base import TrainedModel
from triptych.domains.music.data import Batch, evaluation_batches, read_pieces
from triptych.domains.music.domain import (
    MusicEvaluateOptions,
    MusicScoreRequest,
)
from triptych.domains.music.generation import sample_pieces
from triptych.domains.music.given_scores import score_given
from triptych.domains.music.metrics import (
    MusicScores,
    batch_sums,
    count_models,
    mean_by_position,
    token_nll,
)
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.sample_statistics import (
    NamedPiece,
    compare_statistics,
    compare_with_training,
)
from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.synthetic import known_entropy
from triptych.errors import UserError
from triptych.files.splits import ALL, source_to_score
from triptych.training.engine.devices import out_of_memory_advice
from triptych.training.engine.evaluate import Evaluation, in_double, sum_scores
from triptych.types import Progress, ProgressFactory


class MusicEvaluator(MusicScores, TrainedModel):
    """A trained music model that scores pieces; `MusicModel` also samples."""

    score_request = MusicScoreRequest
    settings_class = MusicSettings
    settings: MusicSettings
    full_model: DecoderOnly

    @property
    def tokenizer(self) -> MusicTokenizer:
        """Tokenizer of the model's music."""
        return self.settings.tokenizer

    def score_split(
        self, request: MusicScoreRequest, progress: Progress | None = None
    ) -> Evaluation:
        """Score every token of every piece of a split, in nats per token and per note.

        Windows longer than in training also give the nats per token within and beyond the trained
        length. The details have the nats per token by position; with overlap 0 each window scores
        all of its positions. Raises UserError for missing data and for windows that the model
        cannot serve.
        """
        split, bucket = request.split, request.bucket
        scorer = self._with_windows(request.sequence_length, request.overlap)
        trained_on, windows = self.data_settings, scorer.settings
        source = source_to_score(trained_on.source, split, request.data)
        read = read_pieces(source, split, self.tokenizer)[: request.limit]
        pieces = [self.tokenizer.tokens(piece.content) for piece in read]
        batches = evaluation_batches(
            pieces, windows, batch_size=request.batch_size or trained_on.batch_size
        )
        trained_length, length = self.settings.sequence_length, windows.sequence_length
        nats = torch.zeros(length, dtype=torch.float64)
        tokens = torch.zeros(length, dtype=torch.int64)

        def score(batch: Batch) -> dict[str, Tensor]:
            nll = token_nll(scorer.model, batch)  # [B, L]
            nats[: nll.shape[1]] += in_double(nll).sum(0).cpu()
            tokens[: nll.shape[1]] += batch.scored.sum(0).cpu()
            return batch_sums(batch, nll)

        sums = sum_scores(scorer.model, score, batches, progress)
        metrics = self.metrics(sums)
        parts = mean_by_position(nats, tokens, [0, trained_length, length])
        if len(parts) == 2:
            metrics["nats_per_token_within"] = parts[0]["nats_per_token"]
            metrics["nats_per_token_beyond"] = parts[1]["nats_per_token"]
        details: dict[str, Any] = {
            "dtype": self.dtype,
            "tokens": int(sums["tokens"]),
            "notes": int(sums["notes"]),
            "vocabulary_size": self.tokenizer.vocabulary_size,
            "sequence_length": length,
            "overlap": windows.overlap,
            "nats_per_token_of": _baselines(source, self.tokenizer, pieces, counted=split != ALL),
            "by_position": {
                "trained_length": trained_length,
                "sequence_length": length,
                "overlap": windows.overlap,
                "positions_per_bucket": bucket,
                "buckets": mean_by_position(nats, tokens, [*range(0, length, bucket), length]),
            },
            **known_entropy(source),
        }
        return Evaluation(self.domain, split, metrics, len(pieces), details)

    def evaluate_given(
        self,
        keep: str,
        split: str = "test",
        *,
        data: str | Path | None = None,
        limit: int | None = None,
        particles: int = 16,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Score the notes of a split that are not kept, see `score_given`; JSON types only.

        Each piece is scored up to the length of the model's window. keep: as in `complete`.
        Raises UserError for missing data, and for voices and bars that a piece lacks.
        """
        pieces, kept = self._kept(keep, split, data, limit)
        generator = torch.Generator(self.full_model.start.device).manual_seed(seed)
        scores = score_given(
            self.model,
            self.tokenizer,
            pieces,
            kept,
            particles=particles,
            generator=generator,
            progress=progress,
        )
        return {"keep": keep, "particles": particles, "seed": seed, **scores}

    def _kept(
        self, keep: str, split: str, data: str | Path | None, limit: int | None
    ) -> tuple[list[Ids], list[NDArray[np.bool_]]]:
        """Return the first window of each piece, and which of its tokens `keep` names."""
        self._check_without_melody("keep")
        source = source_to_score(self.data_settings.source, split, data)
        length = self.settings.sequence_length
        read = read_pieces(source, split, self.tokenizer)[:limit]
        pieces = [self.tokenizer.encode(piece.content)[:length] for piece in read]
        kept = [
            self.tokenizer.kept(ids, keep, piece.name)
            for ids, piece in zip(pieces, read, strict=True)
        ]
        return pieces, kept

    def statistics(
        self,
        count: int,
        split: str = "test",
        *,
        data: str | Path | None = None,
        limit: int | None = None,
        sample_length: int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Return statistics of `count` samples and of the pieces of a split, JSON types only.

        The key statistics has mean and deviation of each measure, see `piece_statistics`. The key
        memorisation has the longest run of tokens, and of intervals between notes, that each sample
        and each held-out piece shares with the training pieces.

        sample_length: in the tokenizer's unit; the pieces are cut to it. None for the median length
        of whole pieces. Raises UserError for missing data and for a split without pieces.
        """
        self._check_without_melody("statistics")
        tokenizer = self.tokenizer
        source = source_to_score(self.data_settings.source, split, data)
        pieces = _named(
            read_pieces(source, split, tokenizer)[:limit], tokenizer, length=sample_length
        )
        if not pieces:
            raise UserError(f"the split {split} has no pieces to compare samples with")
        if sample_length is None:
            median = np.median([len(piece.tokens) for piece in pieces])
            sample_length = max(1, round(median / tokenizer.tokens_per_unit))
        drawn = sample_pieces(
            self.model,
            self.settings,
            SampleRequest(count, seed=seed, progress=progress),
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
            "seed": seed,
            "groups": compare_statistics(groups, tokenizer),
        }
        memorisation: dict[str, Any]
        try:
            trained_from = self.data_settings.source if split == ALL else source
            training = _named(trained_from.load("train", tokenizer), tokenizer)
            if not training:
                raise UserError("the source has no training pieces")
        except UserError as error:
            memorisation = {"not_computed": str(error)}
        else:
            if split == "train":  # its pieces would be found in themselves
                del groups[split]
            memorisation = {
                "training_pieces": len(training),
                "runs": compare_with_training(groups, training, tokenizer),
            }
        return {"statistics": statistics, "memorisation": memorisation}

    def check_evaluation(self, options: MusicEvaluateOptions) -> None:
        if options.keep is not None:
            self._kept(options.keep, options.split, options.data, options.limit)
        if options.statistics:
            self._check_without_melody("statistics")

    def further_details(
        self, options: MusicEvaluateOptions, report: ProgressFactory
    ) -> dict[str, Any]:
        """Return statistics of samples, and scores given some voices, where the options ask."""
        details: dict[str, Any] = {}
        if options.keep is not None:
            arguments = options.arguments_of(self.evaluate_given)
            with out_of_memory_advice("lower --particles"):
                details["completion"] = self.evaluate_given(**arguments, progress=report("tokens"))
        if options.statistics:
            progress = report("sampled tokens", at_most=self.tokenizer.end is not None)
            arguments = options.arguments_of(self.statistics)
            with out_of_memory_advice("lower --statistics or --sample_length"):
                details |= self.statistics(options.statistics, **arguments, progress=progress)
        return details

    def _with_windows(self, sequence_length: int | None, overlap: int | None) -> Self:
        """Return the same model for other windows; see `evaluate`."""
        own, bar = self.settings, self.tokenizer.bar
        length = own.sequence_length if sequence_length is None else sequence_length
        if overlap is None:
            overlap = own.overlap * length // own.sequence_length // bar * bar
        if (length, overlap) == (own.sequence_length, own.overlap):
            return self
        try:
            windows = replace(own, sequence_length=length, overlap=overlap)
            model = windows.build_model().to(next(self.full_model.parameters()))
            model.load_state_dict(self.full_model.state_dict())
        # RuntimeError: the shape of a parameter depends on the length.
        except (ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise UserError(
                f"the model cannot be scored with windows of {length:,} tokens: {reason}"
            ) from error
        return type(self)(windows, model).with_dtype(self.dtype)

    def _check_without_melody(self, option: str) -> None:
        """Raise UserError for an option that needs a model that reads no melody."""
        if self.settings.model.melody is not None:
            raise UserError(
                f"{option} is for models without a melody, and this one accompanies one"
            )

    def _check_melody(self, *, given: bool) -> None:
        """Raise UserError unless a melody is given exactly if the model reads one."""
        reads = self.settings.model.melody is not None
        if given and not reads:
            raise UserError(
                "melody is given, and this model has no encoder of melodies; expected one that was "
                "trained with model.melody, such as configs/music/chorales-melody.yaml"
            )
        if reads and not given:
            raise UserError(
                "this model accompanies a melody, and none is given; expected a MIDI file as melody"
            )


def _named(
    pieces: list[Piece], tokenizer: MusicTokenizer, *, length: int | None = None
) -> list[NamedPiece]:
    """Return pieces as their tokenizer writes them, cut to a length in its unit."""
    n_tokens = None if length is None else length * tokenizer.tokens_per_unit
    return [
        NamedPiece.of(piece.name, tokenizer.encode(piece.content)[:n_tokens], tokenizer)
        for piece in pieces
    ]


def _baselines(
    source: PieceSource, tokenizer: MusicTokenizer, held_out: list[Ids], *, counted: bool
) -> dict[str, float]:
    """Return nats per token of simple models on the scored pieces.

    counted: include the count models, where the source has training pieces for them.
    """
    train: list[Ids] = []
    if counted and source.trains_baselines:
        with suppress(UserError):
            train = [tokenizer.tokens(piece.content) for piece in source.load("train", tokenizer)]
    return count_models(tokenizer, train, held_out)
