"""The completion scripts, asked by the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ANSWERS = {
    "": {"train", "new-run", "configs", "data", "completion"},
    "train ": {"image", "music", "translation", "language"},
    "train image --config dig": {"digits", "digits-super-resolution"},
    "train image --config own": {"own.yaml"},
    "train music --config maestro-s": {"maestro-small"},
    "train image --model.transformer.attention Rela": {"Relative", "RelativeLocal"},
    "train image --optim.sched": {"--optim.schedule"},
    "translate --bea": {"--beam"},
    "new-run translation --source_l": {"--source_language"},
    "data fetch mu": {"multi30k"},
    "configs gan/digits-g": {"gan/digits-gan"},
    "report --ti": {"--title"},
}
NEVER = {"train image --config mae": {"maestro", "maestro-small"}, "data fetch mu": {"mnist"}}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell and a file of the user's."""
    shtab = pytest.importorskip("shtab")
    from triptych.cli.main import COMMANDS
    from triptych.cli.options import parser_of
    from triptych.tools.completion import command_line

    folder = tmp_path_factory.mktemp("shells")
    found = command_line(COMMANDS, parser_of)
    for shell in ("bash", "zsh", "fish"):
        (folder / f"triptych.{shell}").write_text(shtab.complete(found, shell), encoding="utf-8")
    (folder / "own.yaml").write_text("")
    return folder


def ask_bash(folder: Path, line: str) -> set[str]:
    words = " ".join(repr(word) for word in ["triptych", *line.split(" ")])
    code = (
        f"source triptych.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        "_shtab_triptych triptych ${COMP_WORDS[-1]} ${COMP_WORDS[-2]} 2>/dev/null\n"
        "printf '%s\\n' ${COMPREPLY[@]}"
    )
    done = subprocess.run(
        ["bash", "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def ask_fish(folder: Path, line: str) -> set[str]:
    code = f"source triptych.fish; complete -C 'triptych {line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return {row.partition("\t")[0] for row in done.stdout.splitlines()}


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_words_names_options_and_values(scripts: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    ask = {"bash": ask_bash, "fish": ask_fish}[shell]
    for line, expected in ANSWERS.items():
        assert expected <= ask(scripts, line), line
    for line, unwanted in NEVER.items():
        assert not unwanted & ask(scripts, line), line


@pytest.mark.slow
def test_zsh_accepts_its_script(scripts: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    subprocess.run(["zsh", "-n", "triptych.zsh"], cwd=scripts, check=True)


def test_refusals(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    refused("completion", says=["required: shell"])
    refused("completion", "cmd", says=["'bash', 'zsh', 'fish'"])
    monkeypatch.setitem(sys.modules, "shtab", None)
    refused("completion", "bash", says=["pip install 'triptych[completion]'"])
