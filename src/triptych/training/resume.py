"""Continue a run from its checkpoint, or initialise a new run from another model's weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from triptych import pretrained
from triptych.errors import UserError
from triptych.training.callbacks.progress import say
from triptych.training.checkpoint import check_domain, read_checkpoint
from triptych.training.data import ResumableLoader
from triptych.training.module import TrainingModule

SAME_FUNCTION = ("model.transformer.activation_checkpointing",)
"""Settings of the model that do not change the function that it computes."""

SIZES = ("n_layers", "n_decoder_layers", "d_model", "n_heads", "d_ff")
"""Last parts of the names of settings that determine a model's sizes."""

_FIXED_MODEL = (
    "a model cannot change on --resume: give the former settings, or another --run.name to begin "
    "anew"
)


# Differences between a checkpoint and the settings


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return settings by their path: {"model": {"d_model": 64}} gives {"model.d_model": 64}."""
    if isinstance(value, dict) and value:
        found: dict[str, Any] = {}
        for key, item in value.items():
            found |= flat(item, f"{prefix}{key}.")
        return found
    return {prefix.rstrip("."): value}


def changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the sorted names whose values differ between two flat dicts."""
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


def _describe(path: Path, names: list[str], before: dict[str, Any], now: dict[str, Any]) -> str:
    def listed(values: dict[str, Any]) -> str:
        return ", ".join(f"{n} {values[n]}" if n in values else f"no {n}" for n in names)

    return f"{path} was trained with {listed(before)}, but the settings now say {listed(now)}"


def _changed_model(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    # A setting that an older version did not have has a default that means the same; if it has
    # another value, the shapes of the weights decide.
    return [
        name
        for name in changed(before, now)
        if name in before and name.startswith("model.") and name not in SAME_FUNCTION
    ]


def _misfit(kept: dict[str, Tensor], built: dict[str, Tensor]) -> str | None:
    """Return a sentence about the first weight of another shape; None if all fit."""
    for name in sorted({*kept, *built}):
        there, here = (list(w[name].shape) if name in w else "missing" for w in (kept, built))
        if there != here:
            return f"the weight {name} is {there} in the checkpoint and {here} in this model"
    return None


# Resume


def find_checkpoint(
    folder: Path, tell: Callable[[str], None] = say
) -> tuple[Path, dict[str, Any]] | None:
    """Return path and content of last.ckpt, or of best.ckpt if last.ckpt is damaged.

    None if the run has no checkpoint. tell: receives a sentence about a damaged file. Raises
    UserError if all are damaged.
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
            tell(f"{sentence}; resuming from {path} instead")
        return path, content
    if refused:
        raise UserError("; ".join(refused))
    return None


def check_same_model(
    path: Path, content: dict[str, Any], *, domain: str, config: dict[str, Any]
) -> None:
    """Raise UserError if domain, model settings or optimiser differ from the checkpoint's.

    config: settings as JSON types. Needs neither data nor model.
    """
    header = content["triptych"]
    check_domain(header, domain, path)
    before, now = flat(header["config"]), flat(config)
    if "optim.optimizer" in before and before["optim.optimizer"] != now["optim.optimizer"]:
        raise UserError(
            f"{_describe(path, ['optim.optimizer'], before, now)}; an optimiser cannot take up "
            "another's state: give the former one, or another --run.name to begin anew"
        )
    if names := _changed_model(before, now):
        raise UserError(f"{_describe(path, names, before, now)}; {_FIXED_MODEL}")


def check_epochs(path: Path, content: dict[str, Any], max_epochs: int | None) -> None:
    """Raise UserError if the run is beyond the last epoch of these settings."""
    done = int(content["epoch"])
    if max_epochs is not None and 0 <= max_epochs < done:
        raise UserError(
            f"{path} is in epoch {done + 1}, but trainer.max_epochs is {max_epochs}; expected at "
            f"least {done + 1}, or -1 for no limit"
        )


def check_seed(path: Path, content: dict[str, Any], seed: int) -> None:
    """Raise UserError if the run began with another seed."""
    before = content["triptych"]["seed"]
    if before != seed:
        raise UserError(
            f"{path} was made with run.seed {before}, this run has {seed}; to resume "
            "with the same data order they must be equal"
        )


def resume(
    task: TrainingModule,
    loader: ResumableLoader,
    *,
    seed: int,
    path: Path,
    content: dict[str, Any],
) -> int:
    """Check that the checkpoint fits the run, set the loader's position and return the step.

    Raises UserError if domain, vocabulary, model, seed or training items differ. Prints other
    settings that differ; the new ones are used.
    """
    header = content["triptych"]
    check_same_model(path, content, domain=task.domain, config=task.metadata["config"])
    before, now = flat(header["config"]), flat(task.metadata["config"])
    shaping = [name for name in changed(before, now) if name.startswith(("data.", "model."))]
    why = f"{_describe(path, shaping, before, now)}; " if shaping else ""
    if header.get("vocabulary") != task.metadata.get("vocabulary"):
        raise UserError(f"{why}{path} has another vocabulary than this run; it cannot be resumed")
    if (wrong := _misfit(content["state_dict"], task.state_dict())) is not None:
        raise UserError(f"{why or f'{path} holds other weights: '}{wrong}; {_FIXED_MODEL}")
    check_seed(path, content, seed)
    states = content["loops"]["fit_loop"]["state_dict"].get("combined_loader") or []
    if not states:
        raise UserError(f"{path} does not contain the position in the data; it cannot be resumed")
    loader.load_state_dict(states[0])
    for name in changed(before, now):
        say(f"Changed since the run began: {name} was {before.get(name)}, is {now.get(name)}.")
    step = int(header["step"])
    say(f"Resuming from step {step}, {path}.")
    return step


# Initialise from another model


def read_initial(name: str, *, domain: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the content of run.init_from: a checkpoint file, or `pretrained:NAME`.

    config: settings as JSON types; needs no data. Raises UserError if there is none, or if its
    domain or a size of its model differs (another n_heads would fit the weights).
    """
    path = pretrained.find(name) if name.startswith(pretrained.PREFIX) else Path(name)
    content = read_checkpoint(path)
    check_domain(content["triptych"], domain, f"run.init_from {name}")
    before, now = (_sizes(settings) for settings in (content["triptych"]["config"], config))
    if wrong := changed(before, now):
        there, here = (", ".join(f"{n} {sizes.get(n)}" for n in wrong) for sizes in (before, now))
        raise UserError(f"run.init_from is {name}, with {there}; the settings say {here}")
    return content


def initialize_from(task: TrainingModule, name: str) -> None:
    """Load the weights of a checkpoint into a new run (of best.ckpt their moving average).

    Optimiser, schedule and data order begin anew. Prints model settings that differ. Raises
    UserError if a size, the vocabulary or a weight does not fit.
    """
    content = read_initial(name, domain=task.domain, config=task.metadata["config"])
    header = content["triptych"]
    before, now = flat(header["config"]), flat(task.metadata["config"])
    differing = [
        f"{setting} was {before[setting]}, is {now.get(setting)}"
        for setting in _changed_model(before, now)
    ]
    why = f"; settings that differ: {', '.join(differing)}" if differing else ""
    if not task.same_vocabulary(header["vocabulary"]):
        raise UserError(
            f"run.init_from is {name}, whose vocabulary is another than that of these data{why}; "
            "the weights would mean something else"
        )
    if (wrong := _misfit(content["state_dict"], task.state_dict())) is not None:
        raise UserError(f"run.init_from is {name}, but {wrong}{why}")
    task.load_state_dict(content["state_dict"])
    for line in differing:
        say(f"Other than in {name}: {line}.")
    say(f"Starting with the weights of {name}, step {header['step']}.")


def _sizes(config: dict[str, Any]) -> dict[str, Any]:
    sizes = {
        name: value
        for name, value in flat(config).items()
        if name.startswith("model.") and name.rpartition(".")[2] in SIZES
    }
    # A decoder without a depth of its own is as deep as the encoder.
    if sizes.get("model.n_decoder_layers", 0) is None:
        sizes["model.n_decoder_layers"] = sizes.get("model.transformer.n_layers")
    return sizes
