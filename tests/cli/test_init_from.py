"""A run that starts with the weights of another model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from number_tables import write_numbers

from triptych.training.run.checkpoint import read_checkpoint

DOMAINS = ["image", "translation", "music"]


def best(folder: Path) -> dict[str, Any]:
    return read_checkpoint(folder / "runs/run/checkpoints/best.ckpt")


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_weights_are_those_of_the_other(
    cli, configs, checkpoints: dict[str, Path], tmp_path: Path, domain: str
) -> None:
    start, path = checkpoints[domain], configs(domain, learning_rate=1e-9)
    answer = cli("train", domain, "--config", path, "--run.start.init_from", start)
    assert answer.code == 0, answer.err
    assert f"Starting with the weights of {start}, step 3." in answer.out
    before, after = read_checkpoint(start), best(tmp_path)
    for name, weight in before["state_dict"].items():
        torch.testing.assert_close(after["state_dict"][name], weight, rtol=0, atol=1e-6)
    assert after["triptych"]["vocabulary"] == before["triptych"]["vocabulary"]
    assert after["triptych"]["run"]["start"]["init_from"] == str(start)
    assert after["triptych"]["step"] == 3


def test_a_translator_keeps_its_vocabulary_with_other_sentences(
    cli, configs, translation_checkpoint: Path, tmp_path: Path
) -> None:
    path = configs("translation")
    content = yaml.safe_load(path.read_text())
    other = write_numbers(
        tmp_path / "other", high=99, train_size=40, validation_size=8, test_size=8
    )
    content["data"]["source"]["init_args"]["directory"] = other.directory
    content["data"]["vocabulary_size"] = 300
    path.write_text(yaml.safe_dump(content))
    answer = cli("train", "translation", "--config", path)
    assert answer.code == 0
    own = best(tmp_path)["triptych"]["vocabulary"]
    named = ["--run.name", "tuned", "--run.start.init_from", translation_checkpoint]
    assert cli("train", "translation", "--config", path, *named).code == 0
    kept = read_checkpoint(tmp_path / "runs/tuned/checkpoints/best.ckpt")["triptych"]["vocabulary"]
    assert kept == read_checkpoint(translation_checkpoint)["triptych"]["vocabulary"] != own


def test_other_settings_of_the_model_are_said(cli, configs, image_checkpoint: Path) -> None:
    path = configs("image", transformer={"dropout": 0.25})
    answer = cli("train", "image", "--config", path, "--run.start.init_from", image_checkpoint)
    assert answer.code == 0
    assert (
        f"Other than in {image_checkpoint}: model.transformer.dropout was 0.0, is 0.25."
        in answer.out
    )


def test_a_part_that_is_zero_at_first_is_added_and_trained(
    cli, configs, image_checkpoint: Path, tmp_path: Path
) -> None:
    part = "core.conditioner.above.table.weight"
    more = ["--run.start.init_from", image_checkpoint, "--model.pixels_above", "true"]
    more += ["--optim.optimizer", "AdamW", "--run.finetune.train_only", "[above]"]
    answer = cli("train", "image", "--config", configs("image"), *more)
    assert answer.code == 0, answer.err
    assert f"Starting at zero, without an effect: {part}." in answer.out
    before = read_checkpoint(image_checkpoint)["state_dict"]
    after = best(tmp_path)["state_dict"]
    assert set(after) - set(before) == {f"model.{part}"}
    assert after[f"model.{part}"].any()
    changed = [key for key, weight in before.items() if not torch.equal(after[key], weight)]
    assert not changed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "again"), [("image", True), ("music", False), ("translation", False)]
)
def test_such_a_run_is_resumed_from_its_own_weights(
    cli, configs, checkpoints: dict[str, Path], tmp_path: Path, domain: str, again: bool
) -> None:
    """The other checkpoint may be gone by then, and need not be named again."""
    other = shutil.copy(checkpoints[domain], tmp_path / "other.ckpt")
    config, start = ["--config", configs(domain)], ["--run.start.init_from", other]
    if domain == "translation":  # data that would teach another vocabulary
        config += ["--data.vocabulary_size", 300]
    assert cli("train", domain, *config, *start).code == 0
    other.unlink()
    more = ["--optim.learning_rate", "0.1", "--trainer.max_steps", 6]
    answer = cli("train", domain, *config, *(start if again else []), "--resume", *more)
    assert answer.code == 0, answer.err
    assert "Resuming from step 3" in answer.out
    assert "Starting with" not in answer.out
    more[-1] = 9  # and once more, from a checkpoint of the resumed run
    answer = cli("train", domain, *config, "--resume", *more)
    assert answer.code == 0, answer.err
    assert "init_from was" not in answer.out
    last = read_checkpoint(tmp_path / "runs/run/checkpoints/last.ckpt")
    assert last["triptych"]["step"] == 9


@pytest.mark.parametrize(
    ("domain", "model", "start", "says"),
    [
        ("image", {"d_model": 32}, "image", ["model.transformer.d_model was 16, is 32"]),
        ("music", {"n_heads": 4}, "music", ["model.transformer.n_heads was 2, is 4"]),
        ("image", {}, "music", ["is of the domain music; expected a", "domain image"]),
        ("image", {}, "nowhere.ckpt", ["--run.start.init_from nowhere.ckpt does not exist"]),
        ("image", {}, "mnist", ["mnist does not exist", "pretrained:mnist"]),
    ],
)
def test_what_does_not_fit_is_refused(
    refused,
    configs,
    checkpoints: dict[str, Path],
    domain: str,
    model: dict[str, Any],
    start: str,
    says: list[str],
) -> None:
    path = configs(domain, transformer=model)
    given = checkpoints.get(start, start)
    refused("train", domain, "--config", path, "--run.start.init_from", given, says=says)


def test_music_in_other_symbols_is_refused_before_it_is_read(
    refused, configs, music_run: Any, tmp_path: Path
) -> None:
    content = read_checkpoint(music_run.checkpoint)
    content["triptych"]["vocabulary"]["symbols"].pop()
    torch.save(content, tmp_path / "other.ckpt")
    refused(
        *("train", "music", "--config", configs("music"), "--run.start.init_from", "other.ckpt"),
        says=["'events' of 388", "'events' of 389"],
    )


def test_a_decoder_of_unnamed_depth_is_as_deep_as_the_encoder(
    cli, configs, translation_checkpoint: Path
) -> None:
    path = configs("translation")
    content = yaml.safe_load(path.read_text())
    content["model"]["n_decoder_layers"] = 1
    path.write_text(yaml.safe_dump(content))
    start = ["--run.start.init_from", translation_checkpoint]
    answer = cli("train", "translation", "--config", path, *start)
    assert answer.code == 0, answer.err
