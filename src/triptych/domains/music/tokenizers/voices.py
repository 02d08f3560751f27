"""The voices of a file of four-part music: by names, staves and lines before height."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product

import numpy as np

from triptych.domains.music.notes import Ids, Notes, Score
from triptych.errors import UserError

N_VOICES = 4
STEPS_PER_QUARTER = 4
NO_NOTE = -1
VOICE_NAMES = {
    (0,): "soprano sop s sopran soprani cantus canto discantus discant descant treble superius",
    (1,): "alto alt a altus alti contralto altos",
    (2,): "tenor ten t tenore tenors tenori",
    (3,): "bass bas b basso bassus basse basses bassi baritone",
    (0, 1): "sa women upper frauen femmes donne",
    (2, 3): "tb men lower manner männer hommes uomini",
    (0, 1, 2, 3): "satb choir chor chorus coro choeur",
}
"""Words of the names of parts, by the voices that the part sings."""
MELODY_NAMES = "melody melodie melodia vocal vocals voice vox lead singer song gesang chant tune"
"""Words of the names of a melody's part."""
REST_COST, UNISON_COST = 7, 1
"""Semitones of motion that a rest, and a pitch that two voices share, count as."""
MIDDLE_C = 60


@dataclass(frozen=True)
class Voices:
    """Which note each voice sings in each sixteenth."""

    sung: Ids
    """Indices of the score's notes, NO_NOTE for a rest: [T, 4]."""
    of_note: Ids
    """Voice of each note of a line, also of an ornament too short for the grid; else -1: [N]."""
    owners: dict[int, int]
    """Part of each voice that a part of the score is for."""

    def only_melody(self, voice: int) -> Voices | None:
        """Return the same with its only line in another voice; None where there are several."""
        if (self.sung[:, 1:] != NO_NOTE).any():
            return None
        of_note = np.where(self.of_note == 0, voice, self.of_note)
        owners = dict.fromkeys([voice] if self.owners else [], next(iter(self.owners.values()), 0))
        return Voices(np.roll(self.sung, voice, axis=1), of_note, owners)


def melody_part(score: Score, track: str | None) -> int | None:
    """Return the part of a score's melody: a name, a number from 1, or by its own name.

    None where no track is asked for and no part is named as a melody. Raises UserError for a track
    that the score lacks.
    """
    names = [part.name.strip().lower() for part in score.parts]
    if track is None:
        words = MELODY_NAMES.split()
        return next((n for n, name in enumerate(names) if {*_words(name)} & {*words}), None)
    wanted = track.strip().lower()
    if wanted in names:
        return names.index(wanted)
    if wanted.isdigit() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    listed = ", ".join(f"{n} {part.name!r}" for n, part in enumerate(score.parts, start=1))
    raise UserError(f"{score.name} has no track {track!r}; it has {listed}")


def read_voices(score: Score, melody: int | None = None) -> Voices:
    """Return the voices of a score, on a grid of sixteenths up to its end.

    A part named as a voice, or as a staff of two, is that. Without such names the melody is the
    soprano, where a part is one or is named so; four lines are the voices by mean height; two
    staves have two voices each. All other notes are divided by height in each step. Voices that
    sing one pitch stay where they move the least.
    """
    lines, legato = _legato(score)
    scale = STEPS_PER_QUARTER / score.ticks_per_quarter
    end = max(score.last_tick, int(legato.max(initial=0)))
    n_steps = max(1, int(np.ceil(end * scale - 1e-6)))
    notes = replace(score.notes, onset=score.notes.onset * scale, release=legato * scale)
    sung = np.full((n_steps, N_VOICES), NO_NOTE, dtype=np.int64)
    of_note = np.full(len(notes), -1, dtype=np.int64)
    owners: dict[int, int] = {}
    pitched = np.flatnonzero(notes.program >= 0)
    for voices, parts, owns in _groups(score, lines, melody):
        rows = pitched[np.isin(notes.part[pitched], parts)]
        if len(voices) == 1 and len(parts) == 1 and lines[parts[0]]:
            sung[:, voices[0]] = _line(notes, rows, n_steps)
            of_note[rows] = voices[0]
        else:
            sung[:, voices] = _stack(notes, rows, n_steps, len(voices), high=voices[0] == 0)
        if owns:
            owners |= dict.fromkeys(voices, parts[0])
    return Voices(sung, of_note, owners)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", name.lower())


def _legato(score: Score) -> tuple[dict[int, bool], Ids]:
    """Return which parts have one note at a time, and releases cut at the next note of a line.

    A note that lasts into less than half of the next one, for less than half of its own length, is
    played legato; the next one may be an ornament, a 32nd or shorter.
    """
    notes, releases, lines = score.notes, score.notes.release.copy(), {}
    for number in range(len(score.parts)):
        rows = np.flatnonzero((notes.part == number) & (notes.program >= 0))
        if not len(rows):
            continue
        rows = rows[np.lexsort((notes.pitch[rows], notes.onset[rows]))]
        onset, release = notes.onset[rows], notes.release[rows]
        overlap = release[:-1] - onset[1:]  # with the next note
        own, following = release[:-1] - onset[:-1], release[1:] - onset[1:]
        is_ornament = 8 * following <= score.ticks_per_quarter
        shorter = np.where(is_ornament, own, np.minimum(own, following))
        legato = (overlap > 0) & (2 * overlap < shorter)
        releases[rows[:-1][legato]] = onset[1:][legato]
        lines[number] = not ((overlap > 0) & ~legato).any()
    return lines, releases


def _groups(
    score: Score, lines: dict[int, bool], melody: int | None
) -> list[tuple[tuple[int, ...], list[int], bool]]:
    """Return groups of voices, the parts that they sing, and whether the parts are theirs alone."""
    every = [*lines]
    heights = {n: float(score.notes.pitch[score.notes.part == n].mean()) for n in every}
    named: dict[tuple[int, ...], list[int]] = {}
    for number in every:
        words = {*_words(score.parts[number].name)}
        for voices, names in VOICE_NAMES.items():
            if words & {*names.split()} and number != melody:
                named.setdefault(voices, []).append(number)
                break
    if melody is None and not any(0 in voices for voices in named):
        melody = melody_part(score, None)
    if melody in lines:
        named = {v: parts for v, parts in named.items() if 0 not in v and melody not in parts}
        named[0,] = [melody]
    groups = [(voices, parts, True) for voices, parts in named.items()]
    rest = [n for n in every if all(n not in parts for _, parts, _ in groups)]
    taken = {voice for voices, *_ in groups for voice in voices}
    free = tuple(voice for voice in range(N_VOICES) if voice not in taken)
    if not rest or not free:
        return groups
    if groups:
        return [*groups, (free, rest, False)]
    by_height = sorted(rest, key=lambda n: -heights[n])
    are_lines = all(lines[n] for n in rest)
    if len(rest) == 1 and are_lines:
        return [((0,), rest, True)]
    if len(rest) == N_VOICES and are_lines:
        return [((voice,), [part], True) for voice, part in enumerate(by_height)]
    if len(rest) == 2 and are_lines:
        low = 3 if heights[by_height[1]] < MIDDLE_C else 1
        return [((0,), by_height[:1], True), ((low,), by_height[1:], True)]
    together = [Counter(score.notes.onset[score.notes.part == n].tolist()) for n in rest]
    if len(rest) == 2 and all(max(counts.values()) <= 3 for counts in together):
        return [((0, 1), by_height[:1], True), ((2, 3), by_height[1:], True)]
    return [(free, rest, len(rest) == 1)]


def _line(notes: Notes, rows: Ids, n_steps: int) -> Ids:
    """Return the note of a line in each step, the one that fills most of it: [T]."""
    sung = np.full(n_steps, NO_NOTE, dtype=np.int64)
    filled = np.zeros(n_steps)
    rows = rows[np.argsort(notes.onset[rows], kind="stable")]
    for row, onset, release in zip(
        rows.tolist(), notes.onset[rows].tolist(), notes.release[rows].tolist(), strict=True
    ):
        steps = range(int(onset), min(n_steps, int(np.ceil(release))))
        shares = [min(release, step + 1) - max(onset, step) for step in steps]
        is_short = release - onset < 1
        for step, share in zip(steps, shares, strict=True):
            # A late note fills less of its first step than the note or rest before it.
            fits = share == max(shares) if is_short else share >= 0.5
            if fits and share > filled[step] + 1e-6:
                sung[step], filled[step] = row, share
    return sung


def _stack(notes: Notes, rows: Ids, n_steps: int, n_voices: int, *, high: bool) -> Ids:
    """Return the notes of some voices, which are divided by height: [T, voices].

    high: whether the upper voices sing where there are fewer lines than voices.
    """
    sounding: list[dict[int, int]] = [{} for _ in range(n_steps)]  # row by pitch
    order = rows[np.argsort(notes.onset[rows], kind="stable")]
    for row in order.tolist():
        start = round(float(notes.onset[row]))
        stop = max(start + 1, round(float(notes.release[row])))
        for step in range(start, min(stop, n_steps)):
            sounding[step][int(notes.pitch[row])] = row
    counts = Counter(len(here) for here in sounding if here)
    usual = min(n_voices, max(counts, key=lambda n: (counts[n], n), default=0))
    sung = np.full((n_steps, n_voices), NO_NOTE, dtype=np.int64)
    before: list[int | None] = [None] * n_voices
    for step, here in enumerate(sounding):
        pitches = sorted(here, reverse=True)
        width = max(usual, min(len(pitches), n_voices))
        first = 0 if high else n_voices - width
        own = before[first : first + width]
        choice = _choice(own, pitches) if pitches else [None] * width
        before = [None] * n_voices
        for voice, pitch in enumerate(choice, start=first):
            if pitch is not None:
                sung[step, voice], before[voice] = here[pitch], pitch
    return sung


def _choice(before: Sequence[int | None], pitches: Sequence[int]) -> Sequence[int | None]:
    """Return the pitch of each voice, None for a rest, that moves the voices the least.

    before: pitches of the voices in the step before. pitches: from the highest.
    """

    def cost(choice: Sequence[int | None]) -> float:
        moves = [
            REST_COST if new is None else 0 if old is None else abs(new - old)
            for old, new in zip(before, choice, strict=True)
        ]
        sung = [pitch for pitch in choice if pitch is not None]
        return sum(moves) + UNISON_COST * (len(sung) - len({*sung}))

    n_voices = len(before)
    if len(pitches) > n_voices:  # the outer voices have the outer pitches
        inner = combinations(pitches[1:-1], max(0, n_voices - 2))
        last = pitches[-1:] if n_voices > 1 else []
        return min(((pitches[0], *some, *last) for some in inner), key=cost)
    maps = _maps(n_voices, len(pitches))
    return min(([None if n < 0 else pitches[n] for n in one] for one in maps), key=cost)


@cache
def _maps(n_voices: int, n_pitches: int) -> list[tuple[int, ...]]:
    """Return all ways to give voices pitches in order, or rests (-1), so that all are sung."""
    found = []
    for one in product(range(-1, n_pitches), repeat=n_voices):
        sung = [n for n in one if n >= 0]
        if sung == sorted(sung) and {*sung} == {*range(n_pitches)}:
            found.append(one)
    return found
