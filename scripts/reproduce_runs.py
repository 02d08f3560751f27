"""The commands behind `scripts/reproduce`: train a row or go on with it, add pairs, score."""

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

    from triptych.commands.options import check_output
    from triptych.errors import UserError

    check_output(str(out), [], overwrite=False)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    begun = {
        "row": row.name,
        "seed": seed,
        "train": ["triptych", *row.train_command(seed, out)],
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
            f"{out} is not empty and holds no result.json of this script; choose another --out"
        ) from error
    raise UserError(
        f"{out} holds a run of another command ({' '.join(before['train'])}); choose another --out"
    )


def train(row: Any, out: Path, result: dict[str, Any], minutes: float | None) -> int:
    """Train to the end of the row, or as long as allowed: 0 where there is a model to score.

    Else the exit code of the training. Keeps `finished` and `minutes` of the result up to date, in
    its file too.
    """
    from triptych.commands.options import write_json

    checkpoints = out / "run/checkpoints"
    resume = any((checkpoints / name).exists() for name in ("last.ckpt", "best.ckpt"))
    if not resume and (out / "run").exists():
        shutil.rmtree(out / "run")  # killed before it had saved anything
    write_json(out / "result.json", result)
    place = ["--run.directory", str(out), "--run.name", "run", "--run.wandb", "off"]
    words = row.train_command(result["seed"], out) + place + ["--resume"] * resume
    print(f"triptych {' '.join(words)}", file=sys.stderr, flush=True)
    started = time.monotonic()
    code, stopped = triptych(words, seconds=None if minutes is None else 60 * minutes)
    result["minutes"] += (time.monotonic() - started) / 60
    result["finished"] = code == 0 and not stopped
    write_json(out / "result.json", result)
    if stopped != "time":
        return code if code >= 0 else 128 - code  # as shells report a signal
    if (checkpoints / "best.ckpt").exists():
        return 0
    print("reproduce: stopped before the first validation; nothing to score yet", file=sys.stderr)
    return 1


def diversify(row: Any, rows: dict[str, Any], out: Path, seed: int, minutes: float | None) -> int:
    """Let the models of other rows add training pairs in out/data: 0 when they are there.

    These rows are trained first, beside `out`, where that was not done. Else the exit code: of the
    training or the script that failed, or 1 where `minutes` were over before a model's end.
    """
    data = out / "data"
    if (data / "source.yaml").exists():
        return 0
    models: dict[str, list[str]] = {"forward": [], "backward": []}
    for direction, found in models.items():
        for name in row.diversify.get(direction, []):
            place = out.parent / f"{name}-seed-{seed}"
            result = take_up(place, rows[name], seed)
            code = 0 if result["finished"] else train(rows[name], place, result, minutes)
            if code != 0:
                return code
            if not result["finished"]:
                print(f"reproduce: {name} is not at its end yet; the same command goes on",
                      file=sys.stderr)  # fmt: skip
                return 1
            found.append(str(place / "run/checkpoints/best.ckpt"))
    if data.exists():
        shutil.rmtree(data)  # written half by a call that was killed
    words = [f"--{direction}={path}" for direction, paths in models.items() for path in paths]
    command = [str(ROOT / "scripts/diversify"), *words, "--out", str(data)]
    command += row.diversify.get("options", [])
    print(" ".join(command), file=sys.stderr, flush=True)
    return run([sys.executable, *command])[0]


def score(row: Any, out: Path, split: str) -> dict[str, Any] | None:
    """Evaluate best.ckpt on a split: what `triptych evaluate` writes; None where it failed."""
    file = out / f"{split}.json"
    checkpoint = out / "run/checkpoints/best.ckpt"
    words = [*row.evaluate_command(split), "--checkpoint", str(checkpoint), "--json", str(file)]
    print(f"triptych {' '.join(words)}", file=sys.stderr, flush=True)
    code, _ = triptych(words)
    return json.loads(file.read_text(encoding="utf-8")) if code == 0 else None
