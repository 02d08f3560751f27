"""The catalogue of public data sets, and the command that lists and fetches them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from server import Files, serving

from triptych.cli.main import main
from triptych.tools import configs
from triptych.tools.download import catalogue
from triptych.tools.download.fetch import is_there

SETS = catalogue.read()


@pytest.mark.parametrize("data", SETS.values(), ids=lambda data: data.name)
def test_an_entry_can_be_fetched_and_checked(data: catalogue.DataSet) -> None:
    assert data.address.startswith("https://")
    assert not data.address.endswith("/")
    for file in data.files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size > 0
    assert len({file.name for file in data.files}) == len(data.files)
    assert data.config in configs.find_all(data.domain)
    assert data.config not in configs.without_files(data.domain)


@pytest.mark.parametrize("name", ["mnist", "multi30k"])
def test_an_entry_is_of_the_files_that_were_tried(name: str, shared_data: Path) -> None:
    assert all(is_there(shared_data / name, file) for file in SETS[name].files)


def test_a_folder_is_recognised_by_its_name() -> None:
    for folder, name in (("a/mnist", "mnist"), ("../cifar-10-subset/", "cifar-10")):
        found = catalogue.of_folder(folder)
        assert found is not None
        assert found.name == name
    assert catalogue.of_folder("pictures/mnistlike") is None


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        f"few:\n  about: one file\n  terms: free\n  domain: image\n  config: mnist\n"
        f"  address: https://nowhere.invalid\n  files:\n"
        f"    - {{name: a.gz, bytes: 3, sha256: {hashlib.sha256(b'abc').hexdigest()}}}\n"
    )
    (tmp_path / "catalogue.yaml").write_text(text)
    few = catalogue.read(tmp_path / "catalogue.yaml")
    monkeypatch.setattr(catalogue, "read", lambda: few)
    assert main(["data", "list"]) == 0
    assert "one file" in capsys.readouterr().out
    with serving(Files({"/a.gz": b"abc"})) as files:
        assert main(["data", "fetch", "few", "--url", files.address]) == 0
    assert (tmp_path / "data/few/a.gz").read_bytes() == b"abc"
    command = capsys.readouterr().out.split()
    assert command[:5] == ["triptych", "train", "image", "--config", "mnist"]
    assert main(["data", "fetch", "fwe"]) == 2
    assert "did you mean few?" in capsys.readouterr().err
    assert main(["data", "fetch"]) == main(["data", "lits"]) == main(["data", "list", "x"]) == 2
