"""scripts/curves draws a metric of runs over the minutes or the steps of their training."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/curves"
sys.path.insert(0, str(SCRIPT.parent))
HEAD = "step,train/loss,time/seconds,val/bits_per_dim,val/other\n"
# Resumed after step 2: the time of training begins at 0 again.
RUN = HEAD + "1,3.0,30,,\n2,2.5,60,,\n2,,,1.5,9\n3,2.0,15,,\n4,1.0,60,,\n4,,,1.2,8\n5,,,nan,7\n"


def run(folder: Path, content: str = RUN) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text(content)
    return folder


def draw(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_points_stand_at_the_time_that_went_before_them(tmp_path: Path) -> None:
    read = runpy.run_path(str(SCRIPT))["read"]
    folder = run(tmp_path / "mine")
    minutes = ("mine", "val/bits_per_dim", [(1.0, 1.5), (2.0, 1.2)])
    assert read(str(folder), None, "minutes") == minutes
    assert read(f"a=b={folder / 'metrics.csv'}", "val/other", "steps") == (
        "a=b",
        "val/other",
        [(2.0, 9.0), (4.0, 8.0), (5.0, 7.0)],
    )
    assert read(str(folder / "metrics.csv"), None, "minutes")[0] == "mine"


def test_curves_become_a_small_picture(tmp_path: Path) -> None:
    one, two = run(tmp_path / "one"), run(tmp_path / "two")
    out = tmp_path / "new/curves.png"
    done = draw(f"first={one}", two, "--ruler", "published=0.9", "--out", out)
    assert done.returncode == 0, done.stderr
    with Image.open(out) as picture:
        assert (picture.format, picture.size) == ("PNG", (800, 400))
    done = draw(one, "--out", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"--out {tmp_path} cannot be written" in done.stderr


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        (None, [], "cannot be read"),
        ("a,b\n1,2\n", [], "is no metrics.csv of a training"),
        (HEAD + "1,3.0,30,,\n", [], "has no figure of val/bits_per_dim"),
        (RUN, ["--metric", "val/nats"], "no column val/nats; it has val/bits_per_dim, val/other"),
        (RUN, ["--ruler", "published=low"], "--ruler is published=low; expected LABEL=FIGURE"),
    ],
)
def test_a_wrong_run_is_told(
    tmp_path: Path, content: str | None, more: list[str], says: str
) -> None:
    folder = run(tmp_path / "x", "" if content is None else content)
    if content is None:
        (folder / "metrics.csv").unlink()
    done = draw(folder, "--out", tmp_path / "x.png", *more)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.png").exists()


def test_runs_of_two_metrics_are_not_drawn_as_one(tmp_path: Path) -> None:
    one = run(tmp_path / "one")
    two = run(tmp_path / "two", RUN.replace("bits_per_dim", "nats_per_token"))
    done = draw(one, two, "--out", tmp_path / "x.png")
    assert done.returncode == 2
    assert "the runs have val/bits_per_dim and val/nats_per_token" in done.stderr
