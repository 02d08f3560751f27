"""`triptych translate`: lines of standard input to lines of standard output, in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import BinaryIO

from triptych.cli.options import open_model, read_options
from triptych.cli.progress import ProgressLine
from triptych.domains.base import Domain
from triptych.domains.files import read_input_lines

BATCHES_PER_PART = 16
"""Batches of input that are translated before output is written: enough lines to sort by length,
and a large input shows output early."""


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Translate standard input; raises UserError, before a line is read where possible."""
    options, _ = read_options("translate", domain, arguments)
    names = ("beam", "n_best", "batch_size", "length_penalty")
    settings = {name: getattr(options, name) for name in names}
    # The model is opened first: a wrong checkpoint is refused before anyone has typed a sentence.
    translator = open_model(domain, options)
    translator.translate([], **settings)  # refuses impossible settings before a line is read
    lines = read_input_lines(None)
    from triptych.training.devices import out_of_memory_advice

    report = ProgressLine("translated lines")
    size = options.batch_size * BATCHES_PER_PART
    seconds = 0.0
    for start in range(0, len(lines), size):
        part = lines[start : start + size]

        def show(done: int, of_part: int, /, before: int = start) -> None:
            if done < of_part:  # the last line of a part counts once it has been written
                report(before + done, len(lines))

        started = time.perf_counter()
        with out_of_memory_advice("lower --batch_size or --beam"):
            found = translator.translate(part, progress=show, **settings)
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


def write_lines(stream: BinaryIO, found: Sequence[str | Sequence[str]], *, n_best: int) -> None:
    """Write exactly n_best lines for each input line; empty ones follow if there are fewer."""
    for texts in found:
        best = [texts] if isinstance(texts, str) else list(texts)
        for text in (best + [""] * n_best)[:n_best]:
            stream.write(text.encode("utf-8") + b"\n")
    stream.flush()
