"""`triptych pretrained`, `configs` and `completion`: what comes with the package is printed."""

from __future__ import annotations

from dataclasses import dataclass

from triptych import domains, pretrained
from triptych.cli.main import COMMANDS
from triptych.cli.options import parser_of
from triptych.domains.options import CommandOptions, argument
from triptych.errors import library
from triptych.files.progress import aligned
from triptych.tools import configs


@dataclass(frozen=True, kw_only=True)
class Pretrained(CommandOptions):
    """List the models shipped with Triptych, or print the model card of one.

    The card has training data, scores, terms of use and limits. Every option that takes a
    checkpoint also takes pretrained:NAME.
    """

    name: str | None = None

    parser_arguments = argument("name", "Name of a model.", nargs="?", metavar="NAME")
    names = staticmethod(pretrained.names)

    def run(self) -> None:
        if self.name is not None:
            print(pretrained.read_card(self.name), end="")
            return
        rows = []
        for name in pretrained.names():
            weights = pretrained.find(name)
            metadata = pretrained.read_metadata(weights)
            size, card = f"{weights.stat().st_size / 1e6:.1f} MB", metadata["card"]
            rows.append((name, metadata["triptych"]["domain"], size, card["figure"], card["what"]))
        print(*(aligned(rows) or ["no pretrained model comes with this installation"]), sep="\n")


@dataclass(frozen=True, kw_only=True)
class Configs(CommandOptions):
    """List the settings files shipped with Triptych, those of a domain, or print one.

    To change a copy of one: triptych configs image/digits > my-digits.yaml. `triptych train DOMAIN
    --config NAME` takes the name in place of a file.
    """

    name: str | None = None

    parser_arguments = argument("name", "DOMAIN or DOMAIN/NAME.", nargs="?", metavar="NAME")

    @staticmethod
    def names() -> list[str]:
        """Return the names of the domains and of all settings files."""
        known = domains.names()
        return [*known, *(f"{domain}/{n}" for domain in known for n in configs.find_all(domain))]

    def run(self) -> None:
        known = domains.names()
        if self.name is not None and self.name not in known:
            inside = (domain for domain in known if domain in self.name.split("/"))
            file = next(filter(None, (configs.find(d, self.name) for d in inside)), None)
            if file is None:
                raise configs.unknown(self.name)
            print(file.read_text(encoding="utf-8"), end="")
            return
        for domain in known if self.name is None else [self.name]:
            free = configs.without_files(domain)
            print(f"{domain}: triptych train {domain} --config NAME (* reads no files of yours)")
            rows = [
                (f"{'*' if name in free else ' '} {name}", configs.first_sentence(file))
                for name, file in configs.find_all(domain).items()
            ]
            print(*aligned(rows), sep="\n")


@dataclass(frozen=True, kw_only=True)
class Completion(CommandOptions):
    """Print a script that completes commands, domains, names of configs and options at a TAB.

    It is made in some seconds from this version's options; make it again after an update. bash:
    triptych completion bash > ~/.local/share/bash-completion/completions/triptych; zsh: triptych
    completion zsh > a folder of $fpath/_triptych; fish: triptych completion fish >
    ~/.config/fish/completions/triptych.fish
    """

    shell: str

    parser_arguments = argument("shell", "Shell of the script.", choices=["bash", "zsh", "fish"])

    def run(self) -> None:
        shtab = library("shtab", "completion", "completion")
        from triptych.tools.completion import command_line

        print(shtab.complete(command_line(COMMANDS, parser_of), self.shell))
