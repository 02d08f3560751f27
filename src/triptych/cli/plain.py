"""Parser of commands with a few options of their own, which needs nothing but argparse."""

from __future__ import annotations

import argparse
from typing import NoReturn

from triptych.errors import UserError


class PlainParser(argparse.ArgumentParser):
    """Argument parser whose errors are UserErrors of one sentence."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("triptych ")
        raise UserError(f"{command}: {message}; `{self.prog} --help` shows the options")
