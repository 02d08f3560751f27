"""`triptych attend music`: what a model read to predict one note, over a piano roll."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from triptych.cli.options import (
    check_checkpoint,
    check_file,
    check_output,
    open_model,
    read_options,
    write_json,
)
from triptych.cli.shared_options import AttendOptions
from triptych.training.files import write_whole
from triptych.training.run_settings import check_seed

PICTURE, NUMBERS, PIECE = "attention.png", "attention.json", "piece.mid"


@dataclass(frozen=True, kw_only=True)
class Options(AttendOptions):
    """Options of `triptych attend music`."""

    out: str
    """Folder for attention.png, attention.json and piece.mid; made where it is missing."""
    primer: str | None = None
    """MIDI file to read; null for a piece that the model samples."""
    seconds: float = 12.0
    """Length of the sampled piece, in seconds."""
    seed: int = 0
    """Seed of the sampled piece."""
    at: float | None = None
    """Draw what the first note from this time on was predicted from, in seconds; null for the last
    note of the piece."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot be."""
        super().__post_init__()
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"seconds must be above 0, got {self.seconds}")
        if self.at is not None and not 0 <= self.at < float("inf"):
            raise ValueError(f"at must be 0 seconds or more, got {self.at}")
        check_seed(self.seed)


def run(arguments: Sequence[str]) -> int:
    """Draw one note's reading; raises UserError for what a user got wrong."""
    options, flags = read_options(
        Options,
        arguments,
        prog="triptych attend music",
        description="Draw what a note was predicted from: arcs over the piano roll, and each "
        "head over time. Existing files are kept unless --overwrite is given.",
        flags={"overwrite": "Replace files of the same names in the output folder."},
    )
    path = check_checkpoint(options.checkpoint)
    primer = None
    if options.primer is not None:
        primer = check_file(options.primer, "primer", expected="a MIDI file")
    names = [PICTURE, NUMBERS, PIECE]
    out = check_output(options.out, names, overwrite="overwrite" in flags)

    model, _ = open_model(path, domain="music", device=options.device)

    from triptych.domains.music.attention import attend, check, query_at, tokens_of
    from triptych.domains.music.attention_picture import draw
    from triptych.domains.music.midi import midi_bytes

    task = model.task
    check(task, layer=options.layer, head=options.head)  # before a piece takes its time
    tokens = tokens_of(task, primer=primer, seconds=options.seconds, seed=options.seed)
    query = query_at(task, tokens, options.at)
    attended = attend(task, tokens, query, layer=options.layer, head=options.head)
    midi = task.representation.to_midi(tokens)
    write_whole(out / PICTURE, draw(attended, midi))
    write_whole(out / PIECE, midi_bytes(midi))
    symbols = task.representation.vocabulary
    write_json(
        out / NUMBERS,
        {
            "layer": attended.layer,
            "head": attended.head,
            "query": attended.query,
            "first": attended.first,
            "tokens": [symbols[token] for token in tokens[attended.first : query + 1]],
            "seconds": attended.seconds.tolist(),
            "reads": attended.reads.tolist(),
            "heads": attended.heads.tolist(),
        },
    )
    print(
        f"{PICTURE}, {NUMBERS} and {PIECE} in {out}: the note at {attended.seconds[-1]:.2f} s, "
        f"token {query} of {len(tokens)}",
        file=sys.stderr,
    )
    return 0
