"""scripts/gpu_check: every section works, shown on the CPU at tiny sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu.fake import launches
from gpu.setting import Row, Setting
from torch import Tensor
from torch.nn import functional as F

from gpu import check
from triptych.core.attention.backends import flex
from triptych.core.attention.full import Full
from triptych.core.attention.relative import Relative
from triptych.core.transformer import TransformerConfig
from triptych.training.engine.speed import peak_flops, training_flops

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check"
TINY = Setting(torch.device("cpu"), tiny=True)


QUICK = ("contract", "sdpa", "varying", "graphs", "mfu")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in check.SECTIONS if name not in QUICK])
def test_a_slow_section_passes(name: str, tmp_path: Path) -> None:
    """In a process of its own, since DDP leaves its address in the environment."""
    section = check.in_a_process(TINY, name, tmp_path / "section.json")
    assert section.passed, section
    assert section.rows


@pytest.mark.parametrize("name", QUICK)
def test_a_section_passes(name: str) -> None:
    section = check.run_section(TINY, name)
    assert section.passed, section
    assert section.rows
    assert f"Shown: {section.shows}." in section.markdown()


@pytest.mark.slow
def test_a_section_is_a_process_whose_death_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check.run(TINY, ["contract"], tmp_path)
    script = tmp_path / "dies"
    script.write_text("import os; os.abort()", encoding="utf-8")
    monkeypatch.setattr(check, "SCRIPT", script)
    assert not check.run(TINY, ["contract", "mfu"], tmp_path)
    result = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    assert [section["name"] for section in result["sections"]] == ["contract", "mfu"]
    assert all("ended with -6" in section["problem"] for section in result["sections"])
    assert "FAILED: not shown" in (tmp_path / "check.md").read_text(encoding="utf-8")


def test_rows_are_kept_where_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "section.json"

    def two(setting: Setting) -> Iterator[Row]:
        yield {"case": "one", "passed": True}
        kept = check.Section(**json.loads(out.read_text(encoding="utf-8")))
        assert [row["case"] for row in kept.rows] == ["one"]
        assert not kept.passed
        yield {"case": "two", "passed": True}

    monkeypatch.setattr("gpu.training.last_minute", two)
    assert check.run_section(TINY, "mnist", out).passed
    assert check.Section(**json.loads(out.read_text(encoding="utf-8"))).passed


def test_an_error_ends_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(setting: Setting) -> Row:
        yield {"case": "one", "passed": True}
        raise RuntimeError("no kernel\nfor this device")

    monkeypatch.setattr("gpu.training.last_minute", breaks)
    section = check.run_section(TINY, "mnist")
    assert section.rows == [{"case": "one", "passed": True}]
    assert section.problem == "RuntimeError: no kernel"
    assert not section.passed


def rounded(x: Tensor) -> Tensor:
    """Values with the 10 bits of fraction that TF32 keeps."""
    return (x.view(torch.int32) & -(2**13)).view(torch.float32) if x.dtype == torch.float32 else x


def float_mask(q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, **options: Any) -> Tensor:
    mask = attn_mask if attn_mask is None else attn_mask.to(q.dtype)  # 0 and 1 are added
    return scaled_dot_product_attention(q, k, v, mask, **options)


scaled_dot_product_attention = F.scaled_dot_product_attention
linear = F.linear
FAULTS: dict[str, tuple[str, str, Any]] = {
    "a float mask": ("contract", "torch.nn.functional.scaled_dot_product_attention", float_mask),
    "TF32": (
        "contract", "torch.nn.functional.linear", lambda x, w, b=None: linear(rounded(x), w, b)
    ),
    "an uncompiled kernel": (
        "varying", "triptych.core.attention.backends.flex._compiled",
        lambda: flex.flex_functions().flex_attention,
    ),
    "masks of every length": ("varying", "triptych.core.attention.backends.flex.BLOCK", 1),
    "a wrong place of padding": (
        "lengths", "triptych.core.attention.backends.flex.F.pad",
        lambda x, sizes: F.pad(x, (*sizes[:-2], sizes[-1], sizes[-2])),
    ),
}  # fmt: skip
SLOW = ("masks of every length", "a wrong place of padding")


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=[pytest.mark.slow] * (f in SLOW)) for f in FAULTS]
)
def test_a_planted_fault_turns_its_section_red(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section, place, replacement = FAULTS[fault]
    monkeypatch.setattr(place, replacement)
    assert not check.run_section(TINY, section).passed


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no GPU" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_launches_of_every_causal_example_have_a_pass_and_a_step() -> None:
    rows = list(launches())
    assert all(row["pass"] > 0 for row in rows)
    assert sum("step" in row for row in rows) > 5


def test_the_operations_of_attention_are_those_of_the_visible_pairs() -> None:
    def flops(attention: object) -> float:
        stack = TransformerConfig(3, 8, 2, attention=attention).decoder((10,))  # type: ignore[arg-type]
        return training_flops(stack, 10) - training_flops(stack)

    assert flops(Full()) == pytest.approx(3 * 12 * 8 * 5.5)
    assert flops(Relative(4, window=1)) == pytest.approx(3 * 12 * 8)


def test_a_device_with_an_unknown_peak_has_none() -> None:
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_flops("NVIDIA L4") == 121e12
    assert peak_flops("NVIDIA L40") is None
    assert peak_flops("Quadro RTX 6000") is None
