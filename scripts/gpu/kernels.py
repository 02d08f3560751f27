"""Sections on attention kernels: FlexAttention and SDPA at real lengths against exact values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

from gpu.setting import TOLERANCE, Row, Setting, difference
from triptych.core.attention.backends import flex
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.attention.relative_bias import RelativeBias, TokenBias
from triptych.core.attention.relative_local import RelativeLocal

HEADS, BATCH = 2, 2
LENGTHS = (64, 192, 785, 1025, 2048)
"""Half a block, one and a half, MNIST with its class, and an odd and an even long one."""
VARIANTS: list[AttentionConfig] = [
    Relative(max_distance=511),
    Relative(max_distance=64, window=100),
    RelativeLocal(block=100),
    Local1D(block=96, memory=64),
    PitchTime(max_distance=64, n_voices=4, max_time=16, n_pitches=47),
]
Case = tuple[AttentionConfig, tuple[int, ...], int]
"""Variant, shape of the sequence, width of a head."""


@contextmanager
def kernel_of(setting: Setting) -> Iterator[None]:
    """Compile for the device; other devices run the graphs that are compiled for CUDA."""
    with patch.object(flex, "COMPILER", "inductor" if setting.on_cuda else "eager"):
        yield


def cases(setting: Setting) -> list[Case]:
    # A case takes many seconds of compilation: the first variant stands for the others.
    of_first = LENGTHS[:2] if setting.tiny else LENGTHS
    of_others = of_first if setting.tiny or setting.every else (192, 1025)
    sequences: list[Case] = [
        (variant, (length,), 32)
        for variant in VARIANTS
        for length in (of_first if variant is VARIANTS[0] else of_others)
    ]
    images: list[Case] = [(Local2D(4, 4, 3, 2), (10, 13, 1), 32)]
    if not setting.tiny:
        images += [(Local2D(), (28, 28, 1), 32), (Local2D(), (32, 32, 3), 32)]
        sequences += [(VARIANTS[0], (1025,), width) for width in (16, 64, 128)]
    return sequences + images


def lengths(setting: Setting) -> Iterator[Row]:
    """Values and gradients of FlexAttention against the tiled backend in float64."""
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    kinds = 0
    with kernel_of(setting), setting.strict():
        for config, shape, width in cases(setting):
            torch.manual_seed(0)
            pattern = config.mask_pattern(shape, True).to(setting.device)
            bias = config.relative_bias(HEADS, width, True)
            bias = bias if bias is None else bias.to(setting.device)
            for dtype in ("fp32", "bf16"):
                for is_padded in (False, True):
                    found = compare(setting, pattern, bias, shape, width, dtype, is_padded)
                    passed = max(found.values()) <= TOLERANCE[dtype]
                    case = f"{config}, {'x'.join(map(str, shape))}, heads of {width}"
                    kinds += 1
                    yield {"case": case, "dtype": dtype, "padding": is_padded, **found,
                           "passed": passed}  # fmt: skip
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] - before
    yield {"case": f"graphs of {kinds} kinds", "graphs": graphs, "passed": graphs >= kinds}


def compare(
    setting: Setting,
    pattern: MaskPattern,
    bias: RelativeBias | None,
    shape: tuple[int, ...],
    width: int,
    dtype: str,
    is_padded: bool,
) -> dict[str, float]:
    """Return the largest differences of the values and, on CUDA, of the gradients.

    FlexAttention has no backward pass on a CPU.
    """
    length = torch.Size(shape).numel()
    exact = torch.randn(4, BATCH, HEADS, length, width, dtype=torch.float64, device=setting.device)
    real = torch.ones(BATCH, length, dtype=torch.bool, device=setting.device)
    real[1, length - length // 3 :] = False
    options = {"real": real if is_padded else None}
    classes = None
    if isinstance(bias, TokenBias):
        ids = torch.arange(length, device=setting.device).expand(BATCH, -1) * 7 % 47
        classes = bias.token_classes(ids)
    low = torch.float32 if dtype == "fp32" else torch.bfloat16

    def results(qkvg: Tensor, own: RelativeBias | None, by_flex: bool) -> list[Tensor]:
        parts = [part.detach().requires_grad_(setting.on_cuda) for part in qkvg[:3]]
        q, k, v = parts
        with torch.set_grad_enabled(setting.on_cuda):
            if by_flex:
                y = flex.attend_by_flex(pattern, own, q, k, v, token_classes=classes, **options)
            else:
                if isinstance(own, TokenBias) and classes is not None:
                    q, k = own.token_features(q, k, classes)
                y = attend_in_tiles(pattern, own, q, k, v, **options)
        # Queries on padding are nobody's.
        y = y * real[:, None, :, None] if is_padded else y
        if not setting.on_cuda:
            return [y]
        tables = [] if own is None else [*own.parameters()]
        return [y, *torch.autograd.grad((y * qkvg[3]).sum(), [*parts, *tables])]

    expected = results(exact, None if bias is None else bias.double(), False)
    found = results(exact.to(low), None if bias is None else bias.to(low), True)
    differences = [difference(one, other) for one, other in zip(found, expected, strict=True)]
    gradients = {"gradients": max(differences[1:])} if setting.on_cuda else {}
    return {"values": differences[0], **gradients}


def varying_lengths(setting: Setting) -> Iterator[Row]:
    """An epoch of batches of all lengths: block masks and compiled functions stay few."""
    config = VARIANTS[0]
    pattern = config.mask_pattern((2048,), True).to(setting.device)
    bias = config.relative_bias(HEADS, 32, True)
    assert bias is not None
    bias.to(setting.device)
    draw = random.Random(0)
    longest, count = (300, 6) if setting.tiny else (2048, 200)
    made = []
    make = flex._make_mask

    def counted(pattern: MaskPattern, length: int, device: str) -> None:
        made.append(length)
        make(pattern, length, device)

    def epoch() -> None:
        for _ in range(count):
            size = 3, BATCH, HEADS, draw.randint(20, longest), 32
            q, k, v = torch.randn(size, device=setting.device)
            with torch.no_grad():
                flex.attend_by_flex(pattern, bias, q, k, v)

    with kernel_of(setting), setting.strict(), patch.object(flex, "_make_mask", counted):
        seconds = [setting.seconds(epoch, 1) for _ in range(2)]
    most = -(-longest // 128)
    yield {"case": f"{count} lengths up to {longest}", "block masks": len(made),
           "first epoch s": seconds[0], "second epoch s": seconds[1],
           "passed": len(made) <= most}  # fmt: skip


def sdpa(setting: Setting) -> Iterator[Row]:
    """SDPA with padded rows at the lengths where kernels of others gave NaN."""
    from torch.nn.attention import SDPBackend

    for length in (64, 128, 192):
        for dtype in (torch.float16, torch.bfloat16):
            torch.manual_seed(0)
            exact = torch.randn(4, BATCH, 4, length, 64, dtype=torch.float64, device=setting.device)
            mask = torch.ones(BATCH, 1, 1, length, dtype=torch.bool, device=setting.device)
            mask[1, ..., length // 2 :] = False
            both = []
            for values in (exact.to(dtype), exact):
                parts = [part.detach().requires_grad_() for part in values[:3]]
                y = F.scaled_dot_product_attention(*parts, attn_mask=mask)
                both.append([y, *torch.autograd.grad((y * values[3]).sum(), parts)])
            backend = SDPBackend(torch._fused_sdp_choice(*exact.to(dtype)[:3], mask))
            found = [difference(one, other) for one, other in zip(*both, strict=True)]
            yield {"case": f"length {length}", "dtype": str(dtype)[6:], "backend": backend.name,
                   "values": found[0], "gradients": max(found[1:]),
                   "passed": max(found) <= TOLERANCE["bf16"]}  # fmt: skip
