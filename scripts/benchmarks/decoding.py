"""Decoding, greedy, beside the peers; and how far above the time of reading the weights once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import torch

from benchmarks import peers_hf, peers_minimal, peers_xt
from benchmarks.decoding_contest import (
    BYTES,
    FLOOR,
    GREEDY,
    Contest,
    Sizes,
    no_weights,
    ready_model,
)
from benchmarks.machine import missing
from benchmarks.measuring import Case
from benchmarks.rows import Row, Table
from benchmarks.setting import Setting
from triptych.core.attention.interface import AttentionConfig
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.relative import Relative
from triptych.core.sequence import SequenceModel
from triptych.decoding.session import sample

SIZES = {
    "full": Sizes(),
    "quick": Sizes(batches=(1, 32), tokens=16, early=50, late=300, around=8),
    "tiny": Sizes(
        batches=(1, 3),
        tokens=4,
        d_model=16,
        n_layers=1,
        n_heads=2,
        vocabulary=16,
        early=4,
        late=10,
        around=2,
        pieces=((8,), (2, 2, 3)),
    ),
    "gpu": Sizes(
        batches=(1, 8, 64, 256), tokens=256, pieces=((2048,), (32, 32, 3)), piece_batch=16
    ),
}


def run(setting: Setting) -> Iterator[Table]:
    sizes = setting.sizes(SIZES)
    left = len(sizes.batches) + len(sizes.pieces) + 1
    for batch in sizes.batches:
        yield generation(setting, sizes, batch, left)
        left -= 1
    for shape in sizes.pieces:
        yield whole_piece(setting, sizes, shape, left)
        left -= 1
    yield late_tokens(setting, sizes)


def generation(setting: Setting, sizes: Sizes, batch: int, tables_left: int) -> Table:
    """Tokens per second of whole greedy runs from one start token."""
    count = sizes.tokens
    table = Table(
        key=f"decoding/{batch}",
        title=f"Decoding {count} tokens, d {sizes.d_model}, {sizes.n_layers} layers, batch {batch}",
        base="minimal",
        unit="tokens",
        sizes={**sizes.model, "batch": batch, "tokens": count},
    )
    contest = Contest(setting, sizes, (count,), batch)
    hf, no_hf = "GPT-2 (Hugging Face)", missing("transformers")
    cases = [
        contest.peer("minimal", peers_minimal.MinimalDecoder),
        contest.peer("minimal, bf16", peers_minimal.MinimalDecoder, "bf16"),
        contest.peer(hf, peers_hf.GPT2, missing=no_hf),
        contest.peer(f"{hf}, bf16", peers_hf.GPT2, "bf16", missing=no_hf),
        contest.peer("x-transformers", peers_xt.decoder, missing=missing("x_transformers")),
        contest.ours("Triptych"),
        *(contest.ours(f"Triptych, {name} weights", weights=name) for name in BYTES),
    ]
    if setting.scale != "quick":
        cases.append(contest.ours("Triptych, compiled", compiled=True))
        if setting.on_gpu:
            cases.append(contest.ours("Triptych, bf16, compiled", weights="bf16", compiled=True))
    weights = sizes.n_layers * 12 * sizes.d_model**2 + sizes.vocabulary * sizes.d_model
    buffer = torch.ones(weights, device=setting.device)
    cases.append(Case(FLOOR, lambda: buffer.sum, batch, "fp32"))
    setting.measure(table, cases, tables_left)
    over_the_floor(table, count)
    return table


def whole_piece(setting: Setting, sizes: Sizes, shape: tuple[int, ...], tables_left: int) -> Table:
    """Whole sequences as music (relative attention) or pictures (local 2-D) need them."""
    contest = Contest(setting, sizes, shape, sizes.piece_batch)
    kind = "line" if len(shape) == 1 else "picture"
    table = Table(
        key=f"decoding/{kind}",
        title=f"Decoding whole {kind}s of {'x'.join(map(str, shape))}, d {sizes.d_model}, "
        f"{sizes.n_layers} layers, batch {sizes.piece_batch}",
        base="minimal",
        unit="tokens",
        sizes={**sizes.model, "batch": sizes.piece_batch, "shape": list(shape)},
    )
    own: AttentionConfig = (
        Relative(max_distance=contest.length - 1) if kind == "line" else Local2D()
    )
    name = "relative" if kind == "line" else "local 2-D"
    cases = [
        contest.peer("minimal", peers_minimal.MinimalDecoder),
        contest.peer("minimal, bf16", peers_minimal.MinimalDecoder, "bf16"),
        contest.peer("x-transformers", peers_xt.decoder, missing=missing("x_transformers")),
        contest.ours("Triptych full"),
        contest.ours(f"Triptych {name}", own),
        contest.ours(f"Triptych {name}, bf16 weights", own, weights="bf16"),
        contest.ours(f"Triptych {name}, compiled", own, compiled=True),
        contest.ours(f"Triptych {name}, bf16, compiled", own, weights="bf16", compiled=True),
    ]
    return setting.measure(table, cases, tables_left)


def over_the_floor(table: Table, count: int) -> None:
    """Add each row's milliseconds a step, and how often the floor of its dtype goes into them."""
    floor = table.row(FLOOR)
    for row in table.rows:
        if row.median_s is None:
            continue
        seconds = row.median_s if row.name == FLOOR else row.median_s / count
        row.extra["ms a step"] = 1e3 * seconds
        if floor is not None and floor.median_s and row is not floor:
            row.extra["x floor"] = seconds / (floor.median_s * BYTES[row.dtype] / 4)


def late_tokens(setting: Setting, sizes: Sizes) -> Table:
    """What an early and a late token of one long sequence cost, in ms, beside reading its keys."""
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
        attention = 1e3 * 4 * more / setting.ceilings.bytes_per_s
        row.rounds = 2
        row.extra |= {
            f"{sizes.early}th, ms": median(early),
            f"{sizes.late}th, ms": median(late),
            "reading its keys and values, ms": attention,
            "late / early": median(late) / median(early),
        }
    return table


def token_costs(setting: Setting, model: SequenceModel, length: int) -> list[float]:
    """Milliseconds of each token of a greedy run, by the calls of `progress`."""
    stamps = [time.perf_counter()]

    def stamp(done: int, total: int) -> None:
        if setting.on_gpu:
            torch.cuda.synchronize(setting.device)
        stamps.append(time.perf_counter())

    sample(model, batch=1, length=length, sampling=GREEDY, progress=stamp)
    return [1e3 * (after - before) for before, after in pairwise(stamps)]
