"""Runs that train a part of a trained model: frozen weights, adapters, another vocabulary."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import triptych
from triptych.config.schema import from_plain
from triptych.domains.music.config import Config as MusicConfig
from triptych.domains.music.task import MusicTrainingModule
from triptych.domains.translation.model import Tokenizers
from triptych.training.callbacks.ema import AVERAGE
from triptych.training.finetune.parts import LoRALinear, is_adapter, matches
from triptych.training.run.checkpoint import core_weights, read_checkpoint

DOMAINS = ["image", "translation", "music"]


def saved(folder: Path, which: str = "last") -> dict[str, Any]:
    return read_checkpoint(folder / f"runs/run/checkpoints/{which}.ckpt")


def weights(content: dict[str, Any]) -> dict[str, Tensor]:
    return core_weights(content["state_dict"])


def assert_frozen(
    before: dict[str, Tensor], after: dict[str, Tensor], trained: Callable[[str], bool]
) -> None:
    """Every weight outside of the trained part is bit-equal, and every weight in it differs."""
    assert any(map(trained, before)) < len(before)
    for name, weight in before.items():
        assert torch.equal(weight, after[name]) != trained(name), name


@pytest.mark.parametrize(
    "optim",
    [
        pytest.param({"optimizer": "AdamW", "ema_decay": 0.5}, id="adamw"),
        pytest.param({"optimizer": "Muon"}, id="muon", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("domain", DOMAINS)
def test_frozen_weights_stay_bit_equal(
    cli, configs, checkpoints: dict[str, Path], tmp_path: Path, domain: str, optim: dict[str, Any]
) -> None:
    """With weight decay, average, accumulation, and in a resumed run."""
    start = checkpoints[domain]
    named = ["train", domain, "--config", configs(domain, **optim)]
    named += ["--run.start.init_from", start, "--trainer.accumulate_grad_batches", 2]
    named += ["--run.finetune.train_only", "[blocks.0.feed_forward, final_norm]"]
    answer = cli(*named)
    assert answer.code == 0, answer.err
    before = weights(read_checkpoint(start))

    def trained(name: str) -> bool:
        return "final_norm" in name or ".feed_forward." in name

    unique = {weight.data_ptr(): weight for weight in before.values()}.values()
    chosen = sum(weight.numel() for name, weight in before.items() if trained(name))
    assert f"Training {chosen:,} of {sum(w.numel() for w in unique):,} parameters" in answer.out
    for which in ("best", "last"):
        content = saved(tmp_path, which)
        assert_frozen(before, weights(content), trained)
        if optim.get("ema_decay"):
            average = core_weights(content[AVERAGE]["weights"])
            assert set(average) == {name for name in before if trained(name)}
    three = weights(saved(tmp_path))
    answer = cli(*named, "--resume", "--trainer.max_steps", 6)
    assert answer.code == 0, answer.err
    six = saved(tmp_path)
    assert six["triptych"]["step"] == 6
    assert_frozen(three, weights(six), trained)
    states = six["optimizer_states"][0]["state"]
    assert len(states) == sum(map(trained, before))


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_adapters_are_trained_and_the_trained_model_has_none(
    cli, configs, checkpoints: dict[str, Path], tmp_path: Path, domain: str
) -> None:
    start = checkpoints[domain]
    named = ["train", domain, "--config", configs(domain, ema_decay=0.5)]
    named += ["--run.start.init_from", start]
    named += ["--run.finetune.lora_rank", 2, "--run.finetune.lora_alpha", 3]
    answer = cli(*named)
    assert answer.code == 0, answer.err
    before, content = weights(read_checkpoint(start)), saved(tmp_path, "best")
    after = weights(content)
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())
    adapters = {name: weight for name, weight in after.items() if is_adapter(name)}
    assert adapters.keys() == after.keys() - before.keys()
    assert all(weight.any() for weight in adapters.values()), "B begins with zeros"

    trained = triptych.load(tmp_path / "runs/run/checkpoints/best.ckpt")
    assert not any(isinstance(part, LoRALinear) for part in trained.full_model.modules())
    scores = trained.evaluate("validation", limit=8 if domain == "image" else None)
    monitored = "bits_per_dim" if domain == "image" else "nats_per_token"
    assert scores.metrics[monitored] == content["triptych"]["metrics"][monitored]

    # The run goes on from its adapters, and another run starts with the merged weights.
    answer = cli(*named, "--resume", "--trainer.max_steps", 6)
    assert answer.code == 0, answer.err
    now = weights(saved(tmp_path))
    assert all(torch.equal(weight, now[name]) for name, weight in before.items())
    best = tmp_path / "best.ckpt"
    (tmp_path / "runs/run/checkpoints/best.ckpt").rename(best)
    merged = triptych.load(best).full_model.state_dict()
    next_run = ["train", domain, "--config", configs(domain, learning_rate=1e-9)]
    answer = cli(*next_run, "--run.start.init_from", best, "--run.name", "run2")
    assert answer.code == 0, answer.err
    path = tmp_path / "runs/run2/checkpoints/best.ckpt"
    for name, weight in weights(read_checkpoint(path)).items():
        torch.testing.assert_close(weight, merged[name], rtol=0, atol=1e-6)


def test_adapters_and_parts_are_trained_together(
    cli, configs, music_run: Any, tmp_path: Path
) -> None:
    named = ["train", "music", "--config", configs("music"), "--run.start.init_from"]
    named += [music_run.checkpoint, "--run.finetune.lora_rank", 2]
    named += ["--run.finetune.lora_layers", "[qkv_proj]"]
    answer = cli(*named, "--run.finetune.train_only", "[head]")
    assert answer.code == 0, answer.err
    before, after = weights(read_checkpoint(music_run.checkpoint)), weights(saved(tmp_path))
    assert_frozen(before, after, lambda name: name.startswith("head."))
    new = after.keys() - before.keys()
    assert {name.rpartition(".")[0] for name in new} == {"decoder.blocks.0.attention.qkv_proj"}


@pytest.mark.slow
def test_a_cut_run_with_adapters_goes_on_bit_for_bit(
    cli, configs, music_run: Any, tmp_path: Path
) -> None:
    named = ["train", "music", "--config", configs("music"), "--run.start.init_from"]
    named += [music_run.checkpoint, "--run.finetune.lora_rank", 2]
    assert cli(*named, "--trainer.max_steps", 6).code == 0
    whole = saved(tmp_path)
    (tmp_path / "runs/run").rename(tmp_path / "runs/whole")
    assert cli(*named).code == 0
    assert cli(*named, "--trainer.max_steps", 6, "--resume").code == 0
    cut = saved(tmp_path)
    assert all(torch.equal(cut["state_dict"][name], w) for name, w in whole["state_dict"].items())


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_vocabulary_of_the_data_keeps_the_rows_of_equal_symbols(
    cli, configs, checkpoints: dict[str, Path], tmp_path: Path, domain: str
) -> None:
    """Weights of equal symbols are those of the checkpoint, and others those of a new model."""
    content = read_checkpoint(checkpoints[domain])
    vocabulary = content["triptych"]["vocabulary"]
    path, more = configs(domain, learning_rate=1e-9), []
    # The checkpoint's symbols in another order, one of them under another name.
    if domain == "image":
        vocabulary["class_names"] = [*vocabulary["class_names"][:0:-1], "ten"]
        says = "17 levels copied, 0 new; 9 classes copied, 1 new"
    elif domain == "music":
        vocabulary["symbols"] = [*vocabulary["symbols"][:0:-1], "first"]
        says = "388 symbols copied, 1 new"
    else:
        more = ["--data.vocabulary_size", 300]
        says = "tokens copied, "
    torch.save(content, tmp_path / "other.ckpt")
    named = ["train", domain, "--config", path, *more]
    assert cli(*named, "--run.name", "new").code == 0
    new = weights(read_checkpoint(tmp_path / "runs/new/checkpoints/best.ckpt"))
    start = ["--run.start.init_from", "other.ckpt", "--run.start.init_vocabulary", "data"]
    answer = cli(*named, *start)
    assert answer.code == 0, answer.err
    assert says in answer.out
    assert answer.out.count("Vocabulary of the data") == 1
    before, after = weights(content), weights(best := saved(tmp_path, "best"))
    now = best["triptych"]["vocabulary"]
    if domain == "image":
        old, own = vocabulary["class_names"], now["class_names"]
        changed = {"core.conditioner.classes.weight"}
    elif domain == "music":
        old, own = vocabulary["symbols"], now["symbols"]
        changed = {"embedding.table.weight", "head.logits.weight", "head.logits.bias"}
    else:
        old = Tokenizers.from_plain(vocabulary).source.symbols
        own = Tokenizers.from_plain(now).source.symbols
        changed = {"source_embedding.table.weight", "target_embedding.table.weight"}
        changed |= {"head.logits.weight"}
        assert 257 < len(set(old) & set(own)) < len(own) == 300 != len(old)
    for name, weight in after.items():
        for row, value in enumerate(weight) if weight.ndim else ():
            if name not in changed:
                expected = before[name][row]
            elif own[row] in old:
                expected = before[name][old.index(own[row])]
            else:
                expected = new[name][row]
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)
    # The run is resumed with its own vocabulary, without the other checkpoint.
    (tmp_path / "other.ckpt").unlink()
    answer = cli(*named, "--resume", "--trainer.max_steps", 4)
    assert answer.code == 0, answer.err
    assert saved(tmp_path)["triptych"]["vocabulary"] == now


@pytest.mark.parametrize(
    ("domain", "options", "says"),
    [
        ("music", {"train_only": "[decodr]"}, ["'decodr'", "did you mean decoder", "head"]),
        ("image", {"lora_rank": 2, "lora_layers": "[head]"}, ["lora_layers has 'head'", "fc1"]),
        ("image", {"lora_rank": 2, "optimizer": "Muon"}, ["Muon", "run.finetune.train_only"]),
        ("music", {"train_only": "[head]", "init_from": None}, ["without run.start.init_from"]),
        ("music", {"lora_rank": 2, "init_from": None}, ["without run.start.init_from"]),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_data_are_read(
    refused, configs, checkpoints, monkeypatch, domain: str, options: dict[str, Any], says
) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("the data were read")

    monkeypatch.setattr("triptych.training.run.trainer.prepare_in_turn", read)
    optim = {"optimizer": options.pop("optimizer", "AdamW")}
    start = options.pop("init_from", checkpoints[domain])
    words = [word for key, v in options.items() for word in (f"--run.finetune.{key}", v)]
    words += [] if start is None else ["--run.start.init_from", start]
    refused("train", domain, "--config", configs(domain, **optim), *words, says=says)


@pytest.mark.slow
def test_other_data_are_refused_with_the_remedy(
    cli, configs, music_run: Any, image_checkpoint: Path, tmp_path: Path
) -> None:
    """Which only the data tell: they are read before, and nothing is written."""

    def answer(domain: str, start: Path, change: Callable[[dict[str, Any]], Any], *words: Any):
        content = read_checkpoint(start)
        change(content)
        torch.save(content, tmp_path / "other.ckpt")
        named = ["--config", configs(domain), "--run.start.init_from", "other.ckpt"]
        found = cli("train", domain, *named, *words)
        assert found.code == 2
        assert not (tmp_path / "runs").exists()
        return found.err

    def vocabulary(**changes: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda content: content["triptych"]["vocabulary"].update(changes)

    remedy = "run.start.init_vocabulary data"
    data = ["--run.start.init_vocabulary", "data"]
    said = answer(
        "music", music_run.checkpoint, lambda c: c["triptych"]["vocabulary"]["symbols"].reverse()
    )
    assert remedy in said
    said = answer("image", image_checkpoint, vocabulary(class_names=["a"] * 10))
    assert remedy in said
    assert "trained on images with class_names ['a', " in said
    said = answer("image", image_checkpoint, vocabulary(levels=256))
    assert "trained on images with levels 256, these have 17" in said
    said = answer("image", image_checkpoint, vocabulary(shape=[9, 9, 1]))
    assert remedy not in said
    said = answer("image", image_checkpoint, vocabulary(shape=[9, 9, 1]), *data)
    assert "shape [9, 9, 1]" in said
    said = answer("image", image_checkpoint, lambda content: content["state_dict"].popitem())
    assert "is missing in the checkpoint and [" in said


def test_new_rows_that_are_frozen_are_refused(cli, configs, music_run: Any, tmp_path: Path) -> None:
    content = read_checkpoint(music_run.checkpoint)
    content["triptych"]["vocabulary"]["symbols"][3] = "something"
    torch.save(content, tmp_path / "other.ckpt")
    named = ["train", "music", "--config", configs("music"), "--run.start.init_from", "other.ckpt"]
    named += ["--run.start.init_vocabulary", "data", "--run.finetune.lora_rank", 2]
    answer = cli(*named)
    assert answer.code == 2
    assert "1 new symbols" in answer.err
    assert "embedding.table, head.logits" in answer.err
    assert not (tmp_path / "runs").exists()
    answer = cli(*named, "--run.finetune.train_only", "[embedding.table, head.logits]")
    assert answer.code == 0, answer.err


def test_a_run_is_not_resumed_with_other_parts(cli, configs, music_run: Any) -> None:
    named = ["train", "music", "--config", configs("music"), "--run.start.init_from"]
    named += [music_run.checkpoint, "--run.finetune.train_only", "[decoder]"]
    assert cli(*named).code == 0
    answer = cli(*named, "--run.finetune.lora_rank", 2, "--resume")
    assert answer.code == 2
    assert "run.finetune.lora_rank was 0, is 2" in answer.err


def test_a_shared_matrix_is_trained_by_each_of_its_names(
    cli, configs, translation_checkpoint: Path, tmp_path: Path
) -> None:
    named = ["--config", configs("translation"), "--run.start.init_from", translation_checkpoint]
    assert cli("train", "translation", *named, "--run.finetune.train_only", "[head]").code == 0
    before, after = weights(read_checkpoint(translation_checkpoint)), weights(saved(tmp_path))
    shared = "head", "source_embedding", "target_embedding"
    assert_frozen(before, after, lambda name: name.startswith(shared))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parts", "adapters"])
def test_two_processes_keep_frozen_weights(
    configs, translation_checkpoint: Path, tmp_path: Path, kind: str
) -> None:
    path = configs("translation", ema_decay=0.5)
    part = {
        "parts": ["--run.finetune.train_only", "[decoder]"],
        "adapters": ["--run.finetune.lora_rank", "2"],
    }[kind]
    command = [sys.executable, "-m", "triptych", "train", "translation", "--config", str(path)]
    command += ["--run.start.init_from", str(translation_checkpoint), *part]
    command += ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    for more in ([], ["--resume", "--trainer.max_steps", "6"]):
        done = subprocess.run(
            [*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stdout + done.stderr
    content = saved(tmp_path)
    assert content["triptych"]["step"] == 6
    before, after = weights(read_checkpoint(translation_checkpoint)), weights(content)
    assert_frozen(before, after, lambda name: kind == "parts" and name.startswith("decoder."))
    adapters = [weight for name, weight in after.items() if is_adapter(name)]
    assert bool(adapters) == (kind == "adapters")
    assert all(weight.any() for weight in adapters)


def test_patterns_match_whole_components() -> None:
    name = "decoder.blocks.1.attention.qkv_proj.weight"
    fit = ["decoder", "decoder.blocks.1", "blocks.*.attention", "*_proj", "blocks.1*"]
    others = ["decoder.attention", "block", f"{name}.x", "de*on"]
    assert [pattern for pattern in fit + others if matches(name, pattern)] == fit


def test_an_adapter_decodes_with_the_cache_as_the_merged_model_does() -> None:
    """Steps with the cache give the full pass, and training mode the same function."""
    plain = {
        "data": {"source": {"class_path": "JSBChorales", "init_args": {"directory": "none"}}},
        "model": {"transformer": {"n_layers": 2, "d_model": 16, "n_heads": 2, "dropout": 0.0}},
        "run": {"finetune": {"lora_rank": 3}},
    }
    task = MusicTrainingModule(from_plain(MusicConfig, plain))
    model = task.model.double()
    for name, weight in model.named_parameters():
        if is_adapter(name) or name.startswith("head"):
            nn.init.normal_(weight, std=0.3)
    values = torch.randint(0, 9, (2, 12))
    with torch.no_grad():
        training = model.train()(values)
        full = model.eval()(values)
        state = model.init_state(2, 12)
        steps = [model.prefill(values[:, :5], state)]
        for t in range(6, 12):
            steps.append(model.step(values[:, t - 1 : t], torch.tensor([t]), state)[:, 0])
    torch.testing.assert_close(training, full)
    torch.testing.assert_close(torch.stack(steps, 1), full[:, 5:])
