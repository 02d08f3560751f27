"""Several trained models together: the mean of their probabilities, and teachers of a run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from triptych.core.heads import CategoricalHead
from triptych.core.models.averaged import AveragedDecoder, AveragedTranslator
from triptych.core.models.base import AutoregressiveModel
from triptych.core.models.encoder_decoder import SequenceToSequence
from triptych.decoding.execution import eval_mode
from triptych.errors import UserError
from triptych.training.run.checkpoint import check_domain, read_checkpoint

if TYPE_CHECKING:
    from triptych.domains.base import Domain, TrainedModel
    from triptych.training.engine.module import TrainingModule
    from triptych.training.run.settings import RunSettings

    Model = TypeVar("Model", bound=TrainedModel)


def average(models: Sequence[Model], symmetries: Mapping[str, int]) -> Model:
    """Return the average of models as `TrainedModel.averaged` does."""
    first = models[0]
    cores: list[Any] = []
    for name in symmetries.keys() - signature(first.token_maps).parameters.keys():
        raise UserError(f"{first.name} is of the domain {first.domain}, which has no {name}")
    for model in models:
        core: Any = model.full_model.get_submodule(model.core)
        head = getattr(core, "head", None)
        if not (isinstance(core, AutoregressiveModel) and isinstance(head, CategoricalHead)):
            raise UserError(
                f"{model.name} cannot be averaged; expected an autoregressive model with a "
                "categorical head"
            )
        if differing := first.differing(model):
            raise UserError(
                f"{first.name} and {model.name} cannot be averaged: their {differing[0]} differs"
            )
        cores.append(core)
    if isinstance(cores[0], SequenceToSequence):
        core = AveragedTranslator(cores)
    else:
        maps = first.token_maps(**symmetries)
        core = AveragedDecoder([core for core in cores for _ in maps], maps * len(cores))
    whole = copy.deepcopy(first.full_model, {id(cores[0]): core})  # with it in place of the own
    averaged = type(first)(first.settings, whole, first.vocabulary)
    averaged.name = " and ".join(model.name for model in models)
    averaged.averaged_from, averaged.symmetries = tuple(models), symmetries
    given = vars(first).keys() & {"header", "data_settings"}
    vars(averaged).update({name: getattr(first, name) for name in given})
    return averaged


def read_teachers(domain: Domain, config: RunSettings) -> list[TrainedModel]:
    """Return the teachers of a run, each at random transpositions within those of the settings.

    Raises UserError for a missing file, a model of another domain, and transpositions of models
    that have none.
    """
    distillation = config.optim.objective.distillation
    semitones, teachers = distillation.transpositions, []
    for name in distillation.teachers:
        content = read_checkpoint(name)
        check_domain(content["triptych"], domain.name, f"the teacher {name}")
        teacher = domain.restore(content, "cpu")
        teacher.name = name
        if semitones:
            teacher = teacher.averaged(transpositions=semitones)
            core: Any = teacher.full_model.get_submodule(teacher.core)
            core.one_at_random = True
        teachers.append(teacher)
    return teachers


def add_teachers(task: TrainingModule, teachers: Sequence[TrainedModel]) -> None:
    """Let a run learn from the teachers; UserError for one that predicts other values."""
    for teacher in teachers:
        with eval_mode(task.model):  # of a model in use; the run goes on to train it
            student = type(teacher).of_run(task.config, task.model)
        student.header = task.metadata
        if differing := student.differing(teacher):
            raise UserError(
                f"the teacher {teacher.name} does not predict what this run does: their "
                f"{differing[0]} differs"
            )
        task.teachers.append(teacher.full_model.requires_grad_(False))
