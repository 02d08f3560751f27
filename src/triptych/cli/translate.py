"""`triptych translate`: lines on standard input to lines on standard output, n in and n out."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from triptych.cli.options import (
    ProgressOnStderr,
    at_least_one,
    check_checkpoint,
    open_model,
    read_options,
)
from triptych.cli.shared_options import Dtype
from triptych.errors import UserError

# Lines are handed over in runs of this many batches: enough to sort by length, and output starts
# to flow long before a large input is done.
_BATCHES_AT_ONCE = 16


@dataclass(frozen=True)
class Options:
    """Options of `triptych translate`."""

    checkpoint: str
    """Checkpoint file of a translation model (.ckpt), or pretrained:NAME."""
    beam: int = 4
    """Hypotheses kept in beam search, 1 for greedy."""
    n_best: int = 1
    """Translations written for each line, best first, each on a line of its own; at most beam."""
    batch_size: int = 64
    """Sentences translated at a time; with dtype fp32 the text does not depend on it."""
    length_penalty: str = "gnmt:0.6"
    """Divisor of a hypothesis's log-probability: 0 (none), 1 (average: its length in tokens) or
    gnmt:ALPHA, ((5 + length) / 6)^ALPHA."""
    dtype: Dtype = "fp32"
    """Precision of the model: bf16 is faster with hardware for it, int8 on a CPU."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that make no search."""
        at_least_one(self, "beam", "n_best", "batch_size")
        if self.n_best > self.beam:
            raise ValueError(f"n_best ({self.n_best}) must not be larger than beam ({self.beam})")


def run(arguments: Sequence[str]) -> int:
    """Translate standard input; raises UserError before a line is read where it can."""
    options, _ = read_options(
        Options,
        arguments,
        prog="triptych translate",
        description="Translate lines (UTF-8) from standard input to standard output, in order.",
    )
    path = check_checkpoint(options.checkpoint)
    # A wrong checkpoint is told before anybody has typed or computed what should be translated.
    translator, _ = open_model(path, domain="translation", device=options.device)
    translator = translator.with_dtype(options.dtype)
    search = {
        "beam": options.beam,
        "n_best": options.n_best,
        "batch_size": options.batch_size,
        "length_penalty": options.length_penalty,
    }
    translator.translate([], **search)  # an impossible search ends here, before lines are read
    if sys.stdin.isatty():
        print("reading sentences from the terminal; end with Ctrl-D", file=sys.stderr)
    lines = read_lines(sys.stdin.buffer)
    report = ProgressOnStderr("translated lines")
    run_length = options.batch_size * _BATCHES_AT_ONCE
    seconds = 0.0
    for start in range(0, len(lines), run_length):
        part = lines[start : start + run_length]

        def show(done: int, of_part: int, before: int = start) -> None:
            if done < of_part:  # the end of a part is told when it has been written
                report(before + done, len(lines))

        started = time.perf_counter()
        found = translator.translate(part, progress=show, **search)
        seconds += time.perf_counter() - started
        write_lines(sys.stdout.buffer, found, n_best=options.n_best)
        report(start + len(part), len(lines))
    if lines:
        print(
            f"{len(lines) / seconds:,.1f} sentences/s, "
            f"{translator.tokens_written / seconds:,.0f} tokens/s "
            f"(beam {options.beam}, dtype {options.dtype})",
            file=sys.stderr,
        )
    return 0


def read_lines(stream: BinaryIO, *, name: str = "standard input") -> list[str]:
    r"""Every line of a UTF-8 stream, split on `\n` only, without `\r` at its end or a first BOM.

    Text has more line ends than `\n` (U+2028, form feed ...) that Python's own line splitting
    takes too; a sentence with one in it would come out as two. A last line without a line end
    counts. name: what messages call the stream. Raises UserError naming the line that is not UTF-8.
    """
    pieces = stream.read().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if pieces[-1] == b"":
        pieces.pop()
    lines = []
    for number, piece in enumerate(pieces, start=1):
        try:
            lines.append(piece.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number} is not UTF-8: byte {piece[error.start]:#04x} at "
                f"position {error.start + 1} of the line"
            ) from None
    return lines


def write_lines(stream: BinaryIO, found: Sequence[str | Sequence[str]], *, n_best: int) -> None:
    """Write n_best lines for each input line, filled up with empty ones, whatever the text."""
    for texts in found:
        best = [texts] if isinstance(texts, str) else list(texts)
        for text in (best + [""] * n_best)[:n_best]:
            stream.write(text.replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n")
    stream.flush()
