"""Settings of a first run: what a domain finds in the data, a size out of its table, and advice.

The table is a YAML file with a section for each unit of amounts. A row of a section is for amounts
below its first column; the other columns are passes over the data and settings by dotted key, null
for those of the template.
"""

from __future__ import annotations

import logging
import statistics
import textwrap
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from triptych.config.schema import from_plain
from triptych.domains.base import Domain
from triptych.domains.options import NewRunOptions
from triptych.tools.new_run.data import Description, Setting

if TYPE_CHECKING:
    from triptych.training.engine.module import TrainingModule

WIDTH = 96
"""Characters of a line of the comment."""
VALIDATIONS = 8
"""Of a run."""


def suggested(data: Description) -> dict[str, Setting]:
    """Return the settings of a first run by dotted key, without `init_args`."""
    table = yaml.safe_load(data.sizes.read_text(encoding="utf-8"))[data.unit]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    row = next(row for row in rows if data.amount < row["below"])
    batches = data.items / row[table["batch"]]
    epochs = row["epochs"] * data.passes
    least, most = table["steps"]
    wanted = min(most, max(least, round(batches * epochs)))
    interval = max(1, wanted // VALIDATIONS)
    steps = interval * VALIDATIONS
    reasons = {
        "model.transformer.n_layers": f"a size for about {data.amount:,.0f} {data.unit}",
        "model.transformer.dropout": "more of it if the model overfits",
    }
    return {
        **data.settings,
        **{
            key: Setting(value, reasons.get(key, ""))
            for key, value in row.items()
            if "." in key and value is not None
        },
        "trainer.max_steps": Setting(
            steps, f"about {steps / max(batches, 1e-9):,.0f} passes over the training data"
        ),
        "trainer.val_check_interval": Setting(interval),
        "trainer.log_every_n_steps": Setting(min(50, max(1, interval // 5))),
        "optim.schedule.warmup_steps": Setting(min(400, max(10, steps // 10))),
    }


def header_lines(
    domain: Domain, data: Description, options: NewRunOptions, name: str, took: str
) -> list[str]:
    """Return the comment that the file begins with: commands, what was found, and advice.

    name: of the run. took: how long it takes.
    """
    best = f"runs/{name}/checkpoints/best.ckpt"
    commands = [
        f"triptych train {domain.name} --config {options.out}",
        f"triptych evaluate {domain.name} --checkpoint {best}",
    ]
    if domain.sample_options is not None:
        sample = f"triptych sample {domain.name} --checkpoint {best}"
        commands.append(f"{sample}{data.sample} --out samples")
    if domain.translate_options is not None:
        commands.append(f"triptych translate --checkpoint {best} < lines.txt")
    template = f"{domain.name}/{data.template}"
    first = (
        f"First settings for {options.data}, written by `triptych new-run {domain.name}` from the "
        f"config {template}; `triptych configs {template}` says more about its settings."
    )
    listed = [*data.facts, f"Estimated time: {took}.", *data.advice]
    return [
        *textwrap.wrap(first, WIDTH, break_on_hyphens=False),
        "",
        *(f"  {command}" for command in commands),
        "",
        *(
            row
            for line in listed
            for row in textwrap.wrap(line, WIDTH, initial_indent="- ", subsequent_indent="  ")
        ),
        *(["", "What the data look like:"] if data.table else []),
        *(f"  {row}" for row in data.table),
    ]


def estimate(domain: Domain, content: dict[str, Any], options: NewRunOptions) -> str:
    """Return how long the run takes on this machine, from a few steps of it.

    content: of the settings file. Raises UserError where the run could not be started with it.
    """
    from triptych.training.engine.devices import uses_cuda

    plain = {key: value for key, value in content.items() if key != "trainer"}
    trainer = content["trainer"]
    log = logging.getLogger("triptych")
    log.setLevel(logging.ERROR)  # what is wrong with the data has been said
    try:
        task, train_loader, _ = domain.prepare(from_plain(domain.config_class(), plain))
    finally:
        log.setLevel(logging.NOTSET)
    n_parameters = sum(parameter.numel() for parameter in task.parameters())
    step = time_steps(task, train_loader, trainer, steps=options.timed_steps)
    busy = ""
    if step.seconds > 2 * step.processor_seconds and not uses_cuda(trainer):
        alone = in_words(step.processor_seconds * trainer["max_steps"])
        busy = f"; this machine is busy with other work, without which it takes {alone} at most"
    return (
        f"{in_words(step.seconds * trainer['max_steps'])} for {trainer['max_steps']:,} steps of "
        f"{step.seconds:.2g} s with {n_parameters / 1e6:.1f} M parameters, without validation and "
        f"samples (median of {options.timed_steps} steps on this machine{busy})"
    )


class StepTime(NamedTuple):
    """Median time of an update, in seconds."""

    seconds: float
    processor_seconds: float
    """Time of all threads on processors; below `seconds` where other work takes the processors, or
    where a GPU computes."""


def time_steps(
    task: TrainingModule, loader: Iterable[Any], trainer: dict[str, Any], *, steps: int
) -> StepTime:
    """Return the time of an update: forward and backward pass, and the optimiser.

    The parameters are updated. trainer: arguments of the run's Trainer, for device and precision.
    One update more is made first and not counted.
    """
    import torch

    from triptych.training.engine.devices import choose_precision, uses_cuda

    device = torch.device("cuda" if uses_cuda(trainer) else "cpu")
    mixed = choose_precision(trainer) == "bf16-mixed"
    task = task.to(device).train()
    (optimizer,) = task.configure_optimizers()
    batches = _endless(loader)
    times = []
    for _ in range(steps + 1):
        started = time.perf_counter(), time.process_time()
        batch = task.transfer_batch_to_device(next(batches), device, 0)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            loss, _ = task.training_loss(batch)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    return StepTime(*map(statistics.median, zip(*times[1:], strict=True)))


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of one pass over the data after the other."""
    while True:
        yield from loader


def in_words(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
