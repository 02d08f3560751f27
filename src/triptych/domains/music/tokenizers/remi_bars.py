"""Bars of music of several instruments: from a score to bars, to ids, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from triptych.domains.music.chords import CHORDS, chord_index
from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.notes import (
    DRUMS,
    N_PITCHES,
    Ids,
    Notes,
    Part,
    Score,
    one_string_per_key,
)
from triptych.domains.music.tokenizers.remi_grammar import (
    DEFAULT_TEMPO,
    KEYS,
    MAX_QUARTERS,
    TEMPOS,
    Kind,
)

if TYPE_CHECKING:
    from triptych.domains.music.tokenizers.remi import RemiTokenizer

TICKS_PER_POSITION = 40
VELOCITY = 80
"""Of music without velocities."""
TEMPO, CHORD = -2, -1
"""Players of the items of a bar that are no notes."""


class Item(NamedTuple):
    """Note, tempo or chord of a bar."""

    position: int
    player: int
    """Index of the instrument, TEMPO or CHORD."""
    pitch: int
    ids: tuple[int, ...]
    """Ids after those of the position and of the instrument."""


class Bar(NamedTuple):
    """Bar of a piece."""

    head: tuple[int, ...]
    """Ids of the time signature, and of a key that begins here."""
    items: tuple[Item, ...]

    def only(self, players: Iterable[int]) -> Bar:
        """Return the bar with the items of some players."""
        chosen = set(players)
        return self._replace(items=tuple(item for item in self.items if item.player in chosen))

    def without(self, players: Iterable[int]) -> Bar:
        """Return the bar without the items of some players."""
        return self.only({item.player for item in self.items} - set(players))


def bars_of(words: RemiTokenizer, score: Score, *, to_end: bool = False) -> list[Bar]:
    """Return the bars of a score up to that of its last note, or up to its end."""
    per = words.positions_per_quarter
    player = words.ensemble.assign(score)
    notes = replace(score.notes, part=player)[player >= 0]
    notes = notes.with_times(
        lambda times: np.rint(times * per / score.ticks_per_quarter).astype(np.int64)
    )
    notes = one_string_per_key(notes, notes.onset, least=1)
    heads, starts = _bar_lines(words, score)  # [N], [N + 1]
    first = {kind: int((words.meaning.kind == kind).argmax()) for kind in Kind}
    pitches = (
        np.where(notes.program == DRUMS, first[Kind.PitchDrum], first[Kind.Pitch]) + notes.pitch
    )
    ids = [pitches]
    if words.velocities:
        ids.append(first[Kind.Velocity] + notes.velocity * words.velocities // N_PITCHES)
    ids.append(words.nearest(Kind.Duration, notes.release - notes.onset))
    table = zip(*(column.tolist() for column in ids), strict=True)
    places = notes.rows("onset", "part", "pitch")
    rows = [(*place, own) for place, own in zip(places, table, strict=True)]
    last = max((row[0] for row in rows), default=0)
    if to_end:
        last = max(last, -(-score.last_tick * per // score.ticks_per_quarter) - 1)
    rows += [row for row in _events(words, score) if row[0] <= last]
    rows.sort()
    numbers = np.searchsorted(starts, [row[0] for row in rows], side="right") - 1
    bars: list[list[Item]] = [[] for _ in heads]
    for place, (onset, who, pitch, some) in zip(numbers.tolist(), rows, strict=True):
        bars[place].append(Item(onset - int(starts[place]), who, pitch, some))
    count = int(np.searchsorted(starts, last, side="right"))
    pairs = zip(heads[:count], bars[:count], strict=True)
    return [Bar(head, tuple(items)) for head, items in pairs]


def _bar_lines(words: RemiTokenizer, score: Score) -> tuple[list[tuple[int, ...]], Ids]:
    """Return the heads of all bars, and their starts and the last end in positions."""
    quantum = words.positions_per_quarter // 4  # of a sixteenth
    ticks = score.bars()
    lines = np.rint(ticks * 4 / score.ticks_per_quarter).astype(np.int64) * quantum
    signatures = [(0, 4, 4), *score.time_signatures]
    keys = [(-1, None), *((tick, (n, is_minor)) for tick, n, is_minor in score.key_signatures)]
    longest = MAX_QUARTERS * words.positions_per_quarter
    heads: list[tuple[int, ...]] = []
    starts: list[int] = []
    known: Any = None
    for tick, start, stop in zip(ticks.tolist(), lines.tolist(), lines[1:].tolist(), strict=False):
        _, count, unit = [row for row in signatures if row[0] <= tick][-1]
        key = [row for row in keys if row[0] <= tick][-1][1]
        for begin in range(start, stop, longest):
            length = min(stop - begin, longest)
            head = [_meter(words, length, f"{count}/{unit}")]
            if words.keys and key not in (None, known):
                sharps, is_minor = key
                tonic = (7 * sharps + (9 if is_minor else 0)) % 12
                head.append(words.id_of[f"Key_{KEYS[12 * is_minor + tonic]}"])
                known = key
            heads.append(tuple(head))
            starts.append(begin)
    return heads, np.array([*starts, lines[-1]], dtype=np.int64)


def _meter(words: RemiTokenizer, length: int, written: str) -> int:
    """Return the id of a time signature of a length: as it is written, else a plain one."""
    own = words.id_of.get(f"TimeSig_{written}")
    if own is not None and words.meaning.number[own] == length:
        return own
    per = words.positions_per_quarter
    unit = next(unit for unit in (4, 8, 16) if length % (4 * per // unit) == 0)
    return words.id_of[f"TimeSig_{length * unit // (4 * per)}/{unit}"]


def _events(words: RemiTokenizer, score: Score) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Return tempos and chords as (position from the start, player, pitch, ids), in order."""
    changes: dict[int, list[tuple[int, int]]] = {}
    if words.tempos:
        marks, first = np.log(TEMPOS), words.id_of[f"Tempo_{TEMPOS[0]}"]
        speeds = [(0, round(60e6 / DEFAULT_TEMPO)), *score.tempos]
        changes[TEMPO] = [
            (at, first + int(abs(marks - np.log(60e6 / tempo)).argmin())) for at, tempo in speeds
        ]
    if words.chord_symbols:
        first = words.id_of[f"Chord_{CHORDS[0]}"]
        named = [(at, chord_index(symbol)) for at, symbol in score.chords]
        changes[CHORD] = [(at, first + n) for at, n in named if n is not None]
    scale = words.positions_per_quarter / score.ticks_per_quarter
    rows: list[tuple[int, int, int, tuple[int, ...]]] = []
    for player, own in changes.items():
        at = {round(tick * scale): index for tick, index in own}  # the last of a position
        for index, same in groupby(sorted(at.items()), key=itemgetter(1)):
            rows.append((next(same)[0], player, 0, (index,)))
    return rows


def written(words: RemiTokenizer, bars: Iterable[Bar]) -> Ids:
    """Return the ids of some bars."""
    ids: list[int] = []
    for bar in bars:
        ids += [words.id_of["Bar"], *bar.head, *items_written(words, bar.items)]
    return np.array(ids, dtype=np.int64)


def items_written(words: RemiTokenizer, items: Iterable[Item]) -> list[int]:
    """Return the ids of items of one bar."""
    first_position = words.id_of["Position_0"]
    first_player = words.id_of[f"Program_{words.ensemble.names[0]}"]
    ids: list[int] = []
    last_position = last_player = -1
    for position, player, _, some in sorted(items):
        if position != last_position:
            ids.append(first_position + position)
            last_position, last_player = position, -1
        if player >= 0 and player != last_player:
            ids.append(first_player + player)
            last_player = player
        ids += some
    return ids


def read_bars(words: RemiTokenizer, ids: Ids) -> list[Bar]:
    """Return the bars of any ids up to END; ids that say nothing where they stand are left out.

    Ids before the first Bar are in a bar without a time signature.
    """
    kinds, numbers = words.meaning.kind[ids].tolist(), words.meaning.number[ids].tolist()
    heads: list[tuple[int, ...]] = []
    bars: list[list[Item]] = []
    position, player, note = -1, -1, list[int]()
    for token, kind, number in zip(ids.tolist(), kinds, numbers, strict=True):
        if kind == Kind.EOS:
            break
        if kind in (Kind.Bar, Kind.Position, Kind.New, Kind.Program):
            note = []  # one without a duration is none
        if kind == Kind.Bar or not bars:
            heads.append(())
            bars.append([])
            position = player = -1
        if kind in (Kind.TimeSig, Kind.Key):
            heads[-1] += (token,)
        elif kind == Kind.Position:
            position, player = number, -1
        elif kind == Kind.New:
            position = player = -1
        elif kind == Kind.Program:
            player = number
        elif kind in (Kind.Tempo, Kind.Chord) and position >= 0:
            bars[-1].append(Item(position, TEMPO if kind == Kind.Tempo else CHORD, 0, (token,)))
        elif kind in (Kind.Pitch, Kind.PitchDrum):
            note, pitch = [token], number
        elif kind == Kind.Velocity and note:
            note.append(token)
        elif kind == Kind.Duration and note and position >= 0 and player >= 0:
            bars[-1].append(Item(position, player, pitch, (*note, token)))
            note = []
    return [Bar(head, tuple(items)) for head, items in zip(heads, bars, strict=True)]


def score_of(words: RemiTokenizer, bars: Sequence[Bar]) -> Score:
    """Return the music of some bars, with a part for each instrument that plays.

    A note ends at the latest at the next one of its pitch and instrument.
    """
    kind, number = words.meaning.kind, words.meaning.number
    per = words.positions_per_quarter
    rows, tempos, chords = [], [], []
    meters: list[tuple[int, int, int]] = []
    keys: list[tuple[int, int, bool]] = []
    begin, length = 0, 4 * per
    for bar in bars:
        tick = begin * TICKS_PER_POSITION
        for token in bar.head:
            value = words.symbols[token].partition("_")[2]
            if kind[token] == Kind.TimeSig:
                length = int(number[token])
                count, unit = map(int, value.split("/"))
                if not meters or meters[-1][1:] != (count, unit):
                    meters.append((tick, count, unit))
            else:
                is_minor, tonic = divmod(int(number[token]), 12)
                keys.append((tick, (7 * tonic + 9 * is_minor + 5) % 12 - 5, bool(is_minor)))
        for position, player, pitch, some in bar.items:
            at = begin + position
            if player == TEMPO:
                speed = round(1e6 * words.meaning.quarter[some[0]])
                tempos.append((at * TICKS_PER_POSITION, speed))
            elif player == CHORD:
                chords.append((at * TICKS_PER_POSITION, CHORDS[number[some[0]]]))
            else:
                release = at + int(number[some[-1]])
                velocity = int(number[some[1]]) if len(some) > 2 else VELOCITY
                program = words.ensemble.programs[player]
                rows.append((pitch, at, release, velocity, player, program))
        begin += length
    notes = Notes.of(rows)
    notes = one_string_per_key(notes, notes.onset, least=1)
    players = np.unique(notes.part)
    parts = [
        Part(words.ensemble.names[player], words.ensemble.programs[player] == DRUMS)
        for player in players.tolist()
    ]
    notes = replace(notes, part=np.searchsorted(players, notes.part))
    notes = notes.with_times(lambda times: times * TICKS_PER_POSITION)
    score = Score(
        "music", parts, notes.sorted("part", "onset", "release", "pitch"),
        per * TICKS_PER_POSITION, int(notes.release.max(initial=0)), sorted(tempos), meters,
        keys, sorted(chords),
    )  # fmt: skip
    early = score.seconds(score.notes.release) < MAX_SECONDS  # a longer file is not read again
    return score if early.all() else replace(score, notes=score.notes[early])
