"""Metrics and samples in Weights & Biases: online, offline or off, never an error of the run."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from triptych.training.callbacks.progress import say
from triptych.training.loggers.samples import SampleLog, read_table
from triptych.training.run.settings import RunConfig

# init_timeout: seconds to wait for the server before the run is offline.
_SETTINGS: dict[str, Any] = {"console": "off", "silent": True, "init_timeout": 15.0}


class WandbMetrics(SampleLog):
    """Run of Weights & Biases; target: its `wandb.Run`.

    The step is a metric too, since a resumed run may go back.
    """

    service = "Weights & Biases"

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
        self.target.finish(exit_code=0 if succeeded else 1)


def open_wandb(
    settings: RunConfig, *, folder: Path, identity: str, config: dict[str, Any]
) -> WandbMetrics | None:
    """Open the run online, else offline, else return None; print one sentence about it.

    folder: of the run. identity: id of the wandb run, kept for resumed runs. config: settings and
    versions.
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
    except Exception as error:
        say(off.format(f"it failed, {_first_line(error)}"))
        return None
    later = "; `wandb sync` can send it later" if mode == "offline" else ""
    say(f"Weights & Biases logs {mode} ({reason}){later}.")
    return WandbMetrics(run)


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
