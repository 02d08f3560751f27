"""Checkpoints are whole or not there, and wrong files are named in one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_task import ToyTask

from triptych.errors import SaveFailed, UserError
from triptych.files.results import remove_unfinished
from triptych.training.lightning_fixes import AtomicCheckpointIO
from triptych.training.run.checkpoint import FORMAT, StoredAs, header, read_checkpoint
from triptych.training.run.resume import check_run_folder


def content(value: float = 1.0, size: int = 10) -> dict[str, Any]:
    metadata = {"domain": "toy", "model": {}, "vocabulary": []}
    return {
        "state_dict": {"weight": torch.full((size,), value)},
        "triptych": header(metadata, seed=0, step=3, metrics={"nats": 1.5}),
    }


def test_round_trip_opens_with_weights_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.ckpt"
    AtomicCheckpointIO().save_checkpoint(content(), path)
    loaded = read_checkpoint(path)
    assert torch.equal(loaded["state_dict"]["weight"], torch.ones(10))
    assert loaded["triptych"]["step"] == 3
    assert set(loaded["triptych"]["versions"]) == {"triptych", "torch", "lightning", "python"}
    assert torch.load(path, weights_only=True)["triptych"] == loaded["triptych"]
    assert [item.name for item in path.parent.iterdir()] == ["a.ckpt"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_fault_in_the_middle_leaves_the_former_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ckpt"
    AtomicCheckpointIO().save_checkpoint(content(), path)
    before = path.read_bytes()

    def half(_: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(SaveFailed, match=r"a\.ckpt could not be written") as error:
        AtomicCheckpointIO().save_checkpoint(content(2.0), path)
    monkeypatch.undo()
    assert error.value.exit_code == 1
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["a.ckpt"]


KILLED = """
import sys, torch
from triptych.training.lightning_fixes import AtomicCheckpointIO
value, path = float(sys.argv[1]), sys.argv[2]
save = torch.save
def slow(content, file):
    file.write(b"PK half a file")
    file.flush()
    print("half", flush=True)
    import time
    time.sleep(60)
torch.save = slow
AtomicCheckpointIO().save_checkpoint({"state_dict": {}}, path)
"""


@pytest.mark.slow
def test_killed_process_leaves_the_former_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    AtomicCheckpointIO().save_checkpoint(content(), path)
    before = path.read_bytes()
    command = [sys.executable, "-c", KILLED, "2", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2, "the half-written file is beside it"
    remove_unfinished(tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == ["a.ckpt"]


def test_wrong_files_are_named_with_what_was_found_and_expected(tmp_path: Path) -> None:
    whole = tmp_path / "whole.ckpt"
    AtomicCheckpointIO().save_checkpoint(content(size=5000), whole)

    def cases() -> dict[str, str]:
        (tmp_path / "folder").mkdir()
        (tmp_path / "run" / "checkpoints").mkdir(parents=True)
        (tmp_path / "run" / "checkpoints" / "best.ckpt").touch()
        (tmp_path / "empty").touch()
        (tmp_path / "text").write_text("model: {}\n")
        (tmp_path / "short").write_bytes(whole.read_bytes()[:9000])
        torch.save({"state_dict": {}}, tmp_path / "foreign")
        torch.save([1, 2], tmp_path / "list")
        torch.save(ToyTask().model, tmp_path / "pickled")
        newer = content()
        newer["triptych"]["format"] = FORMAT + 1
        torch.save(newer, tmp_path / "newer")
        older = content()
        older["triptych"]["format"] = FORMAT - 1
        torch.save(older, tmp_path / "older")
        return {
            "missing": "No such file",
            "folder": "is a folder without config.json",
            "run": r"the folder of a run; did you mean .*run/checkpoints/best\.ckpt",
            "empty": "is no checkpoint, cut off or damaged",
            "text": "is no checkpoint, cut off or damaged",
            "short": r"cut off or damaged \(9,000 bytes",
            "foreign": "not written by Triptych",
            "list": "not written by Triptych",
            "pickled": "not written by Triptych",
            "newer": rf"format {FORMAT + 1}.*reads format {FORMAT};",
            "older": rf"format {FORMAT - 1}.*reads format {FORMAT};",
        }

    for name, sentence in cases().items():
        with pytest.raises(UserError, match=sentence) as error:
            read_checkpoint(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
        assert "\n" not in str(error.value)


def test_resume_auto_goes_on_where_there_is_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not check_run_folder(folder, resume="auto")
    folder.mkdir()
    (folder / "notes.txt").touch()
    with pytest.raises(UserError, match="is not empty"):
        check_run_folder(folder, resume="auto")
    (folder / "versions.json").touch()  # a run that was killed before its first checkpoint
    assert not check_run_folder(folder, resume="auto")
    with pytest.raises(UserError, match="is not empty"):
        check_run_folder(folder, resume=False)
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/best.ckpt").touch()
    assert check_run_folder(folder, resume="auto")
    with pytest.raises(UserError, match="holds a run already"):
        check_run_folder(folder, resume=False)


def test_a_tensor_is_read_from_the_parts_of_a_file() -> None:
    q, k, v = (torch.randn(8, 3) for _ in range(3))
    stored = {"q": q.mT, "k": k.mT, "v": v.mT, "table": q}
    halves = torch.tensor([0, 2, 1, 3, 4, 6, 5, 7])  # two heads of four features: i beside i + 2
    read = StoredAs(("q", "k", "v"), transposed=True, heads=2).read(stored)
    assert torch.equal(read, torch.cat([q[halves], k[halves], v]))
    assert torch.equal(StoredAs(("table",)).read(stored), q)
    assert torch.equal(StoredAs(("table",), row=1).read(stored), q[1])
