"""Training steps (forward, backward, fused AdamW) beside the peers: decoders and translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from benchmarks import models, peers_hf, peers_minimal, peers_torch, peers_xt
from benchmarks.machine import missing
from benchmarks.measuring import Case, Run
from benchmarks.rows import Table
from benchmarks.setting import Setting
from benchmarks.training_pairs import PairSizes, translation
from benchmarks.training_step import step
from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.relative import Relative


@dataclass(frozen=True)
class Sizes:
    shapes: tuple[tuple[int, ...], ...] = ((1024,),)
    """Of the decoders' sequences: a line of tokens, or a picture."""
    batch: int = 1
    d_model: int = 512
    n_layers: int = 6
    n_heads: int = 8
    vocabulary: int = 512
    window: int = 512
    pairs: PairSizes = field(default_factory=PairSizes)

    @property
    def decoder(self) -> dict[str, int]:
        return {"d_model": self.d_model, "n_layers": self.n_layers, "n_heads": self.n_heads}


SIZES = {
    "full": Sizes(),
    "quick": Sizes(n_layers=1, pairs=PairSizes(pairs=16)),
    "tiny": Sizes(
        shapes=((32,), (4, 4, 3)),
        d_model=16,
        n_layers=1,
        n_heads=2,
        vocabulary=16,
        window=8,
        pairs=PairSizes(2, 6, d_model=16, n_layers=1, n_heads=2, vocabulary=16),
    ),
    "gpu": Sizes(shapes=((2048,), (32, 32, 3)), batch=8, pairs=PairSizes(pairs=256)),
}


def run(setting: Setting) -> Iterator[Table]:
    sizes = setting.sizes(SIZES)
    plan = [(kind, dtype) for kind in (*sizes.shapes, "pairs") for dtype in ("fp32", "bf16")]
    for number, (kind, dtype) in enumerate(plan):
        left = len(plan) - number
        if isinstance(kind, str):
            yield translation(setting, sizes.pairs, dtype, left)
        else:
            yield decoders(setting, sizes, kind, dtype, left)


def decoders(
    setting: Setting, sizes: Sizes, shape: tuple[int, ...], dtype: str, tables_left: int
) -> Table:
    """Decoder-only models: tokens in a line, or the sub-pixels of a picture."""
    length = Full().order_of(shape).length
    grid = "x".join(map(str, shape))
    what = f"L {length}" if len(shape) == 1 else f"pictures {grid} (L {length})"
    table = Table(
        key=f"decoder/{'line' if len(shape) == 1 else 'picture'}/{dtype}",
        title=f"Training step, d {sizes.d_model}, {sizes.n_layers} layers, {what}, "
        f"batch {sizes.batch}, {dtype}{' autocast' if dtype == 'bf16' else ''}",
        base="minimal",
        unit="tokens",
        sizes={**sizes.decoder, "shape": list(shape), "batch": sizes.batch},
    )
    tokens = torch.randint(0, sizes.vocabulary, (sizes.batch, length + 1), device=setting.device)

    def peer(make: Callable[..., nn.Module]) -> Callable[[], Run]:
        def build() -> Run:
            model = make(sizes.vocabulary, length, **sizes.decoder)
            return step(setting, model, (tokens[:, :-1],), tokens[:, 1:], dtype)

        return build

    def ours(attention: AttentionConfig, compiled: bool, **settings: float) -> Callable[[], Run]:
        def build() -> Run:
            model = models.sequence_model(
                sizes.vocabulary, shape, attention=attention, **sizes.decoder, **settings
            )
            # The model shifts by itself: position t predicts value t.
            return step(setting, model, (tokens[:, 1:],), tokens[:, 1:], dtype, compiled=compiled)

        return build

    own = variants(sizes, shape)
    work = sizes.batch * length
    cases = [
        Case("minimal", peer(peers_minimal.MinimalDecoder), work, dtype),
        Case("torch.nn", peer(peers_torch.TorchDecoder), work, dtype),
        Case("x-transformers", peer(peers_xt.decoder), work, dtype, missing("x_transformers")),
        Case("GPT-2 (Hugging Face)", peer(peers_hf.GPT2), work, dtype, missing("transformers")),
        *(Case(name, ours(variant, False), work, dtype) for name, variant in own.items()),
    ]
    if len(shape) == 1:
        dropped = ours(Full(), False, attention_dropout=0.1)
        cases.append(Case("Triptych full, attention dropout 0.1", dropped, work, dtype))
    if setting.scale != "quick":
        # Tiny models would wait for the compiler only to show nothing.
        unable = "not at tiny sizes" if setting.scale == "tiny" else None
        unable = unable or models.no_compiler(setting.device)
        compiled = own if setting.on_gpu else {"Triptych full": Full()}
        cases += [
            Case(f"{name}, compiled", ours(variant, True), work, dtype, unable)
            for name, variant in compiled.items()
        ]
    setting.measure(table, cases, tables_left)
    for row in table.rows:
        if row.rate:
            variant = own.get(row.name.removesuffix(", compiled"), Full())
            flops = flops_per_token(sizes, variant, shape)
            row.extra["MFU"] = row.rate * flops / setting.ceilings.flops[dtype]
    return table


def variants(sizes: Sizes, shape: tuple[int, ...]) -> dict[str, AttentionConfig]:
    """Triptych's rows for a line of tokens, or for a picture."""
    found: dict[str, AttentionConfig] = {"Triptych full": Full()}
    if len(shape) == 1:
        window = sizes.window
        found["Triptych relative"] = Relative(max_distance=max(1, shape[0] - 1))
        found[f"Triptych relative, window {window}"] = Relative(window - 1, window)
        found["Triptych local 1-D"] = Local1D(block=window // 2, memory=window // 2)
    else:
        found["Triptych local 2-D"] = Local2D(order="raster")
        found["Triptych local 2-D, block order"] = Local2D(order="blocks")
    return found


def flops_per_token(sizes: Sizes, attention: AttentionConfig, shape: tuple[int, ...]) -> float:
    """Of a training step: 6 a weight, and 6 a feature and key read for each product of attention.

    Keys are those that the definition lets a query read, on average; what a kernel computes beyond
    them does not count. Relative attention has a third product, with the distances' vectors.
    """
    weights = sizes.n_layers * 12 * sizes.d_model**2 + sizes.vocabulary * sizes.d_model
    products = 3 if isinstance(attention, Relative) else 2
    keys = models.mean_keys(attention, shape)
    return 6 * (weights + products * keys * sizes.d_model * sizes.n_layers)
