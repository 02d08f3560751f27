"""sample music --given, from the command line to the written files."""

from __future__ import annotations

from pathlib import Path

import pretty_midi
import pytest
from pretty import write_midi

from triptych.domains.music.tokenizers.chorales import SECONDS_PER_STEP

SAMPLE = ["sample", "music", "--checkpoint", "pretrained:jsb-chorales"]


@pytest.fixture
def melody(tmp_path: Path) -> Path:
    midi = pretty_midi.PrettyMIDI(initial_tempo=75.0, resolution=500)
    part = pretty_midi.Instrument(program=73)
    for number, pitch in enumerate((67, 67, 69, 71, 72, 71, 69, 67)):
        span = 4 * number * SECONDS_PER_STEP, (4 * number + 4) * SECONDS_PER_STEP
        part.notes.append(pretty_midi.Note(90, pitch, *span))
    midi.instruments.append(part)
    write_midi(midi, tmp_path / "melody.mid")
    return tmp_path / "melody.mid"


def spans(part: pretty_midi.Instrument) -> list[tuple[int, float, float]]:
    return [(note.pitch, round(note.start, 3), round(note.end, 3)) for note in part.notes]


def test_a_melody_is_harmonised_and_comes_back(cli, melody: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--given", str(melody), "--keep", "soprano", "--count", "2", "--particles", "3"]
    assert cli(*SAMPLE, *arguments, "--out", out).code == 0
    given = spans(pretty_midi.PrettyMIDI(str(melody)).instruments[0])
    for number in range(2):
        found = pretty_midi.PrettyMIDI(str(out / f"piece-{number:02d}.mid"))
        assert spans(found.instruments[0]) == given
        assert len(found.instruments) == 4
        assert (out / f"piece-{number:02d}.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--given", "MELODY", "--keep", "sopran"], "soprano, alto, tenor, bass"),
        (["--given", "MELODY"], "expected given with one of"),
        (["--given", "nothing.mid", "--keep", "soprano"], "nothing.mid"),
    ],
)
def test_bad_input_ends_in_one_sentence(
    cli, arguments: list[str], message: str, melody: Path, tmp_path: Path
) -> None:
    named = [melody if word == "MELODY" else word for word in arguments]
    answer = cli(*SAMPLE, *named, "--out", "out")
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.strip().count("\n") == 0
    assert not list(tmp_path.rglob("piece-*"))
