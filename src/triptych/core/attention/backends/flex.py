"""FlexAttention on CUDA: any pattern as one compiled kernel (Dong et al. 2024, 2412.05496).

The pattern's `visible` is the `mask_mod`; the `score_mod` adds the relative bias.
FlexAttention has no dropout, and no backward pass on a CPU.

PyTorch compiles a function for at most 8 kinds of arguments, and then runs its definition, which
holds an L x L tensor. So each pattern has functions of its own, one for each kind of bias, dtype,
padding and length. Lengths are padded to multiples of BLOCK: with others a kernel with a score_mod
and a mask had gradients of NaN in PyTorch 2.7, and block masks would be made for each length.
"""

import logging
from collections.abc import Callable
from itertools import count
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.relative_bias import RelativeBias, ScalarBias, TokenBias

LOG = logging.getLogger(__name__)
SMALLEST_HEAD = 16
"""Features of a head below which PyTorch compiles no kernel."""
BLOCK = 128
"""Positions in a block of a block mask; shorter lengths are padded to one."""
MOST_KEPT = 32
"""Block masks, and compiled functions, that a pattern keeps: the last ones made."""
COMPILER = "inductor"
"""Backend of `torch.compile`."""
NUMBERS = count()


def flex_serves(q: Tensor) -> bool:
    """Whether FlexAttention computes attention for queries q [B, H, L, E]."""
    of_kernels = torch.float32, torch.bfloat16, torch.float16
    return q.shape[-1] >= SMALLEST_HEAD and q.dtype in of_kernels


def attend_by_flex(
    pattern: MaskPattern,
    bias: RelativeBias | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    token_classes: Tensor | None = None,
    real: Tensor | None = None,
) -> Tensor:
    """Softmax attention under a pattern: q, k, v [B, H, L, E] -> [B, H, L, E].

    token_classes: int64 [B, L], for a bias that reads tokens. real: bool [B, L], False on padding.
    """
    length = q.shape[2]
    # A pattern of an image knows no positions after it, and its lengths are few.
    missing = -length % BLOCK if pattern.windows is None else 0
    if missing:
        if real is None and not pattern.causal:
            real = q.new_ones(len(q), length, dtype=torch.bool)
        q, k, v = (F.pad(x, (0, 0, 0, missing)) for x in (q, k, v))  # each [B, H, L', E]
        real = real if real is None else F.pad(real, (0, missing))  # [B, L'], False
        if token_classes is not None:
            token_classes = F.pad(token_classes, (0, missing))  # [B, L']
    logits = () if bias is None else bias.logits(q * q.shape[-1] ** -0.5)  # each [B, H, L', n]

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        if isinstance(bias, ScalarBias):
            score = score + bias.value(h, q_idx, kv_idx).to(score.dtype)
        elif bias is not None:
            chosen = bias.index(q_idx, kv_idx)
            if isinstance(bias, TokenBias) and token_classes is not None:
                classes = token_classes[b, q_idx], token_classes[b, kv_idx]
                chosen = (*chosen, bias.token_index(*classes))
            for term, index in zip(logits, chosen, strict=True):
                score = score + term[b, h, q_idx, index]
        # Here and not in the block mask, which is made once for all batches.
        return score if real is None else torch.where(real[b, kv_idx], score, -torch.inf)

    masks, place = pattern.kernels.masks, (length + missing, str(q.device))
    if place not in masks:
        # A compiled model reads the mask, and does not make it in every step.
        torch.compiler.disable(_make_mask)(pattern, *place)
    scores = None if bias is None and real is None else score_mod
    arguments = q, k, v, scores, masks[place]
    if torch.compiler.is_compiling():  # the function around it is compiled as a whole
        y: Tensor = flex_functions().flex_attention(q, k, v, scores, masks[place])
    else:
        kind = type(bias), q.dtype, real is not None, torch.is_grad_enabled()
        y = _by_kernel(pattern, (*place, *kind), arguments)
    return y[:, :, :length]  # [B, H, L, E]


def flex_functions() -> Any:
    """Return PyTorch's module, whose import takes a second."""
    from torch.nn.attention import flex_attention

    return flex_attention


def _keep(table: dict[Any, Any], key: Any, value: Any) -> None:
    if len(table) >= MOST_KEPT:
        del table[next(iter(table))]
    table[key] = value


def _make_mask(pattern: MaskPattern, length: int, device: str) -> None:
    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return pattern.visible(q_idx, kv_idx)

    with torch.inference_mode(False):  # a mask that is kept must also serve training
        create = flex_functions().create_block_mask
        mask = create(mask_mod, None, None, length, length, device=device)
    _keep(pattern.kernels.masks, (length, device), mask)


def _by_kernel(pattern: MaskPattern, kind: tuple[Any, ...], arguments: tuple[Any, ...]) -> Tensor:
    # The error has no public name; importing Dynamo takes a second.
    from torch._dynamo.exc import FailOnRecompileLimitHit

    functions = pattern.kernels.functions
    for _ in range(2):
        if kind not in functions:
            _keep(functions, kind, _compiled())
        try:
            y: Tensor = functions[kind](*arguments)
            return y
        except FailOnRecompileLimitHit:
            LOG.warning(
                "attention by %s has met too many kinds of arguments and is compiled anew: %s",
                type(pattern).__name__, kind,
            )  # fmt: skip
            del functions[kind]
    raise RuntimeError(f"FlexAttention cannot be compiled for {kind}")


def _compiled() -> Callable[..., Tensor]:
    """Return FlexAttention as a compiled function that shares its limit of graphs with no other."""
    flex_attention = flex_functions().flex_attention

    def attention(q: Tensor, k: Tensor, v: Tensor, scores: Any, mask: Any) -> Tensor:
        y: Tensor = flex_attention(q, k, v, scores, mask)
        return y

    # PyTorch counts the graphs of a code object.
    code = attention.__code__.replace(co_name=f"attention_{next(NUMBERS)}")
    own = FunctionType(code, attention.__globals__, code.co_name, None, attention.__closure__)
    # A function of one graph raises an error where it would run the definition.
    return torch.compile(own, fullgraph=True, backend=COMPILER)
