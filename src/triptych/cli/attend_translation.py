"""`triptych attend translation`: which words a translation was read from, a picture a sentence."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triptych.cli.options import (
    at_least_one,
    check_checkpoint,
    check_file,
    check_output,
    counted,
    open_model,
    read_options,
    write_json,
)
from triptych.cli.shared_options import AttendOptions
from triptych.cli.translate import read_lines
from triptych.errors import UserError
from triptych.training.files import write_whole

NUMBERS = "attention.json"


@dataclass(frozen=True, kw_only=True)
class Options(AttendOptions):
    """Options of `triptych attend translation`."""

    out: str
    """Folder for one .png a sentence and the numbers in attention.json; made where it is
    missing."""
    input: str | None = None
    """Text file (UTF-8), a sentence a line; null for standard input."""
    encoder: bool = False
    """Draw what the encoder reads of its own sentence too, one more .png a sentence."""
    beam: int = 4
    """Hypotheses kept in beam search, 1 for greedy."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers below 1."""
        super().__post_init__()
        at_least_one(self, "beam")


def run(arguments: Sequence[str]) -> int:
    """Draw each sentence of the input; raises UserError for what a user got wrong."""
    options, flags = read_options(
        Options,
        arguments,
        prog="triptych attend translation",
        description="Translate lines and draw, for each, what was read of the source for every "
        "piece of the translation. Existing files are kept unless --overwrite is given.",
        flags={"overwrite": "Replace files of the same names in the output folder."},
    )
    overwrite = "overwrite" in flags
    path = check_checkpoint(options.checkpoint)
    source = None
    if options.input is not None:
        source = check_file(options.input, "input", expected="a text file, a sentence a line")
    check_output(options.out, [NUMBERS], overwrite=overwrite)
    # A wrong checkpoint is told before anybody has typed what should be translated.
    translator, _ = open_model(path, domain="translation", device=options.device)
    lines = sentences(source)
    names = {number: f"sentence-{number:03d}" for number in lines}
    pictures = [f"{stem}.png" for stem in names.values()]
    if options.encoder:
        pictures += [f"{stem}-encoder.png" for stem in names.values()]
    out = check_output(options.out, [NUMBERS, *pictures], overwrite=overwrite)

    from triptych.domains.translation.attention import attend_lines

    found = attend_lines(
        translator,
        list(lines.values()),
        beam=options.beam,
        layer=options.layer,
        head=options.head,
    )
    numbers = []
    for stem, attended in zip(names.values(), found, strict=True):
        if attended is None:
            continue
        drawn = draw(attended, encoder=options.encoder)
        for ending, picture in drawn.items():
            write_whole(out / f"{stem}{ending}.png", picture)
        numbers.append({"picture": f"{stem}.png", **asdict(attended)})
    write_json(out / NUMBERS, numbers)
    print(
        f"{counted(len(numbers), 'sentence', 'sentences')} (.png, {NUMBERS}) in {out}",
        file=sys.stderr,
    )
    return 0


def sentences(source: Path | None) -> dict[int, str]:
    """The lines that are not blank, by their number from 1; UserError where there is none."""
    if source is not None:
        try:
            stream, name = io.BytesIO(source.read_bytes()), str(source)
        except OSError as error:
            raise UserError(f"--input {source} cannot be read: {error.strerror}") from error
        lines = read_lines(stream, name=name)
    else:
        if sys.stdin.isatty():
            print("reading sentences from the terminal; end with Ctrl-D", file=sys.stderr)
        lines, name = read_lines(sys.stdin.buffer), "standard input"
    filled = {number: line for number, line in enumerate(lines, start=1) if line.strip()}
    if not filled:
        raise UserError(f"{name} has no sentence; expected at least one line with text")
    return filled


def draw(attended: Any, *, encoder: bool) -> dict[str, bytes]:
    """PNGs of one sentence by the end of their names; says which letters no font has."""
    from triptych.domains.translation.attention_picture import fonts_for, heat_map

    letters = set("".join([*attended.source_pieces, *attended.target_pieces]))
    families, missing = fonts_for(letters)
    if missing:
        print(
            f"no installed font has a letter for {' '.join(sorted(missing))}: boxes stand in the "
            "picture; a font such as Noto Sans CJK has most scripts",
            file=sys.stderr,
        )
    heads = "mean of all heads" if attended.head is None else f"head {attended.head}"
    where = f"layer {attended.layer}, {heads}"
    source, target = attended.source_pieces, attended.target_pieces
    pictures = {
        "": heat_map(
            attended.cross,
            target,
            source,
            title=f"cross-attention, {where}",
            reading="translation",
            read="source",
            families=families,
        )
    }
    if encoder:
        pictures["-encoder"] = heat_map(
            attended.encoder,
            source,
            source,
            title=f"the encoder's self-attention, {where}",
            reading="reading",
            read="read",
            families=families,
        )
    return pictures
