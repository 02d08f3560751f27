"""Folder of a run, read without the code that trained it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from triptych.errors import UserError
from triptych.tools.report.metrics import Curve, Metrics, read_metrics, total
from triptych.tools.report.samples import Picture, Validation, read_picture, read_validations

CONFIG, METRICS, VERSIONS = "config.yaml", "metrics.csv", "versions.json"
MARKS = (CONFIG, METRICS, VERSIONS)
"""Files of which a run has at least one from its start on."""
SAMPLES, ATTENTION = "samples", "attention"
IDENTITY = ("run.name", "run.directory")
"""Settings that differ between any two runs."""
FlatSettings = dict[str, str]
"""Name of a setting, as an option of `triptych train`, -> its value as YAML."""


@dataclass(frozen=True)
class Score:
    """Result of `triptych evaluate --json` that lies in the run's folder."""

    file: str
    split: str
    count: int
    values: dict[str, float]
    """Metrics, then other numbers of the details, such as scores of simple models."""


@dataclass(frozen=True)
class ResumedSettings:
    """Settings with which a run was resumed that are not those of its beginning."""

    step: int
    changed: dict[str, list[str | None]]
    """Name -> value before and after."""


@dataclass(frozen=True)
class Run:
    """What the folder of a run holds."""

    name: str
    folder: Path
    settings: FlatSettings
    resumed: list[ResumedSettings]
    curves: dict[str, Curve]
    starts: list[dict[str, Any]]
    """Of versions.json: step, seed, precision, parameters and versions of each start."""
    scores: list[Score]
    validations: list[Validation]
    attention: list[Picture]
    notices: list[str]
    """What is missing, damaged or incomplete, in sentences."""

    def overview(self) -> dict[str, str]:
        """Return (fact, value) of the run; facts that the folder does not tell are left out."""
        last = self.starts[-1] if self.starts else {}
        steps = [curve[-1][0] for curve in self.curves.values()]
        planned = self.settings.get("trainer.max_steps", "")
        rows: dict[str, str] = {}
        if steps:
            done = f"{max(steps):,}"
            rows["last step"] = f"{done} of {int(planned):,}" if planned.isdecimal() else done
        monitor, mode = map(str, (last.get("monitor") or ["", ""])[:2])
        if monitor in self.curves:
            pick = min if mode == "min" else max
            step, value = pick(self.curves[monitor], key=lambda point: point[1])
            rows[f"best {monitor}"] = f"{value:.4f} at step {step:,}"
        if isinstance(last.get("parameters"), int):
            rows["parameters"] = f"{last['parameters']:,}"
        if "time/seconds" in self.curves:
            seconds = round(total(self.curves["time/seconds"]))
            rows["time of training"] = str(timedelta(seconds=seconds))
        if "time/tokens_per_s" in self.curves:
            rate = median(value for _, value in self.curves["time/tokens_per_s"])
            rows["tokens per second (median)"] = f"{rate:,.0f}"
        for key in ("seed", "precision"):
            if last.get(key) is not None:
                rows[key] = str(last[key])
        if self.starts:
            rows["starts"] = str(len(self.starts))
        return rows


def read_runs(folders: Sequence[Path], *, most: int) -> list[Run]:
    """Read runs and give them different names; raises UserError for a folder given twice."""
    real = [folder.resolve() for folder in folders]
    for index, folder in enumerate(folders):
        if real[index] in real[:index]:
            raise UserError(f"the run {folder} is given twice")
    runs = [read_run(folder, most=most) for folder in folders]
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        runs = [Run(**{**vars(run), "name": str(run.folder)}) for run in runs]
    return runs


def read_run(folder: Path, *, most: int) -> Run:
    """Read the folder of a run, finished or not.

    most: as in `read_validations`. Raises UserError for a folder that is no run, and for a
    metrics.csv that is no table of metrics. What else is missing or damaged is named in `notices`.
    """
    check_is_run(folder)
    notices: list[str] = []
    settings: FlatSettings = {}
    resumed: list[ResumedSettings] = []
    try:
        settings = read_settings(folder / CONFIG)
        for path in sorted(folder.glob("config.step-*.yaml")):
            step = path.stem.rpartition("-")[2]
            if step.isdecimal():
                changed = differences([settings, read_settings(path)])
                resumed.append(ResumedSettings(int(step), changed))
    except FileNotFoundError:
        notices.append(f"{CONFIG} is missing: the settings are not known.")
    except (ValueError, OSError) as error:
        notices.append(f"Some settings are not shown: {error}.")
    starts = _read_starts(folder / VERSIONS, notices)
    metrics = Metrics({}, [f"There is no {METRICS}: nothing has been logged yet."])
    if (folder / METRICS).is_file():
        metrics = read_metrics(folder / METRICS)
        if not metrics.curves:
            metrics.notices.append(f"{METRICS} holds no values yet.")
    notices += metrics.notices
    planned = settings.get("trainer.max_steps", "")
    done = max((curve[-1][0] for curve in metrics.curves.values()), default=0)
    if planned.isdecimal() and done < int(planned):
        notices.append(f"The run ended early or goes on: step {done} of {planned}.")
    if not (folder / "checkpoints").is_dir():
        notices.append("There is no checkpoint yet.")
    validations = read_validations(folder / SAMPLES, most=most)
    for validation in validations:
        notices += validation.items.notices
    attention = []
    for path in sorted((folder / ATTENTION).rglob("*.png")):
        try:
            attention.append(read_picture(path))
        except UserError as error:
            notices.append(f"{error}.")
    name = str(yaml.safe_load(settings.get("run.name", "")) or folder.resolve().name)
    return Run(
        name, folder, settings, resumed, metrics.curves, starts, read_scores(folder), validations,
        attention, notices,
    )  # fmt: skip


def read_settings(path: Path) -> FlatSettings:
    """Read a config.yaml of a run.

    Raises ValueError for a file that is no mapping in YAML.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError(f"{path.name} holds no settings")
        return dict(_flat(content, ""))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is no YAML: {' '.join(str(error).split())}") from error


def _flat(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict) and inner:
            yield from _flat(inner, f"{name}.")
        else:
            text = yaml.safe_dump(inner, default_flow_style=True, allow_unicode=True, width=10**6)
            yield name, text.removesuffix("...\n").strip()


def differences(runs: Sequence[FlatSettings]) -> dict[str, list[str | None]]:
    """Return the settings that differ, with the value in each run; None where a run has none.

    The name and the folder of a run are left out. The order is that of the first run that has the
    setting.
    """
    names = dict.fromkeys(name for settings in runs for name in settings)
    values_of = {name: [settings.get(name) for settings in runs] for name in names}
    return {
        name: values
        for name, values in values_of.items()
        if name not in IDENTITY and len(set(values)) > 1
    }


def check_is_run(folder: Path) -> None:
    """Raise UserError where a folder is not that of a run, or cannot be read."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {what}; expected the folder of a run")
    try:
        if any((folder / name).is_file() for name in MARKS):
            return
        inner = sorted(str(path) for path in folder.iterdir() if (path / CONFIG).is_file())
    except OSError as error:
        raise UserError(f"the run {folder} cannot be read: {error.strerror}") from error
    hint = f"; it holds the run(s) {', '.join(inner[:5])}" if inner else ""
    raise UserError(f"{folder} is no run: it has none of {', '.join(MARKS)}{hint}")


def read_scores(folder: Path) -> list[Score]:
    """Read the results of `triptych evaluate --json` in a folder; other files are ignored."""
    scores = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if not isinstance(content, dict) or not isinstance(content.get("metrics"), dict):
            continue
        details = content.get("details")
        values = dict(_numbers(content["metrics"], ""))
        values |= dict(_numbers(details if isinstance(details, dict) else {}, ""))
        split, count = str(content.get("split", "")), content.get("count")
        scores.append(Score(path.name, split, count if isinstance(count, int) else 0, values))
    return scores


def _numbers(content: dict[str, Any], prefix: str) -> list[tuple[str, float]]:
    """Return the numbers of nested mappings by name; ": " stands between the names of levels."""
    numbers = []
    for key, value in content.items():
        if isinstance(value, dict):
            numbers += _numbers(value, f"{prefix}{key}: ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers.append((f"{prefix}{key}", float(value)))
    return numbers


def _read_starts(path: Path, notices: list[str]) -> list[dict[str, Any]]:
    if not path.is_file():
        notices.append(f"{path.name} is missing: the versions are not known.")
        return []
    with suppress(OSError, ValueError, KeyError, TypeError):
        starts = json.loads(path.read_text(encoding="utf-8"))["starts"]
        if isinstance(starts, list) and all(isinstance(start, dict) for start in starts):
            return starts
    notices.append(f"{path.name} is damaged: the versions are not known.")
    return []
