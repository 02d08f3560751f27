"""Muon for the matrices of the blocks and AdamW for all other parameters, as one optimiser."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from triptych.core.transformer import Block
from triptych.training.engine.devices import cpu_has_bf16
from triptych.training.engine.optim import AdamW, decay_groups, sharded_like, trainable


@dataclass(frozen=True)
class Muon(AdamW):
    """Muon for the matrices of the blocks, AdamW with these settings for all other parameters."""

    needs_blocks: ClassVar[bool] = True

    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        hidden = hidden_matrices(module)
        taken = set(hidden)
        rest = [parameter for parameter in trainable(module) if parameter not in taken]
        groups, adam = decay_groups(rest, self.weight_decay), self.arguments(module, learning_rate)
        return MuonAdamW(hidden, groups, weight_decay=self.weight_decay, **adam)


def hidden_matrices(module: nn.Module) -> list[Tensor]:
    """Return the trainable weights of linear layers inside blocks, each once.

    Embeddings, heads and learned tables are excluded, as Jordan et al. (2024) advise.
    """
    blocks = (block for block in module.modules() if isinstance(block, Block))
    linear = (part for block in blocks for part in block.modules() if isinstance(part, nn.Linear))
    return list(dict.fromkeys(part.weight for part in linear if part.weight.requires_grad))


class MuonAdamW(torch.optim.Optimizer):
    """Muon on some matrices and torch.optim.AdamW on the rest, under one learning rate.

    Muon (Jordan et al. 2024) replaces the Nesterov momentum of a matrix by an approximation of the
    nearest orthogonal matrix. The factor 0.2 sqrt(larger side) gives updates the size of AdamW's
    (Liu et al. 2025, "Muon is scalable for LLM training", section 2.2). The projection of q, k and
    v is one matrix here. The update is that of torch.optim.Muon, which takes one matrix at a time;
    here those of one shape are a batch. adam: arguments of AdamW, lr among them.
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
        muon = torch.optim.Muon(  # for its settings: checkpoints hold them
            matrices,
            lr=lr,
            momentum=0.95,
            weight_decay=weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        # AdamW takes an empty group but no empty list.
        self._adamw = torch.optim.AdamW(others or [{"params": []}], **adam)
        super().__init__([*muon.param_groups, *self._adamw.param_groups], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter with a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_matrices(self.param_groups[0])
        # load_state_dict replaces the groups and the state of this optimiser.
        self._adamw.param_groups = self.param_groups[1:]
        self._adamw.state = self.state
        self._adamw.step()
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        """Update the matrices of the group; few kernel launches per shape, not per matrix."""
        rate, momentum = group["lr"], group["momentum"]
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for matrix in group["params"]:
            if matrix.grad is not None:
                by_shape.setdefault(matrix.shape, []).append(matrix)
        for shape, matrices in by_shape.items():
            gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
            for matrix in matrices:
                if not self.state[matrix]:
                    self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
            averages = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
            # torch._foreach_* has no public name; PyTorch's own optimisers are built on it.
            torch._foreach_lerp_(averages, gradients, 1 - momentum)
            nesterov = torch._foreach_lerp(gradients, averages, momentum)
            # Every process orthogonalises the whole matrices, of which each may have a part.
            whole = [part.full_tensor() if isinstance(part, DTensor) else part for part in nesterov]
            updates = orthogonalized(
                torch.stack(whole), group["ns_coefficients"], group["ns_steps"], group["eps"]
            ).to(matrices[0].dtype)  # [n, A, B]
            torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
            alpha = -rate * 0.2 * math.sqrt(max(shape))
            parts = [sharded_like(*each) for each in zip(matrices, updates.unbind(), strict=True)]
            torch._foreach_add_(matrices, parts, alpha=alpha)


def orthogonalized(
    matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Approximations of the nearest orthogonal matrices: [n, A, B] -> [n, A, B].

    Newton-Schulz iteration (Jordan et al. 2024); singular values between 0.5 and 1.5.
    """
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    emulated = matrices.device.type == "cpu" and not cpu_has_bf16()  # bfloat16 without hardware
    x = (matrices.mT if tall else matrices).to(torch.float32 if emulated else torch.bfloat16)
    # The spectral norm is at most the Frobenius norm.
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if tall else x
