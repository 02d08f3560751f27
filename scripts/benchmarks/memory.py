"""Peak memory of a call on a CPU: measured in a process of its own, whose freed blocks go back.

    python -m benchmarks.memory MODULE      one JSON spec a line in, one JSON answer a line out

MODULE's `peak_case(spec)` makes the inputs and returns the call. Linux only: the peak of the
resident memory is reset through /proc/self/clear_refs before the call that counts.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]
SMALL_BLOCK = "65536"
"""From this size on (bytes) glibc gives a freed block back to the system at once, as without it
only blocks of up to 32 MiB or more would be: the peak then is that of live memory."""


def peaks(module: str, specs: Sequence[dict[str, Any]], timeout_s: float) -> list[float | str]:
    """Peak MiB of each spec's call beyond what the process held before, or why there is none.

    A call that kills the process (memory) is answered for, and the rest go on in a new process.
    """
    answers: list[float | str] = []
    while len(answers) < len(specs):
        rest = specs[len(answers) :]
        try:
            child = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", module],
                input="".join(json.dumps(spec) + "\n" for spec in rest),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env=_environment(),
            )
            said, died = child.stdout, f"the process ended with {child.returncode}"
        except subprocess.TimeoutExpired as error:
            said = error.stdout or ""
            said = said.decode() if isinstance(said, bytes) else said
            died = f"no answer within {timeout_s:.0f} s"
        whole = [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
        answers += [json.loads(line) for line in whole]
        if len(answers) < len(specs):
            answers.append(died)
            if died.startswith("no answer"):  # the time is up for all that follow
                answers += [died] * (len(specs) - len(answers))
    return answers


def _environment() -> dict[str, str]:
    path = [str(SCRIPTS), *(entry for entry in sys.path if entry)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "MALLOC_MMAP_THRESHOLD_": SMALL_BLOCK,
        "MALLOC_TRIM_THRESHOLD_": SMALL_BLOCK,
        "THP_MEM_ALLOC_ENABLE": "0",  # a page of 2 MiB would count whole
    }


def status_mib(field: str) -> float:
    """A field of /proc/self/status, as VmRSS, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/self/status has no {field}")


def main() -> None:
    import torch

    module = importlib.import_module(f"benchmarks.{sys.argv[1]}")
    for line in sys.stdin:
        spec = json.loads(line)
        torch.set_num_threads(spec["threads"])
        try:
            run = module.peak_case(spec)
            run()  # thread pools and what is kept between calls do not count
            gc.collect()
            Path("/proc/self/clear_refs").write_text("5")
            before = status_mib("VmRSS")
            run()
            answer: float | str = status_mib("VmHWM") - before
        except Exception as error:
            answer = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        print(json.dumps(answer), flush=True)
        run = None


if __name__ == "__main__":
    main()
