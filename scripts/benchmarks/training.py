"""Training steps (forward, backward, fused AdamW) of decoders of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import models
from benchmarks.goals import GPT2, SDPA
from benchmarks.measure import Run, Table, measure
from benchmarks.models import Shape
from benchmarks.setting import Setting, missing
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative import Relative


def run(setting: Setting) -> Iterator[Table]:
    full = Shape(length=1024)
    shape = setting.sizes(Shape(16, 16, 16, 1, 2), Shape(length=1024, n_layers=2), full)
    for dtype in setting.dtypes:
        yield decoders(setting, shape, dtype)


def decoders(setting: Setting, shape: Shape, dtype: str) -> Table:
    length = shape.length
    tokens = torch.randint(shape.vocabulary, (1, length + 1), device=setting.device)
    # Triptych's model shifts its input itself: position t predicts value t.
    previous, targets = tokens[:, :-1], tokens[:, 1:]

    def peer(make: Callable[[Shape], nn.Module]) -> Run:
        return training_step(setting, make(shape), previous, targets, dtype)

    def ours(attention: AttentionConfig | None) -> Run:
        model = models.decoder_only(shape, attention)
        return training_step(setting, model, targets, targets, dtype)

    builders = {
        SDPA: partial(peer, models.SDPADecoder),
        "x-transformers": partial(peer, models.x_decoder),
        GPT2: partial(peer, models.GPT2),
        "Triptych full": partial(ours, None),
        "Triptych relative": partial(ours, Relative(max_distance=length - 1)),
    }
    skip = {"x-": missing("x_transformers"), GPT2: missing("transformers")}
    title = f"Training step, {shape}, length {length}, batch 1, {dtype}"
    table = Table(f"training/{dtype}", title, SDPA, "tokens", length)
    return measure(setting, table, builders, skip)


def training_step(
    setting: Setting, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, dtype: str
) -> Run:
    """One training step of a model that maps the inputs to logits [B, L, V]."""
    model = model.to(setting.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        with torch.autocast(setting.device.type, torch.bfloat16, enabled=dtype == "bf16"):
            loss = F.cross_entropy(model(inputs).float().flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run
