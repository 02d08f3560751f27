"""What a run minimises: likelihood, R-Drop, and distillation from trained models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.heads import CategoricalHead, Head, Loss, at_least_float32
from triptych.core.transformer import take_auxiliary_loss
from triptych.errors import UserError
from triptych.types import (
    Checked,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
)


class Predictions(NamedTuple):
    """What one pass of a model predicts of the targets of a batch."""

    features: Tensor
    """Output from which the head predicts: [..., D]."""
    head: Head
    targets: Tensor
    """int64 [...], or [..., C] for whole pixels."""
    real: Tensor | None = None
    """Targets that count: bool [...], False on padding; None for all."""
    loss: Loss | None = None
    """Loss of each target from the parameters of the head; None for `Head.nll`."""
    further: Tensor | float = 0.0
    """Mean loss of a second task, which is added to the objective."""


@dataclass(frozen=True)
class DistillationConfig(Checked):
    """Trained models that a run learns from (Hinton et al. 2015, 1503.02531)."""

    teachers: list[str] = field(default_factory=list)
    """Checkpoints (.ckpt), or pretrained:NAME, of models with one vocabulary, which the run takes;
    the probabilities are their mean. Empty for no distillation."""
    weight: PositiveFraction = 0.5
    """Share of the teachers in the loss; the data have the rest."""
    temperature: PositiveFloat = 1.0
    """Temperature T of both distributions; the term is multiplied by T^2."""
    transpositions: NonNegativeInt = 0
    """Most semitones N of transpositions, of models of music: each teacher reads each window
    transposed by -N to N semitones at random, so that a run learns the mean over these; 0 for the
    music as it is."""
    drawn: NonNegativeInt = 0
    """Pieces of music that the first teacher, without transpositions, samples for training in place
    of the data, which it may know by heart; 0 for the data."""
    drawn_temperature: PositiveFloat = 1.0
    """Divisor of the logits for these samples. At the temperature that is best on held-out data,
    they surprise the teacher as much as such data do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drawn and not self.teachers:
            raise ValueError(f"drawn is {self.drawn}, but there are no teachers to draw pieces")


@dataclass(frozen=True)
class ObjectiveConfig(Checked):
    """What is minimised besides the negative log-likelihood."""

    r_drop: NonNegativeFloat = 0.0
    """Weight alpha of R-Drop: two passes of each batch with different dropout, whose distributions
    are drawn together; 0 for one pass."""
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    """Models whose distributions are learnt beside the data."""

    def check(self, model: nn.Module, *, predicts: bool) -> None:
        """Raise UserError where a model cannot have it; predicts: whether it has `Predictions`."""
        if not self.r_drop and not self.distillation.teachers:
            return
        name = "distillation" if self.distillation.teachers else "r_drop"
        heads = [part for part in model.modules() if isinstance(part, Head)]
        if not (predicts and all(isinstance(x, CategoricalHead) for x in heads)):
            raise UserError(
                f"optim.objective.{name} compares probabilities of categories, and this model has "
                "others; expected a model with a categorical head"
            )
        dropout = any(isinstance(part, nn.Dropout) and part.p > 0 for part in model.modules())
        if self.r_drop and not dropout:
            raise UserError(
                f"optim.objective.r_drop is {self.r_drop:g}, but the model has no dropout, so that "
                "two passes are equal; expected model.transformer.dropout above 0, or r_drop 0"
            )

    def training_loss(
        self,
        predict: Callable[[Any, Any], Predictions],
        model: nn.Module,
        batch: Any,
        teachers: Sequence[nn.Module],
    ) -> tuple[Tensor, Tensor | int]:
        """Return the objective, a mean over the targets without padding, and their number.

        predict: returns what a pass of a model predicts of a batch.
        """
        passes, auxiliary = [], []
        for _ in range(2 if self.r_drop else 1):
            passes.append(predict(model, batch))
            auxiliary.append(take_auxiliary_loss(model, passes[-1].real))
        with torch.no_grad():
            taught = [predict(teacher, batch) for teacher in teachers]
        total = self.losses(passes, taught).sum() + mean(auxiliary)
        further, real = mean([each.further for each in passes]), passes[0].real
        if real is None:
            count: Tensor | int = max(passes[0].targets.numel(), 1)
            return total / count + further, count
        count = real.sum()
        return total / count.clamp(min=1) + further, count

    def losses(self, passes: Sequence[Predictions], taught: Sequence[Predictions]) -> Tensor:
        """Return the loss of each target in nats, of the model's passes and those of teachers."""
        first, n_own = passes[0], len(passes)
        further = [*passes[1:], *taught]

        def of_rows(parameters: Tensor, targets: Tensor, *rows: Tensor) -> Tensor:
            others = [each.head(x) for each, x in zip(further, rows, strict=True)]
            own = [parameters, *others[: n_own - 1]]
            of_data = first.loss or first.head.nll
            loss: Tensor = mean([of_data(each, targets) for each in own])
            if taught:
                weight, temperature = self.distillation.weight, self.distillation.temperature
                teacher = softened(others[n_own - 1 :], temperature)  # [..., V]
                apart = mean([divergence(teacher, each, temperature) for each in own])
                loss = (1 - weight) * loss + weight * temperature**2 * apart
            if n_own == 2:
                p, q = (at_least_float32(each).softmax(-1) for each in own)  # [..., V]
                both = divergence(p, own[1], 1.0) + divergence(q, own[0], 1.0)
                loss = loss + self.r_drop / 2 * both  # 2106.14448, equation 2
            return loss

        rows = [each.features for each in further]
        losses = first.head.losses(first.features, first.targets, of_rows, *rows)
        return losses if first.real is None else losses.masked_fill(~first.real, 0.0)


def mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, or of tensors of one shape; of a single one itself."""
    total = values[0]
    for each in values[1:]:
        total = total + each
    return total if len(values) == 1 else total / len(values)


def softened(logits: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the mean of the models' probabilities, at a temperature: [..., V], float32 or wider.

    logits: of each model, [..., V]. The mean of probabilities, not of logits, which is sharper.
    """
    p: Tensor = mean([at_least_float32(each).softmax(-1) for each in logits])  # [..., V]
    return (p.log() / temperature).softmax(-1)  # [..., V]


def divergence(p: Tensor, logits: Tensor, temperature: float) -> Tensor:
    """Return KL(p || q) at each target in nats, from the logits of q: two [..., V] -> [...]."""
    log_q = (at_least_float32(logits) / temperature).log_softmax(-1)  # [..., V]
    return F.kl_div(log_q, p, reduction="none").sum(-1)  # [...]
