"""A ready model's other parts: what a step spends beside its matrices, made less."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.layers import FeedForward
from triptych.decoding.matrices import OneDNN

JOINED: dict[Callable[..., Tensor], str] = {F.relu: "relu", F.gelu: "gelu"}
"""Activations that oneDNN's product can apply, by its names for them."""
_STRAIGHT: dict[type[nn.Module], type[nn.Module]] = {}


def join_activation(feed_forward: FeedForward, rows: int) -> None:
    """Let oneDNN's product apply the activation too, where it makes the product.

    In a step of 32 rows (width 512, 6 layers) GELU alone took 6 x 79 us of 14 ms in float32 and
    6 x 47 us of 8 ms in bfloat16.
    """
    widen, then = feed_forward.widen, JOINED.get(feed_forward.activation)
    if isinstance(widen, OneDNN) and then is not None:
        # The weights are shared: the same matrix may serve elsewhere, without the activation.
        feed_forward.widen = copy.copy(widen)
        feed_forward.widen.then = then
        feed_forward.activation = unchanged
    elif feed_forward.activation is F.gelu and rows == 1:
        feed_forward.activation = gelu_of_a_row


def gelu_of_a_row(x: Tensor) -> Tensor:
    """`F.gelu`; of one row without oneDNN, which takes 8 us to begin.

    PyTorch does not ask it where a tensor's axes lie in memory in another order. 256 and 2048
    numbers: 3 and 8 us instead of 10 and 14; with 8 rows there is nothing to win.
    """
    if x.numel() != x.shape[-1] or x.numel() % 2:
        return F.gelu(x)
    return F.gelu(x.view(2, -1).t()).t().reshape(x.shape)


def unchanged(x: Tensor) -> Tensor:
    """In the place of an activation that has been applied."""
    return x


def call_straight(module: nn.Module) -> None:
    """Let the module find its parts at once and its calls go past the hooks of nn.Module.

    nn.Module finds its parts last of all; as plain attributes too they are found at once: 7 % of a
    step of 6 layers at width 512. Its call asks for hooks first: 5 to 10 % of a step of one row.
    """
    vars(module).update(module._modules | module._parameters)
    module.__class__ = straight(type(module))


def straight(kind: type[nn.Module]) -> type[nn.Module]:
    """The same kind of module, whose call is its `forward` and nothing else."""
    if kind in _STRAIGHT.values():
        return kind
    if kind not in _STRAIGHT:
        body = {"__call__": _call, "__reduce_ex__": _reduce, "__module__": kind.__module__}
        _STRAIGHT[kind] = type(kind.__name__, (kind,), body)
    return _STRAIGHT[kind]


def _call(self: nn.Module, *arguments: Any, **options: Any) -> Any:
    # By name, as `core.recording` sets another on the object.
    return self.forward(*arguments, **options)


def _reduce(self: nn.Module, protocol: int) -> tuple[Any, ...]:
    """To be copied and pickled as its kind, which a pickle finds by its name."""
    return _empty, (type(self).__bases__[0],), vars(self)


def _empty(kind: type[nn.Module]) -> nn.Module:
    again = straight(kind)
    return again.__new__(again)
