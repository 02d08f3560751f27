"""`triptych configs [DOMAIN | NAME]`: the shipped settings files, or the text of one."""

from __future__ import annotations

from collections.abc import Sequence

from triptych import domains, shipped_configs
from triptych.errors import UserError, nearest

HELP = """\
usage: triptych configs [DOMAIN | DOMAIN/NAME]

Without a word: one line for each settings file shipped with Triptych. With a domain: those of the
domain. With DOMAIN/NAME: the text of the file, to change a copy of it:

  triptych configs image/digits > my-digits.yaml

`triptych train DOMAIN --config NAME` takes the name in place of a file.
"""


def run(arguments: Sequence[str]) -> int:
    """Print the list or a file; UserError for an unknown name. Imports nothing heavy."""
    if any(argument in ("-h", "--help") for argument in arguments):
        print(HELP, end="")
        return 0
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        raise UserError(
            f"unexpected {arguments[-1]!r} after configs; expected DOMAIN, NAME or nothing"
        )
    known = domains.names()
    if not arguments or arguments[0] in known:
        for domain in arguments or known:
            print_list(domain)
        return 0
    print(text_of(arguments[0]), end="")
    return 0


def print_list(domain: str) -> None:
    """Print the names of a domain's settings files with their first sentence."""
    files = shipped_configs.find_all(domain)
    width = max(map(len, files), default=0)
    free = shipped_configs.without_files(domain)
    print(f"{domain}: triptych train {domain} --config NAME (* reads no files of yours)")
    for name, file in files.items():
        mark = "*" if name in free else " "
        print(f"{mark} {name:<{width}}  {shipped_configs.summary(file)}")


def text_of(name: str) -> str:
    """Return the text of the file that a word such as `image/digits` names."""
    names: dict[str, str] = {}
    for domain in domains.names():
        if domain in name.split("/") and (file := shipped_configs.find(domain, name)):
            return file.read_text(encoding="utf-8")
        names |= {f"{domain}/{short}": short for short in shipped_configs.find_all(domain)}
    shorter = [full for full, short in names.items() if short == name]
    near = shorter[0] if shorter else nearest(name, names)
    meant = f"did you mean {near}?" if near else "triptych configs lists them"
    raise UserError(f"there is no shipped config {name!r}; {meant}")
