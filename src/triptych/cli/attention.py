"""`triptych attention DOMAIN`: drawings and numbers of attention weights in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.cli.options import run_verb, verb_parser
from triptych.config.parser import SettingsParser
from triptych.domains.base import Domain


def parser(domain: Domain) -> SettingsParser:
    """Return the parser of the command's options."""
    assert domain.attention is not None
    return verb_parser(domain.attention, "attention", domain)


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Draw attention weights and print what was written; raises UserError for bad input."""
    assert domain.attention is not None
    return run_verb(domain.attention, "attention", domain, arguments)
