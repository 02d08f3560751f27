"""What a late token of one sequence costs beside an early one, and how much of it is attention."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import torch
from torch.nn import functional as F

from benchmarks.decoding_contest import GREEDY, Sizes, no_weights, ready_model
from benchmarks.rows import Row, Table
from benchmarks.setting import Setting
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.generate import sample

READING = "reading its keys and values, ms"
"""What the late token reads more of them, over the bandwidth: no attention is faster."""
RATIO = "late / (early + what its attention takes longer)"


def late_tokens(setting: Setting, sizes: Sizes) -> Table:
    """An early and a late token of one long sequence, in ms, beside attention over as many keys."""
    length = sizes.late + sizes.around
    table = Table(
        key="late",
        title=f"The {sizes.late}th token beside the {sizes.early}th, one sequence, batch 1",
        base="",
        unit="",
        sizes={**sizes.model, "length": length},
    )
    setting.say(table.title)
    more = 2 * sizes.n_layers * sizes.d_model * (sizes.late - sizes.early)  # numbers read more
    for name, weights in (("Triptych", None), ("Triptych, fp32 weights", "fp32")):
        row = Row(name, dtype="fp32")
        table.rows.append(row)
        unable = None if weights is None else no_weights(setting, weights)
        if unable:
            row.state, row.why = "skipped", unable
            continue
        model = ready_model(setting, sizes, (length,), weights, rows=1)
        early, late = [], []
        for _ in range(2):  # no first calls: those are the tokens before the early one
            costs = token_costs(setting, model, length)
            early += costs[sizes.early - sizes.around : sizes.early + sizes.around]
            late += costs[sizes.late - sizes.around : sizes.late + sizes.around]
        # The least of the rounds: what others take away meanwhile must excuse no token.
        few, many = (min(costs) for costs in attention_costs(setting, sizes, rounds=len(early)))
        row.rounds = 2
        row.extra |= {
            f"{sizes.early}th, ms": median(early),
            f"{sizes.late}th, ms": median(late),
            READING: 1e3 * 4 * more / setting.ceilings.bytes_per_s,
            f"attention over {sizes.early} keys, ms": few,
            f"attention over {sizes.late} keys, ms": many,
            "late / early": median(late) / median(early),
            RATIO: median(late) / (median(early) + many - few),
        }
    return table


def token_costs(setting: Setting, model: DecoderOnly, length: int) -> list[float]:
    """Milliseconds of each token of a greedy run, by the calls of `progress`."""
    stamps = [time.perf_counter()]

    def stamp(done: int, total: int) -> None:
        wait(setting)
        stamps.append(time.perf_counter())

    sample(model, batch=1, length=length, sampling=GREEDY, progress=stamp)
    return [1e3 * (after - before) for before, after in pairwise(stamps)]


def attention_costs(setting: Setting, sizes: Sizes, *, rounds: int) -> list[list[float]]:
    """Milliseconds of one step's attention in all layers, over early and over late keys, in turn.

    Every layer has buffers of its own, of which it reads the first part, as in a step; and before
    each timing as many bytes are read as a step reads of the weights, so that no cache holds the
    keys.
    """
    device = setting.device
    size = (1, sizes.n_heads, sizes.late + sizes.around, sizes.d_model // sizes.n_heads)
    layers = [
        tuple(torch.randn(size, device=device) for _ in range(2)) for _ in range(sizes.n_layers)
    ]
    query = torch.randn(1, sizes.n_heads, 1, size[-1], device=device)
    weights = torch.ones(
        sizes.n_layers * 12 * sizes.d_model**2 + sizes.vocabulary * sizes.d_model, device=device
    )

    def over(keys: int) -> Callable[[], None]:
        mask = torch.zeros(1, keys, device=device)
        views = [(k.narrow(2, 0, keys), v.narrow(2, 0, keys)) for k, v in layers]

        def step() -> None:
            for k, v in views:
                F.scaled_dot_product_attention(query, k, v, attn_mask=mask)

        return step

    runs = [over(sizes.early), over(sizes.late)]
    found: list[list[float]] = [[] for _ in runs]
    with torch.inference_mode():
        for run in runs:
            run()  # a first call does not count
        for _ in range(rounds):
            for run, costs in zip(runs, found, strict=True):
                weights.sum()
                wait(setting)
                start = time.perf_counter()
                run()
                wait(setting)
                costs.append(1e3 * (time.perf_counter() - start))
    return found


def wait(setting: Setting) -> None:
    """For what a GPU still has to do."""
    if setting.on_gpu:
        torch.cuda.synchronize(setting.device)
