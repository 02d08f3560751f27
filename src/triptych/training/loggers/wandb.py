"""Figures, images, sounds and MIDI in Weights & Biases, which never stops a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger

from triptych.training.loggers.media import Media
from triptych.training.loggers.wandb_mode import WandbDecision


class WandbMetrics(Logger):
    """A wandb run that gives up with one sentence, rather than the training, when it fails."""

    def __init__(self, run: Any, tell: Callable[[str], None]) -> None:
        super().__init__()
        self.run: Any | None = run
        self._tell = tell

    @property
    def name(self) -> str:
        """Name of the logger."""
        return "wandb"

    @property
    def version(self) -> str:
        """Identity of the run on the server."""
        return str(self.run.id) if self.run is not None else ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: the configuration was given when the run was opened."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log figures; the step is a figure too, for a resumed run may go back."""
        self._try(lambda run: run.log({**metrics, "step": step}))

    def log_media(self, media: Sequence[Media], step: int) -> None:
        """Log images, sounds and tables, and MIDI files as an artifact."""
        self._try(lambda run: _send_media(run, media, step))

    def finalize(self, status: str) -> None:
        """Close the run; failed runs are marked so."""
        self._try(lambda run: run.finish(exit_code=0 if status == "success" else 1))
        self.run = None

    def _try(self, action: Callable[[Any], object]) -> None:
        if self.run is None:
            return
        try:
            action(self.run)
        except Exception as error:
            self.run = None
            self._tell(
                f"Weights & Biases failed ({type(error).__name__}: {error}) and is off from here; "
                "the training goes on, figures are in metrics.csv."
            )


def _send_media(run: Any, media: Sequence[Media], step: int) -> None:
    import wandb

    shown: dict[str, Any] = {"step": step}
    notes = []
    for item in media:
        key = f"samples/{item.name}"
        if item.kind == "table":
            # wandb wants one type a column; text and numbers of ours may be mixed.
            rows = [[str(cell) for cell in row] for row in item.rows]
            shown[key] = wandb.Table(columns=list(item.columns), data=rows)
        elif item.kind == "image":
            # A file, not an array: wandb 0.31 does not rescale floats, so we hand it bytes.
            shown[key] = wandb.Image(str(item.path), caption=item.caption or None)
        elif item.kind == "audio":
            shown[key] = wandb.Audio(str(item.path), caption=item.caption or None)
        else:
            notes.append(item)
    if notes:
        artifact = wandb.Artifact(f"midi-{run.id}", type="midi", metadata={"step": step})
        for item in notes:
            artifact.add_file(str(item.path))
        run.log_artifact(artifact)
    run.log(shown)


def open_wandb(
    decision: WandbDecision,
    tell: Callable[[str], None],
    *,
    folder: Path,
    project: str,
    name: str,
    identity: str,
    config: dict[str, Any],
) -> WandbMetrics | None:
    """Open the run as decided; where online fails try offline, where that fails go without.

    Says one sentence about what is done. folder: the run's, wandb writes below it. identity: kept
    in versions.json, so that a resumed run goes on in the same one.
    """
    if decision.mode == "off":
        tell(decision.sentence)
        return None
    failure = ""
    for mode in ("online", "offline") if decision.mode == "online" else ("offline",):
        try:
            import wandb

            run = wandb.init(
                project=project,
                name=name,
                id=identity,
                dir=str(folder),
                config=config,
                mode=mode,
                resume="allow",
                settings=wandb.Settings(console="off", silent=True, init_timeout=30.0),
            )
            run.define_metric("step", hidden=True)
            run.define_metric("*", step_metric="step")
        except Exception as error:
            failure = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        if failure:
            tell(f"Weights & Biases logs offline: online failed ({failure}).")
        else:
            tell(decision.sentence)
        return WandbMetrics(run, tell)
    tell(f"Weights & Biases is off: it failed ({failure}); figures are in metrics.csv only.")
    return None
