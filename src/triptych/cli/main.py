"""The command line: the first words choose a command and a domain, the rest are its options.

Imports nothing heavy: `triptych --help` and the refusals of an unknown word, a missing file or a
slip in the YAML appear at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence

import triptych
from triptych import domains, shipped_configs
from triptych.cli.progress import ProgressLine, end_line
from triptych.domains.base import Domain
from triptych.domains.reading import displayed_by
from triptych.errors import TrainingStopped, UserError, meant

COMMANDS = (
    "train",
    "new-run",
    "pack",
    "evaluate",
    "translate",
    "sample",
    "attention",
    "pretrained",
    "explain",
    "complexity",
    "report",
    "export",
    "play",
    "configs",
    "data",
    "completion",
)
ALONE = ("pretrained", "explain", "report", "export", "play", "configs", "data", "completion")
"""Commands without a domain."""
WITH_SETTINGS = ("train", "pack", "complexity")
"""Commands that read settings files."""

_HELP = """\
usage: triptych COMMAND [DOMAIN] [OPTIONS]

A toolkit for generative Transformers of text, images and music.

commands:
  train DOMAIN --config FILE          train a model; every setting of the file is an option too
  new-run DOMAIN --data DIR --out F   look at your data and write a settings file for them
  pack DOMAIN --config F --out FOLDER write data larger than memory into files for training
  evaluate DOMAIN --checkpoint FILE   score a checkpoint on a held-out split
  translate --checkpoint FILE         translate lines from standard input to standard output
  sample DOMAIN --checkpoint FILE     sample into a folder ({sample})
  attention DOMAIN --checkpoint FILE  draw attention weights ({attention})
  pretrained [NAME]                   list the models shipped with Triptych, or describe one
  configs [DOMAIN | NAME]             list the settings files shipped with Triptych, or print one
  data list | fetch NAME              list public data sets, or download one
  completion bash|zsh|fish            print a script that completes words in a shell
  explain NAME --out DIR              draw a figure of the lectures (--list shows their names)
  complexity DOMAIN --config FILE     print and measure what layers and models cost
  report RUN [RUN ...] --out FILE     write an HTML file about runs, side by side
  export CHECKPOINT --format NAME --out FOLDER
                                      write a model for Triptych and other libraries
  play [--checkpoint FILE ...]        use models in the browser: draw, play, translate

domains: {train}, or the dotted path of an installed package with a
domain of its own (see triptych.domains.base)
In place of files of your own, a checkpoint may be pretrained:NAME and a config the NAME of a
shipped one.

`triptych COMMAND [DOMAIN] --help` shows every option with its unit and default.
`triptych --version` prints the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success. 2: bad input, explained in one sentence. 130: Ctrl-C. 141: the reader of the output
    is gone. Training that stops early has its own code (143 for SIGTERM). A fault of Triptych
    itself keeps its traceback.
    """
    log, handler = logging.getLogger("triptych"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("triptych: %(message)s"))
    log.addHandler(handler)
    try:
        with displayed_by(ProgressLine):
            code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except (UserError, TrainingStopped) as error:
        _say(error)
        return error.exit_code
    except SystemExit as stop:  # argparse exits so after --help and --print_config
        return int(stop.code or 0)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130  # 128 + SIGINT, as shells report it
    except BrokenPipeError:
        # The interpreter would complain at exit about buffered output that has no reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # 128 + SIGPIPE
    finally:
        log.removeHandler(handler)


def help_text() -> str:
    """Return the text of `triptych --help`."""
    return _HELP.format(**{command: ", ".join(offering(command)) for command in COMMANDS})


def offering(command: str) -> list[str]:
    """Return the names of Triptych's domains that offer a command."""
    return [name for name in domains.names() if _offers(domains.find_domain(name), command)]


def _offers(domain: Domain, command: str) -> bool:
    return getattr(domain, f"{command.replace('-', '_')}_options", command) is not None


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"triptych {triptych.__version__}")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        instead = meant(command, COMMANDS, f"expected one of {', '.join(COMMANDS)}")
        raise UserError(f"unknown command {command!r}; {instead}")
    if command in ALONE:
        return int(importlib.import_module(f"triptych.cli.{command}").run(rest))
    allowed = offering(command)
    usage = f"triptych {command} {'|'.join(allowed)} [OPTIONS]"
    implied = command == "translate" and len(allowed) == 1
    if implied and (not rest or rest[0].startswith("-")):
        rest = [*allowed, *rest]
    if rest and rest[0] in ("-h", "--help"):
        print(f"usage: {usage}\n\n`triptych {command} {allowed[0]} --help` shows the options.")
        return 0
    if not rest or rest[0].startswith("-"):
        where = f"before {rest[0]}" if rest else "after it"
        raise UserError(f"{command} needs a domain {where}: {usage}")
    domain, rest = domains.find_domain(rest[0]), rest[1:]
    if not _offers(domain, command):
        raise UserError(
            f"the domain {domain.name} has no command {command}; expected one of "
            f"{', '.join(allowed)}"
        )
    if command in WITH_SETTINGS:
        rest = shipped_configs.with_files(domain.name, rest)
    if command in ("sample", "attention"):
        from triptych.cli.options import write_to_folder

        return write_to_folder(command, domain, rest)
    module = importlib.import_module(f"triptych.cli.{command.replace('-', '_')}")
    return int(module.run(domain, rest))


def _say(message: object) -> None:
    end_line()
    print(f"triptych: {' '.join(str(message).split())}", file=sys.stderr)
