"""Tokenizer of piano performances as events.

"Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.2, after Oore et al. 2018): 128
note-ons, 128 note-offs, 100 time shifts of 10 to 1000 ms and 32 velocities, here with an END:

id 0..127    note-on of that pitch           id 256..355  time shift of (id - 255) x 10 ms
id 128..255  note-off of pitch id - 128      id 356..387  velocity bin id - 356 of later notes
id 388       END of the piece

Rules of `encode`, after those of `notes`:

4. Onsets and releases are rounded to the absolute grid of 10 ms, so that errors do not add up.
5. In one instant all note-offs precede all note-ons, each by rising pitch. A velocity is written
   only where its bin changes. A wait of more than 1 s is a chain of shifts of 1 s and the rest.

A round trip through `encode` and `decode` moves onsets and releases by at most 5 ms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.conditions import ConstraintOptions
from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.notes import (
    DEFAULT_TEMPO,
    N_PITCHES,
    STEPS_PER_SECOND,
    Ids,
    Notes,
    Part,
    Score,
    performance,
    settle,
)
from triptych.domains.music.tokenizers import key_events
from triptych.domains.music.tokenizers.base import (
    MELODY_REST,
    MelodicTokenizer,
    Prompt,
)
from triptych.domains.music.tokenizers.key_events import (
    END,
    NOTE_OFF,
    SHIFT,
    SYMBOLS,
    EventGrammar,
    KeyEvents,
    LongestNote,
    notes_of,
    steps_of,
)
from triptych.errors import UserError

STEPS_PER_MELODY_STEP = 10
"""Steps of 10 ms in one step of the melody, 100 ms."""
TICKS_PER_STEP = 10
MAX_STEPS = int(MAX_SECONDS * STEPS_PER_SECOND)
PIANO_LOWEST, PIANO_HIGHEST = 21, 108
"""MIDI pitches A0 to C8, the keys of a piano."""


@dataclass(frozen=True)
class EventTokenizer(MelodicTokenizer):
    """Piano performances as events, one performance per piece; content is `Notes`."""

    infilling: bool = False
    """Whether there are ids for a part that is made anew; see `data.infilling_share`."""

    name = "events"
    content = "notes of one piano"
    constraint_options = ("scale", "ranges", "longest_note")
    end = END
    pitch_range = PIANO_LOWEST, PIANO_HIGHEST
    count_contexts: ClassVar = {"frequency of the event": (None, ()), "previous event": (1, ())}
    unit = "events"
    melody_step = STEPS_PER_MELODY_STEP
    seconds_per_melody_step = STEPS_PER_MELODY_STEP / STEPS_PER_SECOND
    by_seconds = True

    filled = key_events.filled
    fill_example = key_events.example

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*SYMBOLS, "fill", "past") if self.infilling else SYMBOLS

    @property
    def id_pitches(self) -> Ids:
        n_others = self.vocabulary_size - SHIFT
        pitches: Ids = np.r_[np.tile(np.arange(N_PITCHES), 2), np.full(n_others, -1)]  # [V]
        return pitches

    def from_midi(self, score: Score) -> Notes:
        notes = performance(score)
        if not len(notes):
            raise UserError(f"{score.name} holds no notes but drums")
        return notes

    def encode(self, content: Notes) -> Ids:
        """Write settled notes as event ids, by rules 4 and 5, without END."""
        return KeyEvents.of(content).ids()

    def decode(self, ids: Ids) -> Notes:
        """Read event ids as settled notes. Any sequence of ids is accepted.

        A note-off of a silent pitch is ignored. A note-on of a sounding pitch starts it anew. A
        note-on and a note-off in one instant give 10 ms. Notes that are open at the end, at END or
        at MAX_SECONDS end there.
        """
        ids = self.without_end(ids)
        now = np.cumsum(steps_of(ids))
        end = min(int(now.max(initial=0)), MAX_STEPS)  # a longer file could not be read again
        notes = notes_of(ids[now < MAX_STEPS], end)
        return settle(notes.with_times(lambda steps: steps / STEPS_PER_SECOND))

    def to_score(self, ids: Ids) -> Score:
        end = min(int(steps_of(self.without_end(ids)).sum()), MAX_STEPS) * TICKS_PER_STEP
        return replace(self.score_of(self.decode(ids)), last_tick=end)

    def score_of(self, notes: Notes) -> Score:
        """Return settled notes as a score of one piano."""
        per_second = TICKS_PER_STEP * STEPS_PER_SECOND
        notes = notes.with_times(lambda times: np.rint(times * per_second).astype(np.int64))
        per_quarter = round(per_second * DEFAULT_TEMPO / 1e6)
        end = int(notes.release.max(initial=0))
        return Score("music", [Part("Piano", is_drum=False)], notes, per_quarter, end, [], [])

    def owners(self, score: Score) -> dict[str, int]:
        pitched = np.unique(score.notes.pitched.part)
        return {"Piano": int(pitched[0])} if len(pitched) == 1 else {}

    def prompt(self, score: Score) -> Prompt:
        notes = self.from_midi(score)
        end = round(max(score.duration, notes.release.max(initial=0)) * STEPS_PER_SECOND)
        return Prompt(KeyEvents.of(notes).ids(until=end), end * TICKS_PER_STEP)

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        return ids < NOTE_OFF

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        steps = steps_of(ids)
        return (np.cumsum(steps) - steps) / STEPS_PER_SECOND

    def melody(self, ids: Ids) -> Ids:
        end = int(steps_of(ids).sum())
        melody = np.full(max(1, end), MELODY_REST)
        for pitch, onset, release in notes_of(ids, end).rows("pitch", "onset", "release"):
            melody[onset:release] = pitch  # the highest one is the last
        return melody

    @property
    def durations(self) -> Ids:
        return steps_of(np.arange(self.vocabulary_size))

    def melody_steps(self, length: int) -> int:
        # MAESTRO has 4 events in 100 ms. Twice the mean, so that most windows of slower music have
        # all of their melody.
        return 2 * -(-length // 4)

    def stretched(self, content: Notes, factors: Sequence[float]) -> list[Notes]:
        last = content.release.max(initial=0.0)
        factors = [f for f in factors if f <= 1 or last * f <= MAX_SECONDS]
        # Onsets that come closer may round to one step, so rule 3 is applied again.
        return [
            content if f == 1 else settle(content.with_times(partial(np.multiply, f)))
            for f in factors or [1.0]
        ]

    def trim(self, ids: Ids, *, seconds: float | None, n_prompt: int) -> Ids:
        # The last shift alone is too long: the grammar allows no later one.
        steps = steps_of(ids[n_prompt:])
        waits = np.flatnonzero(steps)
        if seconds is None or not len(waits):
            return ids
        trimmed = ids.copy()
        trimmed[n_prompt + waits[-1]] -= max(0, steps.sum() - round(seconds * STEPS_PER_SECOND))
        return trimmed

    def rules(self, options: ConstraintOptions) -> list[LogitsConstraint]:
        rules = super().rules(options)
        if options.longest_note is not None:
            steps = max(1, round(options.longest_note * STEPS_PER_SECOND))
            rules.insert(0, LongestNote(self.vocabulary_size, steps))
        return rules

    def grammar(
        self, batch: int, *, seconds: float | None, n_prompt: int, start: int = 0
    ) -> EventGrammar:
        return EventGrammar(batch, self.vocabulary_size, seconds=seconds, n_prompt=n_prompt)
