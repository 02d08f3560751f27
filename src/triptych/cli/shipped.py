"""`triptych pretrained`, `configs` and `completion`: what comes with the package is printed.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triptych import domains, pretrained
from triptych.cli.main import COMMANDS
from triptych.cli.options import parser_of, read_options
from triptych.domains.options import CommandOptions, argument
from triptych.errors import library
from triptych.files.progress import aligned
from triptych.tools import configs


class Pretrained:
    """`triptych pretrained [NAME]`: the shipped models, or the model card of one."""

    @dataclass(frozen=True, kw_only=True)
    class Options(CommandOptions):
        """List the models shipped with Triptych, or print the model card of one.

        The card has training data, scores, terms of use and limits. Every option that takes a
        checkpoint also takes pretrained:NAME.
        """

        name: str | None = None

        parser_arguments = argument("name", "Name of a model.", nargs="?", metavar="NAME")

    @staticmethod
    def names() -> list[str]:
        """Return the names of the shipped models."""
        return pretrained.names()

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Print the list or a model card; UserError for an unknown name."""
        name = read_options("pretrained", arguments).name
        if name is not None:
            print(pretrained.read_card(name), end="")
            return 0
        rows = []
        for name in Pretrained.names():
            weights = pretrained.find(name)
            metadata = pretrained.read_metadata(weights)
            size, card = f"{weights.stat().st_size / 1e6:.1f} MB", metadata["card"]
            rows.append((name, metadata["triptych"]["domain"], size, card["figure"], card["what"]))
        print(*(aligned(rows) or ["no pretrained model comes with this installation"]), sep="\n")
        return 0


class Configs:
    """`triptych configs [DOMAIN | DOMAIN/NAME]`: the shipped settings files, or the text of one."""

    @dataclass(frozen=True, kw_only=True)
    class Options(CommandOptions):
        """List the settings files shipped with Triptych, those of a domain, or print one.

        To change a copy of one: triptych configs image/digits > my-digits.yaml. `triptych train
        DOMAIN --config NAME` takes the name in place of a file.
        """

        name: str | None = None

        parser_arguments = argument("name", "DOMAIN or DOMAIN/NAME.", nargs="?", metavar="NAME")

    @staticmethod
    def names() -> list[str]:
        """Return the names of the domains and of all settings files."""
        known = domains.names()
        return [*known, *(f"{domain}/{n}" for domain in known for n in configs.find_all(domain))]

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Print the list or a file; UserError for an unknown name."""
        name, known = read_options("configs", arguments).name, domains.names()
        if name is not None and name not in known:
            print(text_of(name), end="")
            return 0
        for domain in known if name is None else [name]:
            free = configs.without_files(domain)
            print(f"{domain}: triptych train {domain} --config NAME (* reads no files of yours)")
            rows = [
                (f"{'*' if name in free else ' '} {name}", configs.first_sentence(file))
                for name, file in configs.find_all(domain).items()
            ]
            print(*aligned(rows), sep="\n")
        return 0


def text_of(name: str) -> str:
    """Return the text of the file that a word such as `image/digits` names."""
    for domain in domains.names():
        if domain in name.split("/") and (file := configs.find(domain, name)):
            return file.read_text(encoding="utf-8")
    raise configs.unknown(name)


class Completion:
    """`triptych completion SHELL`: a script that completes commands, names and options."""

    @dataclass(frozen=True, kw_only=True)
    class Options(CommandOptions):
        """Print a script that completes commands, domains, names of configs and options at a TAB.

        It is made in some seconds from this version's options; make it again after an update. bash:
        triptych completion bash > ~/.local/share/bash-completion/completions/triptych; zsh:
        triptych completion zsh > a folder of $fpath/_triptych; fish: triptych completion fish >
        ~/.config/fish/completions/triptych.fish
        """

        shell: str

        parser_arguments = argument(
            "shell", "Shell of the script.", choices=["bash", "zsh", "fish"]
        )

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Print the script; raises UserError where the library shtab is missing."""
        shell = read_options("completion", arguments).shell
        shtab = library("shtab", "completion", "completion")
        from triptych.tools.completion import command_line

        print(shtab.complete(command_line(COMMANDS, parser_of), shell))
        return 0
