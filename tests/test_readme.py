"""What the README shows exists and parses."""

from __future__ import annotations

import contextlib
import importlib
import re
import shlex
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.M | re.S)
COMMANDS = [
    shlex.split(line, comments=True)
    for kind, block in BLOCKS
    if kind == "bash"
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]


def test_the_two_commands_come_first() -> None:
    assert [command[0] for command in COMMANDS[:2]] == ["scripts/demo", "scripts/test"]


@pytest.mark.parametrize("script", re.findall(r"\bscripts/\w+", README))
def test_every_script_named_is_there_and_can_be_run(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o111


@pytest.mark.parametrize("path", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_every_file_linked_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"configs/[\w/-]+\.yaml", README))))
def test_every_config_named_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c[0] == "triptych"], ids=lambda c: " ".join(c)[:60]
)
def test_every_option_shown_is_known_to_its_command(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from triptych.cli import main

    words = command[1:2] if command[1] == "translate" else command[1:3]
    with contextlib.suppress(SystemExit):  # argparse leaves so after printing the help
        main([*words, "--help"])
    known = set(re.findall(r"--[\w.]+", capsys.readouterr().out))
    shown = {word for word in command if word.startswith("--")}
    assert shown <= known, shown - known


def test_the_yaml_shown_builds() -> None:
    for kind, block in BLOCKS:
        if kind == "yaml":
            attention = yaml.safe_load(block)["model"]["attention"]
            module, _, name = attention["class_path"].rpartition(".")
            config = getattr(importlib.import_module(module), name)(**attention["init_args"])
            assert config.build(16, 2, (16, 16, 3), causal=True)


def test_the_python_shown_compiles_and_names_what_exists() -> None:
    import triptych

    for kind, block in BLOCKS:
        if kind == "python":
            compile(block, "README.md", "exec")
            for name in re.findall(r"triptych\.(\w+)\(", block):
                assert hasattr(triptych, name)
