"""Competitors in decoding: each makes whole greedy sequences, as many tokens as the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from benchmarks import models, peers_hf, peers_minimal, peers_xt
from benchmarks.measuring import Case, Run
from benchmarks.setting import DTYPES, Setting
from triptych.core.attention.base import AttentionConfig
from triptych.core.generation_order import raster
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.generate import sample
from triptych.decoding.quantize import for_decoding
from triptych.decoding.sampling import Sampling

GREEDY = Sampling(temperature=0)
FLOOR = "floor: the weights read once a token"
BYTES = {"fp32": 4, "bf16": 2, "int8": 1}


@dataclass(frozen=True)
class Sizes:
    batches: tuple[int, ...] = (1, 8, 32, 64)
    tokens: int = 128
    d_model: int = 512
    n_layers: int = 6
    n_heads: int = 8
    vocabulary: int = 512
    early: int = 200
    """A token whose cost is compared with that of a late one, counted from the start."""
    late: int = 2000
    around: int = 16
    """Tokens on both sides over which that cost is the median."""
    pieces: tuple[tuple[int, ...], ...] = ()
    """Whole sequences of the domains: a line of events, a picture."""
    piece_batch: int = 1

    @property
    def model(self) -> dict[str, int]:
        return {"d_model": self.d_model, "n_layers": self.n_layers, "n_heads": self.n_heads}


@dataclass(frozen=True)
class Contest:
    """Greedy decoding of one whole sequence a row: every competitor makes as many tokens."""

    setting: Setting
    sizes: Sizes
    shape: tuple[int, ...]
    batch: int

    @property
    def length(self) -> int:
        return raster(self.shape).length

    def peer(
        self,
        name: str,
        make: Callable[..., nn.Module],
        dtype: str = "fp32",
        *,
        missing: str | None = None,
    ) -> Case:
        batch, length = self.batch, self.length

        def build() -> Run:
            model = make(self.sizes.vocabulary, length + 1, **self.sizes.model)
            model = model.to(self.setting.device, DTYPES[dtype]).eval()
            if isinstance(model, (peers_minimal.MinimalDecoder, peers_hf.GPT2)):
                return lambda: checked(model.generate(batch, length), batch, length)
            return lambda: checked(peers_xt.generate(model, batch, length), batch, length)

        return Case(name, build, batch * length, dtype, missing)

    def ours(
        self,
        name: str,
        attention: AttentionConfig | None = None,
        *,
        weights: str | None = None,
        compiled: bool = False,
    ) -> Case:
        batch, length = self.batch, self.length

        def build() -> Run:
            model = ready_model(
                self.setting,
                self.sizes,
                self.shape,
                weights,
                rows=batch,
                attention=attention,
                compiled=compiled,
            )
            options = {"compile": True} if compiled else {}
            return lambda: checked(
                sample(model, batch=batch, length=length, sampling=GREEDY, **options),
                batch,
                length,
            )

        unable = no_weights(self.setting, weights) if weights else None
        unable = unable or (no_compiled(self.setting) if compiled else None)
        return Case(name, build, batch * length, weights or "fp32", unable)


def ready_model(
    setting: Setting,
    sizes: Sizes,
    shape: tuple[int, ...],
    weights: str | None,
    *,
    rows: int,
    attention: AttentionConfig | None = None,
    compiled: bool = False,
) -> DecoderOnly:
    """Triptych's model as it is, or as `for_decoding` packs it."""
    model = models.sequence_model(sizes.vocabulary, shape, attention=attention, **sizes.model)
    model = model.to(setting.device).eval()
    if weights is None:
        return model
    packed = for_decoding(model, weights, rows=rows, compiled=compiled)
    assert isinstance(packed, DecoderOnly)
    return packed


def no_weights(setting: Setting, name: str) -> str | None:
    """Why weights of this kind cannot be had; None where they can."""
    if setting.on_gpu and name == "int8":
        return "dynamic int8 weights are for CPUs"
    return None


def no_compiled(setting: Setting) -> str | None:
    if setting.scale == "tiny":
        return "not at tiny sizes"
    return models.no_compiler(setting.device)


def checked(tokens: Tensor, batch: int, length: int) -> Tensor:
    """The tokens, which are as many as asked for: nobody wins by stopping early."""
    if tuple(tokens.shape) != (batch, length):
        raise ValueError(f"asked for {batch} x {length} tokens, got {tuple(tokens.shape)}")
    return tokens
