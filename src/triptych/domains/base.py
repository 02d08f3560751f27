"""Protocol of a domain: what the command line and `triptych.load` need from one.

A domain is a package whose module `domain` holds an instance of `Domain` named `DOMAIN`, such as
`triptych.domains.image.domain`. That module imports neither torch nor any other heavy library at
its top level, so that help texts and refusals of wrong options appear at once.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from triptych.domains.files import OutputFolder
from triptych.domains.options import EvaluateOptions, FolderOptions, TranslateOptions
from triptych.errors import UserError
from triptych.types import Dtype, Progress

if TYPE_CHECKING:
    from torch import nn

    from triptych.training.data import FixedBatches, ResumableLoader
    from triptych.training.evaluate import Evaluation
    from triptych.training.module import TrainingModule


class ProgressFactory(Protocol):
    """Factory of progress displays."""

    def __call__(self, what: str, *, at_most: bool = False) -> Progress:
        """Return a display of the units `what`; `at_most`: the work may end before its total."""


class TrainedModel(ABC):
    """Trained model of a domain, as `triptych.load` returns it. Needs no Lightning.

    config: all settings of the run. model: in float32. dtype: number format of sampling and
    scoring, see `decoding.quantize`.
    """

    domain: ClassVar[str]
    """Name of the domain, as in the header of its checkpoints."""
    config: Any
    """All settings of the run that trained the model."""
    dtype: Dtype
    """Number format of the weights in use."""
    full_model: nn.Module
    """Model in float32."""
    model: nn.Module
    """Model in the number format in use."""

    def __init__(self, config: Any, model: nn.Module, *, dtype: Dtype = "fp32") -> None:
        """Raise UserError for a number format that the device does not offer."""
        self.config = config
        self.full_model = model.eval()
        self._set_dtype(dtype)

    def with_dtype(self, dtype: Dtype) -> Self:
        """Return the same model in another number format; raises UserError as the class does."""
        other = copy.copy(self)
        other._set_dtype(dtype)
        return other

    def _set_dtype(self, dtype: Dtype) -> None:
        from triptych.decoding.quantize import quantize

        self.dtype = dtype
        try:
            self.model = quantize(self.full_model, dtype)
        except ValueError as error:
            raise UserError(str(error)) from error

    @abstractmethod
    def evaluate(
        self,
        split: str = "test",
        *,
        data: str | Path | None = None,
        batch_size: int | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Score a whole split of the data. Domains may add keyword arguments with defaults.

        data: folder or file in place of the one that the model was trained from. batch_size: items
        scored at a time, None for the model's own number; no effect on the score. limit: number of
        items to score, None for all. Raises UserError for missing data.
        """


class TranslatingModel(Protocol):
    """Model that maps lines to lines; what `triptych translate` needs."""

    tokens_written: int
    """Number of tokens of all translations so far."""

    def translate(
        self,
        lines: Sequence[str],
        *,
        n_best: int,
        batch_size: int,
        progress: Progress | None,
        **search: Any,
    ) -> list[str] | list[list[str]]:
        """Return one translation per line, or a list of at most n_best where n_best is above 1."""


Model = TypeVar("Model")
Options = TypeVar("Options", bound=FolderOptions)


@dataclass(frozen=True)
class FolderCommand(Generic[Model, Options]):
    """Command of a domain that writes result files into a folder."""

    options: type[Options]
    """Options of the command, shown by its --help."""
    description: str
    """What the command does; one sentence for its --help."""
    run: Callable[[Model, Options, OutputFolder, ProgressFactory], str]
    """Do the work, write the files and return one sentence that says what was written."""


class Domain(ABC):
    """Domain of data: how to train, open and use its models."""

    name: ClassVar[str]
    """Word of the command line: the package's name inside `triptych.domains`, or its dotted path.
    Equal to the domain in the header of its checkpoints."""
    evaluate_options: ClassVar[type[EvaluateOptions]] = EvaluateOptions
    """Options of `triptych evaluate`."""
    translate_options: ClassVar[type[TranslateOptions] | None] = None
    """Options of `triptych translate`; None where the models translate nothing. The models of a
    domain that has them are `TranslatingModel`s."""
    sample: ClassVar[FolderCommand[Any, Any] | None] = None
    """`triptych sample`, where the domain offers it; its options are `SampleOptions`."""
    attention: ClassVar[FolderCommand[Any, Any] | None] = None
    """`triptych attention`, where the domain offers it; its options are `AttentionOptions`."""

    @abstractmethod
    def config_class(self) -> type[Any]:
        """Return the dataclass of a run's settings: the groups data, model, optim and run."""

    @abstractmethod
    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        """Read the data and return the training module and the loaders of both splits.

        vocabulary: that of the checkpoint whose weights initialise the run; None for a new one.
        Raises UserError for missing data and for settings that do not fit the data.
        """

    @abstractmethod
    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> TrainedModel:
        """Return the trained model of a checkpoint's content, on a device.

        Raises UserError for a device that this machine does not have.
        """
