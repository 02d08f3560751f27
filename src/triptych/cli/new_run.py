"""`triptych new-run DOMAIN`: a commented settings file for a user's own data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import yaml
from jsonargparse import ArgumentParser

from triptych.cli.options import options_parser, read_options
from triptych.domains.base import Domain
from triptych.errors import UserError
from triptych.files.results import check_result_file
from triptych.tools import configs
from triptych.tools.new_run.data import Setting


def parser(domain: Domain) -> ArgumentParser:
    """Return the parser of the options."""
    return options_parser("new-run", domain)


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Write the settings file and print what was found; raises UserError for bad input."""
    options, overwrite = read_options("new-run", domain, arguments)
    out = check_result_file(options.out, "out", replaces=overwrite)

    from triptych.files.results import write_atomically
    from triptych.tools.new_run.suggest import estimate, header_lines, suggested
    from triptych.tools.new_run.template import fill

    assert domain.description is not None
    data = import_module(domain.description).describe(options)
    template = configs.find(domain.name, data.template)
    if template is None:
        raise UserError(f"the config {data.template} does not come with this installation")
    name = f"{domain.name}/{out.stem}"
    settings = suggested(data) | {"run.name": Setting(name)}
    text = template.read_text(encoding="utf-8")
    for line in (*data.facts, *data.advice):
        print(line, file=sys.stderr)
    content = yaml.safe_load(fill(text, settings, []))
    took = estimate(domain, content, options) if options.timed_steps else "not made"
    header = header_lines(domain, data, options, name, took)
    write_atomically(out, fill(text, settings, header).encode())
    print(f"estimate: {took}", file=sys.stderr)
    print(f"{out} is ready: triptych train {domain.name} --config {out}", file=sys.stderr)
    return 0
