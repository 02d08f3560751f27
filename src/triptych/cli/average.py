"""`triptych average CHECKPOINT ... --out FILE`: the mean of the weights of checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from triptych.cli.options import check_checkpoint, read_options
from triptych.domains.options import OVERWRITE, PluginOptions, argument
from triptych.errors import UserError
from triptych.files.results import atomic_file, check_result_file


@dataclass(frozen=True, kw_only=True)
class Options(PluginOptions):
    """Write a checkpoint whose weights are the mean of those of checkpoints of one model.

    Such as the last ones of a run, which `run.keep_late` keeps. A run with a moving average of the
    weights has it in its checkpoints, so the mean is of the averages. The probabilities of several
    models are averaged by --average of evaluate, sample and translate.
    """

    models: list[str]
    out: str
    """Checkpoint file (.ckpt) to write."""
    overwrite: bool = False

    parser_arguments = OVERWRITE | argument(
        "models",
        "Checkpoint file (.ckpt), folder of an export, or pretrained:NAME.",
        nargs="+",
        metavar="CHECKPOINT",
    )

    def checkpoints(self) -> list[str]:
        return self.models


def run(arguments: Sequence[str]) -> int:
    """Write the checkpoint; raises UserError before the file is written."""
    options = read_options("average", arguments)
    out = check_result_file(options.out, "out", replaces=options.overwrite)
    paths = [check_checkpoint(name) for name in options.models]

    import torch

    from triptych.training.run.averaging import average_weights

    content = average_weights(paths)
    try:
        with atomic_file(out) as file:
            torch.save(content, file)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}") from error
    steps = ", ".join(str(part["step"]) for part in content["triptych"]["averaged"])
    print(f"{out}: the mean of {len(paths)} checkpoints, of steps {steps}", file=sys.stderr)
    return 0
