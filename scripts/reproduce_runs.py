"""The commands behind `scripts/reproduce`: train a row or go on with it, score."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def triptych(words: list[str], *, seconds: float | None = None) -> tuple[int, str]:
    """Run a command of this checkout: its exit code, and what stopped it: time, a signal or "".

    seconds: after so long it is asked to stop. A signal that this script gets is handed on, so that
    the training can write its checkpoint.
    """
    return run([sys.executable, "-m", "triptych.cli", *words], seconds=seconds)


def run(command: list[str], *, seconds: float | None = None) -> tuple[int, str]:
    """As `triptych`, for any command."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    # In a session of its own Ctrl-C reaches the child once, through us, and not twice.
    child = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
    )
    stopped = ""

    def hand_on(*_: Any) -> None:
        nonlocal stopped
        stopped = "signal"
        child.terminate()

    former = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            stopped = "time"
            child.terminate()
            child.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    return child.returncode, stopped


def take_up(out: Path, row: Any, seed: int) -> dict[str, Any]:
    """What an earlier call left in the folder, or a beginning; UserError for anything else."""
    import torch
    from benchmarks import machine

    from triptych.domains.files import OutputFolder
    from triptych.errors import UserError

    OutputFolder(str(out), overwrite=False)  # UserError where nothing can be written
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    begun = {
        "row": row.name,
        "seed": seed,
        "train": ["triptych", *row.train_command(seed)],
        "finished": False,
        "minutes": 0.0,
        # Of the training; whoever only scores it again changes nothing here.
        "commit": machine.commit(),
        "machine": machine.describe(device),
    }
    if not out.is_dir() or not any(out.iterdir()):
        return begun
    try:
        before = json.loads((out / "result.json").read_text(encoding="utf-8"))
        if before["train"] == begun["train"]:
            kept = ("finished", "minutes", "commit", "machine")
            return {**begun, **{name: before[name] for name in kept if name in before}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{out} is not empty and holds no result.json of this script; move it away or choose "
            "another --out"
        ) from error
    raise UserError(
        f"{out} holds a run of another command ({' '.join(before['train'])}); move it away or "
        "choose another --out"
    )


def train(row: Any, out: Path, result: dict[str, Any], deadline: float | None) -> int:
    """Train to the end of the row, or to the deadline: 0 where there is a model to score.

    deadline: a time of the monotonic clock. Else the exit code of the training. Keeps `finished`
    and `minutes` of the result up to date, in its file too.
    """
    from triptych.domains.files import write_json

    checkpoints = out / "run/checkpoints"
    resume = any((checkpoints / name).exists() for name in ("last.ckpt", "best.ckpt"))
    if not resume and (out / "run").exists():
        shutil.rmtree(out / "run")  # killed before it had saved anything
    write_json(out / "result.json", result)
    place = ["--run.directory", str(out), "--run.name", "run", "--run.wandb", "off"]
    words = row.train_command(result["seed"]) + place + ["--resume"] * resume
    print(f"triptych {' '.join(words)}", file=sys.stderr, flush=True)
    started = time.monotonic()
    code, stopped = triptych(words, seconds=seconds_to(deadline))
    result["minutes"] += (time.monotonic() - started) / 60
    result["finished"] = code == 0 and not stopped
    write_json(out / "result.json", result)
    if stopped != "time":
        return as_shells_report(code)
    if (checkpoints / "best.ckpt").exists():
        return 0
    return late("stopped before the first validation, nothing to score yet")


def late(what: str) -> int:
    """Say what the time did not suffice for; the exit code."""
    print(f"reproduce: {what}; the same command goes on", file=sys.stderr)
    return 1


def seconds_to(deadline: float | None) -> float | None:
    """How long it is to a time of the monotonic clock, 0 where that has come, None for none."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def as_shells_report(code: int) -> int:
    """The exit code of a child: 128 and the signal's number where a signal ended it."""
    return code if code >= 0 else 128 - code


def check_config(row: Any) -> None:
    """Raise UserError where the settings of a row are not there."""
    from triptych.errors import UserError

    if not (ROOT / row.config).is_file():
        raise UserError(f"the row {row.name} needs {row.config}, which is not there")


def score(row: Any, out: Path, split: str) -> dict[str, Any] | None:
    """Evaluate best.ckpt on a split: what `triptych evaluate` writes; None where it failed."""
    file = out / f"{split}.json"
    checkpoint = out / "run/checkpoints/best.ckpt"
    words = [*row.evaluate_command(split), "--checkpoint", str(checkpoint), "--json", str(file)]
    print(f"triptych {' '.join(words)}", file=sys.stderr, flush=True)
    code, _ = triptych(words)
    return json.loads(file.read_text(encoding="utf-8")) if code == 0 else None
