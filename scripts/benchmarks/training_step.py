"""One training step, the same for everybody: cross-entropy, backward, fused AdamW."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measuring import Run
from benchmarks.setting import Setting


def step(
    setting: Setting,
    model: nn.Module,
    inputs: tuple[Tensor | None, ...],
    targets: Tensor,
    dtype: str,
    *,
    compiled: bool = False,
) -> Run:
    """One training step of a model that maps the inputs to logits [B, L, V]."""
    model = model.to(setting.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if compiled else model

    def run() -> None:
        with setting.autocast(dtype):
            logits = forward(*inputs)
            loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run
