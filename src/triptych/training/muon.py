"""Muon for the matrices of the blocks and AdamW for all other parameters, as one optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.transformer import Block


def hidden_matrices(module: nn.Module) -> list[Tensor]:
    """Return the trainable weights of linear layers inside blocks, each once.

    Embeddings, heads and learned tables are excluded, as Jordan et al. (2024) advise.
    """
    blocks = (block for block in module.modules() if isinstance(block, Block))
    linear = (part for block in blocks for part in block.modules() if isinstance(part, nn.Linear))
    return list(dict.fromkeys(part.weight for part in linear if part.weight.requires_grad))


class MuonAdamW(torch.optim.Optimizer):
    """torch.optim.Muon on some matrices and torch.optim.AdamW on the rest, under one learning rate.

    Muon (Jordan et al. 2024) replaces the Nesterov momentum of a matrix by an approximation of the
    nearest orthogonal matrix (singular values between 0.5 and 1.5). The factor 0.2 sqrt(larger
    side) gives updates the size of AdamW's (Liu et al. 2025, "Muon is scalable for LLM training",
    section 2.2), so that both use the same learning rate and decay. The projection of q, k and v is
    one matrix here. adam: arguments of AdamW, lr among them. Needs torch 2.9.
    """

    def __init__(
        self,
        matrices: list[Tensor],
        others: list[dict[str, Any]],
        *,
        weight_decay: float,
        **adam: Any,
    ) -> None:
        lr = adam["lr"]
        self._muon = torch.optim.Muon(
            matrices,
            lr=lr,
            momentum=0.95,
            weight_decay=weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        self._adamw = torch.optim.AdamW(others, **adam)
        super().__init__([*self._muon.param_groups, *self._adamw.param_groups], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter with a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # load_state_dict replaces the groups and the state of this optimiser.
        self._muon.param_groups = self.param_groups[:1]
        self._adamw.param_groups = self.param_groups[1:]
        self._muon.state = self._adamw.state = self.state
        self._muon.step()
        self._adamw.step()
        return loss
