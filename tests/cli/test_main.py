"""Words, help and ends: what the thin dispatch does, without a model."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import triptych
from triptych.cli import main as module
from triptych.cli.main import COMMANDS
from triptych.cli.options import parser_of
from triptych.domains import find_domain
from triptych.errors import Interrupted, UserError

HEAVY = ("torch", "numpy", "pytorch_lightning", "matplotlib", "wandb", "torchvision")
DOMAINS = ("image", "music", "translation")


def in_a_new_process(*lines: list[str], cwd: Path) -> list[dict[str, Any]]:
    """Run command lines one after the other; the heavy modules there were after each."""
    code = (
        "import json, sys\n"
        "from triptych.cli.main import main\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    code = main(line)\n"
        f"    heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "    light = 'jsonargparse' not in sys.modules\n"
        "    print('\\n@', json.dumps({'code': code, 'heavy': heavy, 'light': light}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(lines)],
        capture_output=True, text=True, cwd=cwd, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(row[2:]) for row in done.stdout.splitlines() if row.startswith("@ ")]


def test_help_and_quick_answers_import_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "slip.yaml").write_text("model:\n  n_layers: 3\n d_model: 4\n")
    quick = [["--help"], ["--version"], ["train", "--help"], ["evaluat"], ["train", "imag"]]
    quick += [["new-run", "--help"]]
    others = [
        ["pretrained", "--help"],
        ["pretrained", "nothing"],
        ["configs", "nothing"],
        ["data", "fetch", "nothing"],
        ["completion", "--help"],
        ["play", "--help"],
        ["train", "image"],
        ["train", "image", "--config", "nowhere.yaml"],
        ["train", "image", "--config", "slip.yaml"],
        ["evaluate", "image", "--checkpoint", "nowhere.ckpt"],
        ["evaluate", "image", "--checkpont", "nowhere.ckpt"],
        ["sample", "image", "--checkpoint", "nowhere.ckpt", "--out", "out"],
        ["sample", "image", "--checkpoint", "nowhere.ckpt", "--out", "out", "--top_p", "2"],
        ["sample", "music", "--checkpoint", "nowhere.ckpt", "--out", "out"],
        ["sample", "music", "--help"],
        *(["attention", domain, "--help"] for domain in DOMAINS),
        *(["attention", domain, "--checkpoint", "no.ckpt", "--out", "out"] for domain in DOMAINS),
        ["translate", "--checkpoint", "nowhere.ckpt"],
        ["translate", "--checkpoint", "pretrained:nothing"],
        ["play", "--checkpoint", "nowhere.ckpt"],
        ["serve", "--help"],
        ["serve", "--checkpoint", "nowhere.ckpt"],
    ]
    found = in_a_new_process(*quick, *others, cwd=tmp_path)
    assert [row["heavy"] for row in found] == [[]] * len(found)
    assert all(row["light"] for row in found[: len(quick)])
    zero = {"--help", "--version"}
    assert [row["code"] for row in found] == [
        0 if zero & set(line) else 2 for line in quick + others
    ]


def test_version(cli) -> None:
    assert cli("--version").out == f"triptych {triptych.__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trian", "image"], ["'trian'", "did you mean train?"]),
        (["train"], ["train needs a domain", "image|language|music|translation"]),
        (["evaluate", "imgae"], ["'imgae'", "did you mean image?"]),
        (["sample", "translation"], ["has no command sample", "one of gan, image, language"]),
        (["train", "--config", "a"], ["train needs a domain before --config"]),
        (["train", "image", "a.yaml"], ["needs a settings file", "--config FILE"]),
        (["evaluate", "image"], ["are required: checkpoint"]),
        (["sample", "image", "--checkpoint", "a"], ["are required: out"]),
        (["translate", "--n-best", "2"], ["--n-best", "did you mean --n_best?"]),
        (["translate", "translation", "--checkpoint", "a", "more"], ["unknown key more"]),
        (["translate", "A man"], ["'A man' is no domain", "echo 'A man' | triptych translate"]),
        (["translate", __file__], ["is no domain", f"< {__file__} (see also --document)"]),
        (["report", "a", "--ot", "b"], ["--ot", "did you mean --out?"]),
        (["data", "fetch", "mnist", "--ulr", "b"], ["--ulr", "did you mean --url?"]),
        (["play", "a"], ["unknown key a"]),
    ],
    ids=" ".join,
)
def test_a_wrong_word_is_answered_with_the_right_one(
    refused, words: list[str], says: list[str]
) -> None:
    refused(*words, says=says)


@pytest.mark.parametrize("name", [c.name for c in COMMANDS.values() if c.needs_domain])
def test_every_option_has_a_text_and_a_default(name: str) -> None:
    command = COMMANDS[name]
    for domain in command.domains():
        parser = parser_of(name, find_domain(domain))
        for action in parser._actions:
            if action.help == argparse.SUPPRESS or action.dest.startswith("trainer."):
                continue  # Lightning's options are in its own words
            assert len((action.help or "").split()) > 1, f"{domain}: {action.dest}"
            if action.nargs != 0 and action.dest != "config" and action.default != "==SUPPRESS==":
                shown = parser._get_formatter()._expand_help(action)
                assert action.required or "default:" in shown, f"{domain}: {action.dest}"


def test_train_help_says_limits_of_numbers_as_signs(cli) -> None:
    shown = " ".join(cli("train", "translation", "--help").out.split())
    assert "(type: int >= 0, default: 200)" in shown
    assert "(type: float > 0 and <= 1, default: 0.5)" in shown
    assert "Annotated" not in shown


def test_train_help_lists_the_kinds_of_a_part_and_hides_nothing_else(cli) -> None:
    out = cli("train", "image", "--help").out
    for path in ("core.attention.local2d.Local2D", "domains.pictures.image_folder.ImageFolder"):
        assert f"triptych.{path}" in out
    assert "--model CONFIG" not in out
    assert "--trainer.plugins" not in out, "the run sets it itself"
    assert len(out.splitlines()[0]) < 120


class TestEnds:
    """Exit codes of `main`, whatever the command raises."""

    @pytest.fixture
    def ending(self, cli, monkeypatch: pytest.MonkeyPatch):
        def end(error: BaseException):
            def stop(arguments: list[str]) -> int:
                raise error

            monkeypatch.setattr(module, "_dispatch", stop)
            return cli("train")

        return end

    def test_a_users_mistake_is_one_line(self, ending) -> None:
        answer = ending(UserError("two\n  lines"))
        assert (answer.code, answer.err) == (2, "triptych: two lines\n")

    def test_a_stop_has_its_own_code(self, ending) -> None:
        assert ending(Interrupted(15, "ended the run")).code == 143

    def test_ctrl_c(self, ending) -> None:
        assert ending(KeyboardInterrupt()).code == 130

    def test_a_fault_of_triptych_keeps_its_traceback(self, ending) -> None:
        with pytest.raises(RuntimeError, match="a fault"):
            ending(RuntimeError("a fault"))

    def test_a_reader_that_went_away(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [sys.executable, "-m", "triptych", "--help"],
            stdout=writing, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, b"")
