import builtins
import wave

import numpy as np
import pretty_midi
import pytest

from triptych.domains.music import midi, statistics
from triptych.domains.music.midi import FLUIDSYNTH, new_midi, read_midi, write_piece, write_wav
from triptych.domains.music.notes import Notes, Part, Score
from triptych.domains.music.statistics import self_similarity_png
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer


def read_wav(path):
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")


@pytest.fixture
def no_fluidsynth(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "fluidsynth":
            raise ImportError("no library")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)


def test_without_fluidsynth_sines_play_and_are_named(make_piano, tmp_path, no_fluidsynth):
    used = write_wav(make_piano([(60, 0, 1, 64)]), tmp_path / "a.wav")
    rate, samples = read_wav(tmp_path / "a.wav")
    assert "sine" in used
    assert "not installed" in used
    assert 1 <= len(samples) / rate <= 2.1  # the note, and a second for it to fade
    assert 0.85 * 32767 < np.abs(samples).max() <= 0.91 * 32767


def test_with_fluidsynth_its_sound_is_written(make_piano, tmp_path):
    pytest.importorskip("fluidsynth", exc_type=ImportError)
    used = write_wav(make_piano([(60, 0, 1, 64)]), tmp_path / "a.wav")
    rate, samples = read_wav(tmp_path / "a.wav")
    assert used == FLUIDSYNTH
    assert len(samples) >= rate
    assert np.abs(samples).max() > 0.85 * 32767


def test_drums_are_heard_without_fluidsynth(tmp_path, no_fluidsynth):
    """Each drum at its time, a kick darker than a hat, none like another one."""
    drums = pretty_midi.Instrument(0, is_drum=True)
    pitches = (36, 38, 42, 45, 49, 75)
    drums.notes = [
        pretty_midi.Note(100, pitch, start, start + 0.1) for start, pitch in enumerate(pitches)
    ]
    write_wav(new_midi([drums]), tmp_path / "a.wav")
    rate, samples = read_wav(tmp_path / "a.wav")
    hits = [samples[rate * n : rate * n + rate // 2].astype(float) for n in range(len(pitches))]
    assert all(np.abs(hit[: rate // 20]).max() > 0.2 * 32767 for hit in hits)
    crossings = [int((np.diff(np.sign(hit[: rate // 20])) != 0).sum()) for hit in hits]
    assert crossings[0] < 20 < 500 < crossings[2]
    assert len(set(crossings)) == len(pitches)


@pytest.mark.parametrize("score_too", [False, True])
def test_a_score_is_written_with_its_frame(make_piano, tmp_path, monkeypatch, score_too):
    """Bars of 3/4 at 100, the first note given."""
    notes = Notes.of([(60, 0, 480, 80), (64, 480, 2880, 80)])
    part, meter = [Part("Tune", is_drum=False)], [(0, 3, 4)]
    score = Score("a", part, notes, 480, 2880, [(0, 600_000)], meter)
    drawn = {}
    monkeypatch.setattr(midi, "piano_roll_png", lambda *args: drawn.update(args=args) or b"png")
    write_piece(score, tmp_path / "a", lambda part, onset: onset == 0, score_too=score_too)
    kinds = [".mid", ".musicxml", ".png", ".wav"] if score_too else [".mid", ".png", ".wav"]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == kinds
    parts, _, bars = drawn["args"]
    assert bars == pytest.approx([0, 1.8, 3.6])
    assert [(part.name, len(part.notes)) for part in parts] == [("Tune", 2)]
    for kind in {".mid", ".musicxml"} & {*kinds}:
        assert read_midi(tmp_path / f"a{kind}").bars().tolist()[-1] == (
            6 * (480 if kind == ".mid" else 5040)
        )


def test_silence_is_a_valid_wav(make_piano, tmp_path):
    write_wav(make_piano([]), tmp_path / "a.wav")
    _, samples = read_wav(tmp_path / "a.wav")
    assert not samples.any()


@pytest.mark.parametrize(
    ("tokenizer", "seconds", "edges"),
    [(ChoraleTokenizer(), 2.0, [0, 0.25, 0.5, 0.75]), (EventTokenizer(), 2.5, [0, 1, 2, 3])],
)
def test_self_similarity_has_beats_in_bars_or_seconds(
    tokenizer, seconds, edges, make_piano, monkeypatch
):
    """A quarter of chorales lasts 0.8 s; two panels, on the left octaves are equal."""
    figures = []
    monkeypatch.setattr(statistics, "png", figures.append)
    self_similarity_png(make_piano([(60, 0, 0.5, 64), (72, seconds - 0.4, seconds, 64)]),
                               tokenizer)  # fmt: skip
    octaves, pitches = (axes.collections[0] for axes in figures[0].axes[:2])
    for mesh in (octaves, pitches):
        assert mesh.get_coordinates()[0, :, 0].tolist() == edges
        assert mesh.get_clim() == (0, 1)
    alike = octaves.get_array()
    assert (alike[0, 0], alike[0, 2], pitches.get_array()[0, 2]) == (1, 1, 0)
    self_similarity_png(make_piano([]), tokenizer)
    assert not figures[1].axes[0].collections[0].get_array().any()
