"""The console and the state of git, as wandb's files of an offline run have them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from toy_task import toy_run
from wandb_files import records_of

from triptych.training.run.checkpoint import code_commit

SCRIPT = Path(__file__).parent / "toy_script.py"


def run_in_terminal(folder: Path, **settings: object) -> tuple[int, str]:
    """Return the exit code of a run as a process, and what its terminal receives."""
    ours, its = pty.openpty()
    command = [sys.executable, str(SCRIPT), str(folder), json.dumps(settings), "--slow"]
    with subprocess.Popen(command, stdout=its, stderr=its, stdin=its) as process:
        os.close(its)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the other end is closed
            pass
        code = process.wait(timeout=60)
    os.close(ours)
    return code, shown.decode()


@pytest.mark.slow
@pytest.mark.parametrize("console", ["", "off"])
def test_the_console_is_recorded_without_its_progress(
    console: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if console:
        monkeypatch.setenv("WANDB_CONSOLE", console)
    folder = tmp_path / "toy"
    settings = {"max_steps": 20, "val_check_interval": 10, "enable_progress_bar": True}
    code, shown = run_in_terminal(folder, run={"wandb": "offline"}, **settings)
    assert code == 0, shown
    steps = re.findall(r"step \d+/20  loss", shown)
    assert len(steps) > 2, "a line that is rewritten"
    assert "wandb:" not in shown
    files = [*folder.glob("wandb/offline-run-*/files/output.log")]
    assert len(files) == (not console)
    if files:
        log = files[0].read_text(encoding="utf-8")
        assert re.findall(r"^validation at step (\d+): nats_per_token", log, re.M) == ["10", "20"]
        assert len(re.findall(r"step \d+/20  loss", log)) <= 1, log
        assert "\x1b" not in log


@pytest.mark.parametrize("user", ["", "me:SECRET@", "SECRET@", "SECRET:x-oauth-basic@"])
def test_the_commits_of_the_users_folder_and_of_the_code_are_there(
    user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the run may lie elsewhere."""
    mine = tmp_path / "mine"
    mine.mkdir()

    def git(*words: str) -> str:
        named = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        command = ["git", "-C", str(mine), *named, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    git("remote", "add", "origin", f"https://{user}example.org/a/b.git")
    monkeypatch.chdir(mine)
    toy_run(tmp_path / "runs" / "toy", run={"wandb": "offline"}, max_steps=1)
    import wandb

    wandb.teardown()
    (file,) = (tmp_path / "runs/toy").glob("wandb/offline-run-*/*.wandb")
    (run,) = [each.run for each in records_of(file) if each.WhichOneof("record_type") == "run"]
    assert run.git.commit == git("rev-parse", "HEAD")
    assert run.git.remote_url == "https://example.org/a/b.git"
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["commit"] == code_commit()
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not [path for path in written if b"SECRET" in path.read_bytes()]
