"""Domain of music: the options of its commands."""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from triptych.domains.base import Domain
from triptych.domains.music.conditions import ConstraintOptions, FrameOptions
from triptych.domains.options import (
    AttentionOptions,
    AverageOptions,
    DynamicScoreRequest,
    EvaluateOptions,
    NewRunOptions,
    SampleOptions,
)
from triptych.files.results import json_bytes
from triptych.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Seed

DRAWING, NUMBERS, PIECE = "attention.png", "attention.json", "piece.mid"
FRAME = ("bars", "tempo", "meter", "key")
CONFLICTS = {
    "length": ("seconds", "bars"),
    "seconds": ("bars",),
    "keep": ("fill",),
    "primer": (*FRAME, "chords"),
    "melody": ("primer", "seconds", "length", *FRAME, "chords"),
    "given": ("primer", "melody", "seconds", "length", *FRAME),
}
"""Option of `triptych sample music` -> options that cannot be given with it."""


@dataclass(frozen=True, kw_only=True)
class MusicScoreRequest(DynamicScoreRequest):
    """What to score of a model of music, and in which windows."""

    sequence_length: PositiveInt | None = None
    """Length of the windows in tokens, which may be longer than in training; null for the model's
    own."""
    overlap: NonNegativeInt | None = None
    """Least number of tokens of a window that precede the scored ones; 0 to score every position of
    every window, null for the model's own in proportion to the length."""
    bucket: PositiveInt = 32
    """Number of positions in the window whose nats per token are averaged, for by_position."""
    orders: PositiveInt = 1
    """Number of orders of the voices: the probability of a step is the mean over that of the voices
    in so many orders, for models that were trained with model.voice_orders; 1 for the highest voice
    first."""
    statistics: NonNegativeInt = 0
    """Number of pieces to sample, whose musical statistics and longest runs shared with training
    pieces are reported next to those of the split; 0 for no such report."""
    sample_length: PositiveInt | None = None
    """Length of those samples in the model's own unit, 16th notes of chorales, events of
    performances or tokens of several instruments, to which the pieces of the split are cut too;
    null for whole pieces, and samples of their median length."""
    seed: Seed = 0
    """Seed of those samples."""
    fill: str | None = None
    """Bars and tracks that are made anew, such as bars:9-16: reports the nats per note of these
    given both sides, and given their past alone, for models that were trained with
    data.infilling_share; null for no such report."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_length is not None and not self.statistics:
            raise ValueError("sample_length is given without a number of samples as statistics")


@dataclass(frozen=True, kw_only=True)
class TranspositionOptions(AverageOptions):
    """Options of commands that use the mean of a model's probabilities over transpositions."""

    transpositions: NonNegativeInt = 0
    """Most semitones N of the transpositions: the probabilities are the mean over those of the
    music transposed by -N to N semitones; 0 for the music as it is."""

    def symmetries(self) -> dict[str, int]:
        return {"transpositions": self.transpositions} if self.transpositions else {}


@dataclass(frozen=True, kw_only=True)
class MusicEvaluateOptions(MusicScoreRequest, TranspositionOptions, EvaluateOptions):
    """Score a model of music on a split of its data."""

    by_position: str | None = None
    """File for the nats per token of each position in the window as JSON, which scripts/length_plot
    draws; an existing file is replaced."""
    replaced_files: ClassVar[tuple[str, ...]] = ("json", "by_position")

    def result_files(self, result: dict[str, Any]) -> dict[str, bytes]:
        positions = result["details"].pop("by_position")
        return {"by_position": json_bytes({**positions, **result})}

    def report(self, result: dict[str, Any]) -> list[str]:
        lines = []
        if self.fill is not None:
            given = result["details"]["completion"]
            lines.append(
                f"nats per note of the {given['free_notes']} notes of {self.fill} in "
                f"{given['pieces']} pieces, by what is known:"
            )
            lines += [f"  {name:<12}{value:.4f}" for name, value in given["nats_per_note"].items()]
        if self.statistics:
            from triptych.domains.music.statistics import text_lines

            lines += text_lines(result["details"])
        return lines


@dataclass(frozen=True, kw_only=True)
class MusicSampleOptions(TranspositionOptions, SampleOptions, ConstraintOptions, FrameOptions):
    """Sample pieces of music, also from given notes."""

    out: str
    """Folder for one .mid, .wav and .png per piece, and a .musicxml where the music has bars;
    created if missing."""
    primer: str | None = None
    """MIDI file or score to continue, whose notes come back as they are; null for a new piece."""
    primer_bars: PositiveInt | None = None
    """Number of bars of the primer that are continued; null for all."""
    melody: str | None = None
    """MIDI file or score whose melody the pieces accompany, in its length: its highest notes, or
    the soprano of a chorale; for models that were trained with model.melody, which need one."""
    seconds: PositiveFloat | None = None
    """Length of new music in seconds, from the end of the primer; give this or length."""
    length: PositiveInt | None = None
    """Length of new music in the model's own unit, 16th notes of chorales, events of performances
    or tokens of several instruments; give this or seconds, or neither for 30 seconds."""
    given: str | None = None
    """MIDI file or score of which a part is kept and the rest is sampled, in its length; null for
    none. For chorales, and for models that were trained with data.infilling_share."""
    keep: str | None = None
    """What is kept of the given file: voices such as soprano or alto,tenor, tracks by name or
    number such as track:Piano, and bars of the file such as bars:1-4, separated by commas. Kept
    notes come back as they are."""
    fill: str | None = None
    """What is made anew of the given file, in place of keep: bars, voices or tracks as in keep;
    bars and tracks together are these tracks in these bars, as bars:5-8,track:Drums."""
    melody_track: str | None = None
    """Name or number of the track that is the melody of given or melody; null for the track that is
    named as a melody, else the highest notes."""
    transpose: str | None = None
    """Semitones by which given, primer or melody is moved, or auto for octaves into the range of
    the model; null for none."""
    new_only: bool = False
    """Write the new notes alone, without those of primer and given."""
    particles: PositiveInt = 16
    """Copies of each piece that are sampled with given notes, of which the ones that fit the kept
    notes survive; 1 for notes that depend on the kept ones before them alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        part = self.fill if self.keep is None else self.keep
        if (self.given is None) != (part is None):
            raise ValueError(
                "given names a MIDI file, keep what is kept of it, fill what is made anew: "
                "expected given with one of the others"
            )
        if self.primer_bars is not None and self.primer is None:
            raise ValueError("primer_bars is given without a primer")
        if self.melody_track is not None and self.given is self.melody is None:
            raise ValueError("melody_track is given without given or melody")
        if self.transpose not in (None, "auto") and not re.fullmatch(
            r"[+-]?\d{1,2}", self.transpose
        ):
            raise ValueError(f"transpose is {self.transpose!r}; expected semitones or auto")
        if self.given is not None and self.temperature == 0:
            raise ValueError("temperature must be above 0 with given notes, got 0")
        for name, others in CONFLICTS.items():
            for other in others:
                if getattr(self, name) is not None and getattr(self, other) is not None:
                    raise ValueError(f"{other} and {name} were both given; expected one of them")

    def input_files(self) -> dict[str, str]:
        return dict.fromkeys(("primer", "given", "melody"), "a MIDI file or a score")

    def output_names(self) -> list[str]:
        endings = (".mid", ".wav", ".png", ".musicxml")
        return [f"piece-{index:02d}{end}" for index in range(self.count) for end in endings]


@dataclass(frozen=True, kw_only=True)
class MusicAttentionOptions(AttentionOptions):
    """Draw the attention weights that predicted a note.

    They are drawn as arcs over the piano roll, and for each head over time.
    """

    out: str
    """Folder for attention.png, attention.json and piece.mid; created if missing."""
    primer: str | None = None
    """MIDI file to read; null for a piece that the model samples."""
    seconds: PositiveFloat = 12.0
    """Length of the sampled piece, in seconds."""
    seed: Seed = 0
    """Seed of the sampled piece."""
    at: NonNegativeFloat | None = None
    """Time in seconds; the predicted note is the first one from then on, null for the last note of
    the piece."""

    def input_files(self) -> dict[str, str]:
        return {"primer": "a MIDI file or a score"}

    def output_names(self) -> list[str]:
        return [DRAWING, NUMBERS, PIECE]


class MusicDomain(Domain):
    """Music as sequences of events or of notes on a grid."""

    name = "music"
    packing = "triptych.domains.music.data"
    evaluate_options = MusicEvaluateOptions
    sample_options = MusicSampleOptions
    attention_options = MusicAttentionOptions
    new_run_options = NewRunOptions
    description = "triptych.tools.new_run.music"
    page = "triptych.tools.play.music"
    service = "triptych.tools.serve.services:music"
    piece_files = MappingProxyType({".mid": "triptych.domains.music.midi:read_piece"})
    limits = "Music of another kind than its data, and long form: its context is one window."


DOMAIN = MusicDomain()
