"""`triptych translate`: lines of standard input to lines of standard output, in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import BinaryIO

from triptych.cli.lines import arriving_lines
from triptych.cli.options import open_model, read_options
from triptych.cli.progress import ProgressLine
from triptych.domains.base import Domain, Translation

BATCHES_PER_PART = 16
"""Most batches of input that are translated before output is written: enough lines to sort by
length, and a large input shows output early."""


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Translate standard input; raises UserError, before a line is read where possible.

    Lines are translated as soon as the input pauses, so that the command answers in a pipe whose
    writer waits.
    """
    options, _ = read_options("translate", domain, arguments)
    settings = options.arguments()
    # The model is opened first: a wrong checkpoint is refused before anyone has typed a sentence.
    translator = open_model(domain, options)
    translator.translate([], **settings)  # refuses impossible settings before a line is read
    from triptych.training.devices import out_of_memory_advice

    # On a terminal the translations would stand between the parts of the line of progress.
    report = None if sys.stdout.isatty() else ProgressLine("translated lines")
    done, seconds = 0, 0.0
    size = options.batch_size * BATCHES_PER_PART
    for lines in arriving_lines(sys.stdin.buffer, size, name="standard input"):

        def show(part: int, whole: int, /, before: int = done, count: int = len(lines)) -> None:
            if report is not None and part < whole:  # the last line counts once it is written
                report(before + count * part // whole, 0)

        started = time.perf_counter()
        with out_of_memory_advice("lower --batch_size or --beam"):
            found = translator.translate(lines, progress=show, **settings)
        seconds += time.perf_counter() - started
        write_lines(sys.stdout.buffer, found, n_best=options.n_best, first=done + 1)
        done += len(lines)
        if report is not None:
            report(done, 0)
    if done:
        if report is not None:
            report(done, done)
        print(
            f"{done / seconds:,.1f} sentences/s, "
            f"{translator.tokens_written / seconds:,.0f} tokens/s "
            f"(beam {options.beam}, dtype {options.dtype})",
            file=sys.stderr,
        )
    return 0


def write_lines(
    stream: BinaryIO,
    found: Sequence[str | Sequence[str] | Sequence[Translation]],
    *,
    n_best: int,
    first: int = 1,
) -> None:
    """Write exactly n_best lines for each input line; empty ones follow if there are fewer.

    Of a `Translation` its line has the number of the input line (counted from `first`), the rank,
    score, log p and text, separated by tabs; nothing stands for translations that are missing.
    """
    for number, texts in enumerate(found, start=first):
        best = [texts] if isinstance(texts, str) else list(texts)
        scored = any(isinstance(one, Translation) for one in best)
        for rank, one in enumerate(best if scored else (best + [""] * n_best)[:n_best], start=1):
            text = str(one)
            if isinstance(one, Translation):
                figures = (str(number), str(rank), f"{one.score:.4f}", f"{one.log_probability:.4f}")
                text = "\t".join([*figures, one.text])
            stream.write(text.encode("utf-8") + b"\n")
    stream.flush()
