"""Mistakes in data, files and folders end in one sentence, exit code 2 and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml


def config(path: Path, source: str, *, trainer: bool = True, **arguments: Any) -> list[Any]:
    content: dict[str, Any] = {
        "data": {"source": {"class_path": f"triptych.domains.{source}", "init_args": arguments}},
        "model": {"transformer": {"n_layers": 1, "d_model": 16, "n_heads": 2}},
        "run": {"wandb": "off"},
        "trainer": {"max_steps": 1, "accelerator": "cpu"},
    }
    path.write_text(yaml.safe_dump(content))
    package = source.partition(".")[0]
    return ["train", {"pictures": "image"}.get(package, package), "--config", path.name]


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("pictures.image_folder.ImageFolder", {"height": 4, "width": 4}),
        ("pictures.sources.MNIST", {}),
        ("pictures.sources.CIFAR10", {}),
        ("music.sources.midi_folder.MidiFolder", {}),
        ("music.sources.chorales.JSBChorales", {}),
        ("translation.sources.ParallelText", {}),
        ("translation.sources.TabSeparated", {"files": {"train": ["pairs.tsv"]}}),
    ],
)
def test_a_missing_data_folder(refused, tmp_path: Path, source: str, arguments: dict) -> None:
    command = config(tmp_path / "c.yaml", source, directory="nowhere/data", **arguments)
    refused(*command, says=["nowhere/data", "does not exist"])


def test_a_folder_of_nothing_but_corrupt_midi(cli, tmp_path: Path) -> None:
    (tmp_path / "midi").mkdir()
    for index in range(4):
        (tmp_path / f"midi/{index}.mid").write_bytes(bytes([index]) * 50)
    command = config(
        tmp_path / "c.yaml", "music.sources.midi_folder.MidiFolder", directory="midi",
        validation_share=0.01, test_share=0.01,
    )  # fmt: skip
    answer = cli(*command)
    assert answer.code == 2
    assert "midi gives no piece for the split train" in answer.err
    assert not (tmp_path / "runs").exists()


class TestTheRunsFolder:
    """The folder is looked at before the data are read."""

    @pytest.fixture
    def train(self, refused, digits_yaml: Path):
        def call(*options: Any, says: list[str]) -> None:
            refused("train", "image", "--config", "digits.yaml", *options, says=says)

        return call

    def test_it_holds_something_that_never_saved(self, train, tmp_path: Path) -> None:
        """Neither answer may send the user to the other."""
        (tmp_path / "runs/run").mkdir(parents=True)
        (tmp_path / "runs/run/metrics.csv").write_text("kept")
        train(says=["runs/run is not empty", "nothing to resume", "--run.name"])
        train("--resume", says=["runs/run is not empty", "nothing to resume", "--run.name"])

    def test_it_is_a_file(self, train, tmp_path: Path) -> None:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs/run").write_text("kept")
        train(says=["runs/run is a file"])

    def test_it_cannot_be_written(self, train, unwritable: None) -> None:
        train(says=["runs/run", "cannot be written", "Permission denied", "--run.directory"])
