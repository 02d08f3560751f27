"""scripts/gpu_check: every section works, shown on the CPU at tiny sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gpu.fake import launches
from gpu.setting import Row, Setting

from gpu import check
from triptych.core.attention.full import Full
from triptych.core.attention.relative import Relative
from triptych.core.transformer import TransformerConfig
from triptych.training.engine.speed import peak_flops, training_flops

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check"
TINY = Setting(torch.device("cpu"), tiny=True)


@pytest.mark.slow
def test_every_section_runs_and_passes(tmp_path: Path) -> None:
    assert check.run(TINY, list(check.SECTIONS), tmp_path)
    result = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    assert [section["name"] for section in result["sections"]] == list(check.SECTIONS)
    assert all(section["rows"] and not section["problem"] for section in result["sections"])
    text = (tmp_path / "check.md").read_text(encoding="utf-8")
    assert text.count("## ") == len(check.SECTIONS)


@pytest.mark.parametrize("name", ["contract", "mfu"])
def test_a_section_passes(name: str) -> None:
    section = check.run_section(TINY, name)
    assert section.passed
    assert section.rows


def test_an_error_ends_its_section_and_a_failed_row_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(setting: Setting) -> Row:
        yield {"case": "one", "passed": True}
        raise RuntimeError("no kernel\nfor this device")

    monkeypatch.setattr("gpu.training.last_minute", breaks)
    monkeypatch.setattr("gpu.contract.TOLERANCE", {"fp32": 0.0, "bf16": 0.0})
    assert not check.run_section(TINY, "contract").passed
    assert not check.run(TINY, ["mnist", "mfu"], tmp_path)
    first, second = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))["sections"]
    assert first["rows"] == [{"case": "one", "passed": True}]
    assert first["problem"] == "RuntimeError: no kernel"
    assert not second["problem"]


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
