"""The command line: the table of commands, and `main`, which chooses one by the first words.

Imports nothing heavy: help and the refusals of an unknown word, a missing file or a slip in the
YAML appear at once. The module of a command is imported when the command is used.
"""

import errno
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import triptych
from triptych import domains
from triptych.domains.base import Domain
from triptych.errors import TrainingStopped, UserError, unknown
from triptych.files.progress import ProgressLine, displayed_by, end_line
from triptych.tools import configs


@dataclass(frozen=True)
class Command:
    """A command.

    Its module, or an object in it, has a function `run` of the options, with `needs_domain` after
    the domain; in `data` of the words that follow. Or the object is the class of the options, whose
    method `run` does the work, with `has_settings` for a domain, its settings and the options of
    Lightning's Trainer; its `overview`, if any, serves a command without words. Where a name out of
    a list can follow, a function `names` returns it.
    """

    name: str
    """Word of the command line."""
    usage: str
    """Words that follow, for the list of commands."""
    help: str
    """What it does, in one line."""
    needs_domain: bool = True
    """Whether the name of a domain follows."""
    has_settings: bool = False
    """Whether it reads settings files, so that --config also takes the name of a shipped one."""
    place: str = ""
    """Module, with `:` an object in it; by default the module of the command's name in cli."""

    def load(self) -> Any:
        """Import the module and return it, or its object."""
        return resolve_name(self.place or f"triptych.cli.{self.name.replace('-', '_')}")

    def run(self, words: list[str], domain: Domain | None = None) -> None:
        """Run the command with the words after its name and domain."""
        found, parsers = self.load(), resolve_name("triptych.cli.options")
        if self.has_settings:
            config, options, trainer = parsers.read_run(self.name, words, domain)
            options.run(domain, config, trainer)
        elif domain is not None:
            found.run(domain, parsers.read_options(self.name, words, domain))
        elif not isinstance(found, type):
            found.run(words)
        elif not words and hasattr(found, "overview"):
            found.overview()
        else:
            parsers.read_options(self.name, words).run()

    @property
    def options(self) -> str:
        """Attribute of a domain with the class of the options, where they are not its settings."""
        return f"{self.name.replace('-', '_')}_options"

    def offered_by(self, domain: Domain) -> bool:
        """Return whether a domain offers the command; every one does where settings are read."""
        return self.has_settings or getattr(domain, self.options) is not None

    def domains(self) -> list[str]:
        """Return the names of Triptych's domains that offer the command."""
        return [n for n in domains.names() if self.offered_by(domains.find_domain(n))]


COMMANDS = {
    command.name: command
    for command in (
        Command("train", "DOMAIN --config FILE", has_settings=True,
                place="triptych.cli.train:Train",
                help="train a model; every setting of the file is an option too"),
        Command("new-run", "DOMAIN --data DIR --out F", place="triptych.tools.new_run",
                help="look at your data and write a settings file for them"),
        Command("pack", "DOMAIN --config F --out FOLDER", has_settings=True,
                place="triptych.cli.train:Pack",
                help="write data larger than memory into files for training"),
        Command("evaluate", "DOMAIN --checkpoint FILE",
                help="score a checkpoint on a held-out split"),
        Command("translate", "--checkpoint FILE",
                help="translate lines from standard input to standard output"),
        Command("sample", "DOMAIN --checkpoint FILE", place="triptych.cli.models:SAMPLE",
                help="sample into a folder"),
        Command("attention", "DOMAIN --checkpoint FILE", place="triptych.cli.models:ATTENTION",
                help="draw attention weights"),
        Command("pretrained", "[NAME]", needs_domain=False, place="triptych.cli.shipped:Pretrained",
                help="list the models shipped with Triptych, or describe one"),
        Command("configs", "[DOMAIN | DOMAIN/NAME]", needs_domain=False,
                place="triptych.tools.configs:Configs",
                help="list the settings files shipped with Triptych, or print one"),
        Command("data", "list | fetch NAME | make NAME", needs_domain=False,
                help="list data sets and recipes, download one or run one"),
        Command("completion", "bash|zsh|fish", needs_domain=False,
                place="triptych.cli.shipped:Completion",
                help="print a script that completes words in a shell"),
        Command("explain", "[NAME --out DIR]", needs_domain=False,
                place="triptych.tools.explain.figure:ExplainOptions",
                help="list the figures of the lectures, or draw one"),
        Command("learn", "list | start PAGE | check FILE", needs_domain=False,
                place="triptych.tools.learn:Learn",
                help="exercises of the pages to learn from, and their check"),
        Command("complexity", "DOMAIN --config FILE", has_settings=True,
                place="triptych.cli.train:Complexity",
                help="print what a model costs on one batch"),
        Command("compare", "FILE [--out FOLDER]", needs_domain=False,
                place="triptych.cli.compare:Compare",
                help="train variants with several seeds, and test their differences"),
        Command("report", "RUN [RUN ...] --out FILE", needs_domain=False,
                place="triptych.tools.report:Report",
                help="write an HTML file about runs, side by side"),
        Command("export", "CHECKPOINT --format NAME --out FOLDER", needs_domain=False,
                place="triptych.tools.export:Export",
                help="write a model for Triptych and other libraries"),
        Command("average", "CHECKPOINT ... --out FILE", needs_domain=False,
                place="triptych.cli.models:Average",
                help="write a checkpoint with the mean of the weights of some"),
        Command("play", "[--checkpoint FILE ...]", needs_domain=False,
                place="triptych.tools.play:Play",
                help="use models in the browser: draw, play, translate"),
        Command("serve", "--checkpoint FILE [FILE ...]", needs_domain=False,
                place="triptych.tools.serve:Serve",
                help="serve models to programs by HTTP: translate, sample"),
    )
}  # fmt: skip
"""The commands by name, in the order of the help."""

COLUMN = 36
"""Where the help of a command begins, after the indent of two."""


HELP = """\
usage: triptych COMMAND [DOMAIN] [OPTIONS]

A toolkit for generative Transformers of text, images and music.

commands:
{commands}

domains: {domains}, or the dotted path of an installed package with a
domain of its own (see triptych.domains.base)
In place of files of your own, a checkpoint may be pretrained:NAME and a config the NAME of a
shipped one. For data of your own begin with new-run.

`triptych COMMAND [DOMAIN] --help` shows every option with its unit and default.
`triptych --version` prints the version.
"""


def help_text() -> str:
    """Return the text of `triptych --help`, with the domains that lack a command after its help."""
    known = domains.names()
    lines = []
    for command in COMMANDS.values():
        words = f"{command.name} {command.usage}"
        offering = command.domains() if command.needs_domain else known
        lacking = [name for name in known if name not in offering]
        some = f" (not {', '.join(lacking)})" if lacking and len(offering) > 1 else ""
        if len(words) >= COLUMN:
            lines.append(f"  {words}")
            words = ""
        lines.append(f"  {words:<{COLUMN}}{command.help}{some}")
    return HELP.format(commands="\n".join(lines), domains=", ".join(known))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success. 2: bad input, explained in one sentence. 130: Ctrl-C. 141: the reader of the output
    is gone. 1: the output cannot be written, as on a full disk. Training that stops early has its
    own code (143 for SIGTERM). A fault of Triptych itself keeps its traceback.
    """
    # Before torch is imported: threads that spin while they wait slow down beside other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.stderr is None:  # closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    log, handler = logging.getLogger("triptych"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("triptych: %(message)s"))
    log.addHandler(handler)
    try:
        if sys.stdout is None:
            raise UserError("standard output is closed; expected a terminal, a file or a pipe")
        with displayed_by(ProgressLine):
            _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return 0
    except (UserError, TrainingStopped) as error:
        _say(error)
        return error.exit_code
    except SystemExit as stop:  # the parser exits so after --help and --print_config
        return int(stop.code or 0)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130  # 128 + SIGINT, as shells report it
    except BrokenPipeError:
        _drop_output()
        return 141  # 128 + SIGPIPE
    except OSError as error:
        if _can_print() and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = error.filename or ("a file" if _can_print() else "standard output")
        _say(f"{where} cannot be written: {error.strerror}")
        _drop_output()
        return 1
    finally:
        log.removeHandler(handler)


def _can_print() -> bool:
    """Return whether standard output can be written, after an error of writing; ends a line."""
    try:
        print(flush=True)
    except OSError:
        return False
    return True


def _drop_output() -> None:
    """Leave out what waits for standard output, of which the interpreter would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> None:
    word, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if word in ("-h", "--help", "help"):
        print(help_text(), end="")
        return
    if word in ("-V", "--version"):
        print(f"triptych {triptych.__version__}")
        return
    if word not in COMMANDS:
        raise unknown("command", word, COMMANDS)
    command = COMMANDS[word]
    if not command.needs_domain:
        command.run(rest)
        return
    offering = command.domains()
    if len(offering) == 1 and (not rest or rest[0].startswith("-")):
        rest = [*offering, *rest]
    usage = f"triptych {word} {'|'.join(offering)} [OPTIONS]"
    if rest and rest[0] in ("-h", "--help"):
        print(f"usage: {usage}\n\n`triptych {word} {offering[0]} --help` shows the options.")
        return
    if not rest or rest[0].startswith("-"):
        where = f"before {rest[0]}" if rest else "after it"
        raise UserError(f"{word} needs a domain {where}: {usage}")
    try:
        domain, rest = domains.find_domain(rest[0]), rest[1:]
    except UserError as error:
        if len(offering) > 1:
            raise
        lines = f"echo {rest[0]!r} | triptych {word} --checkpoint FILE"
        if os.path.isfile(rest[0]):
            lines = f"triptych {word} --checkpoint FILE < {rest[0]} (see also --document)"
        raise UserError(
            f"{rest[0]!r} is no domain; {word} reads lines from standard input: {lines}"
        ) from error
    if not command.offered_by(domain):
        raise UserError(
            f"the domain {domain.name} has no command {word}; expected one of {', '.join(offering)}"
        )
    if command.has_settings:
        rest = configs.with_files(domain.name, rest)
    command.run(rest, domain)


def _say(message: object) -> None:
    end_line()
    print(f"triptych: {' '.join(str(message).split())}", file=sys.stderr)
