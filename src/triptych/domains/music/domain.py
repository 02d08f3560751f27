"""Domain of music: the options of its commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from triptych.domains.base import Domain
from triptych.domains.files import json_bytes
from triptych.domains.options import AttentionOptions, EvaluateOptions, SampleOptions
from triptych.errors import at_least, check_seed

DRAWING, NUMBERS, PIECE = "attention.png", "attention.json", "piece.mid"


@dataclass(frozen=True, kw_only=True)
class MusicEvaluateOptions(EvaluateOptions):
    """Options of `triptych evaluate music`."""

    sequence_length: int | None = None
    """Length of the windows in tokens, which may be longer than in training; null for the model's
    own."""
    overlap: int | None = None
    """Least number of tokens of a window that precede the scored ones; 0 to score every position of
    every window, null for the model's own in proportion to the length."""
    by_position: str | None = None
    """File for the nats per token of each position in the window as JSON, which scripts/length_plot
    draws; an existing file is replaced."""
    bucket: int = 32
    """Number of positions that are averaged in that file."""

    replaced_files: ClassVar[tuple[str, ...]] = ("json", "by_position")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "sequence_length", "bucket")
        at_least(self, 0, "overlap")

    def result_files(self, result: dict[str, Any]) -> dict[str, bytes]:
        positions = result["details"].pop("by_position")
        return {"by_position": json_bytes({**positions, **result})}


@dataclass(frozen=True, kw_only=True)
class MusicSampleOptions(SampleOptions):
    """Options of `triptych sample music`."""

    out: str
    """Folder for one .mid, .wav and .png per piece; created if missing."""
    count: int = 2
    """Number of pieces."""
    primer: str | None = None
    """MIDI file to continue; null to begin a new piece."""
    seconds: float | None = None
    """Length of new music in seconds, without the primer; give this or length."""
    length: int | None = None
    """Length of new music in the model's own unit, 16th notes of chorales or events of
    performances; give this or seconds, or neither for 30 seconds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds is not None and self.length is not None:
            raise ValueError("seconds and length were both given; expected one of them")
        for name in ("seconds", "length"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0, got {value}")

    def input_files(self) -> dict[str, str]:
        return {"primer": "a MIDI file"}

    def output_names(self) -> list[str]:
        stems = [f"piece-{index:02d}" for index in range(self.count)]
        return [f"{stem}.{suffix}" for stem in stems for suffix in ("mid", "wav", "png")]


@dataclass(frozen=True, kw_only=True)
class MusicAttentionOptions(AttentionOptions):
    """Options of `triptych attention music`."""

    out: str
    """Folder for attention.png, attention.json and piece.mid; created if missing."""
    primer: str | None = None
    """MIDI file to read; null for a piece that the model samples."""
    seconds: float = 12.0
    """Length of the sampled piece, in seconds."""
    seed: int = 0
    """Seed of the sampled piece."""
    at: float | None = None
    """Time in seconds; the predicted note is the first one from then on, null for the last note of
    the piece."""

    description = (
        "Draw the attention weights that predicted a note: arcs over the piano roll, and each head "
        "over time."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"seconds must be above 0, got {self.seconds}")
        if self.at is not None and not 0 <= self.at < float("inf"):
            raise ValueError(f"at must be 0 seconds or more, got {self.at}")
        check_seed(self.seed)

    def input_files(self) -> dict[str, str]:
        return {"primer": "a MIDI file"}

    def output_names(self) -> list[str]:
        return [DRAWING, NUMBERS, PIECE]


class MusicDomain(Domain):
    """Music as sequences of events or of notes on a grid."""

    name = "music"
    evaluate_options = MusicEvaluateOptions
    sample_options = MusicSampleOptions
    attention_options = MusicAttentionOptions


DOMAIN = MusicDomain()
