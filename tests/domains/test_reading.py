"""Files read by several processes: the results, their order, and the end of the processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from pretty import midi_bytes, new_midi
from starter_data import write_images

from triptych.config.schema import from_plain
from triptych.domains import find_domain
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.pictures.image_folder import ImageFolder
from triptych.errors import UserError
from triptych.files import reading
from triptych.files.progress import displayed_by
from triptych.files.reading import read_in_order

COUNT = 60


def square(number: int) -> tuple[int, int]:
    """The square of a number, later for some numbers than for the next ones."""
    time.sleep(0.002 * (number % 3))
    return number * number, os.getpid()


def refuse_some(number: int) -> int:
    if number % 40 == 30:
        raise UserError(f"file {number} is damaged")
    return number


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers from the second item on, which get one item at a time."""
    monkeypatch.setattr(reading, "ALONE_SECONDS", -1.0)
    monkeypatch.setattr(reading, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(reading, "available_cores", lambda: 3)


@pytest.fixture(params=["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def start_method(request: pytest.FixtureRequest) -> Iterator[str]:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(request.param, force=True)
    yield request.param
    multiprocessing.set_start_method(before, force=True)


def squares(count: int = COUNT) -> Any:
    return read_in_order(square, iter(range(count)), count=count, what="squares")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once", "start_method")
def test_workers_keep_the_order() -> None:
    results = list(squares())
    assert [result for result, _ in results] == [n * n for n in range(COUNT)]
    pids = {pid for _, pid in results}
    assert os.getpid() in pids, "this process reads first"
    assert len(pids) == 4
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once", "start_method")
@pytest.mark.parametrize("chunk_seconds", [0.0, 1e9])
def test_an_error_is_raised_in_its_turn(
    chunk_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_SECONDS", chunk_seconds)
    found: list[int] = []
    with pytest.raises(UserError) as error:
        found.extend(read_in_order(refuse_some, range(COUNT), count=COUNT, what="files"))
    assert str(error.value) == "file 30 is damaged"
    assert found == list(range(30))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("at_once")
def test_giving_up_ends_the_workers() -> None:
    with closing(squares()) as results:
        for _ in range(10):
            next(results)
        assert multiprocessing.active_children()
    assert not multiprocessing.active_children()


def test_few_files_need_no_workers_and_no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "worker_count", None)
    shown: list[tuple[int, int]] = []
    with displayed_by(lambda what, *, at_most=False: lambda *counts: shown.append(counts)):
        results = list(squares())
    assert {pid for _, pid in results} == {os.getpid()}
    assert not shown


@pytest.mark.usefixtures("at_once")
def test_the_display_counts_to_the_end() -> None:
    shown: list[tuple[int, int]] = []
    names: list[str] = []

    def factory(what: str, *, at_most: bool = False) -> Any:
        names.append(what)
        return lambda *counts: shown.append(counts)

    with displayed_by(factory):
        list(squares())
    assert names == ["squares"]
    assert shown == [(done, COUNT) for done in range(2, COUNT + 1)]
    with displayed_by(factory), closing(squares()) as results:
        for _ in range(7):
            next(results)
    assert shown[-1] == (7, 7), "its line ends where enough was read"


def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "available_cores", lambda: 12)

    def on(rank: int, world: int, most: int = 100) -> int:
        monkeypatch.setattr("triptych.files.reading.rank_and_world", lambda: (rank, world))
        return reading.worker_count(most)

    assert [on(0, 1), on(0, 4), on(1, 2), on(1, 4), on(1, 13)] == [12, 12, 12, 4, 0]
    assert [on(0, 1, most) for most in (1, 5)] == [0, 5]


SCRIPT = """
import multiprocessing, signal, time
from triptych.config.schema import from_plain
from triptych.domains import find_domain
from triptych.files import reading

def slow(number):
    time.sleep(0.05)

def items():
    for number in range(30):
        if number == 20:
            print(*(child.pid for child in multiprocessing.active_children()), flush=True)
            time.sleep(60)  # the workers wait
        yield number

if __name__ == "__main__":
    # A shell without job control starts background commands with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reading.ALONE_SECONDS, reading.available_cores = 0.1, lambda: 2
    for _ in reading.read_in_order(slow, items(), count=30, what="x"):
        pass
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_no_worker_outlives_an_interrupted_command(tmp_path: Path, signum: int) -> None:
    """Ctrl-C reaches all processes of the terminal; a kill the main process alone."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.5)
        if signum == signal.SIGINT:
            os.killpg(process.pid, signum)
        else:
            process.kill()
        process.wait(timeout=30)
        deadline = time.monotonic() + 10
        while any(map(is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [pid for pid in pids if is_running(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
        assert process.stderr.read().count("Traceback") == (signum == signal.SIGINT)


@pytest.fixture
def midi_folder(tmp_path: Path) -> Path:
    import pretty_midi

    for number in range(30):
        midi = new_midi()
        piano = pretty_midi.Instrument(program=0)
        piano.notes += [
            pretty_midi.Note(64, 40 + number, 0.1 * n, 0.1 * n + 1) for n in range(9 + 8 * number)
        ]
        midi.instruments.append(piano)
        (tmp_path / f"{number:02d}.mid").write_bytes(midi_bytes(midi))
    (tmp_path / "05-cut.mid").write_bytes(b"MThd nonsense")
    return tmp_path


def test_pieces_do_not_depend_on_workers(
    midi_folder: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit too counts pieces in the order of the names, whatever workers have read ahead."""
    sources = [MidiFolder(str(midi_folder), limit=limit) for limit in (None, 3)]

    def read() -> list[Any]:
        caplog.clear()
        pieces = [piece for source in sources for piece in source.load("train", EventTokenizer())]
        notes = [(piece.content.pitch.tolist(), piece.content.onset.tolist()) for piece in pieces]
        return [[piece.name for piece in pieces], notes, caplog.messages[:]]

    alone = read()
    assert len(alone[0]) > 20
    request.getfixturevalue("at_once")
    assert read() == alone


def equal(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    """A batch may lack a part, such as a melody."""
    return one is two if one is None or two is None else torch.equal(one, two)


def test_a_folder_packed_in_parts_gives_the_same_batches(
    midi_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece at five speeds, three pieces at a time."""
    monkeypatch.setattr("triptych.domains.music.data.CHUNK", 3)
    domain = find_domain("music")
    kind = "triptych.domains.music.sources.midi_folder.MidiFolder"
    source = {"class_path": kind, "init_args": {"directory": str(midi_folder)}}
    model = {
        "transformer": {"n_layers": 1, "d_model": 8, "n_heads": 1},
        "tokenizer": "EventTokenizer",
    }
    config = from_plain(domain.config_class(), {"data": {"source": source}, "model": model})
    domain.pack(config, str(tmp_path / "pack"))
    packed = replace(config, data=replace(config.data, packed=str(tmp_path / "pack")))
    loaders = [domain.prepare(settings)[1:] for settings in (config, packed)]
    for loader, other in zip(*loaders, strict=True):
        for _ in range(4):
            for one, two in zip(loader, other, strict=True):
                assert all(map(equal, one, two))


def test_images_do_not_depend_on_workers_and_parts(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        write_images(tmp_path / f"class{seed}", 20, (4, 6, 3), seed=seed)
    (tmp_path / "class0" / "cut.png").write_bytes(b"no image")
    source = ImageFolder(str(tmp_path), height=4, width=6)
    alone = source.load("train")
    monkeypatch.setattr("triptych.domains.pictures.image_folder.CHUNK", 7)
    request.getfixturevalue("at_once")
    parts = list(source.stream("train"))
    assert max(map(len, parts)) == 7
    for images in (source.load("train"), parts):
        every = [images] if not isinstance(images, list) else images
        for name in ("pixels", "labels"):
            joined = torch.cat([getattr(part, name) for part in every])
            assert torch.equal(joined, getattr(alone, name))


@pytest.mark.usefixtures("at_once")
def test_an_image_of_another_size_is_named_by_a_worker_too(tmp_path: Path) -> None:
    for number in range(20):
        Image.new("RGB", (6, 4), (number, 0, 0)).save(tmp_path / f"{number:02d}.png")
    Image.new("RGB", (9, 5)).save(tmp_path / "odd.png")
    for read in (lambda source: source.load("all"), lambda source: list(source.stream("all"))):
        with pytest.raises(UserError, match=r"odd\.png is 9 wide and 5 high.*expected 6 wide"):
            read(ImageFolder(str(tmp_path), height=4, width=6))
        assert not multiprocessing.active_children()
