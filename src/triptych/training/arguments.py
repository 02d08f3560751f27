"""Lightning's Trainer arguments: which the user may set, and what `precision: auto` means here."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import Logger

from triptych.errors import UserError

OURS = {
    "default_root_dir": "use --run.directory and --run.name",
    "enable_checkpointing": "best.ckpt and last.ckpt are always kept",
    "enable_model_summary": "the number of parameters is always said",
    "barebones": "leave it out",
    "overfit_batches": "no batch comes twice here, so give a small data set to fit too well",
}
"""Trainer arguments that the run sets itself, and what to do instead."""

NARROWEST_BF16_ON_CPU = 128
"""Model width from which bf16 autocast pays on a CPU, see `choose_precision`."""


def check_arguments(trainer: dict[str, Any]) -> dict[str, Any]:
    """Check the Trainer's arguments by name and return those that are passed on unchanged."""
    allowed = [name for name in inspect.signature(pl.Trainer.__init__).parameters if name != "self"]
    for name, value in trainer.items():
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"; did you mean trainer.{near[0]}?" if near else "."
            raise UserError(f"trainer.{name} is no argument of Lightning's Trainer{hint}")
        default = inspect.signature(pl.Trainer.__init__).parameters[name].default
        if name in OURS and value is not None and value != default:
            raise UserError(f"trainer.{name} is set by the run: {OURS[name]}.")
    limits = ("max_steps", "max_epochs", "max_time")
    if all(trainer.get(name) in (None, -1) for name in limits) and not trainer.get("fast_dev_run"):
        raise UserError(
            "Nothing says when to stop: set --trainer.max_steps (or trainer.max_epochs or "
            "trainer.max_time)."
        )
    handled = {*OURS, "callbacks", "logger", "plugins"}
    kept = {name: value for name, value in trainer.items() if name not in handled}
    # One batch of validation first, so that a fault in it shows in seconds, not after an hour.
    if kept.get("num_sanity_val_steps") is None:
        kept["num_sanity_val_steps"] = 1
    return kept


def check_patience(patience: int | None, arguments: dict[str, Any]) -> None:
    """Raise UserError where the run waits for validations that never come."""
    if patience is not None and arguments.get("limit_val_batches") == 0:
        raise UserError(
            f"run.early_stopping_patience is {patience} validations, but "
            "trainer.limit_val_batches is 0; set one of them to null."
        )


def choose_precision(wanted: str, arguments: dict[str, Any], d_model: int) -> str:
    """Turn RunConfig.precision into Lightning's word for it.

    "auto" takes bf16 on a GPU that has it in hardware, and on a CPU with AMX or AVX512-BF16 for
    models of width 128 and more; fp32 elsewhere, never fp16, which needs a scaler. Measured on two
    cores with AVX512-BF16 and no AMX, 4 layers, 8 x 256 positions, forward, backward and update,
    bf16 against fp32: 1.25 x as fast at width 128, 2.2 x at 256, 2.8 x at 512 (positions 4 x 256).
    """
    named = {"bf16": "bf16-mixed", "fp32": "32-true", "fp16": "16-mixed"}
    accelerator = str(arguments.get("accelerator", "auto"))
    on_gpu = on_cuda(arguments)
    if wanted == "fp16" and not on_gpu:
        raise UserError("run.precision is fp16, which needs a CUDA device; use bf16 or fp32.")
    if wanted != "auto":
        return named[wanted]
    if on_gpu:
        return named["bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"]
    on_mps = accelerator in ("auto", "mps") and torch.backends.mps.is_available()
    if on_mps or d_model < NARROWEST_BF16_ON_CPU or not cpu_has_bf16():
        return named["fp32"]
    return named["bf16"]


def on_cuda(arguments: dict[str, Any]) -> bool:
    """Tell whether the Trainer of these arguments will run on an NVIDIA or AMD GPU."""
    accelerator = str(arguments.get("accelerator", "auto"))
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def cpu_has_bf16() -> bool:
    """Tell whether the processor multiplies bf16 in hardware (AMX tiles or AVX512-BF16)."""
    # torch offers no public question for this in all the versions that we allow.
    questions = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in questions)


def listed(value: Any) -> list[Any]:
    """Return a list of the value: empty for None, one entry for a single object."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def user_loggers(value: Any) -> list[Logger]:
    """Loggers that the user adds; True, False and None, Lightning's switches, add none."""
    return [item for item in listed(value) if isinstance(item, Logger)]


def writable(trainer: dict[str, Any]) -> dict[str, Any]:
    """Make the Trainer's arguments fit for YAML: objects are written as their text."""

    def text(value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, (list, tuple)):
            return [text(item) for item in value]
        if isinstance(value, dict):
            return {str(key): text(item) for key, item in value.items()}
        return str(value)

    return {name: text(value) for name, value in trainer.items()}
