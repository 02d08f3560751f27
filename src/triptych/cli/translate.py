"""`triptych translate`: lines of standard input to lines of standard output, in order."""

import select
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from triptych.cli.models import open_model, shared_work
from triptych.domains.base import AlignedText, Domain, Translation
from triptych.files.lines import split_lines
from triptych.files.progress import ProgressLine
from triptych.files.results import check_result_file, write_atomically
from triptych.types import Progress

BATCHES_PER_PART = 16
"""Most batches of input that are translated before output is written: enough lines to sort by
length, and a large input shows output early."""
CHUNK = 1 << 16
"""Bytes of one read: the capacity of a pipe on Linux."""


def run(domain: Domain, options: Any) -> None:
    """Translate standard input whenever it pauses; raises UserError, early where possible."""
    with shared_work(options) as of_process:
        translate(domain, of_process)


def translate(domain: Domain, options: Any) -> None:
    """Translate in one process, which may share the work with others."""
    settings = options.arguments()
    out = None
    if (document := getattr(options, "document", None)) is not None:
        out = check_result_file(options.out, "out", replaces=options.overwrite)
    # The model is opened first: a wrong checkpoint is refused before anyone has typed a sentence.
    translator: Any = open_model(domain, options)
    translator.translate([], **settings)  # refuses impossible settings before a line is read
    from triptych.decoding.ranks import same_on_all, share
    from triptych.training.engine.devices import out_of_memory_advice

    if document is not None and out is not None:
        from triptych.tools.translation.documents import translate_document

        with out_of_memory_advice("lower --batch_size or --beam"):
            content, sentence = translate_document(translator, document, **settings)
        if not share()[0]:
            write_atomically(out, content)
            print(f"{out}: {sentence}", file=sys.stderr)
        return
    # On a terminal the translations would stand between the parts of the line of progress.
    line = ProgressLine("translated lines")
    report: Progress = (lambda done, total: None) if sys.stdout.isatty() else line
    done, seconds = 0, 0.0
    size = options.batch_size * BATCHES_PER_PART
    for lines in same_on_all(arriving_lines(sys.stdin.buffer, size, name="standard input")):

        def show(part: int, whole: int, /, before: int = done, count: int = len(lines)) -> None:
            if part < whole:  # the last line counts once it is written
                report(before + count * part // whole, 0)

        started = time.perf_counter()
        with out_of_memory_advice("lower --batch_size or --beam"):
            translations = translator.translate(lines, progress=show, **settings)
        seconds += time.perf_counter() - started
        write_lines(sys.stdout.buffer, translations, n_best=options.n_best, first=done + 1)
        done += len(lines)
        report(done, 0)
    if done:
        report(done, done)
        print(
            f"{done / seconds:,.1f} sentences/s (beam {options.beam}, dtype {options.dtype})",
            file=sys.stderr,
        )


def arriving_lines(stream: BinaryIO, at_most: int, *, name: str) -> Iterator[list[str]]:
    """Yield lists of 1 to `at_most` lines as `split_lines`, as soon as the input pauses.

    The last line needs no end. name: of the stream. UserError for a line that is not UTF-8.
    """
    if stream.isatty():
        print("reading lines from the terminal; end with Ctrl-D", file=sys.stderr)
    waiting: list[str] = []
    unfinished = b""
    n_read = 0  # lines
    open_ = True
    while open_:
        chunk: bytes = stream.read1(CHUNK)  # type: ignore[attr-defined]
        open_ = bool(chunk)
        unfinished += chunk
        end = unfinished.rfind(b"\n") + 1 if open_ else len(unfinished)
        if end:
            lines = split_lines(unfinished[:end], name=name, first=n_read + 1)
            n_read += len(lines)
            waiting += lines
            unfinished = unfinished[end:]
        while len(waiting) >= at_most:
            yield waiting[:at_most]
            waiting = waiting[at_most:]
        if waiting and not (open_ and is_ready(stream)):
            yield waiting
            waiting = []


def is_ready(stream: BinaryIO) -> bool:
    """Whether a read would return at once; True in memory and for a pipe on Windows."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def write_lines(
    stream: BinaryIO,
    translations: Sequence[str | AlignedText | Sequence[str] | Sequence[Translation]],
    *,
    n_best: int,
    first: int = 1,
) -> None:
    """Write exactly n_best lines for each input line; empty ones follow if there are fewer.

    Of an `AlignedText` its line has the text, a tab and the pairs. Of a `Translation` its line has
    the number of the input line (counted from `first`), the rank, score, log p and text, separated
    by tabs; nothing stands for translations that are missing.
    """
    for number, texts in enumerate(translations, start=first):
        if isinstance(texts, AlignedText):
            texts = f"{texts.text}\t{' '.join(f'{i}-{j}' for i, j in texts.pairs)}"
        best = [texts] if isinstance(texts, str) else list(texts)
        scored = any(isinstance(one, Translation) for one in best)
        for rank, one in enumerate(best if scored else (best + [""] * n_best)[:n_best], start=1):
            text = str(one)
            if isinstance(one, Translation):
                figures = (str(number), str(rank), f"{one.score:.4f}", f"{one.log_probability:.4f}")
                text = "\t".join([*figures, one.text])
            stream.write(text.encode("utf-8") + b"\n")
    stream.flush()
