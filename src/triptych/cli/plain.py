"""Parser of commands with a few options of their own, which needs nothing but argparse."""

from __future__ import annotations

import argparse
from itertools import takewhile
from typing import Any, NoReturn

from triptych.errors import UserError, nearest

PLUGIN_HELP = (
    "Python module to import first, for a model with classes of its own; a checkpoint by itself "
    "imports nothing outside Triptych."
)


class PlainParser(argparse.ArgumentParser):
    """Argument parser whose errors are UserErrors of one sentence."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; a misspelt option is told before one that is missing."""
        known = self._option_string_actions
        for word in takewhile(lambda word: word != "--", args if self._subparsers is None else ()):
            option = word.partition("=")[0]
            if option.startswith("--") and not any(name.startswith(option) for name in known):
                near = nearest(option, known)
                self.error(f"unknown option {option}" + (f", did you mean {near}?" if near else ""))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("triptych ")
        raise UserError(f"{command}: {message}; `{self.prog} --help` shows the options")
