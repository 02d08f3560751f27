"""Attention alone, forward and backward: time and peak memory by length, beside what is published.

One layer's queries, keys and values are given; no projections. The published ways to relative
attention are written here as their papers describe them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import memory
from benchmarks.machine import free_bytes
from benchmarks.measuring import CannotRunError, Case, Run
from benchmarks.rows import Table
from benchmarks.setting import DTYPES, Setting
from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.relative import Relative

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q, k, v [B, H, L, E] -> [B, H, L, E]."""


@dataclass(frozen=True)
class Sizes:
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
    batch: int = 1
    n_heads: int = 8
    d_head: int = 64
    window: int = 512
    longest_gather: int = 1024
    """Length beyond which the gathered table is not waited for, though it may fit."""


SIZES = {
    "full": Sizes(),
    "quick": Sizes(lengths=(512, 2048), longest_gather=0),
    "tiny": Sizes(lengths=(24,), n_heads=2, d_head=8, window=8),
    "gpu": Sizes(lengths=(512, 1024, 2048, 3072, 4096, 8192), batch=4),
}
SDPA, SKEWING, GATHER = "SDPA full", "relative, published skewing", "relative, published gather"


def names(window: int) -> dict[str, AttentionConfig | None]:
    """Rows and what builds them; None for what is written here."""
    return {
        SDPA: None,
        SKEWING: None,
        GATHER: None,
        "Triptych full": Full(),
        "Triptych relative": Relative(max_distance=1),  # of the length, once that is known
        f"Triptych relative, window {window}": Relative(max_distance=window - 1, window=window),
        f"Triptych local 1-D, {window // 2}+{window // 2}": Local1D(window // 2, window // 2),
    }


def run(setting: Setting) -> Iterator[Table]:
    sizes = setting.sizes(SIZES)
    plan = [(length, dtype) for length in sizes.lengths for dtype in DTYPES]
    for number, (length, dtype) in enumerate(plan):
        table = Table(
            key=f"attention/{length}/{dtype}",
            title=f"Attention alone, forward and backward, L {length}, {sizes.n_heads} heads of "
            f"{sizes.d_head}, batch {sizes.batch}, {dtype}",
            base=SDPA,
            unit="tokens",
            sizes={"length": length, "batch": sizes.batch, "heads": sizes.n_heads},
        )
        specs = {
            name: {
                "name": name,
                "length": length,
                "dtype": dtype,
                "device": setting.device.type,
                "batch": sizes.batch,
                "n_heads": sizes.n_heads,
                "d_head": sizes.d_head,
                "window": sizes.window,
                "threads": torch.get_num_threads(),
            }
            for name in names(sizes.window)
        }
        cases = [
            Case(
                name,
                lambda spec=spec: peak_case(spec),
                sizes.batch * length,
                dtype,
                f"beyond length {sizes.longest_gather} it is not waited for"
                if name == GATHER and length > sizes.longest_gather
                else None,
            )
            for name, spec in specs.items()
        ]
        setting.measure(table, cases, len(plan) - number)
        if not setting.on_gpu:
            add_peaks(table, specs, timeout_s=max(60.0, setting.budget.seconds))
        yield table


def add_peaks(table: Table, specs: dict[str, dict[str, Any]], timeout_s: float) -> None:
    """Measure the rows' peak memory on a CPU, in another process; where it fails, say why."""
    rows = [row for row in table.rows if row.state == "measured"]
    answers = memory.peaks("attention", [specs[row.name] for row in rows], timeout_s)
    reasons = set()
    for row, answer in zip(rows, answers, strict=True):
        if isinstance(answer, str):
            reasons.add(answer)
        else:
            row.peak_mib = answer
    if reasons:
        table.note = "peak memory missing: " + "; ".join(sorted(reasons))


def peak_case(spec: dict[str, Any]) -> Run:
    """Forward and backward of one row: gradients of q, k, v and of its own table."""
    device, dtype = torch.device(spec["device"]), DTYPES[spec["dtype"]]
    size = (spec["batch"], spec["n_heads"], spec["length"], spec["d_head"])
    check_room(spec, device, math.prod(size[:3]) * spec["length"] * dtype.itemsize)
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(size, device=device).to(dtype).requires_grad_() for _ in range(3)
    )  # 3 x [B, H, L, E]
    attend, parameters = build(spec, device)
    gradient = torch.randn(size, device=device).to(dtype)

    def call() -> None:
        torch.autograd.grad(attend(q, k, v), [q, k, v, *parameters], gradient)

    return call


def check_room(spec: dict[str, Any], device: torch.device, square: float) -> None:
    """Raise CannotRunError where the published ways would not fit in half of the free memory.

    square: bytes of one tensor of all logits. The factors are those of the peaks measured here.
    """
    needed = {SKEWING: 7 * square, GATHER: 7 * square + 2 * square * spec["d_head"]}
    if needed.get(spec["name"], 0.0) > free_bytes(device) / 2:
        raise CannotRunError("does not fit in half of the free memory")


def build(spec: dict[str, Any], device: torch.device) -> tuple[Attend, list[nn.Parameter]]:
    """A row's attention and its own parameters."""
    length, n_heads, d_head = spec["length"], spec["n_heads"], spec["d_head"]
    name = spec["name"]
    if name == SDPA:
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), []
    if name in (SKEWING, GATHER):
        table = nn.Parameter(torch.randn(n_heads, length, d_head, device=device) * d_head**-0.5)
        published = skewing if name == SKEWING else gather
        return lambda q, k, v: published(q, k, v, table), [table]
    config = names(spec["window"])[name]
    if config is None:
        raise KeyError(name)
    if name == "Triptych relative":
        config = Relative(max_distance=max(1, length - 1))
    layer = config.build(n_heads * d_head, n_heads, (length,), True)
    pattern = layer.pattern.to(device)
    return lambda q, k, v: pattern.attend(q, k, v, None), list(pattern.parameters())


def skewing(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """Relative attention as published (Huang et al. 2018, section 3.4.1).

    table [H, L, E] by falling distance. Pad a column, reshape, drop a row: the logits by distance
    become logits by key, and all of them are kept for the backward pass. As its equation stands:
    the sum is divided by sqrt(E). Scaled queries and a mask laid on in place take 0.8 to 0.9 of the
    time (L 2048, two cores with AMX, float32 and bfloat16).
    """
    length = q.shape[2]
    by_distance = q @ table.to(q.dtype).mT  # [B, H, L, L]
    padded = F.pad(by_distance, (1, 0))  # [B, H, L, L + 1]
    relative = padded.view(*q.shape[:2], length + 1, length)[:, :, 1:]  # [B, H, L, L]
    return weighted(q @ k.mT + relative, v)


def gather(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """Relative attention with one vector a pair of positions (Shaw et al. 2018, section 3.1)."""
    length = q.shape[2]
    position = torch.arange(length, device=q.device)
    distance = (position[:, None] - position[None, :]).clamp(min=0)  # [L, L]
    vectors = table.to(q.dtype)[:, length - 1 - distance]  # [H, L, L, E]
    relative = torch.einsum("bhie,hije->bhij", q, vectors)  # [B, H, L, L]
    return weighted(q @ k.mT + relative, v)


def weighted(logits: Tensor, v: Tensor) -> Tensor:
    """Causal softmax of the logits [B, H, L, L] over v [B, H, L, E] -> [B, H, L, E]."""
    length = logits.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool, device=v.device).triu(1)
    logits = (logits / math.sqrt(v.shape[-1])).masked_fill(later, -torch.inf)
    return logits.softmax(-1) @ v
