"""Devices and number formats: their choice, and models and batches on them. Needs no Lightning."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn

from triptych.decoding.execution import eval_mode
from triptych.errors import UserError

Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"]
"""Values of trainer.precision: auto, and Lightning's words."""


def device_named(name: str) -> torch.device:
    """Return the device of a name: auto, cpu, cuda, cuda:1 or mps; auto is CUDA, else the CPU.

    Raises UserError for an unknown name, and for a device that this machine does not have.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(
            f"device is {name!r}; expected auto, cpu, cuda, a GPU by number such as cuda:1, or mps"
        ) from None
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    count = counts.get(device.type, 0)
    if (device.index or 0) >= count:
        here = ", ".join(f"{kind} ({number})" for kind, number in counts.items() if number)
        raise UserError(f"device is {name}, which this machine does not have; it has {here}")
    return device


def without_cudnn_attention() -> None:
    """Let SDPA use its other kernels on CUDA, for the whole process.

    PyTorch prefers cuDNN's on some GPUs, and cuDNN plans them anew for each shape: with batches of
    many lengths most steps wait for a plan.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters; the CPU for a model without any."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on a device: a tensor, tuple, list, dict or dataclass."""
    return apply_to_collection(batch, Tensor, lambda tensor: tensor.to(device))


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Disable gradients and autocast: metrics are computed in the dtype of the weights."""
    with torch.no_grad(), torch.autocast(device_type=device.type, enabled=False):
        yield


@contextmanager
def scoring(model: nn.Module) -> Iterator[None]:
    """Eval mode and full precision, without gradients; restores the mode of every submodule."""
    with eval_mode(model), full_precision(device_of(model)):
        yield


@contextmanager
def out_of_memory_advice(advice: str) -> Iterator[None]:
    """Raise UserError with advice in place of PyTorch's error where the memory of a GPU is full."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"the memory of the GPU is full; {advice}") from error


def choose_precision(trainer: dict[str, Any]) -> str:
    """Return the precision of training in Lightning's words, from the Trainer's arguments.

    auto, the default, is bf16-mixed on a GPU or processor with bf16 hardware, else 32-true.
    Raises UserError for fp16 without a CUDA device, where Lightning would silently use bf16.
    """
    wanted = str(trainer.get("precision") or "auto")
    on_gpu = uses_cuda(trainer)
    if wanted in ("16", "16-mixed", "16-true") and not on_gpu:
        raise UserError(
            f"trainer.precision is {wanted}, which needs a CUDA device; use bf16-mixed or 32-true"
        )
    if wanted != "auto":
        return wanted
    if on_gpu:
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        accelerator = str(trainer.get("accelerator", "auto"))
        on_mps = accelerator in ("auto", "mps") and torch.backends.mps.is_available()
        has_bf16 = cpu_has_bf16() and not on_mps
    return "bf16-mixed" if has_bf16 else "32-true"


def uses_cuda(trainer: dict[str, Any]) -> bool:
    """Return whether a Trainer with these arguments runs on a CUDA device."""
    accelerator = str(trainer.get("accelerator", "auto"))
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


@cache
def cpu_has_bf16() -> bool:
    """Return whether the processor multiplies bf16 in hardware (AMX or AVX512-BF16; Linux only)."""
    # PyTorch has no public function for this in all supported versions.
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags
