"""The commands of `triptych` as one table, followed by help, dispatch, completion and the site.

Imports nothing heavy; the module of a command is imported when the command is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from triptych import domains
from triptych.domains.base import Domain
from triptych.errors import UserError, meant


@dataclass(frozen=True)
class Command:
    """A command.

    Its module has two functions: `run` takes the words that follow and returns the exit code;
    `parser` returns the parser of the options. With `needs_domain` both take the domain first.
    Where a name out of a list can follow, a function `names` returns the list.
    """

    name: str
    """Word of the command line."""
    module: str
    """Dotted path of the module."""
    usage: str
    """Words that follow, for the list of commands."""
    help: str
    """What it does, in one line."""
    needs_domain: bool = True
    """Whether the name of a domain follows."""
    has_settings: bool = False
    """Whether it reads settings files, so that --config also takes the name of a shipped one."""

    def load(self) -> Any:
        """Import the module and return it."""
        return import_module(self.module)

    @property
    def options(self) -> str:
        """Attribute of a domain with the class of the options, where they are not its settings."""
        return f"{self.name.replace('-', '_')}_options"

    def offered_by(self, domain: Domain) -> bool:
        """Return whether a domain offers the command; every one does where settings are read."""
        return self.has_settings or getattr(domain, self.options) is not None

    def domains(self) -> list[str]:
        """Return the names of Triptych's domains that offer the command."""
        return [n for n in domains.names() if self.offered_by(domains.find_domain(n))]


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "train", "triptych.cli.train", "DOMAIN --config FILE",
            "train a model; every setting of the file is an option too", has_settings=True,
        ),
        Command(
            "new-run", "triptych.cli.new_run", "DOMAIN --data DIR --out F",
            "look at your data and write a settings file for them",
        ),
        Command(
            "pack", "triptych.cli.pack", "DOMAIN --config F --out FOLDER",
            "write data larger than memory into files for training", has_settings=True,
        ),
        Command(
            "evaluate", "triptych.cli.evaluate", "DOMAIN --checkpoint FILE",
            "score a checkpoint on a held-out split",
        ),
        Command(
            "translate", "triptych.cli.translate", "--checkpoint FILE",
            "translate lines from standard input to standard output",
        ),
        Command(
            "sample", "triptych.cli.sample", "DOMAIN --checkpoint FILE", "sample into a folder"
        ),
        Command(
            "attention", "triptych.cli.attention", "DOMAIN --checkpoint FILE",
            "draw attention weights",
        ),
        Command(
            "pretrained", "triptych.cli.pretrained", "[NAME]",
            "list the models shipped with Triptych, or describe one", needs_domain=False,
        ),
        Command(
            "configs", "triptych.cli.configs", "[DOMAIN | NAME]",
            "list the settings files shipped with Triptych, or print one", needs_domain=False,
        ),
        Command(
            "data", "triptych.cli.data", "list | fetch NAME",
            "list public data sets, or download one", needs_domain=False,
        ),
        Command(
            "completion", "triptych.cli.completion", "bash|zsh|fish",
            "print a script that completes words in a shell", needs_domain=False,
        ),
        Command(
            "explain", "triptych.cli.explain", "NAME --out DIR",
            "draw a figure of the lectures (--list shows their names)", needs_domain=False,
        ),
        Command(
            "complexity", "triptych.cli.complexity", "DOMAIN --config FILE",
            "print and measure what layers and models cost", has_settings=True,
        ),
        Command(
            "report", "triptych.cli.report", "RUN [RUN ...] --out FILE",
            "write an HTML file about runs, side by side", needs_domain=False,
        ),
        Command(
            "export", "triptych.cli.export", "CHECKPOINT --format NAME --out FOLDER",
            "write a model for Triptych and other libraries", needs_domain=False,
        ),
        Command(
            "play", "triptych.cli.play", "[--checkpoint FILE ...]",
            "use models in the browser: draw, play, translate", needs_domain=False,
        ),
    )
}  # fmt: skip
"""The commands by name, in the order of the help."""

COLUMN = 36
"""Where the help of a command begins, after the indent of two."""


def find_command(word: str) -> Command:
    """Return the command of a name; raises UserError for an unknown one, with the nearest name."""
    if word not in COMMANDS:
        instead = meant(word, COMMANDS, f"expected one of {', '.join(COMMANDS)}")
        raise UserError(f"unknown command {word!r}; {instead}")
    return COMMANDS[word]


def help_lines() -> list[str]:
    """Return the list of commands; of one that some domains lack, they are named after its help."""
    known = domains.names()
    lines = []
    for command in COMMANDS.values():
        words = f"{command.name} {command.usage}"
        offering = command.domains() if command.needs_domain else known
        lacking = [name for name in known if name not in offering]
        some = f" (not {', '.join(lacking)})" if lacking and len(offering) > 1 else ""
        if len(words) >= COLUMN:
            lines.append(f"  {words}")
            words = ""
        lines.append(f"  {words:<{COLUMN}}{command.help}{some}")
    return lines
