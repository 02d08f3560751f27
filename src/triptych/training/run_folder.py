"""The folder of a run: refused, resumed, described."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from triptych.errors import UserError
from triptych.training.callbacks.progress import say
from triptych.training.checkpoint import read_checkpoint
from triptych.training.data import ResumableLoader
from triptych.training.differing import ONLY_COMPUTED, changed, flat, misfit, trained_otherwise
from triptych.training.metadata import code_commit, versions
from triptych.training.module import TrainingModule
from triptych.training.run_settings import RunConfig


def is_first_process() -> bool:
    """Tell, before Lightning starts its processes, whether this one writes the run's folder."""
    if os.environ.get("RANK"):
        return int(os.environ["RANK"]) == 0
    names = ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
    return all(int(os.environ.get(name) or 0) == 0 for name in names)


def refuse_overwriting(folder: Path, *, resume: bool) -> None:
    """Raise UserError where a run lies in the folder already, or where there is none to resume."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; the run needs a folder of that name.")
    occupied = folder.is_dir() and any(folder.iterdir())
    checkpoints = folder / "checkpoints"
    if occupied and not holds_checkpoint(folder):
        raise UserError(
            f"The folder {folder} is not empty, but {checkpoints} holds no last.ckpt or best.ckpt: "
            "there is nothing to resume, and nothing is overwritten. Delete it, or choose another "
            "--run.name."
        )
    if resume:
        raise UserError(
            f"There is nothing to resume: there is no {checkpoints / 'last.ckpt'} or best.ckpt. "
            "Leave --resume out to start the run."
        )
    if occupied:
        raise UserError(
            f"The folder {folder} holds a run already and nothing is overwritten: give --resume to "
            "go on with it, or another --run.name."
        )


def holds_checkpoint(folder: Path) -> bool:
    """Whether there is something to resume from."""
    return any((folder / "checkpoints" / name).exists() for name in ("last.ckpt", "best.ckpt"))


@contextmanager
def removed_unless(kept: Callable[[], bool], folder: Path) -> Iterator[None]:
    """Remove the folder where the block ends before its time with nothing to keep in it.

    Else the same command, given once more, would be refused because of files that say nothing.
    """
    try:
        yield
    except BaseException:
        if not kept():
            shutil.rmtree(folder, ignore_errors=True)
        raise


def find_checkpoint(
    folder: Path, tell: Callable[[str], None] = say
) -> tuple[Path, dict[str, Any]] | None:
    """Return the checkpoint to resume from and its content; None where the run has none.

    last.ckpt, or where it cannot be read best.ckpt, which `tell` is told. UserError where neither
    can.
    """
    refused: list[str] = []
    for name in ("last.ckpt", "best.ckpt"):
        path = folder / "checkpoints" / name
        if not path.exists():
            continue
        try:
            content = read_checkpoint(path)
        except UserError as error:
            refused.append(str(error))
            continue
        for sentence in refused:
            tell(f"{sentence} Resuming from {path} instead.")
        return path, content
    if refused:
        raise UserError(" ".join(refused))
    return None


def check_same_model(
    path: Path, content: dict[str, Any], *, domain: str, config: dict[str, Any]
) -> None:
    """Raise UserError where the checkpoint is of another domain or has other settings of the model.

    config: the settings as a plain dict. Needs neither data nor a model, so it comes first.
    """
    header = content["triptych"]
    if header["domain"] != domain:
        raise UserError(
            f"{path} is of the domain {header['domain']}, this run of the domain {domain}; it "
            "cannot be resumed."
        )
    before, now = flat(header["config"]), flat(config)
    # A setting that was not there yet when the run began mostly has a default that means what was
    # before; where it has another value, `take_up` sees whether the weights still fit.
    names = [
        name
        for name in changed(before, now)
        if name in before and name.startswith("model.") and name not in ONLY_COMPUTED
    ]
    if "optim.optimizer" in before and before["optim.optimizer"] != now["optim.optimizer"]:
        raise UserError(
            f"{trained_otherwise(path, ['optim.optimizer'], before, now)}; an optimiser cannot "
            "take up another's state: give the former one, or another --run.name to begin anew."
        )
    if names:
        raise UserError(f"{trained_otherwise(path, names, before, now)}; {_NO_OTHER_MODEL}")


def check_epochs(path: Path, content: dict[str, Any], max_epochs: int | None) -> None:
    """Raise UserError where the run is beyond the last epoch that it may have now."""
    done = int(content["epoch"])
    if max_epochs is not None and 0 <= max_epochs < done:
        raise UserError(
            f"{path} is in epoch {done + 1}, but trainer.max_epochs is {max_epochs}; expected at "
            f"least {done + 1}, or -1 for no limit."
        )


def check_seed(path: Path, content: dict[str, Any], seed: int) -> None:
    """Raise UserError where the run began with another seed."""
    before = content["triptych"]["seed"]
    if before != seed:
        raise UserError(
            f"{path} was made with run.seed {before}, this run has {seed}; to resume "
            "with the same data order they must be equal."
        )


def take_up(
    task: TrainingModule,
    loader: ResumableLoader,
    run: RunConfig,
    path: Path,
    content: dict[str, Any],
) -> int:
    """Check that the checkpoint is of this run, put the loader where it was, return the step.

    UserError where the domain, the vocabulary or the model differ (the weights would not fit), or
    the seed or the number of training items (the data order would). Other changed settings are
    said and taken over.
    """
    header = content["triptych"]
    check_same_model(path, content, domain=task.domain, config=task.metadata["config"])
    before, now = flat(header["config"]), flat(task.metadata["config"])
    shaping = [name for name in changed(before, now) if name.startswith(("data.", "model."))]
    why = f"{trained_otherwise(path, shaping, before, now)}; " if shaping else ""
    if header.get("vocabulary") != task.metadata.get("vocabulary"):
        raise UserError(f"{why}{path} has another vocabulary than this run; it cannot be resumed.")
    if (wrong := misfit(content["state_dict"], task.state_dict())) is not None:
        raise UserError(f"{why or f'{path} holds other weights: '}{wrong}; {_NO_OTHER_MODEL}")
    check_seed(path, content, run.seed)
    states = content["loops"]["fit_loop"]["state_dict"].get("combined_loader") or []
    if not states:
        raise UserError(
            f"{path} does not say where in the data the run stood; it cannot be resumed."
        )
    loader.load_state_dict(states[0])
    for name in changed(before, now):
        say(f"Changed since the run began: {name} was {before.get(name)}, is {now.get(name)}.")
    step = int(header["step"])
    say(f"Resuming from step {step}, {path}.")
    return step


def write_config(folder: Path, settings: dict[str, Any], step: int) -> None:
    """Write config.yaml; a resumed run with other settings writes config.step-N.yaml beside it."""
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    path = folder / "config.yaml"
    if path.is_file():
        if path.read_text(encoding="utf-8") == text:
            return
        path = folder / f"config.step-{step:08d}.yaml"
    path.write_text(text, encoding="utf-8")


def write_versions(
    folder: Path, run: RunConfig, precision: str, task: TrainingModule, step: int
) -> str:
    """Write versions.json, one entry for each start of the run, and return its wandb identity."""
    path = folder / "versions.json"
    record: dict[str, Any] = {"wandb": secrets.token_hex(4), "starts": []}
    if path.is_file():
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            say(f"{path} could not be read; it is written anew.")
    record["starts"].append(
        {
            "step": step,
            "seed": run.seed,
            "precision": precision,
            "parameters": sum(parameter.numel() for parameter in task.parameters()),
            "commit": code_commit(),
            **versions(),
        }
    )
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return str(record["wandb"])


_NO_OTHER_MODEL = (
    "a model cannot change on --resume: give the former settings, or another --run.name to begin "
    "anew."
)
