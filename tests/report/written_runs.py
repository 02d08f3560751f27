"""Folders of runs, written by hand: the report reads no checkpoint."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pretty_midi
import yaml
from PIL import Image

WriteRun = Callable[..., Path]

SCRIPT = "<script>document.title='taken'</script>"
"""What a translation model may write."""


def write_midi(
    path: Path, notes: Sequence[tuple[float, float, int]], *, drums: bool = False
) -> None:
    """A MIDI file with (start, end, pitch) on a piano, and one stroke of a drum."""
    midi = pretty_midi.PrettyMIDI(resolution=500)
    piano = pretty_midi.Instrument(program=0, name="Piano & <b>")
    piano.notes = [pretty_midi.Note(90, pitch, start, end) for start, end, pitch in notes]
    midi.instruments.append(piano)
    if drums:
        drum = pretty_midi.Instrument(program=0, is_drum=True)
        drum.notes = [pretty_midi.Note(100, 38, 0.5, 0.6)]
        midi.instruments.append(drum)
    path.parent.mkdir(parents=True, exist_ok=True)
    midi.write(str(path))


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def write_png(path: Path, size: tuple[int, int] = (12, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 40, 40)).save(path)


def write_run(parent: Path, name: str = "one", **settings: Any) -> Path:
    """Write a run of 20 steps with samples of every kind at steps 10 and 20."""
    folder = parent / name
    (folder / "checkpoints").mkdir(parents=True)
    attention = {"class_path": "triptych.core.attention.full.Full", "init_args": {}}
    content = {
        "model": {"d_model": 16, "attention": attention} | settings,
        "run": {"name": name, "directory": str(parent)},
        "trainer": {"max_steps": 20},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    start = {"step": 0, "seed": 7, "precision": "32-true", "parameters": 1234, "commit": None}
    versions = {"wandb": "a", "starts": [start | {"torch": "2.9", "monitor": ["val/bleu", "max"]}]}
    (folder / "versions.json").write_text(json.dumps(versions))
    rows = [["step", "train/loss", "time/seconds", "val/bleu"]]
    rows += [[str(step), str(5 / step), str(step / 2), ""] for step in range(1, 21)]
    rows += [["10", "", "", "3.5"], ["20", "", "", "7"]]
    write_table(folder / "metrics.csv", rows)
    for step in (10, 20):
        samples = folder / "samples" / f"step-{step:08d}"
        write_midi(samples / "piece-00.mid", [(0, 1, 60), (1, 2.5, 64), (1, 2, 67)], drums=True)
        write_png(samples / "piece-00.png")
        (samples / "piece-00.wav").write_bytes(b"RIFF")
        write_png(samples / "samples.png")
        header = ["source", "reference", "translation", "exact match"]
        write_table(samples / "translations.csv", [header, ["ein & zwei", "one", SCRIPT, "no"]])
    write_png(folder / "attention" / "line-0.png", (900, 500))
    score = {"domain": "music", "split": "test", "metrics": {"bleu": 8.5}, "count": 40}
    score["details"] = {"bleu_of": {"a <b> model": 2.0}, "names": ["x"]}
    (folder / "test.json").write_text(json.dumps(score))
    return folder
