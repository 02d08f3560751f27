"""Lines of a stream in batches that are ready at once, while the stream stays open."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from typing import BinaryIO

from triptych.domains.files import split_lines

CHUNK = 1 << 16
"""Bytes of one read: the capacity of a pipe on Linux."""


def arriving_lines(stream: BinaryIO, at_most: int, *, name: str) -> Iterator[list[str]]:
    """Yield the lines of UTF-8 text in order, as soon as the input pauses, `at_most` at a time.

    A list is never empty. It is yielded when it has `at_most` lines, or when no further byte can be
    read at once. A line counts once its end was read; the last one needs no end. Lines are split as
    by `split_lines`. name: what errors call the stream. Raises UserError for a line that is not
    UTF-8.
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
    """Whether a read would return at once, from a buffer that is empty.

    True where that cannot be known: in memory, and for a pipe on Windows.
    """
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):
        return True
