"""Settings of a run that all domains share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from triptych.config.schema import to_plain
from triptych.errors import UserError
from triptych.training.engine.objective import ObjectiveConfig
from triptych.training.engine.optim import AdamW, InverseSqrt, OptimizerConfig, ScheduleConfig
from triptych.training.run.checkpoint import ModelSettings
from triptych.types import (
    Checked,
    FractionBelowOne,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
)


@dataclass(frozen=True)
class StartConfig(Checked):
    """Weights that a new run starts with."""

    init_from: str | None = None
    """Checkpoint (.ckpt), or pretrained:NAME, with the initial weights; null for new ones."""
    init_vocabulary: Literal["checkpoint", "data"] = "checkpoint"
    """Vocabulary of a run with init_from: that of the `checkpoint`, which the data have to fit, or
    that of the `data`; then symbols that both have keep their weights and others start anew."""
    word_vectors: str | None = None
    """File of word vectors (word2vec or GloVe, as text, .gz or not) of size d_model, from which
    the embeddings of the words that it has start; null for none. For models of text; in
    translation the embeddings of the source."""
    freeze_word_vectors: bool = False
    """Leave the vectors of word_vectors as they are; the other embeddings are trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.freeze_word_vectors and self.word_vectors is None:
            raise ValueError("freeze_word_vectors needs word_vectors, a file of vectors")
        if self.word_vectors is not None and self.init_from is not None:
            raise ValueError("word_vectors and init_from both give initial weights; expected one")


@dataclass(frozen=True)
class FineTuneConfig(Checked):
    """Part of a trained model that a run trains; needs run.start.init_from."""

    train_only: list[str] | None = None
    """Parts of the model to train, by their names or parts of these, such as [decoder, head] or
    ["*embedding"]; all other weights are frozen. null trains all."""
    lora_rank: NonNegativeInt = 0
    """Rank of low-rank adapters (LoRA), which are trained in place of the weights; weights of
    train_only are trained in addition. 0 for no adapters."""
    lora_alpha: PositiveFloat = 16.0
    """Factor of the adapters: their output is multiplied by lora_alpha / lora_rank."""
    lora_layers: list[str] | None = None
    """Linear layers of the blocks that get adapters, by names as in train_only, such as
    [qkv_proj, feed_forward]; null for all of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("train_only", "lora_layers"):
            if getattr(self, name) == []:
                raise ValueError(f"{name} needs at least one name, or null; got an empty list")


@dataclass(frozen=True)
class ComputeConfig(Checked):
    """How a run computes; the numbers of its steps hardly change."""

    data_workers: NonNegativeInt = 0
    """Processes that make batches ahead of the training; 0 makes them between the steps."""
    compile: bool = False
    """Compile the training loss with torch.compile; needs a C++ compiler (Triton on a GPU)."""
    tf32: bool = False
    """Multiply float32 matrices in TF32 on an NVIDIA GPU: faster, with factors of 11 significant
    bits. It concerns training in 32-true, and every validation."""


@dataclass(frozen=True)
class LogConfig(Checked):
    """What a run logs besides metrics.csv."""

    wandb_init: dict[str, Any] = field(default_factory=dict)
    """Arguments of wandb.init, such as {project: translation, group: rates, tags: [small]}. What is
    missing comes from wandb's variables (WANDB_PROJECT, WANDB_NAME, ...); without them the project
    is triptych, the name run.name and the folder that of the run."""
    wandb_models: bool | None = None
    """Keep best.ckpt and last.ckpt as model artifacts there, with the aliases best and latest, when
    the run has finished; null for files of at most 100 MB."""
    histograms: NonNegativeInt = 0
    """Updates between two histograms of all trained weights and gradients, and ratios of update to
    weight, in Weights & Biases; 0 for none."""
    samples: bool = True
    """Write samples (images, sounds, sentences) into the run's folder after each validation."""


@dataclass(frozen=True)
class RunConfig(Checked):
    """Name, folder and seed of a run, its start, and how it trains, computes and logs."""

    name: str = "run"
    """Name of the run; its folder is <directory>/<name>."""
    directory: str = "runs"
    """Folder that contains the folders of all runs."""
    seed: Seed = 0
    """Seed of weights, data order, augmentation and dropout."""
    wandb: Literal["auto", "online", "offline", "off"] = "auto"
    """Mode of Weights & Biases; auto is online if a key is found, otherwise offline."""
    save_minutes: NonNegativeFloat = 10.0
    """Minutes of training between two writes of last.ckpt; 0 writes it after validations only."""
    keep_late: NonNegativeInt = 0
    """Validations, the last ones, whose checkpoints are kept as late-STEP.ckpt beside best.ckpt and
    last.ckpt, for `triptych average`; 0 keeps none."""
    early_stopping_patience: PositiveInt | None = None
    """Validations without a better score after which the run ends; null for no limit."""
    start: StartConfig = field(default_factory=StartConfig)
    """Weights that a new run starts with."""
    finetune: FineTuneConfig = field(default_factory=FineTuneConfig)
    """Part of a trained model that the run trains."""
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    """Workers of the data, compilation and number formats."""
    log: LogConfig = field(default_factory=LogConfig)
    """Loggers and samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = self.name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in self.name:
            raise ValueError(f"name is {self.name!r}; the name of a folder is needed")
        if self.log.histograms and self.wandb == "off":
            raise ValueError("log.histograms needs wandb, which is off")

    @property
    def folder(self) -> Path:
        return Path(self.directory).expanduser() / self.name


@dataclass(frozen=True)
class OptimConfig(Checked):
    """Optimiser, learning-rate schedule and objective."""

    optimizer: OptimizerConfig = field(default_factory=AdamW)
    """Optimiser and its settings."""
    learning_rate: PositiveFloat = 3e-4
    """Highest learning rate, at the end of the warm-up; for Noam a factor, 1 in the paper."""
    schedule: ScheduleConfig = field(default_factory=InverseSqrt)
    """Learning rate over the updates."""
    ema_decay: FractionBelowOne = 0.0
    """Decay of the exponential moving average of the weights per update, such as 0.999;
    validations and best.ckpt use the average; 0 for none."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """What is minimised besides the negative log-likelihood."""


@dataclass(frozen=True)
class RunSettings(Checked):
    """All settings of a run; a domain declares its own classes of `data` and `model`."""

    data: Any
    """Source of the data and batches."""
    model: Any
    """Sizes and parts of the model; `model.transformer` is its `TransformerConfig`."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser and learning rate."""
    run: RunConfig = field(default_factory=RunConfig)
    """Name, folder and seed of the run."""

    opening: ClassVar[type[ModelSettings]] = ModelSettings
    """Class of `model_settings`, for one that needs `model` alone."""

    def model_settings(self) -> ModelSettings:
        """Return what use of the trained model needs."""
        return self.opening(self.model)

    def build_model(self, vocabulary: Any = None) -> nn.Module:
        """Return a model with initial weights; UserError for parts that do not fit."""
        try:
            return self.model_settings().build_model(vocabulary)
        except ValueError as error:
            raise UserError(f"the model does not fit the data: {error}") from error


def run_metadata(domain: str, config: RunSettings, vocabulary: Any) -> dict[str, Any]:
    """Return what the header says of a run; TypeError for a vocabulary of other than JSON types."""
    opening = {"domain": domain, **vars(config.model_settings()), "vocabulary": vocabulary}
    alpha = {"lora_alpha": config.run.finetune.lora_alpha}
    plain: dict[str, Any] = to_plain({**opening, **alpha, **vars(config)})
    return plain
