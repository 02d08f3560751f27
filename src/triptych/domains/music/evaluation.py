"""Evaluation of a trained music model: likelihoods, scores of a part, statistics."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.ranks import added
from triptych.decoding.sampling import SampleRequest
from triptych.domains.base import TrainedModel
from triptych.domains.music.data import Batch, evaluation_batches
from triptych.domains.music.domain import MusicEvaluateOptions, MusicScoreRequest
from triptych.domains.music.generation import sample_pieces
from triptych.domains.music.metrics import (
    MusicScores,
    batch_sums,
    count_models,
    mean_by_position,
    mean_of_filled,
    mean_over_orders,
    token_nll,
)
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.statistics import (
    NamedPiece,
    compare_with_training,
    means_and_deviations,
    piece_statistics,
)
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.voice_orders import voice_orders
from triptych.errors import UserError
from triptych.files.progress import display
from triptych.files.splits import ALL, source_to_score
from triptych.training.engine.devices import out_of_memory_advice
from triptych.training.engine.evaluate import Evaluation, in_double, sum_scores
from triptych.types import Progress


class MusicEvaluation(MusicScores, TrainedModel):
    """A trained music model: its windows, its tokenizer, and how it is scored."""

    settings_class = MusicSettings
    score_request = MusicScoreRequest
    settings: MusicSettings
    full_model: DecoderOnly

    @property
    def tokenizer(self) -> MusicTokenizer:
        """Tokenizer of the model's music."""
        return self.settings.tokenizer

    def predicts(self) -> dict[str, Any]:
        has_melody = self.settings.model.melody is not None
        return super().predicts() | {
            "tokenizer": self.tokenizer,
            "model.melody": has_melody,
            "model.voice_orders": self.settings.model.voice_orders,
        }

    def token_maps(self, transpositions: int = 0) -> list[Tensor | None]:
        """Return the transpositions by 0, -1, 1, ... semitones; UserError beside a melody."""
        if transpositions:
            self.check_melody()
        shifts = [shift for n in range(1, transpositions + 1) for shift in (-n, n)]
        return [None, *(torch.from_numpy(self.tokenizer.transposition(n)) for n in shifts)]

    def check_melody(self, *, given: bool = False) -> None:
        """Raise UserError where a melody is given to a model without an encoder, or none to one."""
        if given and self.settings.model.melody is None:
            raise UserError(
                "melody is given, and this model has no encoder of melodies; "
                "a model of chorales takes it as given, with keep soprano"
            )
        if not given and self.settings.model.melody is not None:
            raise UserError(
                "this model accompanies a melody, and none is given: give sample a MIDI file as "
                "melody, or attention one as primer"
            )

    def check_evaluation(self, options: MusicEvaluateOptions) -> None:
        if options.fill is not None and not self.tokenizer.can_fill:
            raise UserError("fill is for models that were trained with data.infilling_share")
        if options.statistics:
            self.check_melody()
        self.check_dynamic(options)

    def further_details(self, options: MusicEvaluateOptions) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if options.fill is not None:
            pieces = self._pieces(options)[1]
            progress = display("pieces")
            filled = mean_of_filled(self.model, self.settings, pieces, options.fill, progress)
            details["completion"] = {"fill": options.fill} | filled
        if options.statistics:
            progress = display("sampled tokens", at_most=self.tokenizer.end is not None)
            with out_of_memory_advice("lower --statistics or --sample_length"):
                details |= self.sample_statistics(options, progress)
        return details

    def score_split(
        self, request: MusicScoreRequest, progress: Progress | None = None
    ) -> Evaluation:
        """Score every token of every piece of a split, in nats per token and per note.

        Windows longer than in training also give those within and beyond the trained length. The
        details have the nats per token by position. Raises UserError for missing data and for
        windows that the model cannot serve.
        """
        self.check_dynamic(request)
        scorer = self._with_windows(request)
        windows, tokenizer = scorer.settings, self.tokenizer
        source, read = self._pieces(request)
        pieces = [tokenizer.tokens(piece.content) for piece in read]
        train: list[Ids] = []
        if request.split != ALL and source.trains_baselines:
            with suppress(UserError):
                train = [tokenizer.tokens(p.content) for p in source.load("train", tokenizer)]
        batch_size = 1 if request.dynamic else request.batch_size or self.data_settings.batch_size
        orders = self._orders(request.orders)
        batches = evaluation_batches(pieces, windows, batch_size=batch_size, order_numbers=orders)
        trained_length, length = self.settings.sequence_length, windows.sequence_length
        nats = torch.zeros(length, dtype=torch.float64)
        tokens = torch.zeros(length, dtype=torch.int64)

        def score(batch: Batch) -> dict[str, Tensor]:
            nll = token_nll(scorer.model, batch)  # [B orders, L]
            if len(orders) > 1:
                nll = mean_over_orders(nll, len(orders), len(tokenizer.voice_ranges))  # [B, L]
                first = batch.scored[:: len(orders)], batch.onsets[:: len(orders)]
                batch = batch._replace(scored=first[0], onsets=first[1])
            nats[: nll.shape[1]] += in_double(nll.detach()).sum(0).cpu()
            tokens[: nll.shape[1]] += batch.scored.sum(0).cpu()
            return batch_sums(batch, nll)

        sums = sum_scores(scorer.model, score, batches, progress, dynamic_rate=request.dynamic)
        metrics, nats, tokens = self.metrics(sums), added(nats), added(tokens)
        parts = mean_by_position(nats, tokens, [0, trained_length, length])
        if len(parts) == 2:
            metrics["nats_per_token_within"] = parts[0]["nats_per_token"]
            metrics["nats_per_token_beyond"] = parts[1]["nats_per_token"]
        widths = {"sequence_length": length, "overlap": windows.overlap}
        edges = [*range(0, length, request.bucket), length]
        details: dict[str, Any] = {
            "dtype": self.dtype,
            "tokens": int(sums["tokens"]),
            "notes": int(sums["notes"]),
            "vocabulary_size": tokenizer.vocabulary_size,
            "dynamic": request.dynamic,
            "orders": request.orders,
            **widths,
            "nats_per_token_of": count_models(tokenizer, train, pieces),
            "by_position": {
                "trained_length": trained_length,
                **widths,
                "positions_per_bucket": request.bucket,
                "buckets": mean_by_position(nats, tokens, edges),
            },
        }
        return Evaluation(self.domain, request.split, metrics, len(pieces), details)

    def sample_statistics(
        self, request: MusicScoreRequest, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Return statistics of `request.statistics` samples and of a split's pieces, JSON types.

        The key statistics has `means_and_deviations` of `piece_statistics`, the key memorisation
        what `compare_with_training` returns. Raises UserError for missing data and for a split
        without pieces.
        """
        self.check_melody()
        tokenizer, split, sample_length = self.tokenizer, request.split, request.sample_length
        n_tokens = None if sample_length is None else sample_length * tokenizer.tokens_per_unit

        def named(pieces: list[Piece], n_tokens: int | None = None) -> list[NamedPiece]:
            encoded = ((piece.name, tokenizer.encode(piece.content)) for piece in pieces)
            return [NamedPiece.of(name, ids[:n_tokens], tokenizer) for name, ids in encoded]

        source, read = self._pieces(request)
        pieces = named(read, n_tokens)
        if not pieces:
            raise UserError(f"the split {split} has no pieces to compare samples with")
        if sample_length is None:
            median = np.median([len(piece.tokens) for piece in pieces])
            sample_length = max(1, round(median / tokenizer.tokens_per_unit))
        drawing = SampleRequest(request.statistics, seed=request.seed, progress=progress)
        drawn = sample_pieces(self.model, self.settings, drawing, length=sample_length)
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
                group: means_and_deviations([piece_statistics(p.notes, tokenizer) for p in members])
                for group, members in groups.items()
            },
        }
        try:
            trained_from = self.data_settings.source if split == ALL else source
            training = named(trained_from.load("train", tokenizer))
            if not training:
                raise UserError("the source has no training pieces")
        except UserError as error:
            return {"statistics": statistics, "memorisation": {"not_computed": str(error)}}
        if split == "train":  # its pieces would be found in themselves
            del groups[split]
        runs = compare_with_training(groups, training)
        memorisation = {"training_pieces": len(training), "runs": runs}
        return {"statistics": statistics, "memorisation": memorisation}

    def _with_windows(self, request: MusicScoreRequest) -> Self:
        """Return the same model for the windows of a request; UserError where it cannot serve."""
        if self.averaged_from:
            first, *others = (model._with_windows(request) for model in self.averaged_from)
            return first.averaged(*others, **self.symmetries).with_dtype(self.dtype)
        own, bar = self.settings, self.tokenizer.bar
        length, overlap = request.sequence_length or own.sequence_length, request.overlap
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

    def _orders(self, count: int) -> list[int]:
        """Return numbers of so many of the orders of voices; UserError for more than there are."""
        known = self.settings.model.voice_orders
        n_orders = len(voice_orders(len(self.tokenizer.voice_ranges))) if known else 1
        if count > n_orders:
            raise UserError(
                f"orders is {count}; expected at most {n_orders}, the orders in which this model "
                "can write the voices (see model.voice_orders)"
            )
        return [number * n_orders // count for number in range(count)]

    def _pieces(self, request: MusicScoreRequest) -> tuple[PieceSource, list[Piece]]:
        """Return the source to score and the pieces of its split; UserError for missing data.

        A folder that the model's own source does not read is one of MIDI files.
        """
        source: PieceSource = self.data_settings.source
        if request.data is not None and not source.reads(Path(request.data)):
            source = MidiFolder(directory=str(request.data))
        else:
            source = source_to_score(source, request.split, request.data)
        return source, source.load(request.split, self.tokenizer)[: request.limit]
