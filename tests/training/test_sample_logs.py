"""wandb's files contain the samples and metrics of a run."""

from __future__ import annotations

import csv
import json
import math
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_task import ToyTask, toy_run
from toy_task import rows as read_rows
from wandb_files import records_of, wandb_records

from triptych.cli.main import main
from triptych.training.run.resume import write_config
from triptych.training.run.settings import LogConfig
from triptych.training.wandb_logger import add_to_run

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


def test_wandb_has_the_metrics_and_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "toy"
    toy_run(
        folder,
        Shows(),
        run={"wandb": "offline"},
        max_steps=4,
        val_check_interval=2,
        num_sanity_val_steps=0,
    )

    rows, artifacts = wandb_records(folder)
    assert "wandb:" not in "".join(capfd.readouterr()), "its own lines are off"
    shown = {name: value for row in rows for name, value in row.items()}
    assert shown.keys() >= SCALARS
    for row in read_rows(folder):  # the same values at the same steps
        step = int(row.pop("step"))
        there = {name: each[name] for each in rows if each["step"] == step for name in each}
        here = {name: float(value) for name, value in row.items() if value}
        assert here == pytest.approx({name: there[name] for name in here})
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
    midi = [artifact for artifact in artifacts if artifact.type == "midi"]
    assert [[e.path for e in each.manifest.contents] for each in midi] == [["piece.mid"]] * 2
    assert [{*each.aliases} for each in midi] == [{"latest", "step-2"}, {"latest", "step-4"}]
