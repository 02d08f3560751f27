"""The command line: the first words choose a command and a domain, the rest are its options.

Imports nothing heavy: `triptych --help` and the refusals of an unknown word, a missing file or a
slip in the YAML appear at once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import triptych
from triptych import domains, shipped_configs
from triptych.cli.commands import find_command, help_lines
from triptych.cli.progress import ProgressLine, end_line
from triptych.errors import TrainingStopped, UserError
from triptych.files.reading import displayed_by

_HELP = """\
usage: triptych COMMAND [DOMAIN] [OPTIONS]

A toolkit for generative Transformers of text, images and music.

commands:
{commands}

domains: {domains}, or the dotted path of an installed package with a
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
    # Before torch is imported: threads that spin while they wait slow down beside other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
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
    return _HELP.format(commands="\n".join(help_lines()), domains=", ".join(domains.names()))


def _dispatch(arguments: list[str]) -> int:
    word, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if word in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    if word in ("-V", "--version"):
        print(f"triptych {triptych.__version__}")
        return 0
    command = find_command(word)
    if not command.needs_domain:
        return int(command.load().run(rest))
    offering = command.domains()
    if len(offering) == 1 and (not rest or rest[0].startswith("-")):
        rest = [*offering, *rest]
    usage = f"triptych {word} {'|'.join(offering)} [OPTIONS]"
    if rest and rest[0] in ("-h", "--help"):
        print(f"usage: {usage}\n\n`triptych {word} {offering[0]} --help` shows the options.")
        return 0
    if not rest or rest[0].startswith("-"):
        where = f"before {rest[0]}" if rest else "after it"
        raise UserError(f"{word} needs a domain {where}: {usage}")
    domain, rest = domains.find_domain(rest[0]), rest[1:]
    if not command.offered_by(domain):
        raise UserError(
            f"the domain {domain.name} has no command {word}; expected one of {', '.join(offering)}"
        )
    if command.has_settings:
        rest = shipped_configs.with_files(domain.name, rest)
    return int(command.load().run(domain, rest))


def _say(message: object) -> None:
    end_line()
    print(f"triptych: {' '.join(str(message).split())}", file=sys.stderr)
