"""Options that several commands take, with their texts of help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from triptych.cli.options import at_least_one
from triptych.training.run_settings import check_seed

Dtype = Literal["fp32", "bf16", "int8"]  # as in `decoding.quantize`, which imports torch


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model does the work, and where."""

    checkpoint: str
    """Checkpoint file of the model (.ckpt), or pretrained:NAME."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(ModelOptions):
    """The options of `triptych sample`, in every domain."""

    out: str
    """Folder for the samples; made where it is missing."""
    count: int = 1
    """Samples to make."""
    seed: int = 0
    """Seed of the draw; the same seed gives the same samples on the same device."""
    temperature: float = 1.0
    """Divides the logits (no unit): above 1 wilder, below 1 safer, 0 takes the likeliest."""
    top_k: int | None = None
    """Draw among the so many likeliest values only; null for all."""
    top_p: float | None = None
    """Draw among the likeliest values that reach this probability, 0 to 1; null for all."""
    dtype: Dtype = "fp32"
    """Precision of the model: bf16 is faster with hardware for it, int8 on a CPU."""
    compile: bool = False
    """Compile the step, into a CUDA graph on a GPU; tens of seconds go by first, and on a CPU a
    single sample gains a little, several gain nothing. Not with int8."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot be drawn with."""
        if self.count < 1:
            raise ValueError(f"count must be at least 1, got {self.count}")
        check_seed(self.seed)
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.compile and self.dtype == "int8":
            raise ValueError("an int8 model cannot be compiled; use dtype fp32 or bf16")

    def drawing(self) -> dict[str, Any]:
        """What the `sample` of every model takes, and how its work is shown."""
        return {
            "seed": self.seed,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "compile": self.compile,
        }


@dataclass(frozen=True, kw_only=True)
class AttendOptions(ModelOptions):
    """The options of `triptych attend`, in every domain."""

    layer: int | None = None
    """Which layer's attention is drawn, counted from 1; null for the last."""
    head: int | None = None
    """Which head's attention is drawn, counted from 1; null for the mean of all heads."""

    def __post_init__(self) -> None:
        """Raise ValueError for layers and heads that cannot be."""
        at_least_one(self, "layer", "head")
