"""Folder of a run, which is never overwritten, and what a run that goes on from it must keep."""

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import yaml
from torch import Tensor

from triptych.config.schema import to_plain
from triptych.errors import UserError
from triptych.files.reading import rank_and_world
from triptych.files.results import why_unwritable, write_atomically
from triptych.training.callbacks.progress import say
from triptych.training.engine.module import TrainingModule
from triptych.training.loading.loader import ResumableLoader
from triptych.training.run.checkpoint import check_domain, code_commit, read_checkpoint, versions

Resume: TypeAlias = bool | Literal["auto"]
"""Whether a run goes on from its last checkpoint; auto: if there is one."""

SAME_FUNCTION = ("model.transformer.activation_checkpointing",)
"""Settings of the model that do not change the function that it computes."""

UNSET = "unset"
"""Value of a setting that the other class of a part does not have."""

REFUSED = {
    "optim.optimizer.class_path": "an optimiser cannot take up another's state",
    "task.class_path": "the model and its scores belong to the task",
    "run.seed": "the order of the data depends on it",
    "run.start.word_vectors": "the embeddings began with them",
    "run.start.freeze_word_vectors": "frozen embeddings may have been trained, or the reverse",
    "run.finetune.train_only": "the optimiser has the state of what it trains",
    "run.finetune.lora_rank": "the shape of the adapters depends on it",
    "run.finetune.lora_alpha": "the adapters were trained with this factor",
    "run.finetune.lora_layers": "the adapters belong to these layers",
}
"""Settings beside the model's that must be as they were when the run began, and the reason."""

_ANEW = "give the former settings, or another --run.name to begin anew"


class Change(NamedTuple):
    """Setting that differs between a checkpoint and this run."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} was {self.before}, is {self.now}"

    def alters_model(self) -> bool:
        """Return whether the model computes another function."""
        return self.name.startswith("model.") and self.name not in SAME_FUNCTION


def changes(header: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Change]:
    """Return the settings that differ between a checkpoint's header and a run, sorted by name."""
    old, new = _flat({name: header[name] for name in settings if name in header}), _flat(settings)
    return [
        Change(name, old.get(name, UNSET), new.get(name, UNSET))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return settings by their path: {"model": {"d_model": 64}} gives {"model.d_model": 64}."""
    if isinstance(value, Mapping) and value:
        parts = (_flat(item, f"{prefix}{key}.") for key, item in value.items())
        return {path: leaf for part in parts for path, leaf in part.items()}
    return {prefix.rstrip("."): value}


def listed(changed: Iterable[Change], before: str = "", after: str = "") -> str:
    """Return the changes as text between `before` and `after`; empty if there are none."""
    text = ", ".join(map(str, changed))
    return f"{before}{text}{after}" if text else ""


def misfit(kept: Mapping[str, Tensor], built: Mapping[str, Tensor]) -> str | None:
    """Return a sentence about the first weight of another shape; None if all fit."""
    for name in sorted({*kept, *built}):
        there, here = (list(w[name].shape) if name in w else "missing" for w in (kept, built))
        if there != here:
            return f"the weight {name} is {there} in the checkpoint and {here} in this model"
    return None


def holds_checkpoint(folder: Path) -> bool:
    """Return whether the folder contains a checkpoint to resume from."""
    return any((folder / "checkpoints" / name).exists() for name in ("last.ckpt", "best.ckpt"))


def is_occupied(folder: Path) -> bool:
    """Return whether the folder exists and contains anything."""
    return folder.is_dir() and any(folder.iterdir())


def check_run_folder(folder: Path, *, resume: Resume) -> bool:
    """Return whether the run goes on from a checkpoint in this folder; UserError for neither.

    "auto" begins also in the folder of a run that was killed before its first checkpoint.
    """
    checkpoints = folder / "checkpoints"
    occupied, resumable = is_occupied(folder), holds_checkpoint(folder)
    may_restart = resume == "auto" and (folder / "versions.json").is_file()
    if occupied and not resumable and not may_restart:
        raise UserError(
            f"the folder {folder} is not empty, but {checkpoints} holds no last.ckpt or best.ckpt: "
            "there is nothing to resume, and nothing is overwritten; delete it, or choose another "
            "--run.name"
        )
    if resume is True and not resumable:
        raise UserError(
            f"there is nothing to resume: there is no {checkpoints / 'last.ckpt'} or best.ckpt; "
            "leave --resume out to start the run, or give --resume auto to do whichever fits"
        )
    if resumable and not resume:
        raise UserError(
            f"the folder {folder} holds a run already and nothing is overwritten: give --resume to "
            "go on with it, or another --run.name"
        )
    if (why := why_unwritable(checkpoints)) is not None:
        raise UserError(
            f"the folder {folder} of the run cannot be written: {why}; choose another with "
            "--run.directory"
        )
    return resumable


def find_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return path and content of last.ckpt, or of best.ckpt if it is damaged; else UserError."""
    refused: list[str] = []
    for name in ("last.ckpt", "best.ckpt"):
        path = folder / "checkpoints" / name
        if path.exists():
            try:
                return path, read_checkpoint(path)
            except UserError as error:
                refused.append(str(error))
    raise UserError(
        "; ".join(refused)
        or f"process 0 has a checkpoint in {folder} and this process has none; all nodes need the "
        "same run.directory"
    )


def check_resumable(
    path: Path,
    content: dict[str, Any],
    *,
    domain: str,
    settings: Mapping[str, Any],
    max_epochs: int | None,
) -> None:
    """Raise UserError where a run of these settings, of JSON types, cannot continue from it."""
    header = content["triptych"]
    check_domain(header, domain, path)
    refused = [
        f"{change} ({REFUSED.get(change.name, 'a model cannot change')})"
        for change in changes(header, settings)
        if change.alters_model() or change.name in REFUSED
    ]
    if refused:
        raise UserError(f"{path} cannot be resumed: {', '.join(refused)}; {_ANEW}")
    done = int(content["epoch"])
    if max_epochs is not None and 0 <= max_epochs < done:
        raise UserError(
            f"{path} is in epoch {done + 1}, but trainer.max_epochs is {max_epochs}; expected at "
            f"least {done + 1}, or -1 for no limit"
        )


def resume_run(
    task: TrainingModule, loader: ResumableLoader, path: Path, content: dict[str, Any]
) -> int:
    """Set the loader's position to the checkpoint's and return the step; print changed settings.

    Raises UserError if vocabulary, weights or training items differ.
    """
    header = content["triptych"]
    changed = changes(header, to_plain(task.config))
    why = listed((c for c in changed if c.name.startswith("data.")), " (", ")")
    if header["vocabulary"] != task.metadata["vocabulary"]:
        raise UserError(f"{path} has another vocabulary than this run{why}; it cannot be resumed")
    if (wrong := misfit(content["state_dict"], task.state_dict())) is not None:
        raise UserError(f"{path} cannot be resumed: {wrong}{why}; {_ANEW}")
    position = content["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]
    try:
        loader.load_state_dict(position)
    except UserError as error:
        raise UserError(f"{path} cannot be resumed: {error}{why}; {_ANEW}") from error
    if path.name != "last.ckpt":
        say(f"{path.with_name('last.ckpt')} is missing or damaged.")
    for change in changed:
        say(f"Changed since the run began: {change}.")
    step, before, now = int(header["step"]), position["processes"], rank_and_world()[1]
    others = f", with {now} processes in place of {before}" if now != before else ""
    say(f"Resuming from step {step}, {path}{others}.")
    return step


def write_config(folder: Path, settings: dict[str, Any], step: int) -> None:
    """Write config.yaml; a resumed run with other settings writes config.step-N.yaml instead."""
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    path = folder / "config.yaml"
    if path.is_file():
        if path.read_text(encoding="utf-8") == text:
            return
        path = folder / f"config.step-{step:08d}.yaml"
    path.write_text(text, encoding="utf-8")


def write_versions(folder: Path, start: dict[str, Any]) -> str:
    """Append a start of the run and versions to versions.json; return the id of its wandb run."""
    path = folder / "versions.json"
    record: dict[str, Any] = {"wandb": secrets.token_hex(4), "starts": []}
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
    record["starts"].append({**start, "commit": code_commit(), **versions()})
    write_atomically(path, f"{json.dumps(record, indent=2)}\n".encode())
    return str(record["wandb"])
