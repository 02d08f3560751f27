"""CUDA tensors without a GPU: devices, host waits and kernel launches of a computation.

FakeTensorMode gives tensors with a device, a shape and no data. An operation on tensors of two
devices raises, and so does every read of a value on the host (`item`, `bool(tensor)`, `tolist`).
The mode is private API of PyTorch; only this file uses it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from triptych.core.attention.backends import flex
from triptych.tools.complexity import sdpa_flops

NO_KERNEL = {
    "alias",
    "as_strided",
    "detach",
    "diagonal",
    "empty",
    "empty_like",
    "empty_strided",
    "expand",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "permute",
    "prim::device",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
    "_reshape_alias",
    "_unsafe_view",
}
"""Operations that launch no kernel: views, and memory without content."""


class Launches(TorchDispatchMode):
    """Counter of the kernels that a computation launches: its operations that are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()
        self.attention_flops = 0.0
        """Floating-point operations of SDPA and FlexAttention, over visible pairs."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function._schema.name.removeprefix("aten::")
        result = function(*args, **(kwargs or {}))
        if reads_on_the_host(name, result, args):
            raise DataDependentOutputException(function)
        if name not in NO_KERNEL and (name.endswith("_") or not same_memory(result, args)):
            self.by_name[name] += 1
        return result

    @property
    def count(self) -> int:
        return self.by_name.total()


def reads_on_the_host(name: str, result: Any, args: Any) -> bool:
    """Whether an operation copies from the device to the host, for which the host waits."""
    if name not in ("to", "_to_copy", "copy_"):
        return False
    return bool(args[name == "copy_"].is_cuda and not result.is_cuda)


def same_memory(result: Any, args: Any) -> bool:
    """Whether the result is a view of the first argument, or that argument: a `to` to its dtype."""
    first = args[0] if args else None
    if not isinstance(result, Tensor) or not isinstance(first, Tensor):
        return False
    return result.untyped_storage()._cdata == first.untyped_storage()._cdata


class FusedAttention(TorchFunctionMode):
    """Counts SDPA as one launch, as on a GPU; a fake tensor would take its parts."""

    def __init__(self, launches: Launches) -> None:
        super().__init__()
        self.launches = launches

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is not F.scaled_dot_product_attention:
            return function(*args, **kwargs)
        q, k, v = args[:3]
        same_device(q, k, v, kwargs.get("attn_mask"))
        return attend(self.launches, "sdpa", q, k, v, 0.5 if kwargs.get("is_causal") else 1.0)


def attend(
    launches: Launches,
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: float,
    captured: Sequence[Tensor] = (),
) -> Tensor:
    """Count one launch over a share of visible pairs; an empty result [B, H, Q, E].

    captured: the tensors that a rule of FlexAttention reads.
    """
    launches.by_name[name] += 1
    launches.attention_flops += visible * sdpa_flops(q.shape, k.shape, v.shape)
    result: Tensor = KeepsInputs.apply(q, k, v, *captured)  # type: ignore[no-untyped-call]
    return result


class KeepsInputs(torch.autograd.Function):
    """Attention of empty result that keeps for its backward pass what a fused kernel keeps."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *captured: Tensor) -> Tensor:
        batch, heads, length, _ = q.shape
        y = q.new_empty(batch, length, heads, v.shape[-1]).transpose(1, 2)  # as a fused kernel
        log_sum = q.new_empty(q.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, y, log_sum, *captured)
        return y


def same_device(*tensors: Tensor | None) -> None:
    devices = {str(tensor.device) for tensor in tensors if tensor is not None}
    if len(devices) > 1:
        raise RuntimeError(f"tensors of one operation are on {' and '.join(sorted(devices))}")


def fake_flex(launches: Launches, visible_share: float) -> Any:
    """FlexAttention as one launch, as its compiler needs a GPU; its rules are called once."""

    def create_block_mask(
        rule: Any, b: Any, h: Any, q_length: int, kv_length: int, device: Any
    ) -> Any:
        query = torch.arange(q_length, device=device).unsqueeze(1)
        rule(None, None, query, torch.arange(kv_length, device=device))

    def flex_attention(
        q: Tensor, k: Tensor, v: Tensor, score_mod: Any = None, block_mask: Any = None
    ) -> Tensor:
        same_device(q, k, v)
        counted, captured = launches.by_name.copy(), []
        if score_mod is not None:
            captured = tree_leaves(inspect.getclosurevars(score_mod).nonlocals)
            index = torch.zeros(1, dtype=torch.int64, device=q.device)
            score_mod(torch.zeros(1, device=q.device), index, index, index, index)
        launches.by_name = counted  # the rule is a part of the kernel
        captured = [leaf for leaf in captured if isinstance(leaf, Tensor)]
        return attend(launches, "flex_attention", q, k, v, visible_share, captured)

    return SimpleNamespace(create_block_mask=create_block_mask, flex_attention=flex_attention)


def to_fake(mode: FakeTensorMode, real: Tensor) -> Tensor:
    """A fake CUDA tensor of the shape and type of a real tensor."""
    fake = mode.from_tensor(real.detach())
    with mode:
        return fake.to("cuda")


def to_fake_module(mode: FakeTensorMode, module: nn.Module) -> None:
    """Replace the parameters and buffers of a module by fake CUDA tensors; shared ones stay so."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                if parameter not in made:
                    fake = to_fake(mode, parameter)
                    made[parameter] = nn.Parameter(fake, parameter.requires_grad)
                part._parameters[name] = made[parameter]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = to_fake(mode, buffer)


@contextmanager
def fake_cuda(*modules: nn.Module, visible_share: float = 1.0) -> Iterator[Launches]:
    """Run on fake CUDA tensors and count the launches. The tensors of the modules become fake.

    visible_share: share of the pairs that FlexAttention computes, for the number of operations.
    """
    mode = FakeTensorMode()
    for module in modules:
        to_fake_module(mode, module)
    launches = Launches()
    functions = fake_flex(launches, visible_share)
    with (
        patch.object(flex, "flex_functions", lambda: functions),
        patch.object(flex, "_compiled", lambda: functions.flex_attention),
        # As `without_cudnn_attention` leaves it in runs and opened models.
        patch.object(torch.backends.cuda, "cudnn_sdp_enabled", lambda: False),
        mode,
        launches,
        FusedAttention(launches),
    ):
        yield launches
