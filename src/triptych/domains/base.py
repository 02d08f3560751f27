"""Protocol of a domain: what the command line and `triptych.load` need from one.

A domain is a package whose module `domain` holds an instance of `Domain` named `DOMAIN`, such as
`triptych.domains.image.domain`. That module imports neither torch nor any other heavy library at
its top level, so that help texts and refusals of wrong options appear at once.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, get_type_hints

from triptych.domains.options import (
    DynamicScoreRequest,
    EvaluateOptions,
    FolderOptions,
    ModelOptions,
    NewRunOptions,
    ScoreRequest,
)
from triptych.errors import UserError
from triptych.files.results import OutputFolder, new_folder
from triptych.types import Dtype, Progress

if TYPE_CHECKING:
    from torch import Tensor, nn

    from triptych.core.models.decoder_only import DecoderOnly
    from triptych.text.tokenizer import TextFormat
    from triptych.training.engine.evaluate import Evaluation
    from triptych.training.engine.module import TrainingModule
    from triptych.training.loading.loader import FixedBatches, ResumableLoader
    from triptych.training.run.checkpoint import ModelSettings
    from triptych.training.run.settings import RunSettings


class Translation(NamedTuple):
    """Translation of a line, with its scores."""

    text: str
    score: float
    """log p over the length penalty, by which translations of a line are ranked."""
    log_probability: float
    """log p in nats."""


class AlignedText(NamedTuple):
    """Translation of a line, with its alignment."""

    text: str
    pairs: list[tuple[int, int]]
    """Numbers of words, from 0, of the line and of the translation that belong together. Spaces
    separate words, and each Chinese or Japanese character is one."""


class Decoder(NamedTuple):
    """Decoder-only model inside a trained model, with what a decoding step of it needs."""

    model: DecoderOnly
    length: int
    """Number of positions."""
    classes: nn.Embedding | None = None
    """Embeddings of the classes of a class-conditional model."""
    about: Mapping[str, Any] = MappingProxyType({})
    """Facts for who decodes, of JSON types, such as the place of each position in an image."""


class TrainedModel(ABC):
    """Trained model of a domain, as `triptych.load` returns it. Needs no Lightning."""

    domain: ClassVar[str]
    """Name of the domain, as in the header of its checkpoints."""
    score_request: ClassVar[type[ScoreRequest]] = ScoreRequest
    """Requests of `score_split`; options of `triptych evaluate` are such requests."""
    settings_class: ClassVar[type[ModelSettings]]
    """Settings with which a model of the domain is opened."""
    settings: Any
    """All settings that use of the model needs, of `settings_class`."""
    vocabulary: Any
    """Vocabulary of the data, as `read_vocabulary` returns it."""
    header: dict[str, Any]
    """Header of the checkpoint, see `training.run.checkpoint`."""
    dtype: Dtype
    """Number format of the weights in use."""
    full_model: nn.Module
    """Model in float32."""
    model: nn.Module
    """Model in the number format in use."""
    name: str = "the model"
    """What messages call the model: the checkpoint that `triptych.load` opened."""
    averaged_from: tuple[Self, ...] = ()
    """Models of which this is the average, see `averaged`."""
    symmetries: Mapping[str, int] = MappingProxyType({})
    """Arguments of `token_maps` with which they were averaged."""
    core: ClassVar[str] = ""
    """Name of the `AutoregressiveModel` inside the model, as `get_submodule` takes it."""

    def __init__(self, settings: Any, model: nn.Module, vocabulary: Any = None) -> None:
        self.settings = settings
        self.vocabulary = vocabulary
        self.full_model = self.model = model.eval()
        self.dtype = "fp32"

    @classmethod
    def restore(cls, checkpoint: dict[str, Any], device: str = "cpu") -> Self:
        """Return the model of a checkpoint's content; device: as in `device_named`.

        Raises UserError for a device that this machine does not have, for a vocabulary that this
        version of Triptych does not read, and for weights of another model than the settings'.
        """
        from triptych.training.engine.devices import device_named, without_cudnn_attention
        from triptych.training.run.checkpoint import core_weights, merged_weights

        without_cudnn_attention()
        header = checkpoint["triptych"]
        settings = cls.settings_class.from_header(header)
        vocabulary = cls.read_vocabulary(header["vocabulary"])
        model = settings.build_model(vocabulary)
        try:
            model.load_state_dict(core_weights(merged_weights(checkpoint)))
        except RuntimeError as error:  # its first line names the class alone
            why = " ".join(str(error).split()).partition(": ")[2]
            raise UserError(
                f"the weights of the checkpoint are not of the model of its settings: {why[:200]}"
            ) from error
        trained = cls(settings, model.to(device_named(device)), vocabulary)
        trained.header = header
        return trained

    @staticmethod
    def read_vocabulary(plain: Any) -> Any:
        """Return the vocabulary of the header of a checkpoint as the model uses it."""
        return plain

    @classmethod
    def of_run(cls, config: RunSettings, model: nn.Module, vocabulary: Any = None) -> Self:
        """Return the model of a run in use, with which `evaluate` reads the run's data."""
        trained = cls(config.model_settings(), model, vocabulary)
        trained.data_settings = config.data
        return trained

    @cached_property
    def data_settings(self) -> Any:
        """Settings of the training's data; UserError for a source that is not imported or known."""
        from triptych import domains
        from triptych.config.schema import from_plain

        plain = self.header["data"]
        kind = get_type_hints(domains.find_domain(self.domain).config_class())["data"]
        if not isinstance(plain, dict):  # of a domain without a source
            return plain
        known = {each.name for each in fields(kind)}  # others have gone since it was trained
        plain = {name: value for name, value in plain.items() if name in known}
        return from_plain(kind, plain, where="the data of the model")

    def with_dtype(self, dtype: Dtype) -> Self:
        """Return the same model in another number format; raises UserError as `quantize` does."""
        from triptych.decoding.execution import quantize

        other = copy.copy(self)
        other.dtype, other.model = dtype, quantize(self.full_model, dtype)
        return other

    def averaged(self, *others: Self, **symmetries: int) -> Self:
        """Return a model whose probabilities are the mean of those of this and other models.

        symmetries: arguments of `token_maps`, for the mean over the maps of each model too; see
        `core.models.averaged`. Raises UserError for models that do not predict the same values or
        have no categorical head, and for symmetries that the domain does not have.
        """
        from triptych.domains.several import average

        return average([self, *others], symmetries)

    def drawn_batches(self, config: Any) -> ResumableLoader:
        """Return training batches of `optim.objective.distillation.drawn` samples of the model.

        config: of a run that predicts what the model does. Raises UserError where the domain has
        none.
        """
        raise UserError(
            "optim.objective.distillation.drawn is for models of music; "
            f"{self.name} is of the domain {self.domain}"
        )

    def needs_one_model(self, what: str) -> None:
        """Raise UserError for an average of models, which has no `what`."""
        if self.averaged_from:
            raise UserError(f"the mean of probabilities has no {what}; expected a single model")

    def check_dynamic(self, request: DynamicScoreRequest) -> None:
        """Raise UserError for dynamic evaluation of an average, or in a reduced number format."""
        if request.dynamic:
            self.needs_one_model("dynamic evaluation")
            if self.dtype != "fp32":
                raise UserError(f"dtype is {self.dtype}; dynamic evaluation needs fp32")

    def differing(self, other: TrainedModel) -> list[str]:
        """Return the names in `predicts` whose values another model does not share."""
        own, of_other = self.predicts(), other.predicts()
        return [name for name in own if own[name] != of_other.get(name)]

    def predicts(self) -> dict[str, Any]:
        """Return what models must have in common for `averaged`, by name."""
        settings = {f.name: getattr(self.settings, f.name) for f in fields(self.settings)}
        vocabulary = getattr(self, "header", {}).get("vocabulary")
        others = {name: value for name, value in settings.items() if name != "model"}
        return {"domain": self.domain, "vocabulary": vocabulary, **others}

    def token_maps(self) -> list[Tensor | None]:
        """Return maps of tokens under which the data are as probable, first None for no change.

        A domain with symmetries has parameters; see `core.models.averaged`.
        """
        return [None]

    def decoder(self) -> Decoder | None:
        """Return the decoder that samples with no condition but a class; None for other models."""
        return None

    def text_format(self) -> TextFormat | None:
        """Return how the model reads and writes text; None for a model of something else.

        Raises UserError for a tokenizer that a tokenizer.json cannot describe.
        """
        return None

    def evaluate(
        self,
        split: str = "test",
        *,
        data: str | Path | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Evaluation:
        """Score a whole split of the data, see `score_split`.

        data, options: fields of the domain's `score_request`. progress: of batches.
        """
        where = None if data is None else str(data)
        try:
            request = self.score_request(split=split, data=where, **options)
        except ValueError as error:  # a number outside its limits
            raise UserError(str(error)) from error
        return self.score_split(request, progress)

    @abstractmethod
    def score_split(self, request: Any, progress: Progress | None = None) -> Evaluation:
        """Score a whole split by a `score_request`; UserError for missing data."""

    def check_evaluation(self, options: Any) -> None:
        """Raise UserError for `evaluate_options` that this model cannot serve, before the work."""
        return None

    def further_details(self, options: Any) -> dict[str, Any]:
        """Return results that `evaluate_options` ask for besides the metrics, for the details.

        Computed once, in the number format of the options. Raises UserError as `evaluate` does.
        """
        return {}

    def write_samples(self, options: Any, out: OutputFolder) -> str:
        """Write samples by `sample_options` into a folder; return a sentence about them."""
        raise NotImplementedError

    def write_attention(self, options: Any, out: OutputFolder) -> str:
        """Write drawings and numbers by `attention_options`, as `write_samples` does."""
        raise NotImplementedError

    def translate(
        self, lines: Sequence[str], *, n_best: int = 1, **options: Any
    ) -> list[str] | list[list[str]] | list[list[Translation]] | list[AlignedText]:
        """Return a translation without line ends per line, or at most n_best for n_best above 1.

        options: progress, and the fields of the domain's `translate_options` that are not those of
        `ModelOptions` or dtype. A domain may offer lists of `Translation`.
        """
        raise NotImplementedError


class Domain:
    """Domain of data: how to train, open and use its models.

    The package of a domain has three modules that are imported when they are needed: `config`,
    with the settings `Config` of a run; `task`, with the function `prepare`; `inference`, with the
    function `restore`. A small domain has all three in `domain`.
    """

    name: ClassVar[str]
    """Word of the command line: the package's name inside `triptych.domains`, or its dotted path.
    Equal to the domain in the header of its checkpoints."""
    evaluate_options: ClassVar[type[EvaluateOptions]] = EvaluateOptions
    """Options of `triptych evaluate`."""
    translate_options: ClassVar[type[ModelOptions] | None] = None
    """Options of `triptych translate`, with `arguments()` for the models' `translate`, n_best,
    batch_size, beam and dtype; None where the models have no `translate`."""
    sample_options: ClassVar[type[FolderOptions] | None] = None
    """Options of `triptych sample`; None where the models have no `write_samples`."""
    attention_options: ClassVar[type[FolderOptions] | None] = None
    """Options of `triptych attention`; None where the models have no `write_attention`."""
    new_run_options: ClassVar[type[NewRunOptions] | None] = None
    """Options of `triptych new-run`; None for a domain without `description`."""
    description: ClassVar[str | None] = None
    """Module that looks at a user's data, by its dotted path: `describe` takes options of the class
    `new_run_options` and returns a `triptych.tools.new_run.data.Description`. Beside it lies a YAML
    file of its name with sizes, see `triptych.tools.new_run.suggest`."""
    page: ClassVar[str | None] = None
    """Module with the page of `triptych play`, by its dotted path, see `triptych.tools.play`. None
    for no page."""
    service: ClassVar[str | None] = None
    """Function that returns what `triptych serve` needs of a model, as module:function: a
    `Translator` or `Sampler` of `triptych.tools.serve.services`. None for models not served."""
    piece_files: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Suffixes of sample files that are pieces of music -> function that reads such a file into a
    `piano_roll.Piece`, as module:function."""
    packing: ClassVar[str | None] = None
    """Module with the function `pack`, by its dotted path; None where data are not packed."""
    limits: ClassVar[str] = ""
    """What the models are not for, in sentences, for their cards."""

    def config_class(self) -> type[RunSettings]:
        """Return the dataclass of a run's settings."""
        config: type[RunSettings] = self._find("config", "Config")
        return config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        """Read the data and return the training module and the loaders of both splits.

        vocabulary: of the checkpoint that initialises the run; where it is None, that of the first
        teacher, or learnt from the data. Raises UserError for missing data, and for settings and
        teachers that do not fit.
        """
        from triptych.domains.several import add_teachers, read_teachers

        teachers = read_teachers(self, config)  # before the data, which may take minutes
        if vocabulary is None and teachers:
            vocabulary = teachers[0].header["vocabulary"]
        task, loader, batches = self._find("task", "prepare")(config, vocabulary)
        add_teachers(task, teachers)
        if config.optim.objective.distillation.drawn:
            loader = teachers[0].drawn_batches(config)
        return task, loader, batches

    def pack(self, config: Any, out: str) -> str:
        """Write the data into a folder that training reads; return a sentence about it.

        Raises UserError for missing data and for a domain without `packing`.
        """
        from triptych.training.loading.packed import PackWriter

        if self.packing is None:
            raise UserError(f"the domain {self.name} has no packed form of its data")
        with new_folder(out) as folder:
            return f"{out}: {import_module(self.packing).pack(config, PackWriter(folder))}"

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> TrainedModel:
        """Return the trained model of a checkpoint's content; UserError for an absent device."""
        model: TrainedModel = self._find("inference", "restore")(checkpoint, device)
        return model

    def _find(self, module: str, name: str) -> Any:
        own = type(self).__module__
        if hasattr(sys.modules[own], name):
            return getattr(sys.modules[own], name)
        return getattr(import_module(f"{own.rpartition('.')[0]}.{module}"), name)
