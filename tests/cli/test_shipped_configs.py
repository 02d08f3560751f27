"""Shipped settings files by name, and what is said where the data of one are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from triptych import domains
from triptych.cli.train import prepare_data
from triptych.errors import UserError
from triptych.tools import configs

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FILES = [f for f in sorted(CONFIGS.rglob("*.yaml")) if f.parent.name in domains.names()]


def test_every_file_has_a_name_of_its_own() -> None:
    found = [
        (domain, name, file)
        for domain in domains.names()
        for name, file in configs.find_all(domain).items()
    ]
    assert sorted(file for _, _, file in found) == FILES
    for domain, name, file in found:
        assert configs.find(domain, name) == file
        full = file.relative_to(CONFIGS).with_suffix("").as_posix()
        assert configs.find(domain, full) == file


def test_names_become_files_and_existing_paths_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    digits = str(CONFIGS / "image/digits.yaml")
    overlay = str(CONFIGS / "overlays/image/digits-unconditional.yaml")
    given = ["--config", "digits", "--run.seed", "8", "--config=overlays/digits-unconditional"]
    expected = ["--config", digits, "--run.seed", "8", "--config", overlay]
    assert configs.with_files("image", given) == expected
    assert configs.with_files("image", ["--config", "image/digits"]) == expected[:2]
    for others in (["--config", "mine.yaml"], ["--config"], ["--config", "--help"], ["digits"]):
        assert configs.with_files("image", others) == others
    Path("digits").write_text("a file without an ending")
    assert configs.with_files("image", ["--config", "digits"]) == ["--config", "digits"]


@pytest.mark.parametrize(
    ("domain", "word", "says"),
    [
        ("image", "digts", ["'digts' for image", "did you mean image/digits?"]),
        ("image", "music/jsb", ["for image", "did you mean music/jsb?"]),
        ("image", "entirely", ["entirely", "triptych configs"]),
        ("image", "configs/image/digits.yaml", ["did you mean image/digits?"]),
        ("image", "nowhere.yaml", ["nowhere.yaml does not exist"]),
        ("music", "jsb-modrn", ["did you mean music/jsb-modern?"]),
    ],
)
def test_an_unknown_name(refused, domain: str, word: str, says: list[str]) -> None:
    refused("train", domain, "--config", word, says=says)


@pytest.mark.parametrize("domain", domains.names())
def test_a_config_that_reads_no_files_is_marked(cli, domain: str) -> None:
    lines = cli("configs", domain).out.splitlines()[1:]
    marked = {line.split()[1] for line in lines if line.startswith("* ")}
    assert len(lines) == len(configs.find_all(domain))
    for name, file in configs.find_all(domain).items():
        source = yaml.safe_load(file.read_text(encoding="utf-8")).get("data", {}).get("source")
        assert (name in marked) == (bool(source) and "directory" not in str(source)), name


def test_the_text_of_a_file_is_printed(cli, refused) -> None:
    text = (CONFIGS / "image/digits.yaml").read_text(encoding="utf-8")
    assert cli("configs", "image/digits").out == text
    assert cli("configs", "gpu/image/mnist").out.startswith("# MNIST")
    assert "translation:" in cli("configs").out
    refused("configs", "digits", says=["did you mean image/digits?"])
    refused("configs", "image/digts", says=["did you mean image/digits?"])
    refused("configs", "image", "digits", says=["unknown key digits"])


@pytest.mark.parametrize(
    ("domain", "name", "says"),
    [
        ("image", "mnist", ["triptych data fetch mnist", "digits"]),
        ("image", "folder", ["--data.source.directory", "digits"]),
        ("music", "jsb", ["triptych data fetch jsb-chorales"]),
        ("music", "maestro-small", ["triptych data fetch maestro`"]),
        ("translation", "multi30k-en-de", ["triptych data fetch multi30k"]),
        ("language", "lm-multi30k", ["train.en.gz does not exist", "data fetch multi30k"]),
    ],
)
def test_missing_data_are_named_with_the_ways_to_get_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, domain: str, name: str, says: list[str]
) -> None:
    from triptych.config.schema import from_plain

    monkeypatch.chdir(tmp_path)  # where ../shared/data is not
    content = yaml.safe_load((CONFIGS / domain / f"{name}.yaml").read_text(encoding="utf-8"))
    del content["trainer"]
    found = domains.find_domain(domain)
    with pytest.raises(UserError) as caught:
        prepare_data(found, from_plain(found.config_class(), content))
    assert all(part in str(caught.value) for part in says), str(caught.value)
    assert str(caught.value).count("source.directory") == 1, "advice is given once"


def test_missing_files_of_a_recipe_are_named_with_its_command(refused) -> None:
    train = ["train", "language", "--config", "lm-docstrings"]
    refused(*train, says=["data/docstrings/train.txt", "`triptych data make docstrings` writes it"])


def test_a_missing_file_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    from triptych.domains.language.config import Config, DataConfig
    from triptych.domains.language.sources import TextFiles

    config = Config(data=DataConfig(source=TextFiles(str(tmp_path), {"train": ["a.txt"]})))
    for found in ("is empty", "b.txt"):
        with pytest.raises(UserError, match=f"a.txt does not exist.*{found}") as caught:
            prepare_data(domains.find_domain("language"), config)
        assert "--data.source.directory" not in str(caught.value)
        (tmp_path / "b.txt").write_text("Another file.\n", encoding="utf-8")


def test_other_errors_of_data_keep_their_sentence(tmp_path: Path) -> None:
    from triptych.domains.image.config import Config
    from triptych.domains.pictures.config import DataConfig
    from triptych.domains.pictures.sources import MNIST

    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"damaged")
    config = Config(data=DataConfig(source=MNIST(str(tmp_path))))
    with pytest.raises(UserError) as caught:
        prepare_data(domains.find_domain("image"), config)
    assert "--data.source.directory" not in str(caught.value)
