"""Domain of music: options of its commands and the files that they write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from triptych.domains.base import Domain, Report, Verb
from triptych.domains.files import OutputFolder, json_bytes
from triptych.domains.options import (
    AttentionOptions,
    EvaluateOptions,
    SampleOptions,
    at_least,
    check_seed,
    counted,
)

if TYPE_CHECKING:
    from triptych.domains.music.inference import MusicModel
    from triptych.training.data import FixedBatches, ResumableLoader
    from triptych.training.module import TrainingModule

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
        """Raise ValueError for numbers that define no window."""
        super().__post_init__()
        at_least(self, 1, "sequence_length", "bucket")
        at_least(self, 0, "overlap")

    def settings(self) -> dict[str, Any]:
        bucket = None if self.by_position is None else self.bucket
        return {"length": self.sequence_length, "context": self.overlap, "bucket": bucket}

    def result_files(self, result: dict[str, Any]) -> dict[str, bytes]:
        details = dict(result["details"])
        if (positions := details.pop("by_position", None)) is None:
            return {}
        return {"by_position": json_bytes({**positions, **result, "details": details})}


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
        """Raise ValueError for impossible values."""
        super().__post_init__()
        if self.seconds is not None and self.length is not None:
            raise ValueError("seconds and length were both given; expected one of them")
        for name in ("seconds", "length"):
            value = getattr(self, name)
            if value is not None and not value > 0:
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

    def __post_init__(self) -> None:
        """Raise ValueError for impossible values."""
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


def write_samples(
    model: MusicModel, options: MusicSampleOptions, out: OutputFolder, report: Report
) -> str:
    """Sample pieces and write each as MIDI, sound and piano roll."""
    from triptych.domains.music import render

    # A performance ends where the model or the seconds end it, mostly long before the most events.
    at_most = model.task.representation.end is not None
    pieces = model.sample(
        options.count,
        seconds=options.seconds,
        length=options.length,
        primer=options.primer,
        progress=report("sampled tokens", at_most=at_most),
        **options.settings(),
    )
    synthesiser = ""
    for index, piece in enumerate(pieces):
        path = out.path / f"piece-{index:02d}"
        render.write_midi(piece, path.with_suffix(".mid"))
        synthesiser = render.write_wav(piece, path.with_suffix(".wav"))
        render.write_piano_roll(piece, path.with_suffix(".png"))
    made = counted(options.count, "piece", "pieces")
    return f"{made} (.mid, .wav, .png) in {out}; sound by {synthesiser}"


def write_attention(
    model: MusicModel, options: MusicAttentionOptions, out: OutputFolder, report: Report
) -> str:
    """Write the attention weights that predicted one note of a piece."""
    from triptych.domains.music.attention import attend, check, query_at, tokens_of
    from triptych.domains.music.attention_picture import draw
    from triptych.domains.music.midi import midi_bytes

    task = model.task
    check(task, layer=options.layer, head=options.head)  # before a piece is sampled
    primer = None if options.primer is None else Path(options.primer)
    tokens = tokens_of(task, primer=primer, seconds=options.seconds, seed=options.seed)
    query = query_at(task, tokens, options.at)
    attended = attend(task, tokens, query, layer=options.layer, head=options.head)
    midi = task.representation.to_midi(tokens)
    out.write(DRAWING, draw(attended, midi))
    out.write(PIECE, midi_bytes(midi))
    vocabulary = task.representation.vocabulary
    numbers = {
        "layer": attended.layer,
        "head": attended.head,
        "query": attended.query,
        "first": attended.first,
        "tokens": [vocabulary[token] for token in tokens[attended.first : query + 1]],
        "seconds": attended.seconds.tolist(),
        "weights": attended.reads.tolist(),
        "heads": attended.heads.tolist(),
    }
    out.write_json(NUMBERS, numbers)
    return (
        f"{DRAWING}, {NUMBERS} and {PIECE} in {out}: the note at {attended.seconds[-1]:.2f} s, "
        f"token {query} of {len(tokens)}"
    )


class MusicDomain(Domain):
    """Music as sequences of events or of notes on a grid."""

    name: ClassVar[str] = "music"
    evaluate_options = MusicEvaluateOptions
    sample = Verb(MusicSampleOptions, "Sample pieces of music.", write_samples)
    attention = Verb(
        MusicAttentionOptions,
        "Draw the attention weights that predicted a note: arcs over the piano roll, and each head "
        "over time.",
        write_attention,
    )

    def config_class(self) -> type[Any]:
        from triptych.domains.music.task import Config

        return Config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        from triptych.domains.music.task import prepare

        return prepare(config, vocabulary)

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> MusicModel:
        from triptych.domains.music.inference import load

        return load(checkpoint, device=device)


DOMAIN = MusicDomain()
