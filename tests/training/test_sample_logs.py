"""wandb's files and TensorBoard's event files contain the same samples and metrics."""

from __future__ import annotations

import csv
import json
import math
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from toy_task import ToyTask, toy_run
from wandb_files import records_of, wandb_records

from triptych.cli.main import main
from triptych.training.run.resume import write_config
from triptych.training.run.settings import LogConfig
from triptych.training.wandb_logger import add_to_run

pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")

ROWS = [["source", "translation", "chrF"], ["a | b <c>", "x", "12.5"]]
SCALARS = {
    "train/loss",
    "train/learning_rate",
    "train/gradient_norm",
    "gradient_norm/first",
    "gradient_norm/last",
    "time/tokens_per_s",
    "val/nats_per_token",
}


class Shows(ToyTask):
    """Write one file of each kind."""

    def log_samples(self, folder: Path) -> None:
        with (folder / "words.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(ROWS)
        Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(folder / "grid.png")
        for number, size in enumerate([(5, 4), (3, 6)]):
            Image.new("RGB", size, "red").save(folder / f"roll-{number:02d}.png")
        with wave.open(str(folder / "piece.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(np.arange(0, 16000, 2, dtype="<i2").tobytes())
        (folder / "piece.mid").write_bytes(b"MThd")
        (folder / "roll.html").write_text("<svg></svg>", encoding="utf-8")


def events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"histograms": 0})  # all of them
    found.Reload()
    return found


@pytest.mark.parametrize(("models", "kept"), [(None, True), (False, False), (True, True)])
def test_models_are_versions_and_the_best_value_is_in_the_summary(
    models: bool | None, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file above the limit is kept only where it is asked for."""
    if models:
        monkeypatch.setattr("triptych.training.wandb_logger.MOST_BYTES", 10)
    logs = {"wandb": "offline", "log": LogConfig(samples=False, wandb_models=models)}
    toy_run(tmp_path / "toy", Shows(), run=logs, max_steps=4, val_check_interval=2)
    artifacts = [each for each in wandb_records(tmp_path / "toy")[1] if each.type == "model"]
    found = {each.manifest.contents[0].path: {*each.aliases} for each in artifacts}
    assert [*found] == ["best.ckpt", "last.ckpt"] * kept
    if kept:
        assert "best" in found["best.ckpt"]
        assert found["last.ckpt"] == {"latest"}, "given last, it is the latest"
    (file,) = (tmp_path / "toy").glob("wandb/offline-run-*/*.wandb")
    metrics = [metric for each in records_of(file) if (metric := each.metric).name]
    assert [metric.summary.min for metric in metrics if metric.name == f"val/{Shows.monitor}"] == [
        True
    ]


def test_a_score_and_a_page_are_added_to_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "toy"
    toy_run(folder, run={"wandb": "offline"}, max_steps=1, val_check_interval=1)
    write_config(folder, {"run": {"name": "toy", "wandb": "offline"}}, 0)
    add_to_run(folder, {"test/nats": 1.5}, b"<p>all</p>")
    import wandb

    wandb.teardown()
    first, second = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    assert first.name == second.name, "the id of the run"
    summaries = [item for each in records_of(second) for item in each.summary.update]
    assert ("test/nats", "1.5") in [(item.key, item.value_json) for item in summaries]
    (page,) = second.parent.glob("files/media/html/report*.html")
    assert "<p>all</p>" in page.read_text(encoding="utf-8")
    score = ["evaluate", "image", "--checkpoint", "pretrained:mnist", "--wandb", "true"]
    assert main(score) == 2
    assert "is not the folder of a run" in capsys.readouterr().err


def test_both_loggers_hold_the_same_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder, logs = tmp_path / "toy", {"wandb": "offline", "log": LogConfig(tensorboard=True)}
    toy_run(folder, Shows(), run=logs, max_steps=4, val_check_interval=2, num_sanity_val_steps=0)

    rows, artifacts = wandb_records(folder)
    assert "wandb:" not in "".join(capfd.readouterr()), "its own lines are off"
    shown = {name: value for row in rows for name, value in row.items()}
    board = events(folder / "tensorboard")
    tags = board.Tags()
    assert shown.keys() >= SCALARS
    assert set(tags["scalars"]) >= SCALARS
    assert set(tags["scalars"]) == {
        name for name, value in shown.items() if isinstance(value, float) and name[0] != "_"
    }
    for name in SCALARS:  # the same values at the same steps
        there = {row["step"]: row[name] for row in rows if name in row}
        here = {event.step: event.value for event in board.Scalars(name)}
        assert here == pytest.approx(there, rel=1e-6)
    for step in range(1, 5):
        (norms,) = [row for row in rows if row["step"] == step and "train/gradient_norm" in row]
        parts = math.hypot(norms["gradient_norm/first"], norms["gradient_norm/last"])
        assert parts == pytest.approx(norms["train/gradient_norm"], rel=1e-5)

    (media,) = folder.glob("wandb/offline-run-*/files")

    def stored(name: str) -> Path:
        return media / shown[name]["path"]

    table = json.loads(stored("samples/words").read_text(encoding="utf-8"))
    assert [table["columns"], *table["data"]] == ROWS
    grids = [row["samples/grid"] for row in rows if "samples/grid" in row]
    rolls = [row["samples/roll"] for row in rows if "samples/roll" in row]
    assert [each["captions"] for each in grids] == [["grid"]] * 2
    assert [each["captions"] for each in rolls] == [["roll-00", "roll-01"]] * 2, "a gallery"
    assert Image.open(media / grids[-1]["filenames"][0]).size == (4, 4)
    for file, (width, height) in zip(rolls[-1]["filenames"], [(5, 4), (3, 6)], strict=True):
        image = Image.open(media / file)
        assert image.size == (5, 6), "one size for all"
        red = [(x, y) for x in range(5) for y in range(6) if image.getpixel((x, y)) == (255, 0, 0)]
        assert red == [(x, y) for x in range(width) for y in range(height)]
    (samples,) = {row["_step"] for row in rows if row["step"] == 4 and "samples/words" in row}
    (at,) = {row["_step"] for row in rows if row["step"] == 4 and "samples/grid" in row}
    assert samples == at, "all of a validation are one step of wandb's slider"
    original = folder / "samples/step-00000004/piece.wav"
    assert shown["samples/piece-sound"]["caption"] == "piece"
    assert stored("samples/piece-sound").read_bytes() == original.read_bytes()
    assert "<svg></svg>" in stored("samples/roll-page").read_text(encoding="utf-8")
    midi = [artifact for artifact in artifacts if artifact.type == "midi"]
    assert [[e.path for e in each.manifest.contents] for each in midi] == [["piece.mid"]] * 2
    assert [{*each.aliases} for each in midi] == [{"latest", "step-2"}, {"latest", "step-4"}]

    (text,) = [
        event.tensor_proto.string_val[0].decode()
        for event in board.Tensors("samples/words/text_summary")
        if event.step == 4
    ]
    assert text.splitlines()[2] == "| a &#124; b &lt;c> | x | 12.5 |"
    assert {"samples/roll-00", "samples/roll-01"} <= set(tags["images"])
    image = board.Images("samples/grid")[-1]
    assert (image.step, image.width, image.height) == (4, 4, 4)
    sound = board.Audio("samples/piece-sound")[-1]
    assert (sound.sample_rate, sound.length_frames) == (8000, 8000)
    places = board.Tensors("samples/midi/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert "piece.mid" in places


def test_a_resumed_run_replaces_its_later_steps(tmp_path: Path) -> None:
    from triptych.training.loggers import open_tensorboard

    first = open_tensorboard(tmp_path, keep_until=0)
    for step in range(1, 6):
        first.log_metrics({"a": 1.0}, step)
    first.finalize("failed")
    second = open_tensorboard(tmp_path, keep_until=3)
    second.log_metrics({"a": 2.0}, 4)
    second.finalize("success")
    values = [(event.step, event.value) for event in events(tmp_path / "tensorboard").Scalars("a")]
    assert values == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0)]
