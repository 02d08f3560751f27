"""`triptych pretrained` and `completion`: what comes with the package is printed."""

from dataclasses import dataclass

from triptych import pretrained
from triptych.cli.main import COMMANDS
from triptych.cli.options import parser_of
from triptych.domains.options import CommandOptions, argument
from triptych.errors import library
from triptych.files.progress import aligned


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
