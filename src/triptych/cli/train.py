"""Commands that read settings files: `triptych train`, `pack` and `complexity`."""

import sys
from argparse import SUPPRESS, Namespace
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from triptych.cli.models import data_advice
from triptych.domains.base import Domain
from triptych.domains.options import CommandOptions, argument, check_checkpoint
from triptych.errors import UserError
from triptych.types import PositiveFloat

BATCH_SIZES = ("batch_size", "max_tokens", "evaluation_batch_size")
"""Names that domains give to the size of a batch."""


def resumed(word: str | bool) -> str | bool:
    """Return the word after --resume, True for none; UserError for another one, such as a file."""
    if word not in (True, "auto"):
        raise UserError(
            f"--resume takes auto and no file, got {word}: a run goes on from its own checkpoint, "
            "by its --run.name; --run.start.init_from FILE begins a new one with the file's weights"
        )
    return word


@dataclass(frozen=True, kw_only=True)
class Train(CommandOptions):
    """Train a model.

    Every setting below is also a key of the settings file: --run.seed 8 is seed: 8 under run. Most
    runs set --config, --run.name, --minutes or --trainer.max_steps, --trainer.val_check_interval,
    --data.source, --data.batch_size, --optim.learning_rate, --model.transformer.d_model and
    .n_layers, --trainer.devices, --run.wandb and --resume; the others follow in groups.
    """

    resume: bool | Literal["auto"] = False
    minutes: PositiveFloat | None = None

    parser_arguments = argument(
        "--minutes",
        "Fit trainer.max_steps, the interval of validations and the warm-up to a time on this "
        "machine, from some updates that are timed first. (default: off)",
        type=PositiveFloat,
        default=SUPPRESS,
    ) | argument(
        "--resume",
        "Continue the run of this name from its last good checkpoint, with the same order of the "
        "data; without it an existing run is never changed. auto: continue the run if it has a "
        "checkpoint, begin it otherwise. (default: off)",
        nargs="?",
        const=True,
        type=resumed,
        choices=[True, "auto"],
        metavar="auto",
        default=SUPPRESS,  # no setting of the run, so --print_config leaves it out
    )

    def run(self, domain: Domain, config: Any, trainer: Namespace) -> None:
        """Train and print the run's folder; raises UserError and TrainingStopped."""
        from triptych.files.reading import rank_and_world
        from triptych.training.engine.devices import out_of_memory_advice
        from triptych.training.run.checks import trainer_settings
        from triptych.training.run.minutes import fit_to_minutes, prepared_once
        from triptych.training.run.trainer import train

        if (initial := config.run.start.init_from) is not None and not self.resume:
            check_checkpoint(initial, "run.start.init_from")
        prepare: Any = partial(prepare_data, domain)
        arguments_of = trainer_settings(trainer)
        with out_of_memory_advice(memory_advice(config)):
            if self.minutes is not None:
                prepare = prepared_once(prepare)
                config, arguments_of = fit_to_minutes(
                    domain.name, config, prepare, arguments_of, self.minutes, self.resume
                )
            folder = train(domain.name, config, prepare, arguments_of, self.resume)
        if folder.exists() and rank_and_world()[0] == 0:
            print(f"the run is in {folder}", file=sys.stderr)


def prepare_data(domain: Domain, config: Any, vocabulary: Any = None) -> Any:
    """Return what `domain.prepare` returns; where the data are missing, say how to get them."""
    with data_advice(config.data, "--data.source.directory", domain.name):
        return domain.prepare(config, vocabulary)


def memory_advice(config: Any) -> str:
    """Return what to change where the memory of a GPU is full, with the names of the settings."""
    sizes = [f"data.{name}" for name in BATCH_SIZES if hasattr(config.data, name)]
    return (
        f"lower {' and '.join(sizes) or 'the batch size'} and raise "
        "trainer.accumulate_grad_batches by the same factor, or set "
        "model.transformer.activation_checkpointing to true"
    )


@dataclass(frozen=True, kw_only=True)
class Pack(CommandOptions):
    """Write the data of a run into files that training maps into memory.

    `--data.packed FOLDER` trains from them, for data larger than memory. Settings as for train.
    """

    out: str | None = None
    """New folder for the packed data; required."""

    def run(self, domain: Domain, config: Any, trainer: Namespace) -> None:
        if self.out is None:
            raise UserError(f"pack {domain.name} needs --out FOLDER, a new folder")
        print(domain.pack(config, self.out), file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Complexity(CommandOptions):
    """Print what a model costs on one batch: parameters, operations and memory.

    The settings are those of `triptych train`.
    """

    def run(self, domain: Domain, config: Any, trainer: Namespace) -> None:
        from triptych.tools.complexity import model_cost

        task, train_loader, _ = prepare_data(domain, config)
        print(model_cost(task, next(iter(train_loader))))
