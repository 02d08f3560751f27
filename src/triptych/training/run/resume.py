"""Continue a run from its checkpoint, or initialise a new run from another model's weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from triptych import pretrained
from triptych.errors import UserError
from triptych.files.reading import rank_and_world
from triptych.training.callbacks.progress import say
from triptych.training.engine.module import TrainingModule
from triptych.training.finetune.lora import is_adapter, merge_adapters
from triptych.training.finetune.rows import RowMap, with_rows
from triptych.training.finetune.vectors import place_vectors
from triptych.training.loading.loader import ResumableLoader
from triptych.training.run.checkpoint import check_domain, read_checkpoint
from triptych.training.run.settings import ModelSettings

SAME_FUNCTION = ("model.transformer.activation_checkpointing",)
"""Settings of the model that do not change the function that it computes."""

SIZES = ("n_layers", "d_model", "n_heads", "d_ff")
"""Last parts of the names of settings that determine a model's sizes."""

UNSET = "unset"
"""Value of a setting that a version of Triptych does not have."""

REFUSED = {
    "optim.optimizer.class_path": "an optimiser cannot take up another's state",
    "task.class_path": "the model and its scores belong to the task",
    "run.seed": "the order of the data depends on it",
    "run.train_only": "the optimiser has the state of what it trains",
    "run.word_vectors": "the embeddings began with them",
    "run.freeze_word_vectors": "frozen embeddings may have been trained, or the reverse",
    "run.lora_rank": "the shape of the adapters depends on it",
    "run.lora_alpha": "the adapters were trained with this factor",
    "run.lora_layers": "the adapters belong to these layers",
}
"""Other settings that must be as they were when the run began, and the reason."""

OFF = (UNSET, None, 0)
"""Values of `run.train_only` and `run.lora_rank` that train the whole model."""

_ANEW = "give the former settings, or another --run.name to begin anew"


class Change(NamedTuple):
    """Setting that differs between a checkpoint and this run."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} was {self.before}, is {self.now}"

    def alters_model(self) -> bool:
        """Return whether the model computes another function.

        A setting that an older version did not have has a default that means the same; if it has
        another value, the shapes of the weights decide.
        """
        is_model = self.name.startswith("model.") and self.name not in SAME_FUNCTION
        return is_model and self.before != UNSET

    def is_refused(self) -> bool:
        """Return whether a run cannot be resumed with the change."""
        if self.name in ("run.train_only", "run.lora_rank"):
            return not (self.before in OFF and self.now in OFF)
        return self.alters_model() or (self.name in REFUSED and self.before != UNSET)


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    """Return the settings that differ between two configs of JSON types, sorted by name."""
    old, new = _flat(before), _flat(now)
    return [
        Change(name, old.get(name, UNSET), new.get(name, UNSET))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def settings_of(metadata: dict[str, Any], config: Iterable[str]) -> dict[str, Any]:
    """Return the settings of a run that metadata or the header of a checkpoint have.

    config: names of the parts of a run's settings, such as data, model, optim and run.
    """
    return {name: metadata[name] for name in config if name in metadata}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return settings by their path: {"model": {"d_model": 64}} gives {"model.d_model": 64}."""
    if isinstance(value, dict) and value:
        flat: dict[str, Any] = {}
        for key, item in value.items():
            flat |= _flat(item, f"{prefix}{key}.")
        return flat
    return {prefix.rstrip("."): value}


def _listed(changed: Iterable[Change], before: str = "", after: str = "") -> str:
    """Return the changes as text between `before` and `after`; empty if there are none."""
    text = ", ".join(map(str, changed))
    return f"{before}{text}{after}" if text else ""


def _misfit(kept: dict[str, Tensor], built: dict[str, Tensor]) -> str | None:
    """Return a sentence about the first weight of another shape; None if all fit."""
    for name in sorted({*kept, *built}):
        there, here = (list(w[name].shape) if name in w else "missing" for w in (kept, built))
        if there != here:
            return f"the weight {name} is {there} in the checkpoint and {here} in this model"
    return None


def find_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return path and content of last.ckpt, or of best.ckpt if last.ckpt is damaged.

    Raises UserError if both are damaged, or missing: another process has found one.
    """
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
    config: dict[str, Any],
    max_epochs: int | None,
) -> list[Change]:
    """Return the settings that have changed since the checkpoint; UserError if they cannot.

    config: settings as JSON types. Needs neither data nor model.
    """
    header = content["triptych"]
    check_domain(header, domain, path)
    changed = changes(settings_of(header, config), config)
    refused = [
        f"{change} ({REFUSED.get(change.name, 'a model cannot change')})"
        for change in changed
        if change.is_refused()
    ]
    if refused:
        raise UserError(f"{path} cannot be resumed: {', '.join(refused)}; {_ANEW}")
    done = int(content["epoch"])
    if max_epochs is not None and 0 <= max_epochs < done:
        raise UserError(
            f"{path} is in epoch {done + 1}, but trainer.max_epochs is {max_epochs}; expected at "
            f"least {done + 1}, or -1 for no limit"
        )
    return changed


def resume(
    task: TrainingModule,
    loader: ResumableLoader,
    path: Path,
    content: dict[str, Any],
    max_epochs: int | None,
) -> int:
    """Check that the checkpoint fits the run, set the loader's position and return the step.

    Raises UserError if domain, vocabulary, model, seed or training items differ. Prints other
    settings that differ; the new ones are used.
    """
    header, config = content["triptych"], settings_of(task.metadata, vars(task.config))
    changed = check_resumable(
        path, content, domain=task.domain, config=config, max_epochs=max_epochs
    )
    why = _listed((c for c in changed if c.name.startswith(("data.", "model."))), " (", ")")
    if header.get("vocabulary") != task.metadata.get("vocabulary"):
        raise UserError(f"{path} has another vocabulary than this run{why}; it cannot be resumed")
    if (wrong := _misfit(content["state_dict"], task.state_dict())) is not None:
        raise UserError(f"{path} cannot be resumed: {wrong}{why}; {_ANEW}")
    position = content["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]
    loader.load_state_dict(position)
    if path.name != "last.ckpt":
        say(f"{path.with_name('last.ckpt')} is missing or damaged.")
    for change in changed:
        say(f"Changed since the run began: {change}.")
    _, processes = rank_and_world()
    before = position.get("processes", processes)
    if processes != before:
        say(
            f"The run had {before} processes and has {processes} now: the order of the data goes "
            f"on, but an update takes {processes / before:g} times as many batches unless "
            "trainer.accumulate_grad_batches makes up for it, and dropout and the ends of epochs "
            "differ."
        )
    step = int(header["step"])
    say(f"Resuming from step {step}, {path}.")
    return step


def is_other_task(header: dict[str, Any], config: dict[str, Any]) -> bool:
    """Return whether the model of a checkpoint has another task than a run of these settings."""
    changed = changes(settings_of(header, config), config)
    return any(change.name == "task.class_path" for change in changed)


def read_initial(name: str, *, domain: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the content of run.init_from: a checkpoint file, or `pretrained:NAME`.

    Its adapters are merged into the weights. config: settings as JSON types; needs no data. Raises
    UserError if there is none, or if its domain or a size of its model differs (another n_heads
    would fit the weights).
    """
    path = pretrained.find(name) if name.startswith(pretrained.PREFIX) else Path(name)
    content = read_checkpoint(path)
    header = content["triptych"]
    check_domain(header, domain, f"run.init_from {name}")
    sizes = [
        change
        for change in changes(settings_of(header, config), config)
        if change.alters_model() and change.name.rpartition(".")[2] in SIZES
    ]
    if sizes:
        raise UserError(f"run.init_from is {name}, a model of other sizes: {_listed(sizes)}")
    alpha = header.get("lora_alpha", ModelSettings.lora_alpha)
    return {**content, "state_dict": merge_adapters(content["state_dict"], alpha)}


def initialize_from(task: TrainingModule, name: str) -> None:
    """Load the weights of a checkpoint into a new run (of best.ckpt their moving average).

    Optimiser, schedule and data order begin anew. Prints model settings that differ, and with the
    vocabulary of the data how many of its symbols are new. Raises UserError if a size, the
    vocabulary or a weight does not fit.
    """
    config = settings_of(task.metadata, vars(task.config))
    content = read_initial(name, domain=task.domain, config=config)
    header = content["triptych"]
    altered = [c for c in changes(settings_of(header, config), config) if c.alters_model()]
    why = _listed(altered, "; settings that differ: ")
    own = task.state_dict()
    weights, new = task.initial_weights(header, content["state_dict"])
    maps: list[RowMap] = []
    if task.config.run.init_vocabulary == "data":
        maps = task.row_maps(header["vocabulary"])
        weights = with_rows(own, weights, maps)
    elif not task.same_vocabulary(header["vocabulary"]):
        raise UserError(
            f"run.init_from is {name}, whose vocabulary is another than that of these data{why}; "
            "the weights would mean something else"
        )
    begun = {key: own[key] for key in own if is_adapter(key) or key.startswith(new)}
    weights = {**begun, **weights}
    if (wrong := _misfit(weights, own)) is not None:
        raise UserError(f"run.init_from is {name}, but {wrong}{why}")
    _check_rows_trained(task, maps)
    _check_new_trained(task, new)
    _check_shared(task, weights, name)
    task.load_state_dict(weights)
    if maps:
        say(f"Vocabulary of the data: {'; '.join(map(str, maps))}.")
    if new:
        say(f"Starting anew: {', '.join(map(_part, new))}.")
    for change in altered:
        say(f"Other than in {name}: {change}.")
    say(f"Starting with the weights of {name}, step {header['step']}.")


def start_from_vectors(task: TrainingModule, path: str, *, freeze: bool) -> dict[str, int]:
    """Fill the embeddings of a run with the vectors of a file and say how many it has.

    Returns how many tokens there are, how many of them are words and how many got a vector.
    freeze: keep these rows as they are during the training. Raises UserError as `place_vectors`
    does, and for models of a domain without words.
    """
    target = task.word_rows()
    fixed = place_vectors(target, path)
    n_words = sum(word is not None for word in target.words)
    say(
        f"Word vectors of {path}: {len(fixed.rows):,} of {n_words:,} tokens that are words "
        f"({len(fixed.rows) / n_words:.1%}){', frozen' if freeze else ''}; "
        f"{len(target.words) - len(fixed.rows):,} embeddings start at random."
    )
    task.fixed_rows = fixed if freeze else None
    return {"tokens": len(target.words), "words": n_words, "covered": len(fixed.rows)}


def _check_rows_trained(task: TrainingModule, maps: list[RowMap]) -> None:
    """Raise UserError where new rows of a weight would stay random, because it is frozen."""
    parameters = dict(task.named_parameters(remove_duplicate=False))
    for each in maps:
        frozen = [name for name in each.weights if not parameters[name].requires_grad]
        modules = dict.fromkeys(key.removeprefix("model.").rpartition(".")[0] for key in frozen)
        if each.n_new and frozen:
            raise UserError(
                f"run.init_vocabulary is data, which adds {each.n_new:,} new {each.what}, but "
                f"their weights would stay random; add {', '.join(modules)} to run.train_only"
            )


def _check_new_trained(task: TrainingModule, new: tuple[str, ...]) -> None:
    """Raise UserError where a part that starts anew would stay random, because it is frozen."""
    for name, parameter in task.named_parameters():
        if name.startswith(new) and not parameter.requires_grad:
            part = next(_part(each) for each in new if name.startswith(each))
            raise UserError(
                f"run.train_only leaves out {part}, which starts anew and would stay random; add "
                f"{part} to run.train_only"
            )


def _part(prefix: str) -> str:
    """Return the name of a part for a user: `task_head` for `model.task_head.`."""
    return prefix.removeprefix("model.").rstrip(".")


def _check_shared(task: TrainingModule, weights: dict[str, Tensor], name: str) -> None:
    """Raise UserError where one matrix of this model is two different ones in the checkpoint."""
    first: dict[Tensor, str] = {}
    for key, parameter in task.named_parameters(remove_duplicate=False):
        other = first.setdefault(parameter, key)
        if other != key and not weights[other].equal(weights[key]):
            raise UserError(
                f"run.init_from is {name}, in which {other} and {key} are two matrices; in this "
                "model they are one"
            )
