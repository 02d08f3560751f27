"""The sections of `scripts/gpu_check`, one after the other, and their JSON and Markdown."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name

import torch

from gpu.setting import Row, Setting

SECTIONS = {
    "contract": ("Attention against its definition", "gpu.contract.contract"),
    "waits": ("Training steps under sync debug mode", "gpu.training.steps_without_waits"),
    "starvation": ("Real loader and one repeated batch", "gpu.training.starvation"),
    "backends": ("Attention backends, forward and backward", "gpu.speed.backends"),
    "mfu": ("Share of the peak of a training step", "gpu.speed.model_flops"),
    "decoding": ("Decoding and translation", "gpu.speed.decoding"),
    "mnist": ("A last minute of training", "gpu.training.last_minute"),
}
"""Title and function of each section; a function is imported when it runs."""


@dataclass
class Section:
    """Result of one section."""

    name: str
    title: str
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    problem: str = ""
    """Why it ended early, or empty."""

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
        return "\n".join([*lines, ""])


def run(setting: Setting, names: list[str], out: Path) -> bool:
    """Run the sections and write check.json and check.md after each; whether all passed."""
    out.mkdir(parents=True, exist_ok=True)
    kind = torch.cuda.get_device_name() if setting.on_cuda else platform.processor() or "CPU"
    about = {"device": kind, "torch": torch.__version__, "python": platform.python_version()}
    done: list[Section] = []
    for name in names:
        done.append(run_section(setting, name))
        result = {**about, "sections": [asdict(section) for section in done]}
        (out / "check.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        head = f"# {kind}, torch {torch.__version__}\n"
        text = "\n".join([head, *(section.markdown() for section in done)])
        (out / "check.md").write_text(text, encoding="utf-8")
        print(done[-1].markdown(), flush=True)
    return all(section.passed for section in done)


def run_section(setting: Setting, name: str) -> Section:
    """One section; an error ends it and not the check."""
    title, function = SECTIONS[name]
    section, started = Section(name, title), time.perf_counter()
    try:
        call: Callable[[Setting], Iterator[Row]] = resolve_name(function)
        for row in call(setting):
            section.rows.append(row)
    except Exception as error:  # whatever a first run on a new device raises
        section.problem = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
    section.seconds = time.perf_counter() - started
    return section


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
