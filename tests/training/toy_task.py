"""The smallest task: a linear model with dropout that predicts the next of ten numbers."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.config.schema import to_plain
from triptych.training.engine.module import TrainingModule
from triptych.training.engine.optim import AdamW, InverseSqrt
from triptych.training.loading.batches import cut, shuffled_batches
from triptych.training.loading.loader import FixedBatches, ResumableLoader
from triptych.training.run import trainer as trainer_module
from triptych.training.run.checkpoint import read_checkpoint
from triptych.training.run.resume import Resume
from triptych.training.run.settings import OptimConfig, RunConfig, RunSettings

PADDING = -1


@dataclass
class Batch:
    """Inputs [B, L, 4] and targets [B, L], -1 on padding."""

    inputs: Tensor
    targets: Tensor
    items: Tensor


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 16)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(16, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.dropout(torch.tanh(self.first(inputs))))  # [B, L, 10]


@dataclass(frozen=True)
class DataSettings:
    n: int = 1


@dataclass(frozen=True)
class ModelSettings:
    d_model: int = 16

    @property
    def transformer(self) -> ModelSettings:
        return self


class ToyTask(TrainingModule):
    domain: ClassVar[str] = "toy"
    monitor: ClassVar[str] = "nats_per_token"

    def __init__(
        self, optim: OptimConfig | None = None, *, poison_at: int = -1, initial: int = 0
    ) -> None:
        torch.manual_seed(initial)
        optim = optim or OptimConfig(AdamW(weight_decay=0.1), 0.01, InverseSqrt(warmup_steps=3))
        settings = RunSettings(DataSettings(), ModelSettings(), optim)
        super().__init__(ToyModel(), settings, ["a", "b"])
        self.poison_at = poison_at
        self.seen: list[list[int]] = []
        self.losses: list[float] = []
        self.autocast_in_score: bool | None = None

    def training_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = self.model(batch.inputs)
        real = batch.targets != PADDING
        loss = F.cross_entropy(logits[real], batch.targets[real])
        if self.trainer.global_step == self.poison_at:
            loss = loss * float("nan")
        self.seen.append(batch.items.tolist())
        self.losses.append(float(loss.detach()))
        return loss, real.sum()

    def score(self, batch: Batch) -> dict[str, Tensor]:
        self.autocast_in_score = torch.is_autocast_enabled("cpu")
        logits = self.model(batch.inputs)
        real = batch.targets != PADDING
        nats = F.cross_entropy(logits[real].double(), batch.targets[real], reduction="sum")
        return {"nats": nats, "tokens": real.sum()}

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        return {"nats_per_token": totals["nats"] / totals["tokens"]}

    def generation_metrics(self) -> dict[str, float]:
        return {"exact_match": 0.5}

    def log_samples(self, folder: Path) -> None:
        (folder / "words.csv").write_text("in,out\na,1\n")


def toy_item(number: int) -> tuple[Tensor, Tensor]:
    """Item `number`: inputs [L, 4] and targets [L], of a length between 2 and 6."""
    generator = torch.Generator().manual_seed(number)
    length = 2 + number % 5
    inputs = torch.randn(length, 4, generator=generator)
    return inputs, (inputs.sum(-1) * 3).long().clamp(-4, 5) + 4


def make_batch(items: list[int], generator: torch.Generator | None) -> Batch:
    inputs = torch.zeros(len(items), 6, 4)
    targets = torch.full((len(items), 6), PADDING)
    for row, item in enumerate(items):
        values, labels = toy_item(int(item))
        inputs[row, : len(values)] = values
        targets[row, : len(labels)] = labels
    if generator is not None:  # the augmentation: a little noise
        inputs = inputs + 0.1 * torch.randn(inputs.shape, generator=generator)
    return Batch(inputs, targets, torch.tensor(items))


def uneven_plan(epoch: int, generator: torch.Generator) -> list[list[int]]:
    """Epochs of 7, 8, 9, 7, ... batches, as token budgets give them."""
    batches = list(shuffled_batches(21, 3)(epoch, generator))
    return batches + batches[: epoch % 3]


def train_loader(*, seed: int = 5, uneven: bool = False) -> ResumableLoader:
    plan = uneven_plan if uneven else shuffled_batches(21, 3)
    return ResumableLoader(21, plan, make_batch, seed=seed)


def validation_loader(batch_size: int = 4) -> FixedBatches:
    return FixedBatches(cut(range(11), batch_size), make_batch)


TRAINER = {
    "max_steps": 6, "val_check_interval": 3, "check_val_every_n_epoch": None,
    "log_every_n_steps": 1, "enable_progress_bar": False,
    "accelerator": "cpu", "precision": "32-true",
}  # fmt: skip


def toy_run(
    folder: Path,
    task: ToyTask | None = None,
    *,
    resume: Resume = False,
    loader: ResumableLoader | None = None,
    validation: FixedBatches | None = None,
    run: dict[str, Any] | None = None,
    **trainer: Any,
) -> ToyTask:
    """Train the task in the folder of its run and return it; run: fields of RunConfig."""
    task = task or ToyTask()
    usual = {"name": folder.name, "directory": str(folder.parent), "wandb": "off", "seed": 3}
    config = RunConfig(**{**usual, **(run or {})})
    task.config = replace(task.config, run=config)
    task.metadata["run"] = to_plain(config)
    loaders = loader or train_loader(), validation or validation_loader()
    prepare = lambda *_: (task, *loaders)  # noqa: E731
    trainer_module.train("toy", task.config, prepare, {**TRAINER, **trainer}, resume)
    return task


def checkpoint(folder: Path, which: str = "last") -> dict[str, Any]:
    """Content of a checkpoint of a run."""
    return read_checkpoint(folder / "checkpoints" / f"{which}.ckpt")


def rows(folder: Path) -> list[dict[str, str]]:
    """Rows of a run's metrics.csv."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def weights(task: TrainingModule) -> dict[str, Any]:
    return {name: value.clone() for name, value in task.state_dict().items()}
