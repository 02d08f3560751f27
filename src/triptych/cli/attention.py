"""`triptych attention DOMAIN`: drawings and numbers of attention weights in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.cli.options import folder_command_parser, run_folder_command
from triptych.config.parser import SettingsParser
from triptych.domains.base import Domain


def parser(domain: Domain) -> SettingsParser:
    """Return the parser of the command's options."""
    assert domain.attention is not None
    return folder_command_parser(domain.attention, "attention", domain)


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Draw attention weights and print what was written; raises UserError for bad input."""
    assert domain.attention is not None
    return run_folder_command(domain.attention, "attention", domain, arguments)
