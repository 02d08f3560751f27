"""The sections of `scripts/gpu_check`, one after the other, and their JSON and Markdown."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name

import torch

from gpu.setting import Row, Setting

SCRIPT = Path(__file__).resolve().parents[1] / "gpu_check"
SECTIONS = {
    "contract": (
        "gpu.contract.contract", "Attention against its definition",
        "values, gradients and steps of every variant are those of the definition",
    ),
    "lengths": (
        "gpu.kernels.lengths", "FlexAttention at real lengths",
        "every kind of attention is a compiled kernel, with the exact values and gradients",
    ),
    "varying": (
        "gpu.kernels.varying_lengths", "Batches of many lengths",
        "block masks are made once for a multiple of 128 positions",
    ),
    "sdpa": (
        "gpu.kernels.sdpa", "SDPA with padding",
        "no kernel of PyTorch gives NaN or wrong gradients for padded rows",
    ),
    "systems": (
        "gpu.runs.systems", "Every system",
        "each trains, samples or translates, and has the same likelihood on the CPU",
    ),
    "resume": (
        "gpu.runs.resumed", "Repeated and resumed runs",
        "with trainer.deterministic they have equal weights, bit for bit",
    ),
    "compiled": (
        "gpu.runs.compiled", "Compiled training",
        "compiled training, also with checkpointing, learns as eager training does",
    ),
    "ddp": (
        "gpu.runs.one_process_of_ddp", "DDP and FSDP of one process",
        "both train the same weights, DDP also compiled, with checkpointing and adapters",
    ),
    "lightning": (
        "gpu.runs.through_lightning", "Lightning beside a plain loop",
        "triptych train takes at most a tenth longer than a loop over the same batches",
    ),
    "graphs": (
        "gpu.runs.graphs_of_decoding", "Decoding by CUDA graphs",
        "no graph is skipped, and the tokens are those of eager steps",
    ),
    "waits": (
        "gpu.training.steps_without_waits", "Training steps under sync debug mode",
        "a training step never waits for the device",
    ),
    "starvation": (
        "gpu.training.starvation", "Real loader and one repeated batch",
        "the table says what share of its speed the loader leaves",
    ),
    "backends": (
        "gpu.speed.backends", "Attention backends, forward and backward",
        "the table says which backend is fastest",
    ),
    "mfu": (
        "gpu.speed.model_flops", "Share of the peak of a training step",
        "the table says how much of the peak is used",
    ),
    "decoding": (
        "gpu.speed.decoding", "Decoding and translation",
        "50 steps ran without a wait; the table has speeds",
    ),
    "mnist": (
        "gpu.training.last_minute", "A last minute of training", "the loss falls",
    ),
}  # fmt: skip
"""Function, title and what is shown where it passes, of each section in the order of a first day. A
function is imported when it runs."""
UNFINISHED = "its process ended"
LONGEST = 600
"""Seconds that a section may take."""


@dataclass
class Section:
    """Result of one section."""

    name: str
    title: str
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    problem: str = ""
    """Why it ended early, or empty."""
    shows: str = ""
    """What it shows where it passes."""

    @property
    def passed(self) -> bool:
        return not self.problem and all(row.get("passed", True) for row in self.rows)

    def markdown(self) -> str:
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [f"## {self.title} ({self.seconds:.0f} s)", ""]
        if columns:
            lines += [line(columns), line(["---"] * len(columns))]
            lines += [line([cell(row.get(name)) for name in columns]) for row in self.rows]
        if self.problem:
            lines += ["", f"Ended early: {self.problem}"]
        lines += [
            "",
            f"Shown: {self.shows}." if self.passed else f"FAILED: not shown that {self.shows}.",
        ]
        return "\n".join([*lines, ""])


def run(setting: Setting, names: list[str], out: Path) -> bool:
    """Run the sections and write check.json and check.md after each; whether all passed.

    Each section is a process of its own: an illegal access of memory ends no other.
    """
    out.mkdir(parents=True, exist_ok=True)
    kind = torch.cuda.get_device_name() if setting.on_cuda else platform.processor() or "CPU"
    about = {"device": kind, "torch": torch.__version__, "python": platform.python_version()}
    done: list[Section] = []
    for name in names:
        done.append(in_a_process(setting, name, out / "section.json"))
        result = {**about, "sections": [asdict(section) for section in done]}
        (out / "check.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        head = f"# {kind}, torch {torch.__version__}\n"
        text = "\n".join([head, *(section.markdown() for section in done)])
        (out / "check.md").write_text(text, encoding="utf-8")
        print(done[-1].markdown(), flush=True)
    return all(section.passed for section in done)


def in_a_process(setting: Setting, name: str, path: Path) -> Section:
    """Return what a section in a process of its own has found."""
    path.unlink(missing_ok=True)
    words = [
        "--device",
        setting.device.type,
        *["--tiny"] * setting.tiny,
        *["--all"] * setting.every,
    ]
    command = [sys.executable, str(SCRIPT), "--section", name, "--out", str(path), *words]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST, check=False
        )
        said = (ended.stderr.strip().splitlines() or ["nothing"])[-1]
        problem = f"its process ended with {ended.returncode}: {said}"
    except subprocess.TimeoutExpired:
        problem = f"it took longer than {LONGEST} s"
    if not path.is_file():
        _, title, shows = SECTIONS[name]
        return Section(name, title, problem=problem[:300], shows=shows)
    section = Section(**json.loads(path.read_text(encoding="utf-8")))
    section.problem = problem[:300] if section.problem == UNFINISHED else section.problem
    return section


def run_section(setting: Setting, name: str, out: Path | None = None) -> Section:
    """One section; an error ends it and not the check. out: file to write after each row."""
    function, title, shows = SECTIONS[name]
    section, started = Section(name, title, shows=shows), time.perf_counter()

    def save() -> None:
        section.seconds = time.perf_counter() - started
        if out is not None:
            out.write_text(json.dumps(asdict(section)), encoding="utf-8")

    torch.set_float32_matmul_precision("highest")  # no TF32
    torch.backends.cudnn.allow_tf32 = False
    try:
        call: Callable[[Setting], Iterator[Row]] = resolve_name(function)
        for row in call(setting):
            section.rows.append(row)
            section.problem = UNFINISHED
            save()
        section.problem = ""
    except Exception as error:  # whatever a first run on a new device raises
        section.problem = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
    save()
    return section


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
