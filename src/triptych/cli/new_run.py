"""`triptych new-run DOMAIN`: a commented settings file for a user's own data."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from triptych import shipped_configs
from triptych.cli.options import OVERWRITE, options_parser
from triptych.config.parser import parse_settings
from triptych.config.schema import build, from_plain
from triptych.config.template import Setting, fill
from triptych.domains.base import Domain
from triptych.domains.options import NewRunOptions
from triptych.domains.starter import Starter
from triptych.errors import UserError
from triptych.files.results import check_result_file

WIDTH = 96
"""Characters of a line of the comment."""


def parser(domain: Domain) -> ArgumentParser:
    """Return the parser of the options."""
    return options_parser("new-run", domain)


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Write the settings file and print what was found; raises UserError for bad input."""
    values, locate = parse_settings(parser(domain), arguments)
    assert domain.new_run_options is not None
    options = build(domain.new_run_options, values, locate=locate)
    out = check_result_file(options.out, "out", replaces=bool(values.get(OVERWRITE)))
    starter = domain.starter(options)
    template = shipped_configs.find(domain.name, starter.template)
    if template is None:
        raise UserError(f"the config {starter.template} does not come with this installation")
    name = f"{domain.name}/{out.stem}"
    settings = starter.settings | {"run.name": Setting(name)}
    text = template.read_text(encoding="utf-8")
    content = yaml.safe_load(fill(text, settings, []))
    for line in (*starter.found, *starter.advice):
        print(line, file=sys.stderr)
    took = estimate(domain, content, options) if options.timed_steps else "not made"

    from triptych.files.atomic import write_atomically

    header = header_lines(domain, starter, options, name, took)
    write_atomically(out, fill(text, settings, header).encode())
    print(f"estimate: {took}", file=sys.stderr)
    print(f"{out} is ready: triptych train {domain.name} --config {out}", file=sys.stderr)
    return 0


def estimate(domain: Domain, content: dict[str, Any], options: NewRunOptions) -> str:
    """Return how long the run takes on this machine, from a few steps of it.

    Raises UserError where the run could not be started with these settings.
    """
    from triptych.training.engine.devices import uses_cuda
    from triptych.training.engine.speed import time_steps

    plain = {key: value for key, value in content.items() if key != "trainer"}
    config = from_plain(domain.config_class(), plain)
    trainer = content["trainer"]
    task, train_loader, _ = domain.prepare(config)
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


def in_words(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def header_lines(
    domain: Domain, starter: Starter, options: NewRunOptions, name: str, took: str
) -> list[str]:
    """Return the comment that the file begins with: commands, what was found, and advice."""
    best = f"runs/{name}/checkpoints/best.ckpt"
    commands = [
        f"triptych train {domain.name} --config {options.out}",
        f"triptych evaluate {domain.name} --checkpoint {best}",
    ]
    if domain.sample_options is not None:
        sample = f"triptych sample {domain.name} --checkpoint {best}"
        commands.append(f"{sample}{starter.sample} --out samples")
    if domain.translate_options is not None:
        commands.append(f"triptych translate --checkpoint {best} < lines.txt")
    template = f"{domain.name}/{starter.template}"
    listed = [*starter.found, f"Estimated time: {took}.", *starter.advice]
    first = (
        f"First settings for {options.data}, written by `triptych new-run {domain.name}` from the "
        f"config {template}; `triptych configs {template}` says more about its settings."
    )
    return [
        *textwrap.wrap(first, WIDTH, break_on_hyphens=False),
        "",
        *(f"  {command}" for command in commands),
        "",
        *(row for line in listed for row in wrapped(line)),
    ]


def wrapped(line: str) -> list[str]:
    """Return an item of a list as lines that fit into a comment."""
    return textwrap.wrap(line, WIDTH, initial_indent="- ", subsequent_indent="  ")
