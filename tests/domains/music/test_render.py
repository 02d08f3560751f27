import builtins
import wave

import numpy as np
import pretty_midi
import pytest
from pretty import new_midi

from triptych.domains.music import midi
from triptych.domains.music.midi import FLUIDSYNTH, read_midi, write_piece, write_wav
from triptych.domains.music.notes import Notes, Part, Score
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
    used = write_wav(read_midi(make_piano([(60, 0, 1, 64)])), tmp_path / "a.wav")
    rate, samples = read_wav(tmp_path / "a.wav")
    assert "sine" in used
    assert "not installed" in used
    assert 1 <= len(samples) / rate <= 2.1  # the note, and a second for it to fade
    assert 0.85 * 32767 < np.abs(samples).max() <= 0.91 * 32767


def test_with_fluidsynth_its_sound_is_written(make_piano, tmp_path):
    pytest.importorskip("fluidsynth", exc_type=ImportError)
    used = write_wav(read_midi(make_piano([(60, 0, 1, 64)])), tmp_path / "a.wav")
    rate, samples = read_wav(tmp_path / "a.wav")
    assert used == FLUIDSYNTH
    assert len(samples) >= rate
    assert np.abs(samples).max() > 0.85 * 32767


def test_drums_are_heard_without_fluidsynth(tmp_path, no_fluidsynth):
    """Each drum at its time, a cymbal longer than a kick, none like another one."""
    drums = pretty_midi.Instrument(0, is_drum=True)
    pitches = (36, 38, 42, 45, 49, 75)
    drums.notes = [
        pretty_midi.Note(100, pitch, start, start + 0.1) for start, pitch in enumerate(pitches)
    ]
    write_wav(read_midi(new_midi([drums])), tmp_path / "a.wav")
    rate, samples = read_wav(tmp_path / "a.wav")
    hits = [samples[rate * n : rate * n + rate // 2].astype(float) for n in range(len(pitches))]
    assert all(np.abs(hit[: rate // 20]).max() > 0.2 * 32767 for hit in hits)
    tails = [np.abs(hit[rate // 5 : rate // 4]).max() / np.abs(hit).max() for hit in hits]
    assert max(tails[:4]) < 0.1 < min(tails[4:])
    crossings = [int((np.diff(np.sign(hit[: rate // 20])) != 0).sum()) for hit in hits]
    assert len(set(crossings)) == len(pitches)


@pytest.mark.parametrize("score_too", [False, True])
def test_a_score_is_written_with_its_frame(make_piano, tmp_path, monkeypatch, score_too):
    """Bars of 3/4 at 100, the first note given."""
    notes = Notes.of([(60, 0, 480, 80), (64, 480, 2880, 80)])
    part, meter = [Part("Tune", is_drum=False)], [(0, 3, 4)]
    score = Score("a", part, notes, 480, 2880, [(0, 600_000)], meter)
    drawn = {}
    monkeypatch.setattr(midi, "piano_roll_png", lambda *args: drawn.update(args=args) or b"png")
    write_piece(score, tmp_path / "a", [np.array([True, False])], score_too=score_too)
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
    write_wav(EventTokenizer().to_score(np.array([])), tmp_path / "a.wav")
    _, samples = read_wav(tmp_path / "a.wav")
    assert not samples.any()
