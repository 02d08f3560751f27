"""Parts of a piece that are made anew: how they are written, and that the rest comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_music import Performances, tiny_model
from tiny_scores import Line, quarters, score_of

from triptych.domains.music.chords import CHORDS, chord_index
from triptych.domains.music.conditions import FrameOptions
from triptych.domains.music.config import Config, DataConfig, ModelConfig
from triptych.domains.music.frame import cut
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.metrics import mean_of_filled, score_filled
from triptych.domains.music.notes import DRUMS, Ids, Score
from triptych.domains.music.sources.base import Piece
from triptych.domains.music.tokenizers.base import FillPart, FillTask, MusicTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import END, notes_of, steps_of
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.domains.music.tokenizers.remi_bars import read_bars, written
from triptych.domains.music.tokenizers.remi_grammar import Kind
from triptych.errors import UserError

BAND = RemiTokenizer(
    ("violin", "cello", "drums"), velocities=4, keys=True, chord_symbols=True, infilling=True
)
PIANO = EventTokenizer(infilling=True)
N_BARS = 6
TUNE: Line = [
    (3 * n + k, 3 * n + k + 1, 64 + (5 * n + 2 * k) % 12) for n in range(N_BARS) for k in range(3)
]
BASS: Line = [(3 * n, 3 * n + 3, 40 + n) for n in range(N_BARS)]
BEAT: Line = [(n, n + 0.25, 36 + 2 * (n % 2)) for n in range(3 * N_BARS)]
WALTZ = replace(
    score_of(
        [("Fiddle", 40, TUNE), ("Low", 42, BASS), ("Kit", DRUMS, BEAT)],
        meters=((0, 3, 4),), tempo=100, key=(1, False),
    ),
    chords=[(0, "G:maj"), (3 * 3 * 480, "D:7")],
)  # fmt: skip


def answers(parts: list[FillPart]) -> object:
    """What samples the parts as they are in the piece, and keeps them."""

    def sample(part: FillPart) -> Ids:
        parts.append(part)
        return part.answer

    return sample


def rows(score: Score) -> list[tuple[object, ...]]:
    return sorted(score.notes.rows("onset", "release", "pitch", "program"))


@pytest.mark.parametrize("fill", ["bars:3-4", "track:Kit", "bars:2-5,Low,Fiddle", "bars:1-6"])
def test_the_answer_is_the_piece_and_the_grammar_allows_it(fill: str) -> None:
    for window in (4096, 200):  # a small one makes the bars in several parts
        parts: list[FillPart] = []
        made = BAND.fill(FillTask(WALTZ, None, fill, answers(parts), window))
        assert rows(made.score) == rows(WALTZ)
        assert made.score.time_signatures == WALTZ.time_signatures
        assert made.is_new.any()
        assert (window == 200 or fill == "bars:1-6") <= (len(parts) > 0)
        for part in parts:
            grammar = part.grammar(len(part.prompt))
            ids = np.concatenate([part.prompt, part.answer])
            kept = 0
            for place in range(len(part.prompt), len(ids)):
                forbidden = grammar(torch.from_numpy(ids[None, :place]))[0]
                assert not forbidden[ids[place]], BAND.symbols[ids[place]]
                kept += int((~forbidden).sum() == 1)
            assert kept >= (BAND.meaning.kind[part.answer] == Kind.New).sum() * 3


def cut_off(parts: list[FillPart], most: int) -> object:
    """What samples the parts as they are, each up to `most` tokens."""

    def sample(part: FillPart) -> Ids:
        parts.append(part)
        return part.answer[:most]

    return sample


def test_what_the_most_tokens_cut_off_is_made_after_it() -> None:
    piano = score_of([("Piano", 0, [*TUNE, *BASS])], meters=((0, 3, 4),), tempo=100)
    for tokenizer, piece, tolerance in ((BAND, WALTZ, 0.0), (PIANO, piano, 480 * 0.02)):
        whole: list[FillPart] = []
        tokenizer.fill(FillTask(piece, None, "bars:2-5", answers(whole), 4096))
        most = len(whole[0].answer) * 3 // 5
        parts: list[FillPart] = []
        made = tokenizer.fill(FillTask(piece, None, "bars:2-5", cut_off(parts, most), 4096))
        assert len(parts) > len(whole)
        found = np.array([row[:3] for row in rows(made.score)])
        expected = np.array([row[:3] for row in rows(piece)])
        # In a performance a note that sounds at the cut ends there.
        np.testing.assert_allclose(found[:, [0, 2]], expected[:, [0, 2]], atol=tolerance)


def test_a_window_holds_both_sides_of_the_part() -> None:
    parts: list[FillPart] = []
    BAND.fill(FillTask(WALTZ, None, "bars:3", answers(parts), 4096))
    (part,) = parts
    words = [BAND.symbols[token] for token in part.prompt]
    assert words[0] == "Fill"
    assert words.count("Bar") == N_BARS - 1
    assert words.index("Past") > words.index("EOS")  # the piece ends after the bars after it
    assert words[words.index("Past") :].count("Bar") == 2
    assert [BAND.symbols[token] for token in part.answer][:6] == [
        "Bar", "TimeSig_3/4", "Position_0", "Tempo_100", "Chord_G:maj", "New",
    ]  # fmt: skip


def whole(tokenizer: RemiTokenizer, example: Ids) -> list[object]:
    """The bars of an example in the order of the piece."""
    kinds = tokenizer.meaning.kind[example]
    past = int(np.flatnonzero(kinds == Kind.Past)[0])
    bars = read_bars(tokenizer, example[past + 1 :]) + read_bars(tokenizer, example[1:past])
    return [sorted(item for item in bar.items if item.player >= 0) for bar in bars]


def test_examples_are_crops_in_another_order() -> None:
    ids = BAND.tokens(BAND.from_midi(WALTZ))
    expected = [sorted(i for i in bar.items if i.player >= 0) for bar in read_bars(BAND, ids)]
    generator = torch.Generator().manual_seed(0)
    news, told, tracks = set(), set(), set()
    for _ in range(40):
        padded = np.concatenate([ids, ids])  # room for the marks
        example = BAND.fill_example(np.concatenate([ids[:-1], ids[-1:]]), generator)
        kinds = BAND.meaning.kind[example]
        assert len(example) <= len(ids) <= len(padded)
        news.add(int((kinds == Kind.New).sum()))
        after_past = int(np.flatnonzero(kinds == Kind.Past)[0])
        told.add(bool((kinds[after_past:] == Kind.Chord).any()))
        found = [bar for bar in whole(BAND, example) if bar]
        assert sum(bar not in expected for bar in found) <= int(example[-1] != BAND.end)
        first_new = int(np.flatnonzero(kinds == Kind.New)[0])
        tracks.add(bool((kinds[after_past:first_new] == Kind.Pitch).any()))
    assert news >= {1, 2, 3}
    assert told == tracks == {False, True}


def test_examples_of_performances() -> None:
    """The waits of the part, what follows it, what precedes it, and the part."""
    notes = PIANO.from_midi(WALTZ)
    ids = PIANO.tokens(notes)
    generator = torch.Generator().manual_seed(0)
    total = int(steps_of(ids).sum())
    for _ in range(20):
        example = PIANO.fill_example(ids, generator)
        names = [PIANO.symbols[token] for token in example]
        assert names[0] == "fill"
        assert len(example) <= len(ids)
        past = names.index("past")
        part = example[past + 1 :]
        assert steps_of(part).sum() <= total
        assert example[-1] == END or len(example) == len(ids)
    short = ids[:8]
    assert PIANO.fill_example(short, generator) is short


@pytest.mark.parametrize("fill", ["bars:3-4", "bars:1", "bars:2-6"])
def test_the_answer_of_a_performance_is_the_piece(fill: str) -> None:
    piano = score_of([("Piano", 0, [*TUNE, *BASS])], meters=((0, 3, 4),), tempo=100)
    parts: list[FillPart] = []
    made = PIANO.fill(FillTask(piano, None, fill, answers(parts), 4096))
    found, expected = (np.array([row[:3] for row in rows(one)]) for one in (made.score, piano))
    np.testing.assert_allclose(found, expected, atol=480 * 0.02)
    for part in parts:
        grammar = part.grammar(len(part.prompt))
        ids = np.concatenate([part.prompt, part.answer])
        for place in range(len(part.prompt), len(ids)):
            forbidden = grammar(torch.from_numpy(ids[None, :place]))[0]
            assert not forbidden[ids[place]], PIANO.symbols[ids[place]]
        assert notes_of(part.answer[:-1], int(steps_of(part.answer).sum())).pitch.size


def model_of(tokenizer: MusicTokenizer, length: int) -> MusicModel:
    return tiny_model(Performances(), length=length, overlap=length // 2, tokenizer=tokenizer)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_model_changes_what_is_named_alone(seed: int) -> None:
    model = model_of(BAND, 256)
    made = model.complete(WALTZ, fill="bars:3-4,track:Fiddle", seed=seed)[0]
    others = WALTZ.notes[(WALTZ.notes.part != 0) | (WALTZ.notes.onset < 6 * 480)
                         | (WALTZ.notes.onset >= 12 * 480)]  # fmt: skip
    kept = made.score.notes[~made.is_new]
    assert sorted(kept.rows("onset", "release", "pitch")) == sorted(
        others.rows("onset", "release", "pitch")
    )
    new = made.score.notes[made.is_new]
    assert len(new)
    assert {*new.program.tolist()} == {40}
    assert 6 * 480 <= new.onset.min() <= new.onset.max() < 12 * 480
    assert made.score.key_signatures == WALTZ.key_signatures


@pytest.mark.parametrize("fill", ["bars:5-6", "track:Low"])
def test_new_notes_end_with_the_piece(fill: str) -> None:
    made = model_of(BAND, 256).complete(WALTZ, fill=fill, seed=1)[0]
    assert made.is_new.any()
    assert made.score.notes.release.max() <= WALTZ.last_tick


def test_a_refusal_names_some_of_many_instruments() -> None:
    with pytest.raises(UserError, match=r"expected fiddle, low, kit, .*, \.\.\., or bars"):
        model_of(RemiTokenizer(infilling=True), 256).complete(WALTZ, keep="soprano")


def test_what_a_melody_alone_is_kept_for() -> None:
    """Instruments that the piece lacks play with what is kept, where nothing else is left."""
    model = model_of(BAND, 256)
    tune = score_of([("Fiddle", 40, TUNE)], meters=((0, 3, 4),), tempo=100)
    made = model.complete(tune, keep="track:Fiddle", seed=1)[0]
    assert rows(replace(made.score, notes=made.score.notes[~made.is_new])) == rows(tune)
    assert {*made.score.notes[made.is_new].program.tolist()} <= {42, DRUMS}
    assert made.is_new.any()
    own = model.complete(tune, keep="bars:1-4", seed=1)[0].score
    assert {*own.notes.program.tolist()} == {40}, "the piece has a part to make"
    harp = score_of([("Harp", 46, TUNE), ("Fiddle", 40, TUNE)], meters=((0, 3, 4),), tempo=100)
    with pytest.raises(UserError, match="leaves nothing"):
        model.complete(harp, fill="track:Harp")


def test_a_piano_model_changes_whole_bars() -> None:
    model = model_of(PIANO, 200)
    piano = score_of([("Piano", 0, TUNE), ("Left", 0, BASS)], meters=((0, 3, 4),), tempo=100)
    made = model.complete(piano, keep="bars:1-4", seed=1)[0]
    old, new = made.score.notes[~made.is_new], made.score.notes[made.is_new]
    assert old.onset.max() < 12 * 480 <= new.onset.min()
    assert new.release.max() <= 18 * 480 + 20
    with pytest.raises(UserError, match="whole bars"):
        model.complete(piano, fill="track:Left")


def test_chords_and_bars_without_a_given_piece() -> None:
    made = model_of(BAND, 256).sample(
        1, frame=FrameOptions(
            chords="G D:7", bars=4, meter="3/4", tempo=100
        ),
    )[0]  # fmt: skip
    assert [name for _, name in made.score.chords] == ["G", "D:7", "G", "D:7"]
    assert made.score.notes.onset.max() < 12 * made.score.ticks_per_quarter
    assert made.score.time_signatures == [(0, 3, 4)]


def test_chords_are_transposed_with_the_notes() -> None:
    ids = BAND.from_midi(WALTZ)
    up = BAND.to_score(BAND.transpose(ids, 3))
    assert [name for _, name in up.chords] == ["Bb:maj", "F:7"]
    assert up.key_signatures == [(0, -2, False)]
    assert quarters(up, 0)[0] == (0, 1, 67)
    assert quarters(up, 2) == quarters(BAND.to_score(ids), 2)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("Am", "A:min"), ("Bb/D", "Bb:maj"), ("F#m7b5", "F#:hdim7"), ("G7", "G:7"), ("N.C.", "N"),
     ("C:maj7/3", "C:maj7"), ("Dsus", "D:sus4"), ("E:sus4(b7)", "E:sus4")],
)  # fmt: skip
def test_spellings_of_chords(symbol: str, name: str) -> None:
    index = chord_index(symbol)
    assert index is not None
    assert CHORDS[index] == name
    assert chord_index("Verse") is None


def test_infilling_needs_ids_for_it() -> None:
    with pytest.raises(ValueError, match=r"infilling_share is 0\.5"):
        Config(
            data=DataConfig(source=Performances(), infilling_share=0.5),
            model=ModelConfig(tokenizer=EventTokenizer()),
        )
    with pytest.raises(UserError, match=r"remi.*infilling_share"):
        model_of(RemiTokenizer(("violin",)), 128).complete(WALTZ, fill="bars:1")


def test_nats_of_bars_given_both_sides_and_given_the_past() -> None:
    """Against the model's own pass over the two sequences, written here by hand."""
    model = model_of(BAND, 512)
    found = score_filled(model.model, model.settings, WALTZ, "bars:4")
    bars = read_bars(BAND, BAND.from_midi(WALTZ))
    assert found["notes"] == sum(item.player >= 0 for item in bars[3].items) == 7

    def ids(text: str) -> list[int]:
        return [BAND.symbols.index(word) for word in text.split()]

    def nats(before: list[int], after: list[int], known: set[str]) -> float:
        values = torch.tensor([before + after])
        with torch.no_grad():
            nll = model.full_model.nll(values)[0][len(before) :].double()
        names = [BAND.symbols[token].partition("_")[0] for token in after]
        return sum(float(n) for n, name in zip(nll, names, strict=True) if name not in known)

    marks = {"Bar", "TimeSig", "Tempo", "Chord", "Key"}
    past, future = written(BAND, bars[:3]).tolist(), written(BAND, bars[4:]).tolist()
    bar = written(BAND, bars[3:4]).tolist()
    assert found["past"] == pytest.approx(nats(past, bar, marks), rel=1e-5)
    head = ids("Bar TimeSig_3/4 Position_0 Tempo_100 Chord_D:7 New")
    free = BAND.symbols.index("Position_0")
    notes = written(BAND, [bars[3].only({0, 1, 2})]).tolist()
    notes = notes[notes.index(free) :]
    given = [*ids("Fill"), *future, *ids("EOS Past"), *past, *head]
    expected = nats(given, [*notes, BAND.end], {"EOS"})
    assert found["both_sides"] == pytest.approx(expected, rel=1e-5)


def test_pieces_without_the_bars_are_left_out() -> None:
    model = model_of(BAND, 512)
    done: list[tuple[int, ...]] = []
    short = Piece("short", BAND.from_midi(cut(WALTZ, int(WALTZ.bars()[2]))))
    whole = Piece("whole", BAND.from_midi(WALTZ))

    def scored(pieces: list[Piece]) -> dict[str, Any]:
        def progress(*row: int) -> None:
            done.append(row)

        return mean_of_filled(model.model, model.settings, pieces, "bars:4", progress)

    alone = scored([whole])
    assert (alone["pieces"], alone["free_notes"]) == (1, 7)
    done.clear()
    assert scored([short, whole]) == alone
    assert done == [(1, 2), (2, 2)]
    with pytest.raises(UserError, match="bars from 1 to 2"):
        scored([short])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_band_continues_in_the_frame_of_its_primer(seed: int) -> None:
    model = model_of(BAND, 512)
    made = model.sample(1, primer=WALTZ, seconds=4.0, seed=seed)[0]
    old, new = made.score.notes[~made.is_new], made.score.notes[made.is_new]
    columns = ("onset", "release", "pitch", "program")
    assert sorted(old.rows(*columns)) == sorted(WALTZ.notes.rows(*columns))
    assert new.onset.min() >= WALTZ.last_tick
    assert made.score.duration <= WALTZ.duration + 4.001
    assert [part.name for part in made.score.parts[:3]] == ["Fiddle", "Low", "Kit"]
    for name in ("tempos", "time_signatures", "key_signatures"):
        assert list(getattr(made.score, name)) == list(getattr(WALTZ, name))
