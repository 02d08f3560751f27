"""Bars that are made anew between others, written as `RemiTokenizer` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.music.frame import chosen_cells
from triptych.domains.music.notes import Ids, Score
from triptych.domains.music.tokenizers.base import FillPart, FillTask
from triptych.domains.music.tokenizers.remi_bars import (
    CHORD,
    TEMPO,
    Bar,
    Item,
    bars_of,
    items_written,
    read_bars,
    score_of,
    written,
)
from triptych.domains.music.tokenizers.remi_grammar import NOTE_KINDS, Kind, ScriptedGrammar
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.domains.music.tokenizers.remi import RemiTokenizer

MOST_BARS = 8
"""Bars that are made anew at a time."""
TOKENS_OF_AN_EMPTY_BAR = 64


def example(tokenizer: RemiTokenizer, ids: Ids, generator: torch.Generator) -> Ids:
    """Return a crop of a piece with some of its bars written as bars that are made anew.

    The bars, the instruments that are new in them, and whether chords are told are drawn. A crop
    without two whole bars with notes comes back as it is.
    """

    def draw(stop: int) -> int:
        return int(torch.randint(stop, (), generator=generator))

    begins = np.flatnonzero(tokenizer.meaning.kind[ids] == Kind.Bar)
    ended = bool(len(ids)) and int(ids[-1]) == tokenizer.end
    if len(begins) < 3:
        return ids
    bars = read_bars(tokenizer, ids[begins[0] : None if ended else begins[-1]])
    count = 1 + draw(min(MOST_BARS, len(bars)))
    first = draw(len(bars) - count + 1)
    region = bars[first : first + count]
    players = sorted({item.player for bar in region for item in bar.items if item.player >= 0})
    if not players:
        return ids
    new = set(players)
    if draw(2):
        new = {player for player in players if draw(2)} or {players[draw(len(players))]}
    before, after = bars[:first], bars[first + count :]
    region = _with_state(region, before)
    if not draw(2):
        region = [bar.without({CHORD}) for bar in region]
    answer = [*script_of(tokenizer, region, [new] * count, with_new=True), tokenizer.end]
    prompt = prompt_of(tokenizer, before, after, len(ids) - len(answer), ended=ended)
    return np.array([*prompt, *answer][: len(ids)], dtype=np.int64)


def prompt_of(
    tokenizer: RemiTokenizer, before: Sequence[Bar], after: Sequence[Bar], room: int, *, ended: bool
) -> list[int]:
    """Return the ids before the bars that are made anew, with the nearest bars on both sides.

    room: number of ids, which the marks may exceed. ended: the piece ends after `after`.
    """
    sizes = [[len(written(tokenizer, [bar])) for bar in side] for side in (before, after)]
    while (before or after) and sum(map(sum, sizes)) + 2 + ended > room:
        if len(after) >= len(before):
            after, ended = after[:-1], False
            sizes[1].pop()
        else:
            before = before[1:]
            sizes[0].pop(0)
    fill, past = (tokenizer.symbols.index(name) for name in ("Fill", "Past"))
    end = [tokenizer.end] * ended
    return [fill, *written(tokenizer, after), *end, past, *written(tokenizer, before)]


def script_of(
    tokenizer: RemiTokenizer, bars: Sequence[Bar], new: Sequence[set[int]], *, with_new: bool
) -> list[int]:
    """Return what is kept of bars, and New after each; with_new: and what the new players play."""
    bar_id, new_id = (tokenizer.symbols.index(name) for name in ("Bar", "New"))
    ids: list[int] = []
    for bar, players in zip(bars, new, strict=True):
        kept = items_written(tokenizer, bar.without(players).items)
        ids += [bar_id, *bar.head, *kept, new_id]
        if with_new:
            ids += items_written(tokenizer, bar.only(players).items)
    return ids


def filled(
    tokenizer: RemiTokenizer, task: FillTask, names: list[str]
) -> tuple[NDArray[np.bool_], Score]:
    """See `MusicTokenizer.filled`; `task.fill` may name an instrument that the piece lacks."""
    score, keep, fill, sample, window = task
    cells, new = _new_players(tokenizer, score, names, keep, fill)
    bars = bars_of(tokenizer, score, to_end=True)
    lines = score.bars()
    per = tokenizer.positions_per_quarter / score.ticks_per_quarter
    lengths = [int(tokenizer.meaning.number[bar.head[0]]) for bar in bars]
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    of_bar = np.searchsorted(np.rint(lines * per), begins, side="right") - 1  # of the score's bars
    players = [new[place] for place in of_bar.clip(max=len(new) - 1).tolist()]
    made = list(bars)
    sizes = [len(written(tokenizer, [bar])) for bar in bars]
    plays = [any(item.player >= 0 for item in bar.items) for bar in bars]
    usual = int(np.mean([*compress(sizes, plays)] or [0]))
    sizes = [max(size, usual, TOKENS_OF_AN_EMPTY_BAR) for size in sizes]
    parts = _parts(players, sizes, window // 2)
    while parts:
        first, stop = parts.pop(0)
        own = players[first:stop]
        region = _with_state(made[first:stop], made[:first])
        room = window - sum(sizes[first:stop]) * 5 // 4
        prompt = prompt_of(tokenizer, made[:first], made[stop:], room, ended=True)
        script = script_of(tokenizer, region, own, with_new=False)
        every = {player for some in own for player in some}
        answer = [*script_of(tokenizer, region, own, with_new=True), tokenizer.end]
        ids = sample(
            FillPart(
                np.array(prompt, dtype=np.int64),
                partial(_grammar, tokenizer, script, every),
                np.array(answer, dtype=np.int64),
                written(tokenizer, made[first:stop]),
                written(tokenizer, made[:first]),
            )
        )
        read = read_bars(tokenizer, ids)[: len(region)]
        if tokenizer.end not in ids and len(read) > 1:
            # The most tokens came before the end: the last bar and those after it are a new part.
            read = read[:-1]
            parts.insert(0, (first + len(read), stop))
        for place, bar in enumerate(read, start=first):
            ours = bar.only(players[place]).items
            old = made[place].without(players[place])
            made[place] = old._replace(items=tuple(sorted([*old.items, *ours])))
    fresh = [bar.only(own) for bar, own in zip(made, players, strict=True)]
    return cells, score_of(tokenizer, fresh)


def _new_players(
    tokenizer: RemiTokenizer, score: Score, names: list[str], keep: str | None, fill: str | None
) -> tuple[NDArray[np.bool_], list[set[int]]]:
    """Return the cells of bars and parts that are made anew, and the players of each bar.

    Instruments that the piece lacks play where `fill` names them, and all where `keep` leaves no
    part of the piece to make.
    """
    words = {word.strip().lower().removeprefix("track:") for word in (fill or "").split(",")}
    assigned, count = tokenizer.ensemble.assign(score), len(names)
    playing = {*assigned.tolist()}
    others = {n: name for n, name in enumerate(tokenizer.ensemble.names) if n not in playing}
    cells = chosen_cells(score.bars(), [*names, *others.values()], keep, fill, score.name)
    plays = np.zeros((cells.shape[1], len(tokenizer.ensemble.names)), dtype=bool)
    plays[score.notes.part[assigned >= 0], assigned[assigned >= 0]] = True
    if count and not plays[:count].any():
        raise UserError(f"{score.name} has no instrument of this model")
    plays[range(count, len(plays)), [*others]] = True
    cells &= plays.any(1)  # the model does not play all parts
    if fill is not None or cells[:, :count].any():
        cells[:, count:] &= np.array([name in words for name in others.values()], dtype=bool)
    if not cells.any():
        raise UserError(f"{keep or fill} leaves nothing of {score.name} that this model plays")
    new = [{*np.flatnonzero(row).tolist()} for row in cells @ plays]
    return cells, new


def _parts(players: Sequence[set[int]], sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return first and last bar plus one of each part that is made at a time."""
    parts: list[tuple[int, int]] = []
    for bar in (number for number, own in enumerate(players) if own):
        first, stop = parts[-1] if parts else (0, -1)
        if stop == bar < first + MOST_BARS and sum(sizes[first : bar + 1]) <= most:
            parts[-1] = first, bar + 1
        else:
            parts.append((bar, bar + 1))
    return parts


def _with_state(region: Sequence[Bar], before: Sequence[Bar]) -> list[Bar]:
    """Return bars that say the tempo and the chord in force at their start."""
    first = region[0]
    for player in (TEMPO, CHORD):
        said = [item.ids for bar in before for item in bar.items if item.player == player]
        if said and not any(i.player == player and i.position == 0 for i in first.items):
            first = Bar(first.head, (Item(0, player, 0, said[-1]), *first.items))
    return [first, *region[1:]]


def _grammar(
    tokenizer: RemiTokenizer, script: Sequence[int], players: set[int], n_prompt: int
) -> ScriptedGrammar:
    meaning = tokenizer.meaning
    others = (meaning.kind == Kind.Program) & ~np.isin(meaning.number, sorted(players))
    free = np.isin(meaning.kind, NOTE_KINDS) & ~others
    grammar = tokenizer.grammar(1, seconds=None, n_prompt=n_prompt)
    return ScriptedGrammar(grammar, script, free)
