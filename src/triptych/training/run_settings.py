"""Settings of a run that are the same in every domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


def check_seed(seed: int) -> None:
    """Raise ValueError for a seed that not every generator of torch takes."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be from 0 to 2^63 - 1, got {seed}")


@dataclass(frozen=True)
class RunConfig:
    """Name, place, seed and bookkeeping of a run."""

    name: str = "run"
    """Name of the run; its folder is <directory>/<name>."""
    directory: str = "runs"
    """Folder that holds the folders of all runs."""
    init_from: str | None = None
    """Checkpoint (.ckpt), or pretrained:NAME, of whose weights and vocabulary the run makes its
    beginning; null for new ones."""
    seed: int = 0
    """Seed of weights, data order, augmentation and dropout."""
    precision: Literal["auto", "bf16", "fp32", "fp16"] = "auto"
    """Arithmetic of training; auto takes bf16 where the hardware has it, validation fp32."""
    compile: bool = False
    """Compile the training's forward and backward pass with torch.compile: tens of seconds at the
    start, told beside the gain; needs a C++ compiler (Triton on a GPU)."""
    wandb: Literal["auto", "online", "offline", "off"] = "auto"
    """Where Weights & Biases logs; auto is online where a key is found, else offline."""
    wandb_project: str = "triptych"
    """Name of the Weights & Biases project."""
    samples: bool = True
    """Write samples (images, sounds, sentences) into the run's folder after each validation."""
    save_minutes: float = 10.0
    """Minutes of training after which last.ckpt is written between validations; 0 for never."""
    early_stopping_patience: int | None = None
    """Validations without a better score after which the run ends; null for never."""

    def __post_init__(self) -> None:
        """Raise ValueError with a sentence for values that cannot be meant."""
        parts = self.name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in self.name:
            raise ValueError(f"name is {self.name!r}; the name of a folder is needed.")
        if self.precision not in ("auto", "bf16", "fp32", "fp16"):
            raise ValueError(
                f"precision is {self.precision!r}; allowed are auto, bf16, fp32 and fp16."
            )
        if self.wandb not in ("auto", "online", "offline", "off"):
            raise ValueError(f"wandb is {self.wandb!r}; allowed are auto, online, offline and off.")
        check_seed(self.seed)
        if self.save_minutes < 0:
            raise ValueError(f"save_minutes is {self.save_minutes}; it must not be negative.")
        if self.early_stopping_patience is not None and self.early_stopping_patience < 1:
            raise ValueError(
                f"early_stopping_patience is {self.early_stopping_patience}; "
                "it must be at least 1, or null."
            )
