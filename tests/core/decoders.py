"""A decoder-only model of each kind of value, in double precision."""

from __future__ import annotations

from typing import Any

import torch
from random_head import with_random_head
from torch import Tensor, nn

from triptych.core import positions as orders
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import ChannelEmbedding, PixelEmbedding, TokenEmbedding
from triptych.core.heads import CategoricalHead, Head, MixtureOfLogisticsHead, PastTerm
from triptych.core.layers import GELU
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import (
    AxialEmbedding,
    LearnedEmbedding,
    MetricalEmbedding,
    NoEmbedding,
    SinusoidalEmbedding,
    SumOfEmbeddings,
)
from triptych.core.transformer import TransformerConfig
from triptych.core.universal import Halting, Universal
from triptych.domains.image.conditioner import NeighbourValues

D = 12
SIZES = {"n_layers": 2, "d_model": D, "n_heads": 3, "dropout": 0.0, "feed_forward": GELU(16)}


def config(**sizes: Any) -> TransformerConfig:
    return TransformerConfig(**{**SIZES, **sizes})


def decoder_only(
    levels: int,
    shape: tuple[int, ...] = (11,),
    *,
    embedding: nn.Module | None = None,
    positions: nn.Module | None = None,
    head: Head | None = None,
    term: PastTerm | None = None,
    **sizes: Any,
) -> DecoderOnly:
    """A decoder with a random head of so many categories; sizes: of its TransformerConfig."""
    settings = config(**sizes)
    d = settings.d_model
    return with_random_head(
        DecoderOnly(
            embedding or TokenEmbedding(levels, d),
            positions or SinusoidalEmbedding(d),
            settings.decoder(shape),
            head or CategoricalHead(d, levels),
            d_model=d,
            dropout=settings.dropout,
            term=term,
        )
    )


def tokens_model() -> DecoderOnly:
    positions = SumOfEmbeddings(
        [SinusoidalEmbedding(D), MetricalEmbedding(D, [(1, 4), (4, 4)]), LearnedEmbedding(11, D)]
    )
    return decoder_only(7, positions=positions, attention=Relative(4)).double()


class LastTwo(PastTerm):
    """Reads the two values before a position, -1 for none, and whether the position is even."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.reach, self.levels = 2, levels
        self.table = nn.Embedding(2 * (levels + 1) ** 2, levels)

    def forward(self, past: Tensor, positions: Tensor, given: None = None) -> Tensor:
        pair = (past[..., 0] + 1) * (self.levels + 1) + past[..., 1] + 1  # [B, P]
        term: Tensor = self.table(2 * pair + positions % 2)  # [B, P, V]
        return term


def model_with_term() -> DecoderOnly:
    return decoder_only(7, attention=Relative(4), term=LastTwo(7)).double()


def related_notes_model() -> DecoderOnly:
    """Symbols 0 to 4 are pitches, 5 and 6 are not; three voices."""
    attention = PitchTime(max_distance=6, n_voices=3, max_time=2, n_pitches=5)
    return decoder_only(7, attention=attention).double()


def sub_pixel_model() -> DecoderOnly:
    attention, shape = Local2D(2, 2, 1, 1, order="blocks"), (3, 4, 3)
    order = attention.order_of(shape)
    embedding = ChannelEmbedding(7, order.coordinates[:, 2], D)
    positions = AxialEmbedding(order, D)
    model = decoder_only(7, shape, embedding=embedding, positions=positions, attention=attention)
    return model.double()


def pixel_model(neighbours: int = 0) -> DecoderOnly:
    shape = (3, 4, 1)
    order = orders.raster(shape)
    return decoder_only(
        7, shape, embedding=PixelEmbedding(7, 3, D),
        positions=AxialEmbedding(order, D), attention=Local2D(2, 2, 1, 1),
        head=MixtureOfLogisticsHead(D, 7, channels=3, components=2, neighbours=neighbours),
        term=NeighbourValues(order, 7) if neighbours else None,
    ).double()  # fmt: skip


def universal_model() -> DecoderOnly:
    """One block, applied at most three times at each position, which halts."""
    depth = Universal(Halting(threshold=0.8))
    return decoder_only(7, positions=NoEmbedding(D), n_layers=3, depth=depth).double()


MODELS = {
    "universal": (universal_model, (11,)),
    "tokens": (tokens_model, (11,)),
    "related notes": (related_notes_model, (11,)),
    "term": (model_with_term, (11,)),
    "sub-pixels": (sub_pixel_model, (36,)),
    "pixels": (pixel_model, (12, 3)),
    "pixels and their neighbours": (lambda: pixel_model(4), (12, 3)),
}
"""Models and the shapes of their values."""


@torch.no_grad()
def assert_steps_predict(
    model: DecoderOnly, values: Tensor, n_prefix: int, together: int, *, wrong: int, **given: Any
) -> None:
    """Check that a prefix and steps of several tokens [B, L] predict as one pass does.

    Each step reads a draft that is wrong after its first value, and the next one overwrites it.
    given: the condition, if the model has one.
    """
    rows, length = values.shape
    expected = model(values, **given)
    state = model.init_state(rows, length, lookahead=together, **given)
    predicted = model.prefill(values[:, :n_prefix], state)
    torch.testing.assert_close(predicted, expected[:, n_prefix])
    for first in range(n_prefix + 1, length):
        positions = torch.arange(first, min(first + together, length))
        read = values[:, positions - 1].clone()
        read[:, 1:] = wrong
        predicted = model.step(read, positions, state)
        torch.testing.assert_close(predicted[:, 0], expected[:, first])


def assert_begins_as(
    new: DecoderOnly, plain: DecoderOnly, values: Tensor, added: list[str]
) -> None:
    """With the weights of a model without them, the added ones change nothing before training."""
    found = new.load_state_dict(plain.state_dict(), strict=False)
    assert found.missing_keys == added
    assert torch.equal(new(values), plain(values))
