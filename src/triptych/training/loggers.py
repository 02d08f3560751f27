"""Loggers of a run: rows of metrics.csv, TensorBoard, and Weights & Biases."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import wave
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import yaml
from PIL import Image
from pytorch_lightning.loggers.logger import Logger

from triptych.config.schema import from_plain
from triptych.errors import UserError
from triptych.files.results import atomic_file
from triptych.training.callbacks.progress import say
from triptych.training.run.settings import RunConfig


class RunLogger(Logger):
    """Base of the run's loggers; settings are in config.yaml, and a folder contains one run."""

    name = "triptych"
    version = ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        return

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show the samples of a validation; the files are in the run's folder anyway."""


class CsvMetrics(RunLogger):
    """One row per report, on disk at once: its step and the metrics, blank for missing ones.

    A new metric adds a column to all rows. keep_until: step at which the run starts; rows of later
    steps are dropped, since a resumed run writes them again. Lightning's CSVLogger deletes the rows
    of an earlier start in the same folder.
    """

    def __init__(self, path: Path, *, keep_until: int = 0) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        rows: list[dict[str, str]] = []
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                rows = list(reader)
                self.columns = list(reader.fieldnames or self.columns)
        # A process killed during a write leaves an incomplete last row.
        whole = [row for row in rows if None not in row.values() and row["step"].isdigit()]
        self._rewrite([row for row in whole if int(row["step"]) <= keep_until])

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        new = [name for name in metrics if name not in self.columns]
        if new:
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.columns += new
            self._rewrite(rows)
        short = {name: f"{float(value):.10g}" for name, value in metrics.items()}
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writerow({"step": step if step is not None else "", **short})

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with atomic_file(self.path) as file:
            file.write(text.getvalue().encode("utf-8"))


KINDS = {".csv": "", ".png": "", ".wav": "-sound", ".html": "-page"}
"""Suffix of a file that is shown -> end of the name under which it is."""


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    return columns, rows


class SampleLog(RunLogger):
    """Logger of metrics and samples that is closed with one sentence after its first error.

    A subclass speaks to one service, whose object is `target`; None once closed. With Lightning's
    own loggers an error of the service ends the training.
    """

    service: ClassVar[str]
    """Name of the service, for messages."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self.target = target

    @abstractmethod
    def scalars(self, metrics: Mapping[str, float], step: int | None) -> None:
        """Log metrics."""

    @abstractmethod
    def show(self, name: str, path: Path, step: int) -> None:
        """Show a PNG, WAV or HTML file, or the table of a CSV file."""

    @abstractmethod
    def midi(self, paths: Sequence[Path], step: int) -> None:
        """Keep the MIDI files of a validation, or name their place."""

    @abstractmethod
    def close(self, *, succeeded: bool) -> None:
        """Write what is left and close the service's object."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._try(self.scalars, metrics, step)

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show each file under samples/ and its name without the suffix."""
        for path in files:
            if path.suffix in KINDS:
                self._try(self.show, f"samples/{path.stem}{KINDS[path.suffix]}", path, step)
        if midi := [path for path in files if path.suffix == ".mid"]:
            self._try(self.midi, midi, step)

    def finalize(self, status: str) -> None:
        """Close the logger; a status other than success marks the run as failed."""
        self._try(lambda: self.close(succeeded=status == "success"))
        self.target = None

    def _try(self, action: Callable[..., object], *arguments: Any) -> None:
        if self.target is None:
            return
        try:
            action(*arguments)
        except Exception as error:
            self.target = None
            say(
                f"{self.service} failed ({type(error).__name__}: {error}) and is off from here; "
                "the training goes on, metrics are in metrics.csv."
            )


FOLDER = "tensorboard"
"""Sub-folder of a run that contains the event files."""


class TensorBoardMetrics(SampleLog):
    """Event files of one run; target: a `torch.utils.tensorboard.SummaryWriter`.

    TensorBoard shows neither pages nor MIDI, which are named by their place, as text.
    """

    service = "TensorBoard"

    def scalars(self, metrics: Mapping[str, float], step: int | None) -> None:
        for name, value in metrics.items():
            self.target.add_scalar(name, value, step)
        self.target.flush()

    def show(self, name: str, path: Path, step: int) -> None:
        match path.suffix:
            case ".csv":
                columns, rows = read_table(path)
                lines = columns, ["---"] * len(columns), *rows
                text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
                self.target.add_text(name, text, step)
            case ".png":
                with Image.open(path) as image:
                    pixels = np.asarray(image.convert("RGB"))  # [H, W, 3]
                self.target.add_image(name, pixels, step, dataformats="HWC")
            case ".wav":
                with wave.open(str(path), "rb") as file:  # 16 bits, see `render.write_wav`
                    rate, channels = file.getframerate(), file.getnchannels()
                    samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
                mono = samples.reshape(-1, channels).mean(1) / 32768  # [T]
                sound = torch.from_numpy(mono).float().unsqueeze(0)  # [1, T]
                self.target.add_audio(name, sound, step, rate)
            case _:
                self.target.add_text(name, f"`{path}`", step)

    def midi(self, paths: Sequence[Path], step: int) -> None:
        places = "\n".join(f"- `{path}`" for path in paths)
        self.target.add_text("samples/midi", places, step)

    def close(self, *, succeeded: bool) -> None:
        self.target.close()


def _cell(text: str) -> str:
    """Return a text that stays within its cell of a Markdown table."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")


def open_tensorboard(folder: Path, *, keep_until: int) -> TensorBoardMetrics:
    """Return the logger of a run; keep_until: as for `CsvMetrics`, later values are hidden."""
    from torch.utils.tensorboard import SummaryWriter

    purge = keep_until + 1 if keep_until else None
    return TensorBoardMetrics(SummaryWriter(str(folder / FOLDER), purge_step=purge))


# init_timeout: seconds to wait for the server before the run is offline.
_SETTINGS: dict[str, Any] = {"console": "off", "silent": True, "init_timeout": 15.0}


MOST_BYTES = 100_000_000
"""Largest checkpoint that is kept as an artifact unless asked for."""
ALIASES = {"best.ckpt": "best", "last.ckpt": "latest"}


class WandbMetrics(SampleLog):
    """Run of Weights & Biases; target: its `wandb.Run`. A resumed run may go back a step.

    folder: of the run. models: as `LogConfig.wandb_models`.
    """

    service = "Weights & Biases"

    def __init__(
        self, target: Any, folder: Path | None = None, *, models: bool | None = None
    ) -> None:
        super().__init__(target)
        self.folder, self.models = folder, models

    def scalars(self, metrics: Mapping[str, float], step: int | None) -> None:
        self.target.log({**metrics, "step": step})

    def show(self, name: str, path: Path, step: int) -> None:
        import wandb

        shown: Any
        match path.suffix:
            case ".csv":
                columns, rows = read_table(path)
                shown = wandb.Table(columns=[*columns], data=rows)
            case ".png":  # a file rather than an array, since wandb does not rescale floats
                shown = wandb.Image(str(path))
            case ".wav":
                shown = wandb.Audio(str(path))
            case _:
                shown = wandb.Html(path.read_text(encoding="utf-8"), inject=False)
        self.target.log({name: shown, "step": step})

    def midi(self, paths: Sequence[Path], step: int) -> None:
        import wandb

        run: Any = self.target
        artifact = wandb.Artifact(f"midi-{run.id}", type="midi", metadata={"step": step})
        for path in paths:
            artifact.add_file(str(path))
        run.log_artifact(artifact)

    def close(self, *, succeeded: bool) -> None:
        if succeeded and self.folder is not None and self.models is not False:
            for name, alias in ALIASES.items():
                self._keep(self.folder / "checkpoints" / name, alias)
        self.target.finish(exit_code=0 if succeeded else 1)

    def _keep(self, path: Path, alias: str) -> None:
        """Keep a checkpoint as a version of the run's model."""
        if path.is_file() and (self.models or path.stat().st_size <= MOST_BYTES):
            import wandb

            artifact = wandb.Artifact(f"model-{self.target.id}", type="model")
            artifact.add_file(str(path))
            self.target.log_artifact(artifact, aliases=[alias])


def open_wandb(
    settings: RunConfig,
    *,
    folder: Path,
    identity: str,
    config: dict[str, Any],
    best: tuple[str, Literal["min", "max"]] | None = None,
) -> WandbMetrics | None:
    """Open the run online, else offline, else return None; print one sentence about it.

    identity: id of the wandb run, kept for resumed runs. config: settings and versions. best: name
    of a metric whose smallest or largest value the summary has.
    """
    off = "Weights & Biases is off ({}); metrics are in metrics.csv only."
    try:
        mode, reason = choose_mode(settings.wandb)
        if mode == "off":
            say(off.format(reason))
            return None
        import wandb

        log, variable = settings.log, os.environ.get
        init = functools.partial(
            wandb.init,
            project=log.wandb_project or variable("WANDB_PROJECT") or "triptych",
            name=log.wandb_name or variable("WANDB_NAME") or settings.name,
            dir=log.wandb_dir or variable("WANDB_DIR") or str(folder),
            # wandb reads the variables of what is None.
            group=log.wandb_group,
            job_type=log.wandb_job_type,
            tags=log.wandb_tags,
            notes=log.wandb_notes,
            id=identity,
            config=config,
            resume="allow",
            settings=wandb.Settings(**_SETTINGS),
        )
        try:
            run = init(mode=mode)
        except Exception as error:
            if mode == "offline":
                raise
            wandb.teardown()  # otherwise the id of the run stays in use
            mode, reason = "offline", f"online failed, {_first_line(error)}"
            run = init(mode=mode)
        run.define_metric("step", hidden=True)
        run.define_metric("*", step_metric="step")
        if best is not None:
            run.define_metric(best[0], step_metric="step", summary=f"{best[1]},last")
    except Exception as error:
        say(off.format(f"it failed, {_first_line(error)}"))
        return None
    later = "; `wandb sync` can send it later" if mode == "offline" else ""
    say(f"Weights & Biases logs {mode} ({reason}){later}.")
    return WandbMetrics(run, folder, models=log.wandb_models)


def run_in(folder: Path) -> tuple[str, RunConfig]:
    """Return the id in wandb, and the settings, of the run in a folder; UserError for another."""
    try:
        identity = json.loads((folder / "versions.json").read_text(encoding="utf-8"))["wandb"]
        plain = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
        raise UserError(
            f"{folder} is not the folder of a run, which has a run of Weights & Biases; expected "
            "one such as runs/NAME, and its checkpoints in runs/NAME/checkpoints"
        ) from error
    return identity, from_plain(RunConfig, plain)


def add_to_run(folder: Path, summary: Mapping[str, float], page: bytes | None = None) -> None:
    """Add figures to the summary of a run in wandb, and a page of HTML to its media.

    folder: of the run. Raises UserError as `run_in`, and where wandb does not open the run.
    """
    identity, config = run_in(folder)
    logger = open_wandb(config, folder=folder, identity=identity, config={})
    if logger is None:
        raise UserError(f"the run of {folder} in Weights & Biases cannot be written to")
    logger.models = False
    logger.target.summary.update(dict(summary))
    if page is not None:
        import wandb

        logger.target.log({"report": wandb.Html(page.decode("utf-8"), inject=False)})
    logger.close(succeeded=True)


def choose_mode(wanted: str) -> tuple[Literal["online", "offline", "off"], str]:
    """Return the mode of the run and the reason for it; raises any error of wandb.

    Without a key the run is offline, because wandb would ask the user for one.
    """
    if wanted == "off":
        return "off", "--run.wandb off"
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes"):
        return "off", "WANDB_DISABLED is set"
    import wandb
    from requests.utils import get_netrc_auth  # a requirement of wandb

    # From the environment variables and the settings files of wandb.
    settings = wandb.setup(settings=wandb.Settings(**_SETTINGS)).settings
    if settings.mode == "disabled":
        return "off", "WANDB_MODE is disabled"
    if wanted == "offline":
        return "offline", "as asked"
    if settings.mode in ("offline", "dryrun"):
        return "offline", f"WANDB_MODE is {settings.mode}"
    if not (settings.api_key or settings.identity_token_file or get_netrc_auth(settings.base_url)):
        return "offline", "no key was found"
    return "online", "a key was found"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
