"""`evaluate music --statistics`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_statistics_are_printed_and_in_the_json_file(
    cli, tmp_path: Path, music_run, dtype: str
) -> None:
    command = ["evaluate", "music", "--checkpoint", music_run.checkpoint, "--dtype", dtype]
    plain = cli(*command, "--json", "plain.json")
    options = ["--statistics", 2, "--sample_length", 60, "--seed", 3, "--json", "score.json"]
    answer = cli(*command, *options)
    assert answer.code == 0, answer.err
    # The score is that of a command without statistics, and its lines come first.
    assert answer.out.startswith(plain.out)
    score, before = (
        json.loads((tmp_path / name).read_text()) for name in ("score.json", "plain.json")
    )
    assert score["metrics"] == before["metrics"]
    assert not {"statistics", "memorisation"} & before["details"].keys()
    statistics = score["details"]["statistics"]
    assert (statistics["sample_length"], statistics["seed"]) == (60, 3)
    assert statistics["pieces"]["samples"] == 2
    for measure, found in statistics["groups"]["samples"].items():
        assert measure in answer.out
        if found["mean"] is not None:
            assert f"{found['mean']:.3f} ± {found['std']:.3f}" in answer.out
    assert score["details"]["memorisation"]["training_pieces"] > 0
    assert answer.err.count("sampled tokens") == 1
