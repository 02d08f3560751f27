"""Orders of the voices within a step, and what a model is told of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from triptych.core.models.base import Condition, Conditioner


@cache
def voice_orders(n_voices: int) -> list[tuple[int, ...]]:
    """List all orders of voices 0 to n - 1; the first is from the highest to the lowest voice."""
    return list(permutations(range(n_voices)))


def in_order(ids: NDArray[Any], order: Iterable[int]) -> NDArray[Any]:
    """Return whole steps of voices with the voices of each step in another order: [L] -> [L]."""
    places = list(order)
    reordered: NDArray[Any] = ids.reshape(-1, len(places))[:, places].reshape(-1)
    return reordered


@dataclass(frozen=True, kw_only=True)
class OrderCondition(Condition):
    """The order of the voices."""

    order: Tensor
    """Number of each row's order in `voice_orders`, int64 [B]."""


@dataclass(frozen=True)
class KeptOrder:
    """What decoding keeps of an order."""

    vectors: Tensor
    """Of the positions: [B, L, D]."""
    voices: Tensor
    """Voice at each place of a step: int64 [B, voices]."""


class VoiceOrders(Conditioner):
    """Tells each position the order of the voices and its place in it.

    The probability of a step is a product over the voices in any order. Trained on many orders, a
    model sees each piece in as many forms and is told which one it reads (Uria et al. 2014, A Deep
    and Tractable Density Estimator; conditioned augmentation, Jun et al. 2020). Each place of an
    order has a vector, zero at first, so that a trained model can get them too. The first order,
    from the highest to the lowest voice, has none, as without a condition.
    """

    def __init__(self, n_voices: int, d_model: int) -> None:
        super().__init__()
        orders = torch.tensor(voice_orders(n_voices))  # [orders, voices]
        self.register_buffer("orders", orders, persistent=False)
        places = torch.zeros(orders[1:].numel(), d_model)
        self.places = nn.Embedding.from_pretrained(places, freeze=False)  # draws no numbers

    orders: Tensor

    def forward(self, order: Tensor) -> OrderCondition:
        """Return the condition of orders int64 [B], by their numbers in `voice_orders`."""
        return OrderCondition(order=order)

    def start(self, condition: Condition, batch: int, length: int) -> KeptOrder | None:
        if not isinstance(condition, OrderCondition):
            return None
        order, n_voices = condition.order, self.orders.shape[1]
        places = torch.arange(length, device=order.device) % n_voices  # [L]
        index = (order.unsqueeze(1) - 1) * n_voices + places  # [B, L], below 0 for the first order
        vectors = self.places(index.clamp(min=0))  # [B, L, D]
        vectors = vectors.masked_fill((index < 0).unsqueeze(2), 0)
        return KeptOrder(vectors, self.orders[order])

    def first_vectors(self, values: Tensor, kept: KeptOrder | None) -> Tensor | None:
        return super().first_vectors(values, None if kept is None else kept.vectors)

    def step_vectors(
        self, values: Tensor, positions: Tensor, kept: KeptOrder | None
    ) -> Tensor | None:
        return super().step_vectors(values, positions, None if kept is None else kept.vectors)

    def for_term(self, kept: KeptOrder | None) -> Tensor | None:
        return None if kept is None else kept.voices
