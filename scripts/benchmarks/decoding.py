"""Greedy generation with a cache beside the peers, late tokens, and drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import benchmark

from benchmarks import models
from benchmarks.goals import GPT2, SDPA
from benchmarks.measure import Row, Run, Table, measure
from benchmarks.models import Shape
from benchmarks.setting import DTYPES, Setting, missing
from triptych.decoding.generate import Draft, generate
from triptych.decoding.quantize import quantize
from triptych.decoding.sampling import Sampling

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Sizes:
    batches: tuple[int, ...] = (1, 32)
    shape: Shape = field(default_factory=Shape)
    tokens: int = 128
    early: int = 200
    """Position of the early token that a late one is compared with."""
    late: int = 2000
    around: int = 16
    """Tokens on both sides over which the median is taken."""


def run(setting: Setting) -> Iterator[Table]:
    tiny = Sizes((1, 3), Shape(16, 16, 16, 1, 2), 20, early=4, late=10, around=2)
    sizes = setting.sizes(tiny, Sizes(tokens=32, early=50, late=500), Sizes())
    for batch in sizes.batches:
        yield generation(setting, sizes, batch)
    yield drafts(setting, sizes)
    yield late_tokens(setting, sizes)


def generation(setting: Setting, sizes: Sizes, batch: int) -> Table:
    count = sizes.tokens
    shape = replace(sizes.shape, length=count + 1)

    def peer(make: Callable[[Shape], Any], dtype: str) -> Run:
        model = make(shape).to(setting.device, DTYPES[dtype]).eval()
        return lambda: model.generate(batch, count)

    def ours(dtype: str) -> Run:
        options = {"batch": batch, "length": count, "sampling": GREEDY}
        model = our_model(setting, shape, dtype)
        return lambda: generate(model, **options)

    builders = {}
    for dtype in ("fp32", "bf16", "int8"):
        if dtype != "int8":
            builders[f"{GPT2}, {dtype}"] = partial(peer, models.GPT2, dtype)
            builders[f"{SDPA}, {dtype}"] = partial(peer, models.SDPADecoder, dtype)
        builders[f"Triptych, {dtype}"] = partial(ours, dtype)
    skip = {GPT2: missing("transformers")}
    skip |= {"bf16": setting.without_bf16, "int8": setting.without_int8}
    title = f"Greedy generation of {count} tokens, batch {batch}, {shape}"
    table = Table(f"decoding/{batch}", title, f"{GPT2}, fp32", "tokens", batch * count)
    return measure(setting, table, builders, skip)


def drafts(setting: Setting, sizes: Sizes) -> Table:
    """One sequence with drafts that are all accepted or all rejected: bounds of the gain."""
    count, vocabulary = sizes.tokens, sizes.shape.vocabulary
    model = our_model(setting, replace(sizes.shape, length=count), "fp32")

    def forced(token_at: Callable[[int], int], draft: Draft | None) -> Run:
        def constraint(values: Tensor) -> Tensor:
            forbidden = torch.ones(1, vocabulary, dtype=torch.bool, device=values.device)
            forbidden[:, token_at(values.shape[1]) % vocabulary] = False
            return forbidden

        options = {"sampling": GREEDY, "constraint": constraint, "draft": draft}
        return lambda: generate(model, batch=1, length=count, **options)

    builders = {
        "without drafts": partial(forced, lambda t: 0, None),
        "drafts, all accepted": partial(forced, lambda t: 0, Draft(1)),
        "drafts, all rejected": partial(forced, lambda t: t, Draft(1)),
    }
    title = f"Drafts of 8 tokens, one sequence of {count}, {sizes.shape}"
    table = Table("drafts", title, "without drafts", "tokens", count)
    return measure(setting, table, builders)


def late_tokens(setting: Setting, sizes: Sizes) -> Table:
    """Milliseconds of a late token and of an early one of a long sequence, batch 1."""
    length = sizes.late + sizes.around
    shape = replace(sizes.shape, length=length)
    ours = our_model(setting, shape, "fp32")
    peer = models.SDPADecoder(shape).to(setting.device).eval()
    table = Table("late", f"Late and early tokens of one sequence, {shape}")
    for name, generated in {
        "Triptych": partial(generate, ours, batch=1, length=length, sampling=GREEDY),
        SDPA: partial(peer.generate, 1, length),
    }.items():
        stamps: list[float] = []
        generated(progress=lambda done, of, stamps=stamps: stamps.append(benchmark.timer()))
        costs = [1e3 * (after - before) for before, after in pairwise(stamps)]
        extra = {}
        for at in (sizes.early, sizes.late):
            extra[f"token {at}, ms"] = median(costs[at - sizes.around : at + sizes.around - 1])
        table.rows.append(Row(name, extra=extra))
    return table


def our_model(setting: Setting, shape: Shape, dtype: str) -> nn.Module:
    return quantize(models.decoder_only(shape).to(setting.device).eval(), dtype)
