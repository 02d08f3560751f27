"""Logger of Weights & Biases, and what is added to its runs after training."""

from __future__ import annotations

import csv
import functools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from PIL import Image, ImageOps
from torch import nn

from triptych.config.schema import from_plain
from triptych.errors import UserError
from triptych.training.callbacks.progress import say
from triptych.training.loggers import Before, RunLogger
from triptych.training.run.checkpoint import git
from triptych.training.run.settings import RunConfig

# init_timeout: seconds to wait for the server before the run is offline.
_SETTINGS: dict[str, Any] = {"console": "off", "silent": True, "init_timeout": 15.0}

MOST_BYTES = 100_000_000
"""Largest checkpoint that is kept as an artifact unless asked for."""
BINS = 64
"""Of the histograms of weights and gradients."""
ALIASES = {"best.ckpt": "best", "last.ckpt": "latest"}


def ends_logging(method: Callable[..., None]) -> Callable[..., None]:
    """Return a method whose first error closes the logger with one sentence."""

    @functools.wraps(method)
    def tried(self: WandbMetrics, *arguments: Any, **options: Any) -> None:
        if self.target is None:
            return
        try:
            method(self, *arguments, **options)
        except Exception as error:
            self.target = None
            say(
                f"Weights & Biases failed ({type(error).__name__}: {error}) and is off from here; "
                "the training goes on, metrics are in metrics.csv."
            )

    return tried


class WandbMetrics(RunLogger):
    """Run of Weights & Biases, closed with one sentence after its first error.

    With Lightning's logger an error of the service ends the training. A resumed run may go back a
    step.

    target: its `wandb.Run`; None once closed. folder: of the run. models: as
    `LogConfig.wandb_models`.
    """

    def __init__(
        self, target: Any, folder: Path | None = None, *, models: bool | None = None
    ) -> None:
        super().__init__()
        self.target, self.folder, self.models = target, folder, models

    @ends_logging
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.target.log({**metrics, "step": step})

    @ends_logging
    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show the PNG and WAV files of a validation and the tables of CSV files; keep its MIDI.

        All are under one step; numbered pictures, as piece-00 and piece-01, are one gallery.
        """
        import wandb

        row: dict[str, Any] = {}
        galleries: dict[str, list[Path]] = {}
        artifact = wandb.Artifact(f"midi-{self.target.id}", type="midi", metadata={"step": step})
        for path in files:
            name = f"samples/{path.stem}"
            match path.suffix:
                case ".csv":
                    with path.open(encoding="utf-8", newline="") as file:
                        columns, *rows = csv.reader(file)
                    row[name] = wandb.Table(columns=[*columns], data=rows)
                case ".png":
                    galleries.setdefault(re.sub(r"-\d+$", "", name), []).append(path)
                case ".wav":  # one by one, since wandb needs a further package for several
                    row[f"{name}-sound"] = wandb.Audio(str(path), caption=path.stem)
                case ".mid":
                    artifact.add_file(str(path))
        row |= {name: _gallery(each) for name, each in galleries.items()}
        if row:
            self.target.log({**row, "step": step})
        if artifact.manifest.entries:
            self.target.log_artifact(artifact, aliases=["latest", f"step-{step}"])

    @ends_logging
    def log_update(self, before: Before, model: nn.Module, step: int) -> None:
        """Show histograms, by names as wandb.watch gives them, and ratios of update to weight.

        update_ratio/NAME is the L2 norm of the update of a matrix over that of the matrix before
        it; a matrix of zeros has none. Values that are not finite are left out.
        """
        import wandb

        row: dict[str, Any] = {"step": step}
        for name, weight in model.named_parameters():
            if name not in before:
                continue
            old, gradient = before[name]
            for kind, values in (("gradients", gradient), ("parameters", weight.detach())):
                finite = values[values.isfinite()].float().cpu().numpy()
                row[f"{kind}/{name}"] = wandb.Histogram(np_histogram=np.histogram(finite, BINS))
            if weight.ndim >= 2:
                change = (weight.detach().float() - old.float()).norm()
                if math.isfinite(ratio := float(change / old.float().norm())):
                    row[f"update_ratio/{name}"] = ratio
        self.target.log(row)

    def finalize(self, status: str) -> None:
        """Close the logger; a status other than success marks the run as failed."""
        ends_logging(WandbMetrics.close)(self, succeeded=status == "success")
        self.target = None

    def close(self, *, succeeded: bool) -> None:
        """Keep the checkpoints of a run that succeeded, and finish the run of wandb."""
        if succeeded and self.folder is not None and self.models is not False:
            for name, alias in ALIASES.items():
                self._keep(self.folder / "checkpoints" / name, alias)
        # The message of a failed run is printed after its end; older releases of wandb lack this.
        error, write = sys.exc_info()[1], getattr(self.target, "write_logs", None)
        if str(error or "") and write:
            write(f"{type(error).__name__}: {error}")
        self.target.finish(exit_code=0 if succeeded else 1)

    def _keep(self, path: Path, alias: str) -> None:
        """Keep a checkpoint as a version of the run's model."""
        if path.is_file() and (self.models or path.stat().st_size <= MOST_BYTES):
            import wandb

            artifact = wandb.Artifact(f"model-{self.target.id}", type="model")
            artifact.add_file(str(path))
            self.target.log_artifact(artifact, aliases=[alias])


def _gallery(paths: Sequence[Path]) -> list[Any]:
    """Return the images with captions, filled up to one size, which wandb's galleries need."""
    import wandb

    images = [Image.open(path).convert("RGB") for path in paths]
    width, height = (max(sizes) for sizes in zip(*(each.size for each in images), strict=True))
    shown = []
    for path, each in zip(paths, images, strict=True):
        border = (0, 0, width - each.width, height - each.height)
        shown.append(wandb.Image(ImageOps.expand(each, border, "white"), caption=path.stem))
    return shown


def _git_without_token() -> dict[str, str]:
    """Return the commit and remote of the working directory, if the remote's URL names a user.

    wandb records both itself, but leaves out the password alone, and GitHub takes a token as user.
    """
    try:
        public = re.sub(
            r"//[^/]*@", "//", url := git(Path(), "config", "--get", "remote.origin.url")
        )
        commit = git(Path(), "rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {} if public == url else {"git_commit": commit, "git_remote_url": public}


def open_wandb(
    settings: RunConfig,
    *,
    folder: Path,
    identity: str,
    config: dict[str, Any],
    best: tuple[str, Literal["min", "max"]] | None = None,
    console: bool = False,
) -> WandbMetrics | None:
    """Open the run online, else offline, else return None; print one sentence about it.

    identity: id of the wandb run, kept for resumed runs. config: settings and versions. best: name
    of a metric whose smallest or largest value the summary has. console: record what is printed,
    in the way of WANDB_CONSOLE.
    """
    off = "Weights & Biases is off ({}); metrics are in metrics.csv only."
    try:
        mode, reason = choose_mode(settings.wandb)
        if mode == "off":
            say(off.format(reason))
            return None
        import wandb

        log, variable = settings.log, os.environ.get
        recorded = {"console": variable("WANDB_CONSOLE", "wrap")} if console else {}
        names = {
            "project": variable("WANDB_PROJECT") or "triptych",
            "name": variable("WANDB_NAME") or settings.name,
            "dir": variable("WANDB_DIR") or str(folder),
        }
        init = functools.partial(
            wandb.init,
            **{**names, **log.wandb_init},
            id=identity,
            config=config,
            resume="allow",
            settings=wandb.Settings(**{**_SETTINGS, **_git_without_token(), **recorded}),
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
