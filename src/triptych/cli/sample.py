"""`triptych sample DOMAIN`: samples of a trained model as files in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.cli.options import run_verb, verb_parser
from triptych.config.parser import SettingsParser
from triptych.domains.base import Domain


def parser(domain: Domain) -> SettingsParser:
    """Return the parser of the command's options."""
    assert domain.sample is not None
    return verb_parser(domain.sample, "sample", domain)


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Sample and print what was written; raises UserError for bad input."""
    assert domain.sample is not None
    return run_verb(domain.sample, "sample", domain, arguments)
