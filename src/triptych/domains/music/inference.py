"""A trained music model in use: sample, continue, fill in, and show its attention."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.constraints import ByPriority
from triptych.decoding.sampling import (
    Given,
    LogitsConstraint,
    SampleKeywords,
    SampleRequest,
)
from triptych.domains.base import Decoder
from triptych.domains.music.attention import (
    MusicAttention,
    attention_png,
    find_query,
    note_attention,
)
from triptych.domains.music.conditions import (
    ConstraintOptions,
    FrameOptions,
    check_known,
    chords_at,
)
from triptych.domains.music.data import TrainingPieces, training_batches
from triptych.domains.music.domain import (
    DRAWING,
    NUMBERS,
    PIECE,
    MusicAttentionOptions,
    MusicSampleOptions,
)
from triptych.domains.music.evaluation import MusicEvaluation
from triptych.domains.music.frame import (
    Made,
    continued,
    cut,
    octaves_into,
    put_into,
    transpose,
    without_rests,
)
from triptych.domains.music.generation import complete_tokens, fill_part, sample_pieces
from triptych.domains.music.midi import (
    GivenMidi,
    midi_bytes,
    read_midi,
    write_piece,
)
from triptych.domains.music.notes import FRAME, Ids, Score
from triptych.domains.music.tokenizers.base import FillTask
from triptych.domains.music.tokenizers.voices import melody_part
from triptych.domains.options import check_layer_and_head, counted
from triptych.errors import UserError
from triptych.files.progress import display
from triptych.files.results import OutputFolder, json_bytes
from triptych.training.engine.devices import device_of

if TYPE_CHECKING:
    from triptych.domains.music.config import Config
    from triptych.training.loading.loader import ResumableLoader

LOG = logging.getLogger(__name__)
DRAWN_TOGETHER = 64
"""Pieces that are sampled at a time for `drawn_batches`."""


class MusicModel(MusicEvaluation):
    """A trained music model."""

    def sample(
        self,
        count: int = 1,
        *,
        seconds: float | None = None,
        length: int | None = None,
        primer: GivenMidi | None = None,
        primer_bars: int | None = None,
        melody: GivenMidi | None = None,
        melody_track: str | None = None,
        transpose: str | None = None,
        frame: FrameOptions | None = None,
        constraints: ConstraintOptions | None = None,
        **options: Unpack[SampleKeywords],
    ) -> list[Made]:
        """Sample pieces in the frame of the primer, of the melody, or of `frame`.

        Arguments as in `MusicSampleOptions`; options: see `SampleKeywords`. The notes of a primer
        come back as they are, and new ones begin after its end. Without a primer a performance may
        end before its length, where the model ends it. progress: called with (tokens sampled,
        largest number). Raises UserError for a file that cannot be read, for constraints and
        conditions that the model does not have, for a melody where the model has no encoder and
        for no melody where it has one.
        """
        tokenizer = self.tokenizer
        rules = tokenizer.constraints(constraints)
        self.check_melody(given=melody is not None)
        frame = FrameOptions() if frame is None else frame
        check_known(frame, FrameOptions, tokenizer.condition_options, tokenizer.name)
        blank = frame.blank()
        tune = prompt = None
        end = 0
        if melody is not None and (reader := self.settings.window_melody) is not None:
            given = self._read(melody, "the melody", transpose)
            if melody_track is not None:
                own = given.notes.part == melody_part(given, melody_track)
                given = without_rests(replace(given, notes=given.notes[own]))
            tune = reader.of_score(given)
            steps = len(tune) / reader.tokenizer.melody_step
            seconds, length = steps * reader.tokenizer.seconds_per_melody_step, None
            blank = replace(given, parts=[], notes=given.notes[:0])
        elif primer is not None:
            given = self._read(primer, "the primer", transpose)
            if primer_bars is not None:
                given = cut(given, int(given.bars()[min(primer_bars, len(given.bars()) - 1)]))
            blank = given
            prompt = tokenizer.prompt(given)
            end = prompt.end
        elif blank is not None:
            if blank.chords:
                return self._filled(blank, None, None, count, rules, options)
            if blank.last_tick:
                seconds = blank.duration
                if (per_quarter := tokenizer.steps_per_beat) is not None:
                    steps = -(-blank.last_tick * per_quarter // blank.ticks_per_quarter)
                    seconds, length = None, steps
            prompt = tokenizer.frame_prompt(blank)
        if seconds is None and length is None:
            seconds = 30.0
        rows = sample_pieces(
            self.model,
            self.settings,
            SampleRequest.of(count, **options),
            seconds=seconds,
            length=length,
            prompt=prompt,
            constraints=rules,
            melody=tune,
        )
        pieces = [tokenizer.to_score(ids) for ids in rows]
        if blank is None:
            return [Made.of(piece) for piece in pieces]
        return [self._in_frame(blank, piece, end, seconds) for piece in pieces]

    def drawn_batches(self, config: Config) -> ResumableLoader:
        """Sample pieces of two windows, from the run's seed; UserError where a melody is needed."""
        if self.averaged_from:
            return self.averaged_from[0].drawn_batches(config)
        if self.settings.model.melody is not None:
            raise UserError(
                f"{self.name} accompanies a melody; expected a teacher without one for "
                "optim.objective.distillation.drawn"
            )
        wanted, seed = config.optim.objective.distillation, config.run.seed
        count, temperature = wanted.drawn, wanted.drawn_temperature
        tokenizer, progress = self.tokenizer, display("drawn pieces")
        length = -(-2 * config.data.sequence_length // tokenizer.tokens_per_unit)
        rows: list[Ids] = []
        for first in range(0, count, DRAWN_TOGETHER):
            together = min(DRAWN_TOGETHER, count - first)
            some = SampleRequest.of(together, seed=seed + first, temperature=temperature)
            rows += sample_pieces(self.model, self.settings, some, length=length)
            progress(len(rows), count)
        pieces = TrainingPieces.of_ids(rows, tokenizer)
        return training_batches(pieces, config.data, config.model_settings(), seed=seed)

    def _in_frame(self, given: Score, piece: Score, end: int, seconds: float | None) -> Made:
        """Return a given piece and the notes of another from the tick `end` on, in its frame."""
        tokenizer, goes_on = self.tokenizer, len(given.notes) > 0
        notes = piece.notes[piece.notes.release > end]
        notes = replace(notes, onset=np.maximum(notes.onset, end))
        if not tokenizer.by_seconds:
            given = continued(given, piece, end)
        if not goes_on:  # what was not asked for is the model's
            frame = {name: getattr(given, name) or getattr(piece, name) for name in FRAME}
            given = replace(given, **frame)
        made = put_into(
            given,
            np.ones(len(given.notes), dtype=bool),
            replace(piece, notes=notes),
            tokenizer.owners(given) if goes_on else {},
            by_seconds=tokenizer.by_seconds,
            order=tuple(tokenizer.voice_ranges),
        )
        if seconds is None:
            return made
        stop = (given.duration if goes_on else 0.0) + seconds
        last = int(given.ticks(np.array([stop]))[0])
        return Made(cut(made.score, last), made.is_new[made.score.notes.onset < last])

    def complete(
        self,
        given: GivenMidi,
        keep: str | None = None,
        count: int = 1,
        *,
        fill: str | None = None,
        melody_track: str | None = None,
        transpose: str | None = None,
        chords: str | None = None,
        particles: int = 16,
        constraints: ConstraintOptions | None = None,
        **options: Unpack[SampleKeywords],
    ) -> list[Made]:
        """Keep some parts or bars of a piece and sample the rest, in its frame.

        For chorales, and for models that were trained with `data.infilling_share`. Arguments as in
        `MusicSampleOptions`; give keep or fill. progress: called with (tokens sampled, their
        number). Raises UserError for a file that cannot be read, for parts and bars that it lacks,
        for a temperature of 0, and for a model that can keep nothing.
        """
        self.check_melody()
        if options.get("temperature") == 0:
            raise UserError("temperature must be above 0 with given notes, got 0")
        tokenizer = self.tokenizer
        rules = tokenizer.constraints(constraints)
        score = self._read(given, "the given piece", transpose)
        if chords is not None:
            frame = FrameOptions(chords=chords)
            check_known(frame, FrameOptions, tokenizer.condition_options, tokenizer.name)
            score = replace(score, chords=chords_at(chords, score.bars().tolist()))
        if not tokenizer.voice_ranges:
            return self._filled(score, keep, fill, count, rules, options)
        if (grammar := tokenizer.grammar(count, seconds=None, n_prompt=0)) is not None:
            rules = [grammar, *rules]
        piece = tokenizer.given(score, keep, fill, melody_track)
        device = device_of(self.full_model)
        ids, known = (torch.from_numpy(part).to(device) for part in (piece.ids, piece.known))
        request = replace(
            SampleRequest.of(count, **options),
            given=Given(ids.expand(count, -1), known.expand(count, -1)),
            constraint=ByPriority(rules) if rules else None,
        )
        tokens = complete_tokens(self.model, request, self.settings, particles=particles)
        return [piece.finish(ids) for ids in tokens.cpu().numpy()]

    def _filled(
        self,
        score: Score,
        keep: str | None,
        fill: str | None,
        count: int,
        rules: list[LogitsConstraint],
        options: SampleKeywords,
    ) -> list[Made]:
        """Return pieces of which a part is made anew by a model that was trained with infilling."""
        made = []
        for number in range(count):
            request = SampleRequest.of(1, **options)
            request = replace(request, seed=(request.seed or 0) + number)
            sample = partial(fill_part, self.model, self.settings, request, rules)
            window = self.settings.sequence_length
            made.append(self.tokenizer.fill(FillTask(score, keep, fill, sample, window)))
        return made

    def _read(self, given: GivenMidi, name: str, transpose_by: str | None) -> Score:
        """Return a given piece, transposed; `auto` moves it by octaves into the model's range."""
        score = read_midi(given, name)
        if transpose_by is None:
            return score
        pitch = score.notes.pitched.pitch
        low, high = int(pitch.min(initial=127)), int(pitch.max(initial=0))
        shift = octaves_into(low, high, *self.tokenizer.pitch_range)
        if transpose_by != "auto":
            shift = int(transpose_by)
        elif shift:
            LOG.warning("%s is transposed by %d semitones", score.name, shift)
        return transpose(score, shift)

    def decoder(self) -> Decoder | None:
        model = self.full_model
        if not isinstance(model, DecoderOnly) or model.reads_memory:
            return None
        return Decoder(model, self.settings.sequence_length)

    def attention(
        self,
        *,
        primer: str | Path | None = None,
        seconds: float = 12.0,
        seed: int = 0,
        at: float | None = None,
        layer: int | None = None,
        head: int | None = None,
    ) -> MusicAttention:
        """Return the attention weights with which one note of a piece is predicted.

        Arguments as in `MusicAttentionOptions`. Raises UserError for a layer, head or note that
        does not exist and for a primer that cannot be read.
        """
        self.needs_one_model("attention weights")
        sizes = self.settings.model.transformer
        check_layer_and_head(layer, head, n_layers=sizes.n_layers, n_heads=sizes.n_heads)
        model, settings = self.full_model, self.settings
        if primer is not None:
            tokens = self.tokenizer.prompt(read_midi(primer, "the primer")).ids
        else:
            self.check_melody()
            tokens = sample_pieces(model, settings, SampleRequest(seed=seed), seconds=seconds)[0]
            tokens = self.tokenizer.without_end(tokens)
        query = find_query(self.tokenizer, tokens, at)
        return note_attention(model, settings, tokens, query, layer=layer, head=head)

    def write_samples(self, options: MusicSampleOptions, out: OutputFolder) -> str:
        # A performance ends where the model or the seconds end it, mostly long before the most
        # events.
        progress = display("sampled tokens", at_most=self.tokenizer.end is not None)
        if options.given is not None:
            given = options.arguments_of(self.complete)
            pieces = self.complete(**given, constraints=options, progress=progress)
        else:
            given = options.arguments_of(self.sample)
            pieces = self.sample(**given, frame=options, constraints=options, progress=progress)
        synthesiser, has_bars = "", not self.tokenizer.by_seconds
        for index, made in enumerate(pieces):
            piece = made.only_new() if options.new_only else made
            name = f"piece-{index:02d}"
            synthesiser = write_piece(piece.score, out.path / name, piece.kept, score_too=has_bars)
        made_pieces = counted(options.count, "piece", "pieces")
        endings = ".mid, .wav, .png" + ", .musicxml" * has_bars
        return f"{made_pieces} ({endings}) in {out}; sound by {synthesiser}"

    def write_attention(self, options: MusicAttentionOptions, out: OutputFolder) -> str:
        drawn = self.attention(**options.arguments_of(self.attention))
        score = self.tokenizer.to_score(drawn.tokens)
        out.write(DRAWING, attention_png(drawn, score))
        out.write(PIECE, midi_bytes(score))
        window = drawn.tokens[drawn.first : drawn.query + 1]
        numbers = {
            **{name: getattr(drawn, name) for name in ("layer", "head", "query", "first")},
            "tokens": [self.tokenizer.symbols[token] for token in window],
            "seconds": drawn.seconds.tolist(),
            "weights": drawn.weights.tolist(),
            "heads": drawn.heads.tolist(),
        }
        out.write(NUMBERS, json_bytes(numbers))
        return (
            f"{DRAWING}, {NUMBERS} and {PIECE} in {out}: the note at {drawn.seconds[-1]:.2f} s, "
            f"token {drawn.query} of {len(drawn.tokens)}"
        )


restore = MusicModel.restore
