"""`triptych completion SHELL`: a script that completes commands, names and options in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from triptych.cli.main import COMMANDS, PlainParser
from triptych.errors import UserError

SHELLS = ("bash", "zsh", "fish")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = PlainParser(
        prog="triptych completion",
        usage="triptych completion bash|zsh|fish",
        description="Print a script that completes commands, domains, names of configs and "
        "options at a TAB. It is made in some seconds from this version's options; make it again "
        "after an update.",
        epilog="bash: triptych completion bash > ~/.local/share/bash-completion/completions/"
        "triptych; zsh: triptych completion zsh > a folder of $fpath/_triptych; fish: triptych "
        "completion fish > ~/.config/fish/completions/triptych.fish",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish.")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Print the script; raises UserError where the library shtab is missing."""
    shell = parser().parse_args(arguments).shell
    try:
        import shtab
    except ImportError as error:
        raise UserError(
            "completion needs shtab, which is not installed: pip install 'triptych[completion]'"
        ) from error
    from triptych.tools.completion import command_line

    print(shtab.complete(command_line(COMMANDS), shell))
    return 0
