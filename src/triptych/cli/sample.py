"""`triptych sample DOMAIN`: samples of a trained model as files in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.cli.options import folder_command_parser, run_folder_command
from triptych.config.parser import SettingsParser
from triptych.domains.base import Domain


def parser(domain: Domain) -> SettingsParser:
    """Return the parser of the command's options."""
    assert domain.sample is not None
    return folder_command_parser(domain.sample, "sample", domain)


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Sample and print what was written; raises UserError for bad input."""
    assert domain.sample is not None
    return run_folder_command(domain.sample, "sample", domain, arguments)
