"""The command line: one or two words choose a function, everything after them is its options.

Nothing heavy is imported here: `triptych --help` and the answers to an unknown word, a missing file
or a slip in the YAML come at once. Each function has a flat parser of its own.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triptych import __version__, before_torch, domains
from triptych import cli as commands
from triptych.errors import UserError
from triptych.training.exceptions import TrainingStopped

_HELP = """\
usage: triptych COMMAND [DOMAIN] [OPTIONS]

One Transformer core and three arts on it: translation, images and music.

commands:
  train DOMAIN --config FILE         train a model; every setting of the file is an option too
  evaluate DOMAIN --checkpoint FILE  score a checkpoint on a held-out split
  translate --checkpoint FILE        translate lines from standard input to standard output
  sample DOMAIN --checkpoint FILE    make pictures or pieces of music ({samplers})
  attend DOMAIN --checkpoint FILE    draw what the attention reads ({attenders})
  pretrained [NAME]                  list the models that come with it, or show the card of one

domains: {domains}
FILE may be pretrained:NAME in place of a checkpoint of your own.

`triptych COMMAND [DOMAIN] --help` shows every option with its unit and default.
`triptych --version` prints the version.
"""
_EXIT_USER_ERROR = 2
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done. 2: a mistake of the user, told in one sentence. 130: Ctrl-C. 141: the reader of the
    output went away. A stop of training has its own code (143 for SIGTERM). A fault of Triptych
    itself keeps its traceback.
    """
    before_torch.prepare()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except UserError as error:
        _say(error)
        return _EXIT_USER_ERROR
    except TrainingStopped as error:
        _say(error)
        return error.exit_code
    except SystemExit as stop:  # argparse leaves so after --help and --print_config
        return int(stop.code or 0)
    except KeyboardInterrupt:
        _say("interrupted")
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # What is still buffered has nowhere to go; without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE


def _dispatch(arguments: list[str]) -> int:
    known_domains = _modules_in(domains)
    modules = _modules_in(commands)
    samplers, attenders = (
        [name.removeprefix(start) for name in modules if name.startswith(start)]
        for start in ("sample_", "attend_")
    )
    second_words = {
        "train": known_domains,
        "evaluate": known_domains,
        "translate": None,
        "sample": samplers,
        "attend": attenders,
        "pretrained": None,
    }
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        words = {"domains": known_domains, "samplers": samplers, "attenders": attenders}
        print(_HELP.format(**{name: ", ".join(found) for name, found in words.items()}), end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"triptych {__version__}")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in second_words:
        raise UserError(f"unknown command {command!r}{_instead(command, list(second_words))}")
    allowed = second_words[command]
    if allowed is None:
        return int(importlib.import_module(f"triptych.cli.{command}").run(rest))
    if not rest or rest[0] in ("-h", "--help"):
        usage = f"triptych {command} {'|'.join(allowed)} [OPTIONS]"
        if not rest:
            raise UserError(f"{command} needs a domain after it: {usage}")
        print(f"usage: {usage}\n\n`triptych {command} {allowed[0]} --help` shows the options.")
        return 0
    domain, rest = rest[0], rest[1:]
    if domain not in allowed:
        if domain.startswith("-"):
            usage = f"triptych {command} {'|'.join(allowed)} {domain} ..."
            raise UserError(f"{command} needs a domain before {domain}: {usage}")
        raise UserError(f"unknown domain {domain!r} after {command}{_instead(domain, allowed)}")
    if command in ("sample", "attend"):
        return int(importlib.import_module(f"triptych.cli.{command}_{domain}").run(rest))
    return int(importlib.import_module(f"triptych.cli.{command}").run(domain, rest))


def _modules_in(package: object) -> list[str]:
    """Names of the modules in a package, found without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))  # type: ignore[attr-defined]


def _instead(word: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(word, allowed, n=1)
    return f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(allowed)}"


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any
) -> None:
    """Tell our own warnings as sentences, others as Python does."""
    if Path(filename).is_relative_to(Path(__file__).parent):
        _say(message)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _say(message: object) -> None:
    print(f"triptych: {' '.join(str(message).split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
