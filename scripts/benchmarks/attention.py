"""Attention without projections, forward and backward: speed, peak memory and growth in length."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Iterator, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.goals import FULL, PEAK, RELATIVE, SKEWING
from benchmarks.measure import Run, Table, measure
from benchmarks.models import split_heads
from benchmarks.setting import DTYPES, Setting
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative import Relative
from triptych.core.attention.relative_local import RelativeLocal

LOCAL = "Triptych relative local, blocks of 512"


@dataclass(frozen=True)
class Attention:
    """Forward and backward of one way to attend over a grid of positions."""

    way: AttentionConfig | str
    grid: tuple[int, ...]
    """Extents of the axes of the sequence."""
    dtype: str
    device: torch.device
    n_heads: int = 8
    d_head: int = 64

    def build(self) -> Run:
        """The call, over given queries, keys and values [1, L, 3 D]."""
        length, width = math.prod(self.grid), self.n_heads * self.d_head
        x, gradient = (
            torch.randn(1, length, size, device=self.device, dtype=DTYPES[self.dtype])
            for size in (3 * width, width)
        )
        inputs = [x.requires_grad_()]
        if isinstance(self.way, AttentionConfig):
            layer = self.way.build(width, self.n_heads, self.way.mask_pattern(self.grid, True)).to(
                self.device
            )
            layer.qkv_proj, layer.out_proj = nn.Identity(), nn.Identity()
            inputs += layer.parameters()
            call = partial(layer, x)
        elif self.way == SKEWING:
            table = torch.randn(self.n_heads, length, self.d_head, device=self.device)
            inputs.append((table * self.d_head**-0.5).requires_grad_())
            call = partial(skewing, *inputs)
        else:
            call = partial(full, x, self.n_heads)
        return lambda: torch.autograd.grad(call(), inputs, gradient)


def run(setting: Setting) -> Iterator[Table]:
    lengths = setting.sizes((24,), (512, 2048, 8192), (512, 1024, 2048, 4096, 8192))
    for dtype in ["fp32"] if setting.scale == "quick" else setting.dtypes:
        for length in lengths:
            ways: dict[str, AttentionConfig | str] = {
                RELATIVE: Relative(max_distance=length - 1),
                LOCAL: RelativeLocal(512),
            }
            if length <= setting.sizes(24, 2048, 4096):
                ways |= {name: name for name in (FULL, SKEWING)} | {"Triptych full": Full()}
                ways["Triptych relative, window 512"] = Relative(max_distance=511, window=512)
                ways["Triptych local 1-D, 256 + 256"] = Local1D(256, 256)
            yield compare(setting, "attention", (length,), dtype, ways, {SKEWING, RELATIVE, LOCAL})


def compare(
    setting: Setting,
    key: str,
    grid: tuple[int, ...],
    dtype: str,
    ways: dict[str, AttentionConfig | str],
    peaks: Set[str] = frozenset(),
) -> Table:
    """Time these ways to attend, and measure the peak memory of some of them."""
    heads = setting.sizes((2, 8), (8, 64), (8, 64))
    calls = {
        name: Attention(way, grid, dtype, setting.device, *heads) for name, way in ways.items()
    }
    extent = "x".join(map(str, grid))
    title = f"Attention over {extent} positions, forward and backward, {heads[0]} heads of "
    title += f"{heads[1]}, {dtype}"
    base = FULL if FULL in ways else RELATIVE
    table = Table(f"{key}/{extent}/{dtype}", title, base, "positions", math.prod(grid))
    measure(setting, table, {name: call.build for name, call in calls.items()})
    for row in table.rows:
        if row.name in peaks and not row.problem:
            row.extra[PEAK] = peak_mib(calls[row.name])
    return table


def full(x: Tensor, n_heads: int) -> Tensor:
    """Causal SDPA: [B, L, 3 D] -> [B, L, D]."""
    y = F.scaled_dot_product_attention(*split_heads(x, n_heads), is_causal=True)
    return y.transpose(1, 2).flatten(2)


def skewing(x: Tensor, table: Tensor) -> Tensor:
    """Relative attention as published (Huang et al. 2018, section 3.4.1): [1, L, 3 D] -> [1, L, D].

    table [H, L, E] by falling distance. Pad a column, reshape, drop a row: logits by distance
    become logits by key.
    """
    n_heads, length, d_head = table.shape
    q, k, v = split_heads(x, n_heads)
    by_distance = q @ table.to(q.dtype).mT  # [1, H, L, L]
    padded = F.pad(by_distance, (1, 0))  # [1, H, L, L + 1]
    relative = padded.view(1, n_heads, length + 1, length)[:, :, 1:]  # [1, H, L, L]
    later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    logits = (q @ k.mT + relative) / math.sqrt(d_head)
    y = logits.masked_fill(later, -torch.inf).softmax(-1) @ v
    return y.transpose(1, 2).flatten(2)


def peak_mib(attention: Attention) -> float:
    """Peak memory of one call beyond its inputs; of the resident memory on a CPU (Linux)."""
    if attention.device.type == "cuda":
        call = attention.build()
        call()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    # A fresh process, in which glibc returns freed blocks to the system at once.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(resident_peak, attention).result()


def resident_peak(attention: Attention) -> float:
    """Growth of this process's peak resident memory by one call, in MiB."""
    replace(attention, grid=(16,)).build()()  # loads libraries
    call = attention.build()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak
    before = resident_mib("VmRSS")
    call()
    return resident_mib("VmHWM") - before


def resident_mib(field: str) -> float:
    with open("/proc/self/status") as file:
        kib = next(line.split()[1] for line in file if line.startswith(field))
    return int(kib) / 1024
