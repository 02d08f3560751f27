"""`translate` answers while its input stays open; lines come in order, whatever their lengths."""

from __future__ import annotations

import io
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triptych.cli import translate as reading
from triptych.cli.translate import arriving_lines
from triptych.errors import UserError

PATIENCE = 120
"""Seconds until a command that says nothing counts as silent."""


@pytest.fixture
def translator(translation_checkpoint: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "triptych", "translate", "--device", "cpu", "--beam", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "--checkpoint", str(translation_checkpoint)],
        stdin=pipe, stdout=pipe, stderr=pipe,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def answers(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The next lines of the process; fails where it stays silent."""
    assert process.stdout is not None
    found = b""
    while found.count(b"\n") < count:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        assert ready, f"silent after {found!r}"
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        assert chunk, process.stderr.read() if process.stderr else b""
        found += chunk
    return found.split(b"\n")[:-1]


def test_a_line_is_answered_while_the_input_stays_open(
    cli: Any, translation_checkpoint: Path, translator: subprocess.Popen[bytes]
) -> None:
    said = []
    for written, count in ((b"seven\n", 1), (b"nine\n\ntwo hundred\nhalf", 3), (b" a line\n", 1)):
        assert translator.stdin is not None
        translator.stdin.write(written)
        translator.stdin.flush()
        found = answers(translator, count)
        assert len(found) == count
        said += found
    # The last line has no end.
    last, err = translator.communicate(b"six", timeout=PATIENCE)
    assert translator.returncode == 0, err
    whole = b"seven\nnine\n\ntwo hundred\nhalf a line\nsix"
    command = ["translate", "--device", "cpu", "--beam", 1, "--checkpoint", translation_checkpoint]
    expected = cli(*command, stdin=whole).out.encode().split(b"\n")[:-1]
    assert [*said, *last.split(b"\n")[:-1]] == expected
    assert b"6 of 6" in err


class Pipe(io.BytesIO):
    """A stream whose reads return one given part after the other."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__()
        self.parts = list(parts)

    def read1(self, size: int = -1, /) -> bytes:
        return self.parts.pop(0) if self.parts else b""


def batches(stream: Any, at_most: int = 100) -> list[list[str]]:
    return list(arriving_lines(stream, at_most, name="standard input"))


def test_a_pause_ends_a_batch_and_a_batch_has_a_largest_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = [b"\xef\xbb\xbfa\nb\r\nc", b"d\n", b"", b"never read"]
    assert batches(Pipe(*parts)) == [["a", "b", "cd"]]  # more is ready after every read
    assert batches(Pipe(*parts), 2) == [["a", "b"], ["cd"]]
    assert batches(Pipe(*parts), 1) == [["a"], ["b"], ["cd"]]
    monkeypatch.setattr(reading, "is_ready", lambda _: False)
    assert batches(Pipe(*parts)) == [["a", "b"], ["cd"]]
    assert batches(Pipe(b"a", b"b", b"\n\n", b"\xef\xbb\xbfc")) == [["ab", ""], ["\ufeffc"]]
    assert batches(Pipe()) == []


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_characters_may_be_cut_by_a_read(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "grüße\n여섯\r\n\u2028🎉\n\nend"
    content = text.encode()
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    for ready in (True, False):
        monkeypatch.setattr(reading, "is_ready", lambda _, ready=ready: ready)
        found = [line for batch in batches(Pipe(*parts), 2) for line in batch]
        assert found == ["grüße", "여섯", "\u2028🎉", "", "end"]


def test_a_line_that_is_not_utf_8_is_counted_from_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "is_ready", lambda _: False)
    with pytest.raises(UserError, match="standard input, line 4 is not UTF-8: byte 0xff"):
        batches(Pipe(b"a\nb\n", b"c\nd", b"\xff\ne\n"))
