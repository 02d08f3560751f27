"""A trained music model in use: sample, continue, fill in, and show its attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.constraints import ByPriority
from triptych.decoding.sampling import Given, SampleKeywords, SampleRequest, Sampling
from triptych.domains.base import Decoder
from triptych.domains.music.attention import (
    MusicAttention,
    attention_png,
    find_query,
    note_attention,
)
from triptych.domains.music.constraints import ConstraintOptions
from triptych.domains.music.domain import (
    DRAWING,
    NUMBERS,
    PIECE,
    SIMILARITY,
    MusicAttentionOptions,
    MusicSampleOptions,
)
from triptych.domains.music.evaluation import MusicEvaluation
from triptych.domains.music.generation import complete_tokens, sample_pieces
from triptych.domains.music.midi import GivenMidi, midi_bytes, read_midi, write_piece
from triptych.domains.music.notes import Ids
from triptych.domains.music.statistics import self_similarity_png
from triptych.domains.options import check_layer_and_head, counted
from triptych.files.results import OutputFolder, json_bytes
from triptych.training.engine.devices import device_of
from triptych.types import Progress, ProgressFactory

if TYPE_CHECKING:
    import pretty_midi

DEFAULT_SECONDS = 30.0
"""Length of sampled music where neither seconds nor length is given."""


class MusicModel(MusicEvaluation):
    """A trained music model."""

    def sample(
        self,
        count: int,
        *,
        seconds: float | None = None,
        length: int | None = None,
        primer: GivenMidi | None = None,
        melody: GivenMidi | None = None,
        constraints: ConstraintOptions | None = None,
        **options: Unpack[SampleKeywords],
    ) -> list[pretty_midi.PrettyMIDI]:
        """Sample pieces, or continuations that begin with the primer itself.

        Arguments as in `MusicSampleOptions`; options: see `SampleKeywords`. A performance may end
        before its length, where the model ends it. The primer comes back as the tokenizer writes
        it: performances on the grid of 10 ms with the pedal applied, chorales on a grid of
        sixteenths of the file's tempo. progress: called with (tokens sampled, largest number).
        Raises UserError for a file that cannot be read, for constraints that its music does not
        have, for a melody where the model has no encoder and for no melody where it has one.
        """
        rules = [] if constraints is None else self.tokenizer.constraints(constraints)
        self.check_melody(given=melody is not None)
        given = None
        if melody is not None and (reader := self.settings.window_melody) is not None:
            given = reader.of_score(read_midi(melody, "the melody"))
            steps = len(given) / reader.tokenizer.melody_step
            seconds, length = steps * reader.tokenizer.seconds_per_melody_step, None
        if seconds is None and length is None:
            seconds = DEFAULT_SECONDS
        pieces = sample_pieces(
            self.model,
            self.settings,
            SampleRequest.of(count, **options),
            seconds=seconds,
            length=length,
            prompt=None if primer is None else self._prompt(primer),
            constraints=rules,
            melody=given,
        )
        return [self.tokenizer.to_midi(ids) for ids in pieces]

    def complete(
        self,
        given: GivenMidi,
        keep: str,
        count: int = 1,
        *,
        particles: int = 16,
        seed: int = 0,
        temperature: float = 1.0,
        constraints: ConstraintOptions | None = None,
        progress: Progress | None = None,
    ) -> list[pretty_midi.PrettyMIDI]:
        """Keep some voices or bars of a piece and sample the rest; for chorales.

        Arguments as in `MusicSampleOptions`. progress: called with (tokens sampled, their number).
        Raises UserError for a file that cannot be read and for voices and bars that it lacks.
        """
        self.check_melody()
        rules = [] if constraints is None else self.tokenizer.constraints(constraints)
        if (grammar := self.tokenizer.grammar(count, seconds=None, n_prompt=0)) is not None:
            rules = [grammar, *rules]
        piece = self.tokenizer.given(read_midi(given, "the given piece"), keep)
        device = device_of(self.full_model)
        parts = (torch.from_numpy(part).to(device) for part in (piece.ids, piece.known))
        tokens = complete_tokens(
            self.model,
            SampleRequest(
                given=Given(*(part.expand(count, -1) for part in parts)),
                sampling=Sampling(temperature=temperature),
                seed=seed,
                constraint=ByPriority(rules) if rules else None,
                progress=progress,
            ),
            self.settings,
            particles=particles,
        )
        return [piece.to_midi(ids) for ids in tokens.cpu().numpy()]

    def decoder(self) -> Decoder | None:
        model = self.full_model
        if not isinstance(model, DecoderOnly) or model.reads_memory:
            return None
        return Decoder(model, self.settings.sequence_length)

    def _prompt(self, primer: GivenMidi) -> Ids:
        """Return the tokens of a MIDI file or of a piece in memory."""
        return self.tokenizer.encode(self.tokenizer.from_midi(read_midi(primer, "the primer")))

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
            tokens = self._prompt(primer)
        else:
            self.check_melody()
            tokens = sample_pieces(model, settings, SampleRequest(seed=seed), seconds=seconds)[0]
            tokens = self.tokenizer.without_end(tokens)
        query = find_query(self.tokenizer, tokens, at)
        return note_attention(model, settings, tokens, query, layer=layer, head=head)

    def write_samples(
        self, options: MusicSampleOptions, out: OutputFolder, report: ProgressFactory
    ) -> str:
        # A performance ends where the model or the seconds end it, mostly long before the most
        # events.
        progress = report("sampled tokens", at_most=self.tokenizer.end is not None)
        make: Callable[..., list[Any]] = self.sample if options.given is None else self.complete
        pieces = make(**options.arguments_of(make), constraints=options, progress=progress)
        is_kept = None
        if options.given is not None and options.keep is not None:
            is_kept = self.tokenizer.given(read_midi(options.given), options.keep).is_kept
        synthesiser = ""
        for index, piece in enumerate(pieces):
            name = f"piece-{index:02d}"
            synthesiser = write_piece(piece, out.path / name, is_kept)
            if options.self_similarity:
                out.write(f"{name}{SIMILARITY}", self_similarity_png(piece, self.tokenizer))
        made = counted(options.count, "piece", "pieces")
        return f"{made} (.mid, .wav, .png) in {out}; sound by {synthesiser}"

    def write_attention(
        self, options: MusicAttentionOptions, out: OutputFolder, report: ProgressFactory
    ) -> str:
        drawn = self.attention(**options.arguments_of(self.attention))
        midi = self.tokenizer.to_midi(drawn.tokens)
        out.write(DRAWING, attention_png(drawn, midi))
        out.write(PIECE, midi_bytes(midi))
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
