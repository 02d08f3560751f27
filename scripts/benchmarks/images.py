"""Pictures: local 2-D attention against full, by size, and what decoding keeps by height."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measuring import Case, Run
from benchmarks.rows import Row, Table
from benchmarks.setting import DTYPES, Setting
from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.generation_order import raster

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Sizes:
    shapes: tuple[Shape, ...] = (
        (16, 16, 3),
        (32, 32, 1),
        (32, 32, 3),
        (64, 64, 1),
        (64, 64, 3),
        (128, 128, 1),
        (128, 128, 3),
    )
    n_heads: int = 8
    d_head: int = 64
    batch: int = 1
    heights: tuple[int, ...] = (32, 64, 128, 256)
    width: int = 32
    """Of the pictures whose decoding state is counted, in pixels."""
    longest_full: int = 16_384
    """Sub-pixels beyond which full attention is not waited for."""


SIZES = {
    "full": Sizes(),
    "quick": Sizes(
        shapes=((16, 16, 3), (32, 32, 1), (32, 32, 3), (64, 64, 1), (128, 128, 1)),
        longest_full=4096,
    ),
    "tiny": Sizes(shapes=((16, 16, 1),), n_heads=2, d_head=8, heights=(16, 32), width=16),
    "gpu": Sizes(batch=4),
}
NAMES = {
    "SDPA full": None,
    "Triptych full": Full(),
    "Triptych local 2-D": Local2D(order="raster"),
    "Triptych local 2-D, block order": Local2D(order="blocks"),
}


def run(setting: Setting) -> Iterator[Table]:
    sizes = setting.sizes(SIZES)
    yield states(sizes)
    dtypes = ("fp32",) if setting.scale == "quick" else tuple(DTYPES)
    plan = [(shape, dtype) for shape in sizes.shapes for dtype in dtypes]
    for number, (shape, dtype) in enumerate(plan):
        yield pictures(setting, sizes, shape, dtype, len(plan) - number)


def pictures(setting: Setting, sizes: Sizes, shape: Shape, dtype: str, tables_left: int) -> Table:
    height, width, _ = shape
    length = raster(shape).length
    grid = "x".join(map(str, shape))
    table = Table(
        key=f"pictures/{grid}/{dtype}",
        title=f"Pictures {grid}, attention alone, forward and backward, blocks 8x8, halo 4, "
        f"{sizes.n_heads} heads of {sizes.d_head}, batch {sizes.batch}, {dtype}",
        base="SDPA full" if length <= sizes.longest_full else "Triptych local 2-D",
        unit="pixels",
        sizes={"shape": list(shape), "batch": sizes.batch, "heads": sizes.n_heads},
    )
    cases = [
        Case(
            name,
            builder(setting, sizes, shape, config, dtype),
            sizes.batch * height * width,
            dtype,
            f"full attention over {length} sub-pixels is not waited for"
            if "full" in name and length > sizes.longest_full
            else None,
        )
        for name, config in NAMES.items()
    ]
    setting.measure(table, cases, tables_left)
    for row in table.rows:
        if row.rate:
            row.extra["µs a pixel"] = 1e6 / row.rate
    return table


def builder(
    setting: Setting, sizes: Sizes, shape: Shape, config: AttentionConfig | None, dtype: str
) -> Callable[[], Run]:
    def build() -> Run:
        size = (sizes.batch, sizes.n_heads, raster(shape).length, sizes.d_head)
        q, k, v, gradient = (
            torch.randn(size, device=setting.device).to(DTYPES[dtype]) for _ in range(4)
        )  # 4 x [B, H, L, E]
        for x in (q, k, v):
            x.requires_grad_()
        attend = sdpa
        if config is not None:
            layer = config.build(sizes.n_heads * sizes.d_head, sizes.n_heads, shape, True)
            pattern = layer.pattern.to(setting.device)
            attend = pattern.attend
        return lambda: torch.autograd.grad(attend(q, k, v, None), (q, k, v), gradient)

    return build


def sdpa(q: Tensor, k: Tensor, v: Tensor, padding: None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def states(sizes: Sizes) -> Table:
    """Bytes that decoding one picture keeps in one layer, by the picture's height."""
    table = Table(
        key="states",
        title=f"What decoding keeps in one layer, pictures {sizes.width} wide, 3 channels, fp32",
        base="",
        unit="",
        sizes={"heights": list(sizes.heights), "width": sizes.width},
    )
    for name, config in NAMES.items():
        if config is None:
            continue
        row = Row(name, dtype="fp32")
        for height in sizes.heights:
            shape = (height, sizes.width, 3)
            layer = config.build(sizes.n_heads * sizes.d_head, sizes.n_heads, shape, True)
            state = layer.init_cache(1, raster(shape).length)
            held = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
            row.extra[f"height {height}, MiB"] = held / 2**20
        table.rows.append(row)
    return table
