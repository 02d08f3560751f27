"""Which device a name means: for evaluation and sampling, where Lightning is not asked."""

from __future__ import annotations

import torch

from triptych.errors import UserError


def device_named(name: str) -> torch.device:
    """The device of a name: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is CUDA or else the CPU.

    Raises UserError for a name that is none, and for a device that this machine does not have.
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
