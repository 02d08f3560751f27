"""A classifier of images through the command line: trained, scored, used and exported."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from PIL import Image


def test_train_evaluate_label_and_export(cli, tmp_path: Path) -> None:
    short = ["--trainer.max_steps", 60, "--trainer.val_check_interval", 30, "--run.wandb", "off"]
    sizes = ["--model.transformer.n_layers", 1, "--model.transformer.d_model", 32]
    answer = cli("train", "vision", "--config", "digits-vit", *short, *sizes)
    assert answer.code == 0, answer.err
    checkpoint = tmp_path / "runs/vision/digits-vit/checkpoints/best.ckpt"
    of = ["vision", "--checkpoint", checkpoint]
    answer = cli("evaluate", *of, "--json", "score.json")
    assert answer.code == 0, answer.err
    assert "accuracy of simple models: nearest_mean 0.9" in answer.out
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["metrics"]["nats_per_image"] < math.log(10), "it has learnt something"
    for dtype in ("int8", "bf16"):
        assert cli("evaluate", *of, "--dtype", dtype).code == 0
    (tmp_path / "mine").mkdir()
    for name, size in (("one", 8), ("two", 8)):
        Image.fromarray(np.zeros((size, size), np.uint8)).save(tmp_path / f"mine/{name}.png")
    answer = cli("sample", *of, "--pictures", "mine", "--out", "labels")
    assert answer.code == 0, answer.err
    assert "2 labels" in answer.err
    rows = (tmp_path / "labels/labels.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == ["mine/one.png", "mine/two.png"]
    answer = cli("export", checkpoint, "--format", "safetensors", "--out", "exported")
    assert answer.code == 0, answer.err
    card = (tmp_path / "exported/README.md").read_text()
    assert "triptych sample vision --checkpoint FOLDER --out samples --pictures PICTURES" in card
    of = ["vision", "--checkpoint", "exported", "--pictures", "mine"]
    assert cli("sample", *of, "--out", "again").code == 0
    assert (tmp_path / "again/labels.tsv").read_text() == "\n".join([*rows, ""])


def test_images_without_classes_and_patches_that_do_not_fit_are_refused(
    cli, refused, tmp_path: Path
) -> None:
    for split in ("train", "validation"):
        (tmp_path / "flat" / split).mkdir(parents=True)
        for level in range(3):
            pixels = np.array([[0, 255 - level]], np.uint8).repeat(8, 0).repeat(4, 1)
            Image.fromarray(pixels).save(tmp_path / f"flat/{split}/{level}.png")
    source = ["--data.source", "ImageFolder", "--data.source.directory", "flat"]
    source += ["--data.source.height", 8, "--data.source.width", 8]
    answer = cli("train", "vision", "--config", "digits-vit", *source)
    assert answer.code == 2
    assert "the images have no classes" in answer.err
    refused("train", "vision", "--config", "digits-vit", "--model.patch", 3, says=["patch is 3"])
