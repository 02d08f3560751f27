"""Precisions other than float32 and a compiled step: what --dtype and --compile do."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import triptych
from triptych.errors import UserError


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
@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_sample_takes_a_dtype(cli, checkpoint, tmp_path: Path, domain: str, dtype: str) -> None:
    answer = cli(*sample(domain, checkpoint(domain), "out", "--dtype", dtype))
    assert answer.code == 0, answer.err
    assert len(list((tmp_path / "out").iterdir())) == {"image": 3, "music": 6}[domain]


@pytest.mark.parametrize("domain", ["image", "music", "translation"])
@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_evaluate_gives_both_figures(
    cli, checkpoint, tmp_path: Path, domain: str, dtype: str
) -> None:
    arguments = ["evaluate", domain, "--checkpoint", checkpoint(domain), "--device", "cpu"]
    arguments += ["--split", "validation", "--limit", 4, "--json", "score.json"]
    plain = cli(*arguments)
    assert plain.code == 0, plain.err
    full = json.loads((tmp_path / "score.json").read_text())
    assert full["dtype"] == "fp32"
    assert "change" not in full
    answer = cli(*arguments, "--dtype", dtype)
    assert answer.code == 0, answer.err
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["dtype"] == dtype
    assert score["details"]["dtype"] == dtype
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
    assert f"in {dtype}" in answer.out


@pytest.mark.parametrize("domain", ["image", "music"])
def test_int8_and_compile_are_refused_together(refused, domain: str) -> None:
    more = ["--dtype", "int8", "--compile", "true"]
    refused(*sample(domain, Path("a.ckpt"), "out", *more), says=["int8", "cannot be compiled"])


@pytest.mark.parametrize("domain", ["image", "music"])
@pytest.mark.parametrize("dtype", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_compile_reaches_every_step(
    cli, checkpoint, monkeypatch: pytest.MonkeyPatch, domain: str, dtype: str
) -> None:
    """The compiler itself is not run here: that the step goes through it is what the flag does."""
    compiled = []

    def compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        compiled.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    more = ["--dtype", dtype, "--compile", "true"]
    answer = cli(*sample(domain, checkpoint(domain), "out", *more))
    assert answer.code == 0, answer.err
    assert compiled
    compiled.clear()
    assert cli(*sample(domain, checkpoint(domain), "plain")).code == 0
    assert not compiled


@pytest.mark.parametrize("domain", ["image", "music"])
def test_impossible_dtypes_are_told_in_python_too(checkpoint, domain: str) -> None:
    model = triptych.load(checkpoint(domain), device="cpu")
    with pytest.raises(UserError, match="int4"):
        model.with_dtype("int4")
    network = model.full_model
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    reduced = model.with_dtype("int8").sample(1, **({"length": 8} if domain == "music" else {}))
    assert len(reduced) == 1
    after = network.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
