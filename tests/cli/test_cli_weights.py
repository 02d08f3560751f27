"""Weights other than float32 and a compiled step: what the flags take, draw, measure and tell."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pretty_midi
import pytest
import torch

import triptych
from triptych.decoding import comparison
from triptych.decoding import generate as session
from triptych.decoding import quantize as matrices
from triptych.decoding.comparison import Comparison, speeds
from triptych.decoding.sampling import Sampling
from triptych.domains.music.task import MusicTask
from triptych.errors import UserError

SENTENCE = re.compile(
    r"(?P<weights>\w+) weights: (?P<gain>[\d.]+) x the speed of fp32 \((?P<speed>[\d,]+) against "
    r"(?P<speed_fp32>[\d,]+) (?P<values>\S+)/s\); these samples cost (?P<cost_fp32>[\d.]+) "
    r"(?P<unit>\S+) under fp32, (?P<cost>[\d.]+) under (?P=weights) \((?P<change>[+-][\d.]+)\)"
)
UNITS = {"image": ("sub-pixels", "bits/dim"), "music": ("tokens", "nats/token")}


@pytest.fixture(autouse=True)
def short_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "SECONDS", 0.05)


@pytest.fixture
def checkpoint(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    def named(domain: str) -> Path:
        if domain == "music":
            return Path(request.getfixturevalue("music_run").checkpoint)
        return Path(request.getfixturevalue(f"{domain}_checkpoint"))

    return named


def sample(domain: str, path: Path, out: str, *more: Any) -> list[Any]:
    length = ["--length", 60] if domain == "music" else []
    named = ["--checkpoint", path, "--out", out, "--device", "cpu"]
    return ["sample", domain, *named, "--count", 2, *length, *more]


@pytest.mark.parametrize("domain", ["image", "music"])
@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_sample_tells_what_the_weights_changed(
    cli, checkpoint, tmp_path: Path, domain: str, weights: str
) -> None:
    answer = cli(*sample(domain, checkpoint(domain), "out", "--weights", weights))
    assert answer.code == 0, answer.err
    assert len(list((tmp_path / "out").iterdir())) == {"image": 3, "music": 6}[domain]
    found = SENTENCE.search(answer.err)
    assert found, answer.err
    assert found["weights"] == weights
    assert (found["values"], found["unit"]) == UNITS[domain]
    speeds = [float(found[name].replace(",", "")) for name in ("speed", "speed_fp32")]
    assert min(speeds) > 1
    assert float(found["gain"]) == pytest.approx(speeds[0] / speeds[1], abs=0.02)
    costs = [float(found[name]) for name in ("cost", "cost_fp32")]
    assert float(found["change"]) == pytest.approx(costs[0] - costs[1], abs=1.1e-4)
    assert 0 < costs[0] < 20
    assert abs(costs[0] - costs[1]) < 0.2


@pytest.mark.parametrize("domain", ["image", "music"])
def test_sample_in_float32_compares_nothing(cli, checkpoint, domain: str) -> None:
    answer = cli(*sample(domain, checkpoint(domain), "out"))
    assert answer.code == 0, answer.err
    assert "weights" not in answer.err


def drawn_by(domain: str, path: Path, weights: str) -> tuple[Any, list[Comparison]]:
    model = triptych.load(path, device="cpu").with_weights(weights)
    told: list[Comparison] = []
    length = {"length": 60} if domain == "music" else {}
    return model.sample(2, seed=3, compared=told.append, **length), told


@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_the_costs_are_those_of_the_drawn_pictures(image_checkpoint: Path, weights: str) -> None:
    pictures, (told,) = drawn_by("image", image_checkpoint, weights)
    task = triptych.load(image_checkpoint, device="cpu").task
    pixels, labels = torch.from_numpy(pictures), task.turn_labels(2)
    with torch.no_grad():
        nats = task.model.nll(pixels, labels).mean()
    assert told.cost_fp32 == pytest.approx(float(nats) / math.log(2), abs=1e-5)
    assert told.cost != told.cost_fp32
    assert told.cost == pytest.approx(told.cost_fp32, abs=0.1)


def nats_by_hand(task: MusicTask, tokens: torch.Tensor, n_prompt: int) -> float:
    """Mean over drawn tokens, ends included; windows of 32 tokens, 16 of them context."""
    nats = []
    for row in tokens:
        for at in range(n_prompt, len(row)):
            start = 0 if at < 32 else (at - 16) // 16 * 16
            before = row[start - 1].view(1) if start else None
            with torch.no_grad():
                nats.append(float(task.model.nll(row[None, start : at + 1], before)[0, -1]))
            if row[at] == task.representation.end:
                break
    return sum(nats) / len(nats)


@pytest.mark.parametrize("primed", [False, True])
def test_the_costs_are_those_of_the_drawn_tokens(
    music_run, monkeypatch: pytest.MonkeyPatch, primed: bool
) -> None:
    model = triptych.load(music_run.checkpoint, device="cpu")
    task = model.task
    primer = music_run.folder / "midi/p1.mid" if primed else None
    prompt = pretty_midi.PrettyMIDI(str(primer)) if primed else pretty_midi.PrettyMIDI()
    n_prompt = len(task.representation.prompt(prompt, name="p1"))
    drawn, told = [], []
    original = MusicTask.draw

    def draw(self: MusicTask, *arguments: Any, **options: Any) -> torch.Tensor:
        tokens = original(self, *arguments, **options)
        tokens[1, n_prompt + 9 :] = self.representation.end  # this piece is over early
        drawn.append(tokens)
        return tokens

    monkeypatch.setattr(MusicTask, "draw", draw)
    model.with_weights("int8").sample(2, length=40, primer=primer, compared=told.append)
    (tokens,), (comparison,) = drawn, told
    assert tokens.shape == (2, n_prompt + 40)
    assert comparison.cost_fp32 == pytest.approx(nats_by_hand(task, tokens, n_prompt), abs=1e-5)
    assert comparison.cost != comparison.cost_fp32
    assert comparison.cost == pytest.approx(comparison.cost_fp32, abs=0.1)


def test_float32_draws_what_the_plain_model_draws(image_checkpoint: Path) -> None:
    model = triptych.load(image_checkpoint, device="cpu")
    labels = model.task.turn_labels(3)
    plain = model.task.model.sample(
        3, labels=labels, generator=torch.Generator().manual_seed(4)
    ).numpy()
    assert (model.sample(3, seed=4) == plain).mean() > 0.99


def test_the_models_are_timed_in_turns_and_leave_random_numbers_alone(
    image_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = triptych.load(image_checkpoint, device="cpu").task.model
    clock, took = [0.0], {"slow": 3.0, "fast": 1.0}
    order: list[str] = []

    class Timed(session.Reader):
        def step(self, values: torch.Tensor, t: int) -> torch.Tensor:
            name = "slow" if self.condition is conditions[0] else "fast"
            order.append(name)
            # The first stretch makes things ready: no speed comes from it.
            clock[0] += took[name] * (100 if order.count(name) < 16 else 1)
            return super().step(values, t)

    labels = torch.zeros(2, dtype=torch.int64)
    conditions = [model.condition(labels).detach() for _ in range(2)]
    monkeypatch.setattr(comparison, "Reader", Timed)
    monkeypatch.setattr(comparison.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(comparison, "SECONDS", 500.0)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    slow, fast = speeds(
        [(model.core, condition) for condition in conditions],
        batch=2,
        length=64,
        sampling=Sampling(),
    )
    assert (slow, fast) == (pytest.approx(2 / 3), pytest.approx(2))
    assert (torch.get_rng_state() == state).all()
    assert order[30:62] == ["slow"] * 16 + ["fast"] * 16


@pytest.mark.parametrize("domain", ["image", "music", "translation"])
@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_evaluate_gives_both_figures(
    cli, checkpoint, tmp_path: Path, domain: str, weights: str
) -> None:
    arguments = ["evaluate", domain, "--checkpoint", checkpoint(domain), "--device", "cpu"]
    arguments += ["--split", "validation", "--limit", 4, "--json", "score.json"]
    plain = cli(*arguments)
    assert plain.code == 0, plain.err
    full = json.loads((tmp_path / "score.json").read_text())
    assert full["weights"] == "fp32"
    assert "change" not in full
    answer = cli(*arguments, "--weights", weights)
    assert answer.code == 0, answer.err
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["weights"] == weights
    assert score["details"]["weights"] == weights
    assert score["metrics_fp32"] == pytest.approx(full["metrics"])
    unit = "bits_per_dim" if domain == "image" else "nats_per_token"
    assert score["metrics"][unit] != score["metrics_fp32"][unit]
    assert score["metrics"][unit] == pytest.approx(score["metrics_fp32"][unit], abs=0.1)
    assert set(score["change"]) == set(score["metrics"]) == set(full["metrics"])
    assert ("bleu" in score["change"]) == (domain == "translation")
    for name, change in score["change"].items():
        assert math.isfinite(change)
        assert change == pytest.approx(score["metrics"][name] - score["metrics_fp32"][name])
        line = f"{score['metrics'][name]:.4f}  ({change:+.4f}, fp32 {full['metrics'][name]:.4f})"
        assert line in answer.out
    assert f"with {weights} weights" in answer.out


@pytest.mark.parametrize(
    "words",
    [["sample", "image"], ["sample", "music"], *(["evaluate", d] for d in ("image", "music"))],
    ids=" ".join,
)
def test_weights_that_do_not_exist_are_refused(refused, words: list[str]) -> None:
    out = ["--out", "out"] if words[0] == "sample" else []
    refused(*words, "--checkpoint", "a.ckpt", *out, "--weights", "int4", says=["weights", "int4"])


@pytest.mark.parametrize("domain", ["image", "music"])
def test_int8_and_compile_are_refused_together(refused, domain: str) -> None:
    more = ["--weights", "int8", "--compile", "true"]
    refused(*sample(domain, Path("a.ckpt"), "out", *more), says=["int8", "cannot be compiled"])


@pytest.mark.parametrize("domain", ["image", "music"])
@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_compile_reaches_every_step(
    cli, checkpoint, monkeypatch: pytest.MonkeyPatch, domain: str, weights: str
) -> None:
    """The compiler itself is not run here: that the step goes through it is what the flag does."""
    compiled = []

    def compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        compiled.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    more = ["--weights", weights, "--compile", "true"]
    answer = cli(*sample(domain, checkpoint(domain), "out", *more))
    assert answer.code == 0, answer.err
    assert compiled
    compiled.clear()
    assert cli(*sample(domain, checkpoint(domain), "plain")).code == 0
    assert not compiled


@pytest.mark.parametrize("domain", ["image", "music"])
def test_impossible_weights_are_told_in_python_too(checkpoint, domain: str) -> None:
    model = triptych.load(checkpoint(domain), device="cpu")
    with pytest.raises(UserError, match="int4"):
        model.with_weights("int4")
    with pytest.raises(UserError, match="cannot be compiled"):
        model.with_weights("int8").sample(1, compile=True)
    before = model.task.model
    reduced = model.with_weights("int8").sample(1, **({"length": 8} if domain == "music" else {}))
    assert len(reduced) == 1
    assert model.task.model is before


@pytest.mark.parametrize("domain", ["image", "music", "translation"])
def test_matrices_that_int8_does_not_serve_are_told_once(
    cli, checkpoint, monkeypatch: pytest.MonkeyPatch, domain: str
) -> None:
    """As on a processor whose library of 8-bit products is missing."""

    def broken(linear: torch.nn.Linear) -> torch.nn.Module:
        raise RuntimeError("no engine of 8 bits\nand more")

    monkeypatch.setattr(matrices, "candidates", lambda *_: [broken])
    if domain == "translation":
        command = ["translate", "--checkpoint", checkpoint(domain), "--device", "cpu"]
    else:
        command = sample(domain, checkpoint(domain), "out")
    answer = cli(*command, "--weights", "int8", stdin=b"eins\n")
    assert answer.code == 0, answer.err
    told = [line for line in answer.err.splitlines() if "stay in float32" in line]
    assert len(told) == 1, answer.err
    assert re.fullmatch(r"triptych: (\d+) of \1 matrices .* no engine of 8 bits", told[0])
