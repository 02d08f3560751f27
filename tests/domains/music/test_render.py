import builtins
import wave

import numpy as np
import pytest

from triptych.domains.music import statistics
from triptych.domains.music.midi import FLUIDSYNTH, write_wav
from triptych.domains.music.statistics import self_similarity_png
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer


def read_wav(path):
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")


def test_without_fluidsynth_sines_play_and_are_named(make_piano, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "fluidsynth":
            raise ImportError("no library")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
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
