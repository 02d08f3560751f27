"""A run that begins with the weights of another: fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triptych import pretrained
from triptych.errors import UserError
from triptych.training.callbacks.progress import say
from triptych.training.checkpoint import check_domain, read_checkpoint
from triptych.training.differing import ONLY_COMPUTED, changed, flat, misfit
from triptych.training.module import TrainingModule

SIZES = (
    "model.transformer.n_layers",
    "model.n_decoder_layers",
    "model.transformer.d_model",
    "model.transformer.n_heads",
    "model.transformer.feed_forward.init_args.d_ff",
)


def read_start(name: str, *, domain: str) -> dict[str, Any]:
    """The content of the checkpoint that `run.init_from` names, also as `pretrained:NAME`.

    Raises UserError where there is none, and for a model of another domain.
    """
    path = pretrained.find(name) if name.startswith(pretrained.PREFIX) else Path(name)
    content = read_checkpoint(path)
    check_domain(content, domain, f"run.init_from {name}")
    return content


def check_start(name: str, *, domain: str, config: dict[str, Any]) -> dict[str, Any]:
    """The content, read before the data are; UserError where the model has other sizes, too.

    config: the settings as a plain dict. Another number of heads would even fit the weights.
    """
    content = read_start(name, domain=domain)
    before, now = (_sizes(settings) for settings in (content["triptych"]["config"], config))
    wrong = changed(before, now)
    if wrong:
        other, here = (", ".join(f"{n} {sizes[n]}" for n in wrong) for sizes in (before, now))
        raise UserError(f"run.init_from is {name}, with {other}; the settings say {here}.")
    return content


def start_with(task: TrainingModule, name: str) -> None:
    """Give a new task the weights of a checkpoint (of best.ckpt their running mean).

    The optimiser, the schedule and the order of the data begin anew. Other settings of the model
    than the checkpoint's are said. Raises UserError where a size, the vocabulary or a weight does
    not fit.
    """
    content = check_start(name, domain=task.domain, config=task.metadata["config"])
    header = content["triptych"]
    before, now = flat(header["config"]), flat(task.metadata["config"])
    differing = [
        f"{setting} was {before[setting]}, is {now.get(setting)}"
        for setting in changed(before, now)
        if setting in before and setting.startswith("model.") and setting not in ONLY_COMPUTED
    ]
    why = f"; settings that differ: {', '.join(differing)}" if differing else ""
    if not task.same_vocabulary(header["vocabulary"]):
        raise UserError(
            f"run.init_from is {name}, whose vocabulary is another than that of these data{why}; "
            "the weights would mean something else."
        )
    if (wrong := misfit(content["state_dict"], task.state_dict())) is not None:
        raise UserError(f"run.init_from is {name}, but {wrong}{why}.")
    task.load_state_dict(content["state_dict"])
    for line in differing:
        say(f"Other than in {name}: {line}.")
    say(f"Starting with the weights of {name}, step {header['step']}.")


def _sizes(config: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a model; a decoder of unnamed depth is as deep as the encoder."""
    settings = flat(config)
    sizes = {name: settings.get(name) for name in SIZES}
    if sizes["model.n_decoder_layers"] is None:
        sizes["model.n_decoder_layers"] = sizes["model.transformer.n_layers"]
    return sizes
