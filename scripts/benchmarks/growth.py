"""How cost grows with the work: lengths, pictures and batches, as time a token or a pixel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from benchmarks import models, peers_minimal
from benchmarks.decoding_contest import GREEDY
from benchmarks.measuring import Case, Run
from benchmarks.rows import Table
from benchmarks.setting import Setting
from benchmarks.training_step import step
from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.relative import Relative
from triptych.decoding.generate import sample
from triptych.decoding.quantize import for_decoding

VOCABULARY = 256
MINIMAL = "minimal"


@dataclass(frozen=True)
class Sizes:
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192)
    sides: tuple[int, ...] = (16, 32, 64, 128)
    """Of square pictures of one channel, in pixels."""
    longest_full: int = 8192
    """Positions beyond which full attention is not waited for."""
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    batch_length: int = 128
    """Positions of the sequences that the batches hold, trained and decoded."""
    window: int = 512
    d_model: int = 256
    n_layers: int = 2
    n_heads: int = 4

    @property
    def model(self) -> dict[str, int]:
        return {"d_model": self.d_model, "n_layers": self.n_layers, "n_heads": self.n_heads}


SIZES = {
    "full": Sizes(),
    "quick": Sizes(
        lengths=(256, 1024, 2048), sides=(16, 32, 64), batches=(1, 8, 64), batch_length=32
    ),
    "tiny": Sizes(
        lengths=(16, 32),
        sides=(8, 16),
        batches=(1, 2),
        batch_length=4,
        window=8,
        d_model=16,
        n_layers=1,
        n_heads=2,
    ),
    "gpu": Sizes(d_model=512, n_layers=6, n_heads=8, longest_full=16_384),
}


def run(setting: Setting) -> Iterator[Table]:
    sizes = setting.sizes(SIZES)
    left = len(sizes.lengths) + len(sizes.sides) + 2 * len(sizes.batches)
    for length in sizes.lengths:
        yield lengths(setting, sizes, length, left)
        left -= 1
    for side in sizes.sides:
        yield pictures(setting, sizes, side, left)
        left -= 1
    for batch in sizes.batches:
        yield batches(setting, sizes, batch, left, training=True)
        yield batches(setting, sizes, batch, left - 1, training=False)
        left -= 2


def lengths(setting: Setting, sizes: Sizes, length: int, left: int) -> Table:
    """A training step of one sequence."""
    window = sizes.window
    variants = {
        MINIMAL: None,
        "Triptych full": Full(),
        "Triptych relative": Relative(max_distance=length - 1),
        f"Triptych relative, window {window}": Relative(max_distance=window - 1, window=window),
        "Triptych local 1-D": Local1D(block=window // 2, memory=window // 2),
    }
    cases = [
        Case(name, trained(setting, sizes, (length,), config, 1), length, "fp32")
        for name, config in variants.items()
    ]
    table = growing(sizes, "length", length, "Training step", "tokens")
    return finished(setting, table, cases, left)


def pictures(setting: Setting, sizes: Sizes, side: int, left: int) -> Table:
    """A training step of one picture."""
    late = f"full attention over {side * side} positions is not waited for"
    variants: dict[str, AttentionConfig | None] = {
        MINIMAL: None,
        "Triptych full": Full(),
        "Triptych local 2-D": Local2D(order="raster"),
        "Triptych local 2-D, block order": Local2D(order="blocks"),
    }
    cases = [
        Case(
            name,
            trained(setting, sizes, (side, side, 1), config, 1),
            side * side,
            "fp32",
            late if "2-D" not in name and side * side > sizes.longest_full else None,
        )
        for name, config in variants.items()
    ]
    table = growing(sizes, "side", side, "Training step, square pictures", "pixels")
    return finished(setting, table, cases, left)


def batches(setting: Setting, sizes: Sizes, batch: int, left: int, *, training: bool) -> Table:
    """A training step, or greedy decoding, of so many sequences at once."""
    length = sizes.batch_length
    names = (MINIMAL, "Triptych full")
    builders = [
        trained(setting, sizes, (length,), Full() if ours else None, batch)
        if training
        else decoded(setting, sizes, length, batch, ours=bool(ours))
        for ours in range(2)
    ]
    cases = [
        Case(name, build, batch * length, "fp32")
        for name, build in zip(names, builders, strict=True)
    ]
    what = "Training step" if training else "Decoding"
    axis = "batch" if training else "decoding batch"
    table = growing(sizes, axis, batch, f"{what}, sequences of {length}", "tokens")
    return finished(setting, table, cases, left)


def growing(sizes: Sizes, axis: str, value: int, what: str, unit: str) -> Table:
    return Table(
        key=f"growth/{axis}/{value}",
        title=f"{what}, d {sizes.d_model}, {sizes.n_layers} layers, {axis} {value}, fp32",
        base=MINIMAL,
        unit=unit,
        sizes={**sizes.model, "axis": axis, "value": value},
    )


def finished(setting: Setting, table: Table, cases: list[Case], left: int) -> Table:
    setting.measure(table, cases, left)
    for row in table.rows:
        if row.rate:
            row.extra[f"µs a {table.unit.rstrip('s')}"] = 1e6 / row.rate
    return table


def trained(
    setting: Setting,
    sizes: Sizes,
    shape: tuple[int, ...],
    attention: AttentionConfig | None,
    batch: int,
) -> Callable[[], Run]:
    """A training step of the model with this attention; None for the minimal decoder."""

    def build() -> Run:
        length = Full().order_of(shape).length
        values = torch.randint(0, VOCABULARY, (batch, length), device=setting.device)
        model: torch.nn.Module
        if attention is None:
            model = peers_minimal.MinimalDecoder(VOCABULARY, length, **sizes.model)
        else:
            model = models.sequence_model(VOCABULARY, shape, attention=attention, **sizes.model)
        return step(setting, model, (values,), values, "fp32")

    return build


def decoded(
    setting: Setting, sizes: Sizes, length: int, batch: int, *, ours: bool
) -> Callable[[], Run]:
    def build() -> Run:
        if not ours:
            peer = peers_minimal.MinimalDecoder(VOCABULARY, length, **sizes.model)
            peer = peer.to(setting.device).eval()
            return lambda: peer.generate(batch, length)
        model = models.sequence_model(VOCABULARY, (length,), **sizes.model)
        model = model.to(setting.device).eval()
        fast = for_decoding(model, rows=batch)
        return lambda: sample(fast, batch=batch, length=length, sampling=GREEDY)

    return build
