"""What people type: `~` that no shell expands, words of other toolkits, outputs that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import triptych
from triptych.config.files import at_home
from triptych.decoding.sampling import SampleRequest
from triptych.errors import UserError, nearest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_home_folder_of_options_and_settings(
    cli: Any, home: Path, image_checkpoint: Path, digits_yaml: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load(digits_yaml.read_text())
    content["run"] |= {"directory": "~/all", "start": {"init_from": "~/m.ckpt"}}
    (home / "my.yaml").write_text(yaml.safe_dump(content))
    (home / "m.ckpt").write_bytes(image_checkpoint.read_bytes())
    assert cli("train", "image", "--config=~/my.yaml", "--run.name", "a").code == 0
    assert (home / "all/a/checkpoints/last.ckpt").is_file()
    assert cli("sample", "image", "--checkpoint=~/m.ckpt", "--count", 1, "--out=~/s").code == 0
    assert (home / "s/grid.png").is_file()
    assert cli("report", "~/all/a", "--out=~/r.html").code == 0
    assert (home / "r.html").is_file()
    assert not (tmp_path / "~").exists()
    assert triptych.load("~/m.ckpt").domain == "image"


def test_only_a_beginning_names_the_home_folder(home: Path) -> None:
    assert at_home({"a": ["~/x", "~", "a~/x"], "b": 1}) == {"a": [f"{home}/x", "~", "a~/x"], "b": 1}


COMMANDS = ([], ["--help"], ["configs"])
RUN = [sys.executable, "-c", "import sys; from triptych.cli.main import main; sys.exit(main())"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize("words", COMMANDS, ids=str)
def test_a_full_disk_behind_the_output_is_one_sentence(words: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*RUN, *words], stdout=full, stderr=subprocess.PIPE, env=environment, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"triptych: standard output cannot be written: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(("closed", "code"), [(">&-", 2), ("2>&-", 0)])
def test_a_closed_output_is_no_traceback(closed: str, code: int) -> None:
    command = f'"$0" -c "$1" configs {closed}'
    done = subprocess.run(["sh", "-c", command, *RUN[::2]], capture_output=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stderr.count(b"\n") == (code > 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["generate", "image"], "did you mean sample?"),
        (["new_run"], "did you mean new-run?"),
        (["sample", "image", "--checkpoint", "x", "--out", "y", "--class", "3"], "mean --label?"),
        (["train", "image", "--config", "digits", "--lr", "1"], "mean --optim.learning_rate?"),
    ],
)
def test_words_of_other_toolkits(words: list[str], says: str, refused: Callable[..., str]) -> None:
    refused(*words, says=[says])


def test_a_synonym_is_no_word_that_is_unknown_here() -> None:
    assert nearest("generate", ["train", "report"]) is None


def test_a_module_that_is_not_found(refused: Callable[..., str], digits_yaml: Path) -> None:
    words = ("--model.transformer.attention", "my_own_module.Sparse")
    refused("train", "image", "--config", digits_yaml, *words, says=["my_own_module", "PYTHONPATH"])
    ours = ("--model.transformer.attention", "triptych.core.attention.ful.Full")
    refused("train", "image", "--config", digits_yaml, *ours, says=["did you mean"])
    plugin = ("average", "x.ckpt", "--out", "y.ckpt", "--plugin", "my_own_module")
    refused(*plugin, says=["x.ckpt"])


def test_another_batch_size_on_resume_is_named(cli: Any, digits_yaml: Path) -> None:
    words = ("train", "image", "--config", digits_yaml)
    assert cli(*words).code == 0
    answer = cli(*words, "--resume", "--data.batch_size", 5)
    assert answer.code == 2
    assert "data.batch_size" in answer.err


@pytest.mark.parametrize("count", [0, -1])
def test_no_sample_is_refused(count: int, image_checkpoint: Path) -> None:
    with pytest.raises(UserError, match="count"):
        SampleRequest.of(count)
    with pytest.raises(UserError, match="count"):
        triptych.load(image_checkpoint).sample(count)


def test_a_line_that_is_no_text_is_named() -> None:
    with pytest.raises(TypeError, match="line 2"):
        triptych.load("pretrained:multi30k-en-de").translate(["A dog.", None])
