"""The GAN through the command line: trained, scored, sampled, looked into and exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image


@pytest.mark.slow
def test_train_evaluate_sample_attention_and_export(cli, tmp_path: Path) -> None:
    short = ["--trainer.max_steps", 2, "--trainer.val_check_interval", 2, "--run.wandb", "off"]
    sizes = ["--model.channels", 8, "--data.validation_limit", 20]
    answer = cli("train", "gan", "--config", "digits-gan", *short, *sizes)
    assert answer.code == 0, answer.err
    checkpoint = tmp_path / "runs/gan/digits-gan/checkpoints/best.ckpt"
    of = ["gan", "--checkpoint", checkpoint]
    answer = cli("evaluate", *of, "--limit", 20, "--json", "score.json")
    assert answer.code == 0, answer.err
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["domain"] == "gan"
    assert set(score["metrics"]) == {"fid", "real_images_fid", "noise_fid"}
    answer = cli("sample", *of, "--label", 3, "--count", 2, "--out", "images")
    assert answer.code == 0, answer.err
    names = {path.name for path in (tmp_path / "images").iterdir()}
    assert names == {"grid.png", "sample-0000.png", "sample-0001.png"}
    assert Image.open(tmp_path / "images/sample-0000.png").size == (8, 8)
    answer = cli("attention", *of, "--row", 2, "--column", 4, "--out", "looks")
    assert answer.code == 0, answer.err
    (pixel,) = json.loads((tmp_path / "looks/attention.json").read_text())["pixels"]
    assert (pixel["row"], pixel["column"]) == (2, 4)
    answer = cli("export", checkpoint, "--format", "safetensors", "--out", "exported")
    assert answer.code == 0, answer.err
    assert "triptych sample gan --checkpoint" in (tmp_path / "exported/README.md").read_text()
    assert cli("sample", "gan", "--checkpoint", "exported", "--out", "again").code == 0
    answer = cli("sample", "image", "--checkpoint", checkpoint, "--out", "wrong")
    assert answer.code == 2
    assert "is of the domain gan; expected a checkpoint of the domain image" in answer.err
