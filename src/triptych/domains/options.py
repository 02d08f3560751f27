"""Options that the commands of all domains share; a domain's own option classes extend these."""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from triptych import pretrained
from triptych.errors import UserError
from triptych.files.results import check_input_file
from triptych.types import Checked, Dtype, NonNegativeFloat, PositiveInt, Sampling, Seed


def counted(number: int, one: str, many: str) -> str:
    """Return a number and its noun: `1 image`, `2 images`."""
    return f"{number} {one if number == 1 else many}"


def argument(word: str, text: str, **arguments: Any) -> dict[str, dict[str, Any]]:
    """Return one of `CommandOptions.parser_arguments`; text: its help."""
    return {word: {"help": text, **arguments}}


OVERWRITE = argument(
    "--overwrite", "Replace result files that exist; otherwise they are kept.", action="store_true"
)


@dataclass(frozen=True, kw_only=True)
class CommandOptions(Checked):
    """Options of a command, `--field VALUE` each; docstrings are the texts of --help."""

    parser_arguments: ClassVar[dict[str, dict[str, Any]]] = {}
    """Positional arguments and flags, by their names, with what `add_argument` takes; see
    `argument`. Those of all base classes count too."""

    def input_files(self) -> dict[str, str]:
        """Return the options that name a file to read, and what each file should be."""
        return {}


@dataclass(frozen=True, kw_only=True)
class PluginOptions(CommandOptions):
    """Options of every command that opens trained models."""

    plugin: str | None = None
    """Python module to import first, for a model with classes of its own, or to evaluate it on such
    a source of data; a checkpoint by itself imports nothing outside Triptych."""

    def checkpoints(self) -> list[str]:
        """Return the checkpoints that are opened."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ModelOptions(PluginOptions):
    """Options of every command that uses one trained model in a domain."""

    checkpoint: str
    """Checkpoint file of the model (.ckpt), folder of `triptych export`, or pretrained:NAME."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""

    def checkpoints(self) -> list[str]:
        return [self.checkpoint]

    def arguments_of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the options that have the name of a function's parameter, by name."""
        names = inspect.signature(function).parameters.keys() & vars(self).keys()
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class AverageOptions(ModelOptions):
    """Options of commands that use a model or the mean of several."""

    average: tuple[str, ...] = ()
    devices: PositiveInt = 1
    """Number of processes that share the work, each with the model on a GPU of its own, or all on
    the CPU."""

    parser_arguments = argument(
        "--average",
        "Further checkpoints: the probabilities are the mean of those of all models.",
        nargs="+",
        default=(),
        metavar="CHECKPOINT",
    )

    def checkpoints(self) -> list[str]:
        return [self.checkpoint, *self.average]

    def symmetries(self) -> dict[str, int]:
        """Return the arguments of the models' `token_maps`; none for a model as it is."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ScoreRequest(Checked):
    """What to score; a domain with options of its own has a subclass."""

    split: str = "test"
    """Part of the data to score: validation, test, or another name that the source knows."""
    data: str | None = None
    """Folder to read the data from, in place of the one the model was trained from."""
    batch_size: PositiveInt | None = None
    """Items scored at a time, without influence on the score; null for the model's own number."""
    limit: PositiveInt | None = None
    """Number of items to score, from the first on; null for all."""


@dataclass(frozen=True, kw_only=True)
class DynamicScoreRequest(ScoreRequest):
    """What to score of a model that predicts each token from those before it."""

    dynamic: NonNegativeFloat = 0.0
    """Learning rate of dynamic evaluation: windows are scored one by one in the order of the split,
    and after each the model makes a step of gradient descent on it; 0 for a model that stays as it
    is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dynamic and self.batch_size is not None:
            raise ValueError("dynamic scores one window at a time; expected no batch_size with it")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ScoreRequest, AverageOptions):
    """Score a checkpoint on a split of its data."""

    json: str | None = None
    """File for the score as JSON; an existing file is replaced."""
    dtype: Dtype = "fp32"
    """Number format of the weights; bf16 and int8 are scored next to fp32, with the change."""
    wandb: bool = False
    """Add the score to the run of Weights & Biases in whose folder the checkpoint is."""

    replaced_files: ClassVar[tuple[str, ...]] = ("json",)
    """Options that name a result file which replaces an existing one."""
    kept_files: ClassVar[tuple[str, ...]] = ()
    """Options that name a result file which replaces an existing one only with --overwrite."""

    def result_files(self, result: dict[str, Any]) -> dict[str, bytes]:
        """Return the content of the domain's own result files by option.

        result: the content of the JSON file, without what is removed from it here.
        """
        return {}

    def report(self, result: dict[str, Any]) -> list[str]:
        """Return the lines of the domain's own that follow the metrics on the screen."""
        return []


@dataclass(frozen=True, kw_only=True)
class FolderOptions(ModelOptions):
    """Options of a command that writes its results into a folder."""

    out: str
    """Folder for the results; created if missing."""
    overwrite: bool = False

    parser_arguments = OVERWRITE

    def output_names(self) -> list[str]:
        """Return the names of the result files, as far as the options determine them."""
        return []


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Sampling):
    """How values are sampled."""

    seed: Seed = 0
    """Seed of sampling; the same seed gives the same samples on the same device."""


@dataclass(frozen=True, kw_only=True)
class SampleOptions(SamplingOptions, AverageOptions, FolderOptions):
    """Sample from a trained model."""

    count: PositiveInt = 4
    """Number of samples."""
    dtype: Dtype = "fp32"
    """Number format of the weights; bf16 and int8 are faster and change the samples."""
    compile: bool = False
    """Compile the decoding step with torch.compile, into a CUDA graph on a GPU; takes tens of
    seconds first. Not with int8."""

    def arguments_of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """As in `ModelOptions`; also those of `SampleKeywords` for a function with `options`."""
        from triptych.decoding.sampling import SampleKeywords

        arguments = super().arguments_of(function)
        if "options" in inspect.signature(function).parameters:
            names = SampleKeywords.__annotations__.keys() & vars(self).keys()
            arguments |= {name: getattr(self, name) for name in names}
        return arguments

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile and self.dtype == "int8":
            raise ValueError("dtype int8 cannot be compiled; expected fp32 or bf16 with compile")


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(FolderOptions):
    """Draw attention weights."""

    layer: PositiveInt | None = None
    """Layer whose attention is drawn, counted from 1; null for the last."""
    head: PositiveInt | None = None
    """Head whose attention is drawn, counted from 1; null for the mean of all heads."""


@dataclass(frozen=True, kw_only=True)
class NewRunOptions(CommandOptions):
    """Look at your data and write a settings file for them, with comments.

    It says what was found and has a size of model to begin with.
    """

    data: str
    """Folder of your data."""
    out: str
    """YAML file to write."""
    overwrite: bool = False

    parser_arguments = OVERWRITE


def check_layer_and_head(
    layer: int | None, head: int | None, *, n_layers: int, n_heads: int
) -> None:
    """Raise UserError for a layer or head that the model does not have; counted from 1."""
    for name, value, most in (("layer", layer, n_layers), ("head", head, n_heads)):
        if value is not None and not 1 <= value <= most:
            raise UserError(f"{name} must be from 1 to {most}, got {value}")


def check_checkpoint(path: str, option: str = "checkpoint") -> Path:
    """Return the path of a checkpoint, also of `pretrained:NAME`; UserError where there is none.

    `./pretrained:NAME` is a file of that name. A folder is one of `triptych export`.
    """
    if path.startswith(pretrained.PREFIX):
        return pretrained.find(path)
    if path and Path(path).is_dir():
        pretrained.weights_in(Path(path))
        return Path(path)
    name = path if path in pretrained.names() else "NAME"
    # A run without validation has no best.ckpt, but last.ckpt.
    others = sorted(Path(path).parent.glob("*.ckpt"))
    example = others[-1] if others else "runs/NAME/checkpoints/best.ckpt"
    expected = f"a file such as {example}, or {pretrained.PREFIX}{name}"
    return check_input_file(path, option, expected=expected)


def short_name(checkpoint: str) -> str:
    """Return the name of the run, file, folder or shipped model of a checkpoint."""
    path = Path(checkpoint.removeprefix(pretrained.PREFIX))
    if path.parent.name == "checkpoints":
        return path.parent.parent.name
    return path.name.removesuffix(".ckpt")


def short_names(checkpoints: Sequence[str]) -> dict[str, str]:
    """Return the name of each model by its checkpoint: a short one, all of it where two agree."""
    counts = Counter(map(short_name, set(checkpoints)))
    return {c: short if counts[short := short_name(c)] == 1 else c for c in checkpoints}
