import gzip
import json

import numpy as np
import pretty_midi
import pytest
from pretty import midi_bytes, pretty

from triptych.domains.music.midi import parse_midi, read_midi
from triptych.domains.music.notes import SILENT
from triptych.domains.music.sources.chorales import read_jsb
from triptych.domains.music.tokenizers import chorales
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.errors import UserError

TOKENIZER = ChoraleTokenizer()
encode_grid, decode_grid, midi_to_grid = TOKENIZER.encode, TOKENIZER.decode, TOKENIZER.from_midi


def grid_to_midi(grid):
    return pretty(TOKENIZER.to_score(encode_grid(grid)))


def random_grid(seed, steps=40):
    """Held notes, rests and crossing voices."""
    random = np.random.default_rng(seed)
    grid = random.integers(36, 82, (steps // 4, 4)).repeat(4, axis=0)
    grid[random.random(grid.shape) < 0.1] = SILENT
    return grid


def test_47_symbols_none_of_them_padding():
    assert len(chorales.SYMBOLS) == len(set(chorales.SYMBOLS)) == 47
    assert encode_grid(np.array([[81, 60, SILENT, 36]])).tolist() == [45, 24, 46, 0]


def test_voices_alternate_step_by_step():
    grid = np.array([[72, 67, 64, 48], [74, 67, 65, 50]])
    assert (encode_grid(grid) + 36).tolist() == [72, 67, 64, 48, 74, 67, 65, 50]
    np.testing.assert_array_equal(decode_grid(encode_grid(grid)), grid)


def test_a_last_step_with_voices_missing_is_filled_with_rests():
    assert decode_grid(np.array([10, 11])).tolist() == [[46, 47, SILENT, SILENT]]


@pytest.mark.parametrize("pitch", [35, 82, 0, 127])
def test_pitches_without_a_symbol_are_refused(pitch):
    with pytest.raises(ValueError, match="36 to 81"):
        encode_grid(np.array([[pitch, 60, 55, 48]]))


def test_a_held_pitch_is_one_note():
    grid = np.array([[72, 60, 55, 48]] * 4 + [[74, 60, 55, SILENT]] * 4)
    midi = grid_to_midi(grid)
    assert [instrument.name for instrument in midi.instruments] == list(chorales.VOICES)
    spans = [
        [(n.pitch, round(n.start, 6), round(n.end, 6)) for n in i.notes] for i in midi.instruments
    ]
    assert spans == [
        [(72, 0, 0.8), (74, 0.8, 1.6)], [(60, 0, 1.6)], [(55, 0, 1.6)], [(48, 0, 0.8)],
    ]  # fmt: skip
    assert TOKENIZER.onsets(encode_grid(grid)).sum() == 5


@pytest.mark.parametrize("seed", range(5))
def test_a_grid_survives_a_written_file_with_crossing_voices(seed):
    grid = random_grid(seed)
    grid[0] = [70, 65, 60, 40]  # all voices sing
    grid[-1] = [70, 65, 60, 40]
    grid[:, 0] = np.where(grid[:, 0] == SILENT, SILENT, 76 + grid[:, 0] % 5)  # the order is clear
    grid[:, 1] = np.where(grid[:, 1] == SILENT, SILENT, 66 + grid[:, 1] % 5)
    grid[:, 3] = np.where(grid[:, 3] == SILENT, SILENT, 40 + grid[:, 3] % 5)
    midi = parse_midi(midi_bytes(grid_to_midi(grid)), name="x")
    np.testing.assert_array_equal(midi_to_grid(midi), grid)


def test_any_ids_give_a_file_that_is_read_back():
    ids = np.random.default_rng(0).integers(0, 47, 203)
    midi = parse_midi(midi_bytes(TOKENIZER.to_score(ids)), name="x")
    assert midi.seconds([midi.last_tick])[0] <= 51 * chorales.SECONDS_PER_STEP + 1e-6


def test_a_primer_of_one_instrument_is_four_voices_from_the_top(make_piano, parsed):
    notes = [
        (60, 0, 0.5, 64),
        (72, 0, 0.25, 64),
        (67, 0, 0.5, 64),
        (48, 0, 0.5, 64),
        (40, 0, 0.5, 64),
    ]
    grid = midi_to_grid(parsed(make_piano(notes)))  # 120 bpm: a 16th is 0.125 s
    assert grid.tolist() == [[72, 67, 60, 40]] * 2 + [[67, 60, 48, 40]] * 2  # the outer voices


def test_four_unnamed_parts_are_ordered_by_their_mean_pitch(parsed):
    grid = np.array([[70, 65, 58, 45], [72, 64, 59, 48], [72, 76, 60, 50]])  # voices cross
    midi = grid_to_midi(grid)
    midi.instruments = [midi.instruments[voice] for voice in (1, 2, 0, 3)]
    for part in midi.instruments:
        part.name = ""
    assert midi_to_grid(parsed(midi)).tolist() == grid.tolist()


def test_a_chord_in_one_of_four_parts_is_no_voice(parsed):
    midi = grid_to_midi(np.array([[70, 65, 58, 45]] * 4))
    midi.instruments[3].notes.append(pretty_midi.Note(64, 50, 0, 0.4))
    found = midi_to_grid(parsed(midi))
    assert found.tolist() == [[70, 65, 58, 50]] * 2 + [[70, 65, 58, 45]] * 2


def test_a_primer_follows_its_own_tempo(parsed):
    midi = pretty_midi.PrettyMIDI(initial_tempo=60)
    midi.instruments.append(pretty_midi.Instrument(0))
    midi.instruments[0].notes.append(pretty_midi.Note(64, 60, 0, 1))
    assert len(midi_to_grid(parsed(midi))) == 4


def test_a_primer_of_drums_is_told(make_piano, parsed):
    midi = make_piano([(40, 0, 1, 64)])
    midi.instruments[0].is_drum = True
    with pytest.raises(UserError, match="no notes but drums"):
        midi_to_grid(parsed(midi))


def write_jsb(path, content):
    with gzip.open(path, "wt") as file:
        json.dump(content, file)


def test_the_jsb_file_is_read_with_its_splits(tmp_path):
    path = tmp_path / "a.json.gz"
    write_jsb(path, {"train": [[[60, 55, 50, -1]]], "valid": [[[61, 55, 50, 40]]], "test": []})
    assert read_jsb(path, "train")[0].tolist() == [[60, 55, 50, SILENT]]
    assert read_jsb(path, "validation")[0].tolist() == [[61, 55, 50, 40]]


@pytest.mark.parametrize(
    "content",
    [[], {"test": []}, {"train": [[[1, 2]]], "valid": [], "test": []},
     {"train": [[[60, 55, 50, 99]]], "valid": [], "test": []},
     {"train": [["x"]], "valid": [], "test": []}],
)  # fmt: skip
def test_another_json_is_told_by_name(tmp_path, content):
    path = tmp_path / "a.json.gz"
    write_jsb(path, content)
    with pytest.raises(UserError, match=r"a\.json\.gz"):
        read_jsb(path, "train")


def test_a_voice_that_rests_throughout_moves_no_other(tmp_path) -> None:
    grid = np.array([[70, 65, SILENT, 45], [72, 64, SILENT, 48], [72, 76, SILENT, 50]])
    path = tmp_path / "piece.mid"
    grid_to_midi(grid).write(str(path))
    read = midi_to_grid(read_midi(path))
    assert read.tolist() == grid.tolist(), "the alto sings above the soprano at the end"


def test_a_damaged_file_is_told_by_name(tmp_path):
    path = tmp_path / "Jsb16thSeparated.json.gz"
    steps = np.random.default_rng(0).integers(30, 90, (400, 4)).tolist()
    packed = gzip.compress(
        json.dumps({name: [steps] for name in ("train", "valid", "test")}).encode()
    )
    path.write_bytes(packed[:500] + b"\xff" * 3 + packed[503:])
    with pytest.raises(UserError, match=r"Jsb16thSeparated\.json\.gz is not a complete gzip file"):
        read_jsb(path, "train")
