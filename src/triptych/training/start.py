"""A run that begins with the weights of another: fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triptych import pretrained
from triptych.errors import UserError
from triptych.training.checkpoint import read_checkpoint
from triptych.training.differing import changed, flat, misfit
from triptych.training.progress import say
from triptych.training.task import Task

SIZES = tuple(
    f"model.{name}" for name in ("n_layers", "n_decoder_layers", "d_model", "n_heads", "d_ff")
)


def read_start(name: str, *, domain: str) -> dict[str, Any]:
    """The content of the checkpoint that `run.start_from` names, also as `pretrained:NAME`.

    Raises UserError where there is none, and for a model of another domain.
    """
    path = pretrained.find(name) if name.startswith(pretrained.PREFIX) else Path(name)
    content = read_checkpoint(path)
    found = content["triptych"]["domain"]
    if found != domain:
        raise UserError(
            f"run.start_from is {name}, a model of the domain {found}; expected one of the domain "
            f"{domain}."
        )
    return content


def check_start(name: str, *, domain: str, config: dict[str, Any]) -> None:
    """Raise UserError as `read_start` does, and where the model has other sizes.

    config: the settings as a plain dict. Needs no data, so it comes first; other heads would even
    fit the weights.
    """
    before, now = flat(read_start(name, domain=domain)["triptych"]["config"]), flat(config)
    wrong = [size for size in SIZES if before.get(size) != now.get(size)]
    if wrong:
        other = ", ".join(f"{size} {before.get(size)}" for size in wrong)
        here = ", ".join(f"{size} {now.get(size)}" for size in wrong)
        raise UserError(f"run.start_from is {name}, with {other}; the settings say {here}.")


def start_with(task: Task, name: str) -> None:
    """Give a new task the weights of a checkpoint (of best.ckpt their running mean).

    The optimiser, the schedule and the order of the data begin anew. Other settings of the model
    than the checkpoint's are said. Raises UserError where the vocabulary or a weight does not fit.
    """
    content = read_start(name, domain=task.domain)
    block = content["triptych"]
    before, now = flat(block["config"]), flat(task.card["config"])
    differing = [
        f"{name} was {before[name]}, is {now.get(name)}"
        for name in changed(before, now)
        if name in before and name.startswith("model.")
    ]
    why = f"; settings that differ: {', '.join(differing)}" if differing else ""
    if not task.same_vocabulary(block["vocabulary"]):
        raise UserError(
            f"run.start_from is {name}, whose vocabulary is another than that of these data{why}; "
            "the weights would mean something else."
        )
    if (wrong := misfit(content["state_dict"], task.state_dict())) is not None:
        raise UserError(f"run.start_from is {name}, but {wrong}{why}.")
    task.load_state_dict(content["state_dict"])
    for line in differing:
        say(f"Other than in {name}: {line}.")
    say(f"Starting with the weights of {name}, step {block['step']}.")
