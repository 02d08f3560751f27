"""Sections 4, 5 and 6: attention backends, share of the peak, decoding."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from benchmarks import models
from benchmarks.models import Shape
from benchmarks.setting import missing
from benchmarks.translation import Batch, random_batches, search
from torch import Tensor

from gpu.setting import Row, Setting
from triptych.core.attention.backends.dispatch import attend, attend_by_sdpa, attend_in_windows
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.core.attention.relative import Relative
from triptych.decoding.execution import CompiledSteps
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest
from triptych.training.engine.speed import peak_flops, training_flops

Way = Callable[..., Tensor]
"""Attention of queries, keys and values."""
GRIDS: list[tuple[AttentionConfig, tuple[int, ...]]] = [
    (Full(), (2048,)),
    (Relative(max_distance=2047), (2048,)),
    (Relative(max_distance=511, window=512), (2048,)),
    (Local1D(256, 256), (2048,)),
    (Local2D(), (32, 32, 3)),
    (Local2D(), (64, 64, 3)),
]


def backends(setting: Setting) -> Iterator[Row]:
    """Section 4: forward and backward pass of the backends side by side, and their memory."""
    heads, width, batch = (2, 16, 1) if setting.tiny else (8, 64, 4)
    dtype = torch.float32 if setting.tiny else torch.bfloat16
    for config, grid in GRIDS:
        grid = (24,) if setting.tiny and len(grid) == 1 else (8, 8, 3) if setting.tiny else grid
        layer = config.build(heads * width, heads, config.mask_pattern(grid, True))
        layer = layer.to(setting.device)
        size = (3, batch, heads, math.prod(grid), width)
        qkv = torch.randn(size, device=setting.device, dtype=dtype, requires_grad=True)
        for name, way in ways_of(layer, qkv).items():
            setting.reset_peak()

            def call(way: Way = way, qkv: Tensor = qkv) -> None:
                way(*qkv).sum().backward()

            row = {"case": f"{config} on {'x'.join(map(str, grid))}", "backend": name}
            try:
                seconds = setting.seconds(call, 1 if setting.tiny else 10)
            except torch.cuda.OutOfMemoryError:
                yield row | {"problem": "out of memory"}
                continue
            yield row | {"ms": 1e3 * seconds, "peak GiB": setting.peak_gib()}


def ways_of(layer: MultiHeadAttention, qkv: Tensor) -> dict[str, Way]:
    """The backends that serve a layer, by name; the first is the one that dispatch chooses."""
    pattern, bias, windows = layer.mask_pattern, layer.bias, layer.mask_pattern.windows
    ways: dict[str, Way] = {
        "chosen": partial(attend, pattern, bias),
        "tiled": partial(attend_in_tiles, pattern, bias),
    }
    if bias is None:
        position = torch.arange(qkv.shape[3], device=qkv.device)
        mask = pattern.visible(position.unsqueeze(1), position)
        ways["SDPA with a mask"] = partial(attend_by_sdpa, mask=mask)
    if bias is None and windows is not None:
        ways["windows"] = partial(attend_in_windows, windows)
    return ways


def model_flops(setting: Setting) -> Iterator[Row]:
    """Section 5: share of the peak (MFU) of a training step, eager and compiled."""
    tiny = Shape(24, 16, 16, 1, 2)
    decoder = tiny if setting.tiny else Shape(512, 2048, 512, 6, 8)
    base = tiny if setting.tiny else Shape(37_000, 256, 512, 6, 8)
    rows = 2 if setting.tiny else 16
    makers = {
        f"decoder-only, {decoder}": (models.decoder_only, decoder),
        f"transformer-base, {base}": (models.encoder_decoder, base),
    }
    for name, (make, shape) in makers.items():
        model = make(shape).to(setting.device).train()
        ids = torch.randint(3, shape.vocabulary, (rows, shape.length), device=setting.device)
        flops = ids.numel() * training_flops(model, shape.length)

        def loss(model: torch.nn.Module = model, ids: Tensor = ids) -> Tensor:
            if isinstance(model, models.EncoderDecoder):
                return model.head.losses(model.features(ids, ids < 0, ids), ids).mean()
            return model.nll(ids).mean()

        for how in ("eager",) if setting.tiny else ("eager", "compiled"):
            objective = torch.compile(loss) if how == "compiled" else loss

            def call(objective: Callable[[], Tensor] = objective) -> None:
                with setting.autocast():
                    value = objective()
                value.backward()

            setting.reset_peak()
            seconds = setting.seconds(call, 1 if setting.tiny else 20)
            peak = peak_flops(torch.cuda.get_device_name()) if setting.on_cuda else None
            row = {"case": name, "how": how, "tokens/s": ids.numel() / seconds}
            row |= {"TFLOP/s": flops / seconds / 1e12, "peak GiB": setting.peak_gib()}
            yield row | {"MFU": None if peak is None else flops / seconds / peak}


def decoding(setting: Setting) -> Iterator[Row]:
    """Section 6: steps without waits, tokens per second of decoding, translation beside Marian."""
    shape = Shape(24, 16, 16, 1, 2) if setting.tiny else Shape(512, 512, 512, 6, 8)
    model = models.decoder_only(shape).to(setting.device).eval()
    generate(model, SampleRequest(count=2, length=4))
    with setting.no_waits():
        generate(model, SampleRequest(count=2, length=min(50, shape.length)))
    yield {"case": "50 steps without a wait", "passed": True}
    for rows in (1, 16, 64):
        for how in ("eager",) if setting.tiny else ("eager", "graph"):
            steps = CompiledSteps(model) if how == "graph" else None

            def call(rows: int = rows, steps: CompiledSteps | None = steps) -> None:
                generate(model, SampleRequest(count=rows, length=shape.length, compiled=steps))

            seconds = setting.seconds(call, 1)
            rate = rows * shape.length / seconds
            yield {"case": f"decoding, {rows} rows, {shape}", "how": how, "tokens/s": rate}
    sides = shape if setting.tiny else Shape(4000, 512, 256, 3, 8)
    sentences = 5 if setting.tiny else 512
    batches = random_batches(setting, sides, sentences)
    ours = models.encoder_decoder(sides).to(setting.device).eval()
    for beam in (1, 4):
        yield {
            "case": f"waits of a search, beam {beam}",
            "waits": waits(setting, ours, batches[0], beam),
        }
        seconds = setting.seconds(lambda: [search(ours, b, beam) for b in batches], 1)  # noqa: B023
        row = {"case": f"translation, beam {beam}", "how": "Triptych"}
        yield row | {"sentences/s": sentences / seconds}
        if not missing("transformers"):
            marian = models.Marian(sides).to(setting.device).eval()
            call = lambda: [marian.generate(*b, beam) for b in batches]  # noqa: B023, E731
            row["how"] = "Hugging Face Marian"
            yield row | {"sentences/s": sentences / setting.seconds(call, 1)}


def waits(setting: Setting, model: models.EncoderDecoder, batch: Batch, beam: int) -> int | None:
    """How often one search waits for CUDA; None on other devices."""
    if not setting.on_cuda:
        return None
    torch.set_warn_always(True)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            search(model, batch, beam)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.set_warn_always(False)
    return sum("synchroniz" in str(warning.message) for warning in found)
