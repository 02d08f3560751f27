"""`triptych data make`: the folder of a recipe, its provenance, and what is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from triptych.tools import recipes
from triptych.tools.configs import FOLDER
from triptych.types import Checked

SMALL = ["--train_size", "30", "--test_digits", "[3]"]


def test_a_folder_has_its_files_and_how_they_were_made(cli, tmp_path: Path) -> None:
    out = tmp_path / "new/digits"
    cli("data", "make", "digits", *SMALL, "--out", out)
    made = json.loads((out / recipes.PROVENANCE).read_text(encoding="utf-8"))
    assert made["options"]["train_size"] == 30
    assert made["options"]["test_digits"] == [3]
    written = {str(p.relative_to(out)) for p in out.rglob("*.tsv")}
    assert written == set(made["files"])
    for name, of_file in made["files"].items():
        content = (out / name).read_bytes()
        assert of_file["sha256"] == hashlib.sha256(content).hexdigest()
        assert of_file["lines"] == content.count(b"\n")
    cli("data", "make", "digits", *SMALL, "--out", tmp_path / "again")
    same = [(p, tmp_path / "again" / p.relative_to(out)) for p in out.rglob("*.*")]
    assert all(one.read_bytes() == other.read_bytes() for one, other in same)


def test_what_is_wrong_is_one_sentence(refused, cli, tmp_path: Path) -> None:
    make = ["data", "make", "digits", "--out", tmp_path / "digits"]
    refused("data", "make", says=["NAME"])
    refused("data", "make", "digit", says=["did you mean digits?"])
    refused(*make, "--max_digit", 3, says=["did you mean --max_digits?"])
    refused(*make, "--max_digits", 0, says=["max_digits", "at least 1"])
    refused(*make, "--min_digits", 11, says=["max_digits is 10", "min_digits 11"])
    (tmp_path / "digits").mkdir()  # an empty folder is replaced
    cli(*make, *SMALL)
    refused(*make, says=["already holds", "--out"])
    refused(*make[:-1], tmp_path / "digits/recipe.json/x", says=["is a file"])


def test_a_recipe_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, refused, tmp_path: Path
) -> None:
    digits = recipes.load("digits")
    broken = SimpleNamespace(
        __doc__="", Options=digits.Options, main=lambda options: iter([("a.tsv", [("a", "b\tc")])])
    )
    monkeypatch.setattr(recipes, "load", lambda name: broken)
    refused("data", "make", "digits", "--out", tmp_path / "x", says=["a.tsv, line 1 has", "tab"])
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True, kw_only=True)
class WithConfig(Checked):
    """Options of a recipe that reads the data of a config."""

    config: str = "ko-zh-en"


def test_config_is_an_option_of_the_recipe(
    monkeypatch: pytest.MonkeyPatch, cli, tmp_path: Path
) -> None:
    """Not the settings file of the command itself."""
    echo = SimpleNamespace(
        __doc__="", Options=WithConfig, main=lambda options: iter([("a.txt", [options.config])])
    )
    monkeypatch.setattr(recipes, "load", lambda name: echo)
    cli("data", "make", "digits", "--config", "numbers-en-de", "--out", tmp_path / "x")
    assert (tmp_path / "x/a.txt").read_text() == "numbers-en-de\n"


def test_every_recipe_is_listed_and_describes_its_options(cli) -> None:
    listed = cli("data", "list").out
    for name in recipes.names():
        assert recipes.about(name) in listed
        assert "--out DIR" in cli("data", "make", name, "--help").out
        assert "licence" in recipes.load(name).__doc__.lower(), "each says under which licence"


def test_configs_name_the_recipes_that_they_need() -> None:
    """In a sentence at the top."""
    assert FOLDER is not None
    texts = [file.read_text(encoding="utf-8") for file in FOLDER.rglob("*.yaml")]
    needed = [(text, name) for text in texts for name in recipes.needed_for(text)]
    for text, name in needed:
        assert f"`triptych data make {name}`" in text.partition("\ndata:")[0]
    assert {"docstrings", "captions"} <= {name for _, name in needed}
    assert recipes.needed_for("data/digits-2 data/docstrings_x mydata/digits") == []
