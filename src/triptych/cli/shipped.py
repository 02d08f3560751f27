"""`triptych pretrained` and `triptych configs`: what is shipped with the package."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from triptych import domains, pretrained
from triptych.cli.main import PlainParser
from triptych.tools import configs


class Pretrained:
    """`triptych pretrained [NAME]`: the shipped models, or the model card of one."""

    @staticmethod
    def parser() -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser = PlainParser(
            prog="triptych pretrained",
            usage="triptych pretrained [NAME]",
            description="Without a name: one line for each model shipped with Triptych. With a "
            "name: its model card, with training data, scores, terms of use and "
            "limits. Every option that takes a checkpoint also takes pretrained:NAME.",
        )
        parser.add_argument("name", nargs="?", metavar="NAME", help="Name of a model.")
        return parser

    @staticmethod
    def names() -> list[str]:
        """Return the names of the shipped models."""
        return pretrained.names()

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Print the list or a model card; UserError for an unknown name. Imports nothing heavy."""
        name = Pretrained.parser().parse_args(arguments).name
        if name is not None:
            print(pretrained.read_card(name), end="")
            return 0
        rows = []
        for name in Pretrained.names():
            weights = pretrained.find(name)
            metadata = pretrained.read_metadata(weights)
            size, card = f"{weights.stat().st_size / 1e6:.1f} MB", metadata["card"]
            rows.append((name, metadata["triptych"]["domain"], size, card["figure"], card["what"]))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())
        if not rows:
            print("no pretrained model comes with this installation")
        return 0


class Configs:
    """`triptych configs [DOMAIN | NAME]`: the shipped settings files, or the text of one."""

    @staticmethod
    def parser() -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser = PlainParser(
            prog="triptych configs",
            usage="triptych configs [DOMAIN | DOMAIN/NAME]",
            description="Without a word: one line for each settings file shipped with Triptych. "
            "With a domain: those of the domain. With DOMAIN/NAME: the text of the "
            "file, to change a copy of it: triptych configs image/digits > my-"
            "digits.yaml. `triptych train DOMAIN --config NAME` takes the name in "
            "place of a file.",
        )
        parser.add_argument("name", nargs="?", metavar="NAME", help="DOMAIN or DOMAIN/NAME.")
        return parser

    @staticmethod
    def names() -> list[str]:
        """Return the names of the domains and of all settings files."""
        known = domains.names()
        return [
            *known,
            *(f"{domain}/{n}" for domain in known for n in configs.find_all(domain)),
        ]

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Print the list or a file; UserError for an unknown name. Imports nothing heavy."""
        name = Configs.parser().parse_args(arguments).name
        known = domains.names()
        if name is not None and name not in known:
            print(text_of(name), end="")
            return 0
        for domain in known if name is None else [name]:
            print_list(domain)
        return 0


def print_list(domain: str) -> None:
    """Print the names of a domain's settings files with their first sentence."""
    files = configs.find_all(domain)
    width = max(map(len, files), default=0)
    free = configs.without_files(domain)
    print(f"{domain}: triptych train {domain} --config NAME (* reads no files of yours)")
    for name, file in files.items():
        mark = "*" if name in free else " "
        print(f"{mark} {name:<{width}}  {configs.first_sentence(file)}")


def text_of(name: str) -> str:
    """Return the text of the file that a word such as `image/digits` names."""
    for domain in domains.names():
        if domain in name.split("/") and (file := configs.find(domain, name)):
            return file.read_text(encoding="utf-8")
    raise configs.unknown(name)
