"""Music of several instruments from the command line: train, evaluate, sample, continue."""

from __future__ import annotations

import shutil
from pathlib import Path

import pretty_midi
import pytest
import yaml

from triptych.domains.music.midi import parse_midi

INSTRUMENTS = ["violin", "violin", "viola", "cello", "drums"]
SOURCE = "triptych.domains.music.sources.midi_folder.MidiFolder"
TOKENIZER = "triptych.domains.music.tokenizers.remi.RemiTokenizer"


def write_band(path: Path, *, first_pitch: int) -> None:
    """Two violins, a cello and drums."""
    midi = pretty_midi.PrettyMIDI(initial_tempo=100)
    for program, shift in ((40, 12), (40, 7), (42, -12)):
        part = pretty_midi.Instrument(program)
        for beat in range(8):
            onset, pitch = beat * 0.6, first_pitch + shift + beat % 3
            part.notes.append(pretty_midi.Note(60 + beat, pitch, onset, onset + 0.6))
        midi.instruments.append(part)
    drums = pretty_midi.Instrument(0, is_drum=True)
    drums.notes += [pretty_midi.Note(90, 36 + n % 2, n * 0.3, n * 0.3 + 0.1) for n in range(16)]
    midi.instruments.append(drums)
    midi.write(str(path))


@pytest.fixture(scope="module")
def band_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a run of three steps, a band's file and no training data."""
    from triptych.cli.main import main

    folder = tmp_path_factory.mktemp("band")
    (folder / "midi").mkdir()
    for number in range(8):
        write_band(folder / f"midi/{number}.mid", first_pitch=55 + number)
    tokenizer = {"class_path": TOKENIZER, "init_args": {"instruments": INSTRUMENTS}}
    shares = {"validation_share": 0.3, "test_share": 0.3}
    arguments = {"directory": str(folder / "midi"), **shares}
    settings = {
        "data": {
            "source": {"class_path": SOURCE, "init_args": arguments},
            "sequence_length": 64, "overlap": 32, "batch_size": 2, "sample_seconds": 1,
        },
        "model": {
            "tokenizer": tokenizer, "transformer": {"n_layers": 1, "d_model": 16, "n_heads": 2},
        },
        "run": {"name": "band", "directory": str(folder), "wandb": "off"},
        "trainer": {
            "max_steps": 3, "val_check_interval": 3, "check_val_every_n_epoch": None,
            "num_sanity_val_steps": 0, "accelerator": "cpu",
        },
    }  # fmt: skip
    (folder / "c.yaml").write_text(yaml.safe_dump(settings))
    assert main(["train", "music", "--config", str(folder / "c.yaml")]) == 0
    shutil.copy(folder / "midi/0.mid", folder / "primer.mid")
    shutil.move(folder / "midi", folder / "gone")
    return folder


def checkpoint(folder: Path) -> list[object]:
    return ["music", "--checkpoint", folder / "band/checkpoints/best.ckpt"]


def test_a_quartet_is_sampled_with_its_programs(cli, tmp_path: Path, band_run: Path) -> None:
    """The checkpoint opens without the data, and the file names four instruments."""
    chosen = ["--instruments", "violin,violin,viola,cello"]
    answer = cli(
        "sample", *checkpoint(band_run), "--out", "out", "--count", 1, "--length", 600, *chosen
    )
    assert answer.code == 0, answer.err
    found = pretty_midi.PrettyMIDI(str(tmp_path / "out/piece-00.mid")).instruments
    assert [(part.program, part.is_drum) for part in found] == [
        (40, False), (40, False), (41, False), (42, False),
    ]  # fmt: skip
    assert [part.name for part in found] == ["violin", "violin 2", "viola", "cello"]
    assert (tmp_path / "out/piece-00.png").stat().st_size > 0


def test_a_primer_is_continued_by_its_instruments(cli, tmp_path: Path, band_run: Path) -> None:
    answer = cli(
        "sample", *checkpoint(band_run), "--out", "out", "--count", 1, "--seconds", 3,
        "--primer", band_run / "primer.mid", "--instruments", "drums",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    primer = parse_midi((band_run / "primer.mid").read_bytes(), name="primer")
    end = primer.seconds([primer.last_tick])[0]
    made = pretty_midi.PrettyMIDI(str(tmp_path / "out/piece-00.mid"))
    assert end + 2 < made.get_end_time() < end + 3.01
    for part in made.instruments:
        if not part.is_drum:  # played in the primer only
            assert max(note.start for note in part.notes) < end
            assert len(part.notes) == 8
    assert {part.program for part in made.instruments if not part.is_drum} == {40, 42}


def test_it_is_scored_on_a_folder(cli, band_run: Path) -> None:
    options = ["--data", band_run / "gone", "--split", "test"]
    answer = cli("evaluate", *checkpoint(band_run), *options)
    assert answer.code == 0, answer.err
    assert "nats_per_note" in answer.out


def test_instruments_that_cannot_play(refused, band_run: Path) -> None:
    chosen = ["--instruments", "flute"]
    says = ["flute", "this model plays violin, violin 2, viola, cello, drums"]
    refused("sample", *checkpoint(band_run), "--out", "out", *chosen, says=says)


def test_a_piano_model_has_no_instruments(refused, music_run) -> None:
    command = ["sample", "music", "--checkpoint", music_run.checkpoint, "--out", "out"]
    refused(*command, "--instruments", "violin", says=["instruments", "events", "scale", "ranges"])
