"""Greedy generation with a cache beside the peers, and drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.goals import GPT2, SDPA
from benchmarks.measure import Run, Table, measure
from benchmarks.models import Shape
from benchmarks.setting import DTYPES, Setting, missing
from triptych.decoding.execution import quantize
from triptych.decoding.generate import generate
from triptych.decoding.sampling import Draft, SampleRequest
from triptych.types import Sampling

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Sizes:
    batches: tuple[int, ...] = (1, 32)
    shape: Shape = field(default_factory=Shape)
    tokens: int = 128


def run(setting: Setting) -> Iterator[Table]:
    tiny = Sizes((1, 3), Shape(16, 16, 16, 1, 2), 20)
    sizes = setting.sizes(tiny, Sizes(tokens=32), Sizes())
    for batch in sizes.batches:
        yield generation(setting, sizes, batch)
    yield drafts(setting, sizes)


def generation(setting: Setting, sizes: Sizes, batch: int) -> Table:
    count = sizes.tokens
    shape = replace(sizes.shape, length=count + 1)

    def peer(make: Callable[[Shape], Any], dtype: str) -> Run:
        model = make(shape).to(setting.device, DTYPES[dtype]).eval()
        return lambda: model.generate(batch, count)

    def ours(dtype: str) -> Run:
        options = {"count": batch, "length": count, "sampling": GREEDY}
        model = our_model(setting, shape, dtype)
        return lambda: generate(model, SampleRequest(**options))

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
        return lambda: generate(model, SampleRequest(count=1, length=count, **options))

    builders = {
        "without drafts": partial(forced, lambda t: 0, None),
        "drafts, all accepted": partial(forced, lambda t: 0, Draft(1)),
        "drafts, all rejected": partial(forced, lambda t: t, Draft(1)),
    }
    title = f"Drafts of 8 tokens, one sequence of {count}, {sizes.shape}"
    table = Table("drafts", title, "without drafts", "tokens", count)
    return measure(setting, table, builders)


def our_model(setting: Setting, shape: Shape, dtype: str) -> nn.Module:
    return quantize(models.decoder_only(shape).to(setting.device).eval(), dtype)
