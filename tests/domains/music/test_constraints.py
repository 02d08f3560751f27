"""Constraints on sampled music, judged by the music and by their definitions in plain Python."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from pretty import midi_bytes, notes_of, pretty
from tiny_music import Chorales, Performances, tiny_model

from triptych.decoding.constraints import ByPriority
from triptych.decoding.execution import CompiledSteps
from triptych.decoding.generate import generate
from triptych.decoding.sampling import Draft, LogitsConstraint, SampleRequest
from triptych.domains.music.conditions import SCALES, ConstraintOptions, parse_range, parse_scale
from triptych.domains.music.domain import MusicSampleOptions
from triptych.domains.music.generation import continue_tokens, sample_pieces
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.notes import SILENT, on_grid, voice_grid
from triptych.domains.music.statistics import voice_leading
from triptych.domains.music.tokenizers.base import MusicTokenizer, Prompt
from triptych.domains.music.tokenizers.chorales import (
    LOWEST,
    REST,
    VOICE_RANGES,
    ChoraleTokenizer,
)
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import (
    END,
    NOTE_OFF,
    PAST,
    SHIFT,
    VELOCITY,
    LongestNote,
)
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.errors import UserError
from triptych.types import Sampling

CHORALES, EVENTS = ChoraleTokenizer(), EventTokenizer()
PARALLELS = ("parallel_fifths", "parallel_octaves")


CHOIR = tiny_model(Chorales(), length=128, overlap=64)
PIANIST = tiny_model(Performances(), length=120, overlap=40)


def sampled(model: MusicModel, options: ConstraintOptions | None, **length: Any) -> list[Any]:
    """Tokens of eight pieces, some windows long."""
    rules = [] if options is None else model.tokenizer.constraints(options)
    request = SampleRequest(8, seed=0)
    return sample_pieces(model.model, model.settings, request, constraints=rules, **length)


def rule_of(
    grammar: LogitsConstraint | None, tokenizer: MusicTokenizer, options: ConstraintOptions
) -> LogitsConstraint:
    rules = tokenizer.constraints(options)
    return ByPriority(rules if grammar is None else [grammar, *rules])


# Chorales


def parallels(grid: np.ndarray) -> int:
    """Parallel fifths and octaves, counted voice by voice and step by step."""
    found = 0
    for before, after in itertools.pairwise(grid.tolist()):
        for one, other in itertools.combinations(range(4), 2):
            pitches = before[one], before[other], after[one], after[other]
            if SILENT in pitches:
                continue
            up = after[one] - before[one], after[other] - before[other]
            same_way = min(up) > 0 or max(up) < 0
            intervals = (before[one] - before[other]) % 12, (after[one] - after[other]) % 12
            found += same_way and intervals in ((0, 0), (7, 7))
    return found


def faults(grid: np.ndarray, options: ConstraintOptions, first: int = 0) -> dict[str, int]:
    """How often a chorale, from a step on, does what the options forbid."""
    counts: dict[str, int] = {}
    new = grid[first:]
    sounding = new[new != SILENT]
    if options.scale is not None:
        classes = parse_scale(options.scale)
        counts["scale"] = sum(pitch % 12 not in classes for pitch in sounding.tolist())
    if options.ranges is not None:
        outside = 0
        for line, (low, high) in zip(new.T, VOICE_RANGES.values(), strict=True):
            outside += ((line != SILENT) & ((line < low) | (line > high))).sum()
        counts["ranges"] = int(outside)
    if options.no_parallels:
        counts["parallels"] = parallels(grid[max(0, first - 1) :])
    return counts


def asked(options: ConstraintOptions) -> list[str]:
    return [name for name, value in vars(options).items() if value not in (None, False)]


CHORALE_OPTIONS = [
    ConstraintOptions(no_parallels=True),
    ConstraintOptions(scale="Eb:harmonic_minor"),
    ConstraintOptions(ranges="textbook"),
    ConstraintOptions(ranges="textbook", scale="C:major", no_parallels=True),
]


@pytest.mark.parametrize("options", CHORALE_OPTIONS, ids=lambda options: str(asked(options)))
@pytest.mark.parametrize("primed", [False, True])
def test_constrained_chorales_obey_and_others_do_not(
    options: ConstraintOptions, primed: bool
) -> None:
    """Over several windows. A primer that breaks every rule is kept."""
    random = np.random.default_rng(3)
    primer = random.integers(36, 82, (40 if primed else 0, 4))
    prompt = CHORALES.encode(primer)
    for constraints, wrong in ((None, True), (options, False)):
        pieces = sampled(CHOIR, constraints, length=80, prompt=Prompt(prompt, 0))
        counts: Counter[str] = Counter()
        for ids in pieces:
            grid = CHORALES.decode(ids)
            assert np.array_equal(grid[: len(primer)], primer)
            counts.update(faults(grid, options, len(primer)))
            notes = on_grid(notes_of(pretty(CHORALES.to_score(ids))), CHORALES.steps_per_second)
            if options.no_parallels and not primed and not wrong:
                leading = voice_leading(voice_grid(notes, 4))
                assert [leading[name] for name in PARALLELS] == [0, 0]
            assert len(notes) > 100  # not silence
        assert len(counts) == len(asked(options))
        assert all(count > 0 if wrong else count == 0 for count in counts.values()), counts


def test_parallels_are_those_of_the_statistics() -> None:
    """Each pitch of each voice of a step, for voices that cross, rest, hold and leap."""
    random = np.random.default_rng(0)
    seen = 0
    for _ in range(30):
        grid = random.integers(36, 82, (3, 4))
        grid[1] = grid[1, 0] - random.choice([0, 7, 12, 19, -5, 3], 4)
        grid[2] = grid[1] + random.choice([-2, 0, 2, 12], 1)
        grid[random.random((3, 4)) < 0.05] = SILENT
        grid = np.where(grid == SILENT, SILENT, np.clip(grid, 36, 81))
        for voice in range(4):
            values = torch.from_numpy(CHORALES.encode(grid)[: 8 + voice]).unsqueeze(0)
            (rule,) = CHORALES.constraints(ConstraintOptions(no_parallels=True))
            forbidden = rule(values)[0].tolist()
            partial = grid.copy()
            partial[2, voice:] = SILENT
            before = count_parallels(partial)
            for token in range(47):
                partial[2, voice] = SILENT if token == REST else token + LOWEST
                assert forbidden[token] is (count_parallels(partial) > before)
            seen += sum(forbidden)
    assert seen > 25


def count_parallels(grid: np.ndarray) -> int:
    leading = voice_leading(grid)
    motion = np.diff(grid, axis=0) * (grid[1:] != SILENT) * (grid[:-1] != SILENT)
    transitions = int(motion.any(1).sum())
    return round(sum(leading[name] for name in PARALLELS) * transitions / 100) if transitions else 0


def test_a_draft_and_a_compiled_step_sample_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the front end of torch.compile alone, which is quick."""
    compile_step = torch.compile
    monkeypatch.setattr(torch, "compile", lambda step, **_: compile_step(step, backend="eager"))
    model, options = CHOIR.model, CHORALE_OPTIONS[-1]
    ways: list[dict[str, Any]] = [{}, {"draft": Draft(4)}, {"compiled": CompiledSteps(model)}]
    plain, *others = (
        continue_tokens(
            model,
            SampleRequest(
                prefix=torch.zeros(3, 0, dtype=torch.int64),
                length=60,
                constraint=rule_of(None, CHORALES, options),
                sampling=Sampling(temperature=0.7),
                seed=1,
                **way,
            ),
            CHOIR.settings,
        )
        for way in ways
    )
    assert all(torch.equal(plain, other) for other in others)


def test_a_constraint_removes_values_and_renormalises_step_by_step() -> None:
    """Against the enumeration of a step after a given one."""

    class Narrow(ChoraleTokenizer):
        voice_ranges = {"Soprano": (67, 69), "Alto": (60, 62), "Tenor": (55, 56), "Bass": (48, 50)}  # noqa: RUF012

    options = ConstraintOptions(ranges="textbook", scale="C:major", no_parallels=True)
    pitches = [[67, 69], [60, 62], [55], [48, 50]]
    first = np.array([[67, 60, 55, 48]])
    prefix = torch.from_numpy(CHORALES.encode(first)).unsqueeze(0)
    model = CHOIR.model.double()
    expected: dict[tuple[int, ...], float] = {}
    for step in itertools.product(*[[*own, SILENT] for own in pitches]):
        ids = torch.from_numpy(CHORALES.encode(np.array([first[0], step])))
        with torch.no_grad():
            p = model(ids.unsqueeze(0))[0].softmax(-1)  # [8, V]
        probability = 1.0
        for voice, own in enumerate(pitches):
            allowed = []
            for pitch in (*own, SILENT):
                partial = np.array([first[0], [*step[:voice], pitch, *[SILENT] * (3 - voice)]])
                if parallels(partial) == 0:
                    allowed.append(REST if pitch == SILENT else pitch - LOWEST)
            token = int(ids[4 + voice])
            mass = float(p[4 + voice, allowed].sum())
            probability *= float(p[4 + voice, token]) / mass if token in allowed else 0.0
        expected[step] = probability
    assert sum(expected.values()) == pytest.approx(1)
    assert list(expected.values()).count(0) >= 8
    count = 40_000
    drawn = generate(
        model,
        SampleRequest(
            count=count,
            length=8,
            prefix=prefix.expand(count, -1),
            constraint=rule_of(None, Narrow(), options),
            seed=0,
        ),
    )
    model.float()
    steps = Counter(map(tuple, CHORALES.decode(drawn.reshape(-1).numpy())[1::2].tolist()))
    assert set(steps) <= {step for step, p in expected.items() if p > 0}
    for step, p in expected.items():
        assert abs(steps[step] / count - p) <= 5 * math.sqrt(p * (1 - p) / count)


# Performances


def spans(ids: np.ndarray) -> list[tuple[int, int, int]]:
    """Pitch, onset and release in 10 ms of each note of the events, in the order of the onsets."""
    now, sounding, notes = 0, {}, []
    for token in ids.tolist():
        if SHIFT <= token < VELOCITY:
            now += token - SHIFT + 1
        elif token < SHIFT:
            start = sounding.pop(token % 128, None)
            if start is not None:
                notes[start][2] = now
            if token < NOTE_OFF:
                sounding[token] = len(notes)
                notes.append([token, now, -1])
    return [(pitch, on, now if off < 0 else off) for pitch, on, off in notes]


def event_faults(ids: np.ndarray, options: ConstraintOptions, n_old: int = 0) -> dict[str, int]:
    """How often a performance does what the options forbid; the first notes do not count."""
    notes, counts = spans(ids), {}
    new = notes[n_old:]
    if options.scale is not None:
        classes = parse_scale(options.scale)
        counts["scale"] = sum(pitch % 12 not in classes for pitch, *_ in new)
    if options.ranges is not None:
        low, high = parse_range(options.ranges)
        counts["ranges"] = sum(not low <= pitch <= high for pitch, *_ in new)
    return counts


def test_which_notes_have_sounded_for_too_long() -> None:
    generator = torch.Generator().manual_seed(2)
    ids = [*range(60, 63), *range(NOTE_OFF + 60, NOTE_OFF + 63), SHIFT + 19, SHIFT + 49, PAST]
    picked = torch.multinomial(torch.tensor([3.0] * 8 + [0.5]), 4 * 50, True, generator=generator)
    values = torch.tensor(ids)[picked].view(4, 50)
    size, steps = PAST + 1, 60
    rule, n_overdue = LongestNote(size, steps), 0
    for length in range(51):
        found = rule(values[:, :length])
        for row, some in enumerate(values[:, :length].tolist()):
            began: dict[int, int] = {}
            now = 0
            for token in some:
                if token < NOTE_OFF:
                    began[token] = now
                elif token < SHIFT:
                    began.pop(token - NOTE_OFF, None)
                elif token == PAST:
                    began.clear()
                else:
                    now += token - SHIFT + 1
            overdue = {NOTE_OFF + pitch for pitch, at in began.items() if now - at >= steps}
            expected = [bool(overdue) and token not in overdue for token in range(size)]
            assert found[row].tolist() == expected
            n_overdue += len(overdue)
    assert n_overdue > 20


def test_no_sampled_note_is_longer_than_the_longest() -> None:
    with torch.no_grad():  # few releases
        bias = PIANIST.model.head.logits.bias
        bias.zero_()
        bias[NOTE_OFF:SHIFT] -= 3
        bias[SHIFT:VELOCITY] += 2
        bias[END] -= 100
    longest = []
    for options in (None, ConstraintOptions(longest_note=1.5)):
        pieces = [EVENTS.decode(ids) for ids in sampled(PIANIST, options, length=250)]
        longest.append(max(float((notes.release - notes.onset).max()) for notes in pieces))
    # A shift is at most a second.
    assert longest[1] < 1.5 + 1 < longest[0]


EVENT_OPTIONS = [
    ConstraintOptions(scale="F#:minor"),
    ConstraintOptions(ranges="48-84"),
    ConstraintOptions(scale="C:natural_minor", ranges="48-72"),
]


@pytest.mark.parametrize("options", EVENT_OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("length", "primed"),
    [
        ({"length": 250}, True),
        pytest.param({"length": 250}, False, marks=pytest.mark.slow),
        pytest.param({"seconds": 5.0}, True, marks=pytest.mark.slow),
        pytest.param({"seconds": 5.0}, False, marks=pytest.mark.slow),
    ],
    ids=["events-primed", "events", "seconds-primed", "seconds"],
)
def test_constrained_performances_obey_and_others_do_not(
    options: ConstraintOptions, length: dict[str, Any], primed: bool
) -> None:
    """The primer has notes outside the scale and the range, and one note sounds."""
    rows = [61, 30, 66, 100, 66, 61, 30, 66, 100, 47] if primed else []
    prompt = np.array([*rows, *([SHIFT + 6, NOTE_OFF + 61] if primed else [])], dtype=np.int64)
    model = PIANIST.model
    with torch.no_grad():  # releases and waits as often as notes, some common notes, no early end
        bias = model.head.logits.bias
        bias.zero_()
        bias[NOTE_OFF:SHIFT] += 1.5
        bias[60:64] += 5
        bias[END] -= 100
    for constraints, wrong in ((None, True), (options, False)):
        counts: Counter[str] = Counter()
        n_notes = 0
        for ids in sampled(PIANIST, constraints, prompt=Prompt(prompt, 0), **length):
            assert np.array_equal(ids[: len(prompt)], prompt)
            ids = ids[ids != END]
            counts.update(event_faults(ids, options, len(rows)))
            n_notes += len(spans(ids)) - len(rows)
            midi_bytes(EVENTS.to_score(ids))
        assert n_notes > 30
        assert len(counts) == len(asked(options))
        assert all(count > 0 if wrong else count == 0 for count in counts.values()), counts


@pytest.mark.parametrize(
    ("tokenizer", "options"),
    [
        *((CHORALES, options) for options in CHORALE_OPTIONS),
        *((EVENTS, options) for options in EVENT_OPTIONS),
        (CHORALES, ConstraintOptions(ranges="60-60", no_parallels=True)),
        (EVENTS, ConstraintOptions(ranges="60-60")),
    ],
    ids=str,
)
@pytest.mark.parametrize("seconds", [None, 30.0])
def test_a_token_is_always_left_and_the_past_alone_decides(
    tokenizer: MusicTokenizer, options: ConstraintOptions, seconds: float | None
) -> None:
    """Random walks through what is permitted; the grammar is obeyed even where others yield."""
    rows, generator = 30, torch.Generator().manual_seed(0)
    rule = rule_of(tokenizer.grammar(rows, seconds=seconds, n_prompt=0), tokenizer, options)
    grammar = tokenizer.grammar(rows, seconds=seconds, n_prompt=0)
    values = torch.zeros(rows, 0, dtype=torch.int64)
    for _ in range(150):
        forbidden = rule(values)
        assert forbidden.shape == (rows, tokenizer.vocabulary_size)
        assert not forbidden.all(1).any()
        if grammar is not None:
            assert not (grammar(values) & ~forbidden).any()
        value = torch.multinomial((~forbidden).float(), 1, generator=generator)
        values = torch.cat([values, value], dim=1)
    fresh = rule_of(tokenizer.grammar(rows, seconds=seconds, n_prompt=0), tokenizer, options)
    assert torch.equal(fresh(values), rule(values))


# Options


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("C:major", {0, 2, 4, 5, 7, 9, 11}),
        ("A:natural_minor", {0, 2, 4, 5, 7, 9, 11}),
        ("a:harmonic_minor", {9, 11, 0, 2, 4, 5, 8}),
        ("A:minor", {9, 11, 0, 2, 4, 5, 7, 8}),
        ("Bb:major", {10, 0, 2, 3, 5, 7, 9}),
        ("F#:major", {6, 8, 10, 11, 1, 3, 5}),
        ("Cb:major", {11, 1, 3, 4, 6, 8, 10}),
        ("G:chromatic", set(range(12))),
    ],
)
def test_scales(text: str, classes: set[int]) -> None:
    assert parse_scale(text) == classes


def test_ranges() -> None:
    assert parse_range(" 48 - 84") == (48, 84)
    assert parse_range("127-127") == (127, 127)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"scale": "H:major"}, "scale is 'H:major'; expected a note from A to G"),
        ({"scale": "C:dorian"}, ", ".join(SCALES)),
        ({"ranges": "84-48"}, "ranges is '84-48'; expected a lowest and a highest"),
        ({"ranges": "100-128"}, "at most 127"),
        ({"ranges": "bass=40-50"}, "ranges is 'bass=40-50'; expected"),
    ],
    ids=str,
)
def test_impossible_options(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MusicSampleOptions(checkpoint="x", out="y", **wrong)


@pytest.mark.parametrize(
    ("model", "wrong", "says"),
    [
        (PIANIST, {"no_parallels": True}, "no_parallels cannot be given .* written as events"),
        (CHOIR, {"ranges": "20-30"}, "left to the soprano.* 20 to 30 .* 36 to 81"),
        (CHOIR, {"ranges": "49-49", "scale": "C:major"}, "none from 49 to 49"),
        (PIANIST, {"ranges": "61-61", "scale": "C:major"}, "none from 61 to 61"),
        (PIANIST, {"ranges": "textbook"}, "no voices"),
    ],
    ids=lambda value: None if isinstance(value, MusicModel) else str(value),
)
def test_options_that_the_music_does_not_have(
    model: MusicModel, wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        model.sample(1, length=4, constraints=ConstraintOptions(**wrong))


def test_a_tokenizer_offers_its_own_constraints() -> None:
    class Other(RemiTokenizer):
        """One class, and nothing else that names it."""

        constraint_options = ("no_parallels",)

        def rules(self, options: ConstraintOptions) -> list[LogitsConstraint]:
            return [lambda values: values] * options.no_parallels

    assert Other().constraints(ConstraintOptions()) == []
    assert len(Other().constraints(ConstraintOptions(no_parallels=True))) == 1
    with pytest.raises(UserError, match=r"scale cannot .* it knows no_parallels"):
        Other().constraints(ConstraintOptions(scale="C:major"))
    with pytest.raises(UserError, match=r"scale cannot .* it knows instruments"):
        RemiTokenizer().constraints(ConstraintOptions(scale="C:major"))
