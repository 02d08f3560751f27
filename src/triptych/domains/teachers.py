"""Trained models that a run learns from: `optim.objective.distillation`."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING

from triptych import pretrained
from triptych.errors import UserError
from triptych.training.engine.module import TrainingModule
from triptych.training.run.checkpoint import check_domain, read_checkpoint
from triptych.training.run.settings import RunSettings

if TYPE_CHECKING:
    from triptych.domains.base import Domain, TrainedModel


def read_teachers(domain: Domain, config: RunSettings) -> list[TrainedModel]:
    """Return the teachers of a run, each the mean over the transpositions of the settings.

    Raises UserError for a missing file, a model of another domain, and transpositions of models
    that have none.
    """
    distillation = config.optim.objective.distillation
    semitones, teachers = distillation.transpositions, []
    for name in distillation.teachers:
        shipped = name.startswith(pretrained.PREFIX)
        content = read_checkpoint(pretrained.find(name) if shipped else name)
        check_domain(content["triptych"], domain.name, f"the teacher {name}")
        teacher = domain.restore(content, "cpu")
        teacher.name = name
        if semitones and "transpositions" not in signature(teacher.token_maps).parameters:
            raise UserError(
                f"optim.objective.distillation.transpositions is {semitones}, and models of the "
                f"domain {domain.name} have none; expected 0"
            )
        teachers.append(teacher.averaged(transpositions=semitones) if semitones else teacher)
    return teachers


def add_teachers(task: TrainingModule, teachers: Sequence[TrainedModel]) -> None:
    """Let a run learn from the teachers; UserError for one that predicts other values."""
    for teacher in teachers:
        student = type(teacher).of_run(task.config, task.model)
        student.header = task.metadata
        if differing := student.differing(teacher):
            raise UserError(
                f"the teacher {teacher.name} does not predict what this run does: their "
                f"{differing[0]} differs"
            )
        task.teachers.append(teacher.full_model.requires_grad_(False))
