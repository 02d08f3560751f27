"""What the page of a music model shows."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pretty_midi
import pytest
from pretty import midi_bytes, write_midi
from tiny_music import Chorales, Performances, tiny_model

from triptych.domains.music.inference import MusicModel
from triptych.domains.music.musicxml import parse_musicxml
from triptych.domains.music.musicxml_writing import musicxml_bytes
from triptych.domains.music.notes import Notes, Part, Score
from triptych.errors import UserError
from triptych.files.piano_roll import Piece

music = pytest.importorskip(
    "triptych.tools.play.music", reason="gradio is not installed (extra play)"
)

MELODY = [[0, 2, 67], [2, 2, 67], [6, 1, 72]]
"""A repeated note and a rest; (start, length, pitch) in sixteenths."""


def melody(notes: list[list[Any]], tempo: Any = 75) -> str:
    """What the keyboard sends."""
    return json.dumps({"tempo": tempo, "notes": notes})


def model_of(source: Chorales) -> MusicModel:
    return tiny_model(source, length=128, overlap=64)


def sixteenths(piece: Piece, part: int) -> list[list[int]]:
    """The notes of a part of a MIDI file, as the melody of the page writes them."""
    midi = pretty_midi.PrettyMIDI(io.BytesIO(piece.midi))
    notes = midi.instruments[part].notes
    step = 15 / midi.get_tempo_changes()[1][0]
    return [[round(n.start / step), round((n.end - n.start) / step), n.pitch] for n in notes]


def harmonise(
    model: MusicModel,
    notes: str = melody([]),
    upload: str | None = None,
    keep: str = "soprano",
    particles: Any = 1,
    seed: Any = 0,
    temperature: Any = 1.0,
    count: Any = 1,
) -> list[Piece]:
    given = (notes, upload, keep, particles, 5)
    return music.perform(model, music.HARMONISE, *given, seed, temperature, count)


@pytest.mark.parametrize(("keep", "part"), [("soprano", 0), ("tenor", 2)])
def test_the_melody_stays_and_every_other_voice_is_new(keep: str, part: int) -> None:
    model = model_of(Chorales())
    made = harmonise(model, melody(MELODY[::-1]), keep=keep, particles=2, count=3)
    assert [piece.name for piece in made] == ["Harmony 1", "Harmony 2", "Harmony 3"]
    assert len({piece.midi for piece in made}) == 3
    for piece in made:
        assert [sixteenths(piece, part)] == [MELODY]
        assert len(piece.parts) == 4
    again = harmonise(model, melody(MELODY), keep=keep, particles=2, count=3)
    assert [piece.midi for piece in again] == [piece.midi for piece in made]


def test_a_midi_file_is_taken_in_place_of_the_keyboard(tmp_path: Path) -> None:
    path = tmp_path / "tune.mid"
    write_midi(music.read_melody(melody(MELODY)), path)
    (piece,) = harmonise(model_of(Chorales()), melody([[0, 1, 60]]), str(path))
    assert piece.name == "Harmony 1 of tune"
    assert sixteenths(piece, 0) == MELODY


def test_the_melody_has_the_tempo_of_the_page() -> None:
    score = music.read_melody(melody(MELODY, 150))
    assert score.tempos == [(0, 400_000)]
    assert score.notes_in_seconds.onset == pytest.approx([0, 0.2, 0.6])


def test_a_key_that_is_held_is_struck_again() -> None:
    notes = music.read_melody(melody([[4, 2, 60], [0, 8, 60], [2, 1, 64]])).notes
    spans = [*notes.rows("pitch", "onset", "release")]
    assert spans == [(60, 0, 480), (64, 240, 360), (60, 480, 720)]


def test_a_continuation_begins_with_the_melody_and_goes_on() -> None:
    given = (melody(MELODY), None, None, 1, 2.0)
    (piece,) = music.perform(model_of(Chorales()), music.CONTINUE, *given, 1, 1.0, 1)
    assert piece.name == "Continuation 1"
    soprano = [note for note in sixteenths(piece, 0) if note[0] < 6]
    assert soprano == [[0, 2, 67], [2, 2, 67]], "given notes come back as they are"
    assert piece.roll.seconds > 7 * 0.2 + 1


def test_what_a_model_can_do_depends_on_its_music() -> None:
    chorales, performances = model_of(Chorales()), model_of(Performances())
    assert music.actions(chorales) == [music.HARMONISE, music.CONTINUE, music.COMPOSE]
    assert music.voices(chorales) == ["soprano", "alto", "tenor", "bass"]
    assert music.actions(performances) == [music.CONTINUE, music.COMPOSE]
    assert music.voices(performances) == []


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        (melody([]), "no notes yet"),
        (melody([[0, 4, 90]]), "MIDI pitch 90"),
        (
            melody([[0, 4, 60]], 0),
            "Quarters per minute is 0; expected a whole number from 20 to 300",
        ),
        (melody([[0, 4, 60]], "fast"), "Quarters per minute"),
    ],
)
def test_other_melodies_are_refused_in_a_sentence(notes: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        harmonise(model_of(Chorales()), notes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"keep": "descant"}, "descant"),
        ({"temperature": 0}, "temperature must be above 0"),
    ],
)
def test_other_settings_are_refused_in_a_sentence(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        harmonise(model_of(Chorales()), **({"notes": melody(MELODY)} | change))


def hymn(bars: int = 4) -> Score:
    """Four voices in 3/4, a chord on each beat."""
    rows = [
        (pitch + (beat % 3 if voice == 0 else 0), beat * 480, (beat + 1) * 480, 80, voice)
        for voice, pitch in enumerate((67, 64, 60, 48))
        for beat in range(3 * bars)
    ]
    parts = [Part(name, is_drum=False) for name in ("Soprano", "Alto", "Tenor", "Bass")]
    return Score("hymn", parts, Notes.of(rows), 480, 1440 * bars, [], [(0, 3, 4)])


def bars_of(piece: Piece, part: int, first: int, last: int) -> list[tuple[float, float, int]]:
    """The notes of a part that begin in some bars of 1.5 seconds, counted from 1."""
    notes = ((note.start, note.end, note.pitch) for note in piece.parts[part].notes)
    return sorted(note for note in notes if first <= note[0] // 1.5 + 1 <= last)


def test_bars_of_some_voices_are_made_anew_again_and_again(tmp_path: Path) -> None:
    model, path = model_of(Chorales()), tmp_path / "hymn.musicxml"
    path.write_bytes(musicxml_bytes(hymn()))
    assert music.can_redo(model)
    first = music.redo(model, None, "[]", str(path), 2, 3, "Alto, tenor", 1, 0, 1.0, 2)
    assert [piece.name for piece in first] == ["Before", "Redone 1", "Redone 2"]
    before, after = first[:2]
    second = music.redo(model, after.midi, "[]", str(path), 4, 4, "", 1, 3, 1.0, 1)
    assert second[0].midi == after.midi
    for old, new, voices, bars in ((before, after, (1, 2), (2, 3)), (after, second[1], (0, 1, 2, 3),
                                                                     (4, 4))):  # fmt: skip
        changed = 0
        for part in range(4):
            kept = [(1, bars[0] - 1), (bars[1] + 1, 4)] if part in voices else [(1, 4)]
            for span in kept:
                assert bars_of(new, part, *span) == bars_of(old, part, *span)
            changed += bars_of(new, part, *bars) != bars_of(old, part, *bars)
        assert changed
    assert parse_musicxml(after.musicxml, name="a").time_signatures == [(0, 3, 4)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"first": 5}, "'bars:5-3'; expected bars from 1 to 4"),
        ({"last": 5}, "'bars:2-5'; expected bars from 1 to 4"),
        ({"first": None}, "expected soprano, alto, tenor, bass, or bars"),
        ({"tracks": "oboe"}, "oboe"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"shown": None}, "no notes yet"),
    ],
)
def test_other_bars_are_refused_in_a_sentence(change: dict[str, Any], says: str) -> None:
    given = {
        "shown": midi_bytes(hymn()), "notes": melody([]), "upload": None, "first": 2, "last": 3,
        "tracks": "", "particles": 1, "seed": 0, "temperature": 1.0, "count": 1,
    }  # fmt: skip
    with pytest.raises(UserError, match=says):
        music.redo(model_of(Chorales()), *(given | change).values())


def test_what_cannot_be_filled_offers_no_bars() -> None:
    assert not music.can_redo(model_of(Performances()))


def test_a_file_that_is_no_music_is_refused_in_a_sentence(tmp_path: Path) -> None:
    noise = tmp_path / "noise.mid"
    noise.write_bytes(b"MThd and then nothing that is music")
    says = r"^noise\.mid is not a MIDI file"  # without the temporary folder
    with pytest.raises(UserError, match=says):
        music.given_music(model_of(Chorales()), "[]", str(noise))
