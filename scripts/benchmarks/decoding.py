"""Decoding, greedy, beside the peers; and how far above the time of reading the weights once."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks import peers_hf, peers_minimal, peers_xt
from benchmarks.decoding_contest import (
    BYTES,
    FLOOR,
    Contest,
    Sizes,
)
from benchmarks.decoding_late import late_tokens
from benchmarks.machine import missing
from benchmarks.measuring import Case
from benchmarks.rows import Table
from benchmarks.setting import Setting
from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.relative import Relative

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
        name = "Triptych, fp32 weights, compiled"
        cases.append(contest.ours(name, weights="fp32", compiled=True))
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
