"""The table of commands is complete: help, dispatch and completion have the same ones."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from triptych import domains
from triptych.cli import main as module
from triptych.cli.main import COMMANDS, Command, help_text
from triptych.cli.options import parser_of
from triptych.domains import find_domain
from triptych.tools.completion import command_line

SOURCE = Path(module.__file__).parent
SHARED = {"__init__", "main", "options"}
"""Modules of the package that are no commands."""
names = pytest.mark.parametrize("name", COMMANDS)


@names
def test_a_row_has_help_a_module_and_a_place_in_the_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.name == name
    assert len(command.help.split()) > 2
    assert f"\n  {name} {command.usage}" in help_text()
    assert command.help in help_text()


def test_every_module_is_shared_or_a_command() -> None:
    loaded = (command.load() for command in COMMANDS.values())
    modules = (getattr(command, "__module__", None) or command.__name__ for command in loaded)
    of_commands = {m.rpartition(".")[2] for m in modules if m.startswith("triptych.cli.")}
    assert {path.stem for path in SOURCE.glob("*.py")} == SHARED | of_commands


@names
def test_a_command_answers_help(cli, name: str) -> None:
    answer = cli(name, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"usage: triptych {name}" in answer.out
    assert name != "new-run" or "new_run" not in answer.out


@pytest.mark.slow
@pytest.mark.parametrize("name", [c.name for c in COMMANDS.values() if c.needs_domain])
def test_a_command_answers_help_in_every_domain(cli, name: str) -> None:
    for domain in COMMANDS[name].domains():
        answer = cli(name, domain, "--help")
        assert (answer.code, answer.err) == (0, "")
        assert f"usage: triptych {name} {domain}" in answer.out


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    inner = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(next(inner).choices)


@pytest.mark.slow
def test_completion_offers_the_commands_with_their_domains() -> None:
    offered = subcommands(command_line(COMMANDS, parser_of))
    assert list(offered) == list(COMMANDS)
    for command in COMMANDS.values():
        if command.needs_domain:
            assert list(subcommands(offered[command.name])) == command.domains()


def test_a_new_row_is_all_that_a_command_needs(
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shout.py").write_text("def run(words):\n    print(*words)\n    return 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    row = Command("shout", "WORD", "say a word", needs_domain=False, place="shout")
    monkeypatch.setitem(COMMANDS, "shout", row)
    assert "  shout WORD" in cli("--help").out
    assert cli("shout", "a", "b").out == "a b\n"
    assert "did you mean shout?" in cli("shuot").err


def test_a_domain_is_asked_whether_it_offers_a_command(cli) -> None:
    sampling = [name for name in domains.names() if find_domain(name).sample_options is not None]
    assert COMMANDS["sample"].domains() == sampling
    assert 1 < len(sampling) < len(domains.names())
    assert not COMMANDS["sample"].offered_by(find_domain("translation"))
    assert "sample into a folder (not translation)" in cli("--help").out
    assert COMMANDS["translate"].domains() == ["translation"]
    assert COMMANDS["pack"].offered_by(find_domain("translation"))
