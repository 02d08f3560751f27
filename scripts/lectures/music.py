"""Notes as events, and relations of the notes of a chorale."""

from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from triptych.core.attention.pitch_time import PitchTime
from triptych.domains.music.notes import Notes
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import SYMBOLS
from triptych.files.drawing import BLUE, COLOURS, GREEN, GREY, RED, new_figure
from triptych.tools.explain.figure import figure

from ._drawing import UNUSED, matrix

NOTES = ((60, 0.0, 0.5, 80), (64, 0.253, 1.0, 80), (67, 0.5, 1.0, 100))
"""Pitch, beginning and end in seconds, velocity; the second beginning lies beside the grid."""
KINDS = {"note_on": BLUE, "note_off": RED, "shift": GREEN, "velocity": COLOURS[3]}
"""Colour of each kind of event."""
PITCHES = (72, 67, 64, 48, 74, 67, 65, 47, 76, 67, 60, 48)
"""Soprano, alto, tenor and bass of three sixteenths, MIDI numbers."""
LOWEST, N_PITCHES = 36, 46
VOICES = "SATB"


class Event(NamedTuple):
    """One event of the sequence."""

    symbol: str
    time: float
    """Sum of the shifts before it, in seconds."""


def events_of_notes() -> list[Event]:
    """Return the events of the notes in order."""
    listed, time = [], 0.0
    for index in EventTokenizer().encode(Notes.of(NOTES)):
        symbol = SYMBOLS[index]
        listed.append(Event(symbol, time))
        if symbol.startswith("shift"):
            time += int(symbol.split("_")[1]) / 1000
    return listed


@figure()
def events() -> Figure:
    """Notes of a performance, and the events as which a model reads them (Oore et al. 2018)."""
    listed = events_of_notes()
    drawing = new_figure(10, 4.6, "above: three notes; below: their events from left to right, "
                         "each joined with the time at which it happens")  # fmt: skip
    axes = drawing.subplots()
    end = max(note[2] for note in NOTES)
    for pitch, begin, stop, velocity in NOTES:
        axes.barh(pitch, stop - begin, left=begin, height=1.4, color=UNUSED, edgecolor=GREY)
        axes.text((begin + stop) / 2, pitch, f"pitch {pitch}, velocity {velocity}, from {begin} s",
                  ha="center", va="center", fontsize=8)  # fmt: skip
    lowest = min(note[0] for note in NOTES)
    width = end / len(listed)
    for index, event in enumerate(listed):
        colour = next(colour for kind, colour in KINDS.items() if event.symbol.startswith(kind))
        middle = (index + 0.5) * width
        axes.bar(middle, 3.2, width * 0.92, bottom=lowest - 9, color=colour)
        axes.text(middle, lowest - 7.4, event.symbol.replace("_", "\n"), ha="center", va="center",
                  fontsize=8, color="white")  # fmt: skip
        axes.plot([middle, event.time], [lowest - 5.7, lowest - 2], color=colour, linewidth=1)
    axes.axhline(lowest - 2, color=GREY, linewidth=0.8)
    axes.set(xlabel="seconds", ylabel="pitch", ylim=(lowest - 9.5, 70), xlim=(-0.02, end + 0.02))
    axes.set_yticks([note[0] for note in NOTES])
    axes.spines[["top", "right"]].set_visible(False)
    return drawing


class Relations(NamedTuple):
    """Relations of a query at a position (row) and a key at a position (column): [L, L] each."""

    distance: NDArray[np.float64]
    time: NDArray[np.float64]
    """In sixteenths, from the note read at the key to the note predicted at the query."""
    interval: NDArray[np.float64]
    """In semitones, from the pitch read at the query to that at the key; NaN where one read none.
    """


def relations_of_notes() -> Relations:
    """Return the relations from which pitch-time attention chooses its learned vectors."""
    bias = PitchTime(n_pitches=N_PITCHES).relative_bias(1, 2, causal=True)
    position = torch.arange(len(PITCHES))
    distance, time = bias.index(position.unsqueeze(1), position)  # [L, L] each
    read = torch.tensor([-1, *(pitch - LOWEST for pitch in PITCHES[:-1])])  # [L]
    classes = bias.token_classes(read)
    kind = bias.token_index(classes.unsqueeze(1), classes)  # [L, L]
    interval = (kind - (N_PITCHES - 1)).double()
    interval[kind >= 2 * N_PITCHES - 1] = torch.nan
    return Relations(distance.double().numpy(), time.double().numpy(), interval.numpy())


@figure()
def relations() -> Figure:
    """Distance, time and interval of pairs of notes of a chorale (Huang et al. 2018)."""
    drawing = new_figure(13.5, 4.9, "rows: the note that is predicted; columns: the note that was "
                         "read (S A T B: voices, 0 to 2: sixteenths)")  # fmt: skip
    names = [f"{VOICES[index % 4]}{index // 4}" for index in range(len(PITCHES))]
    row, column = np.indices((len(PITCHES), len(PITCHES)))
    titles = ("distance, in positions", "time, in sixteenths",
              "interval to the pitch read last, in semitones")  # fmt: skip
    panels = drawing.subplots(1, 3)
    for axes, values, title in zip(panels, relations_of_notes(), titles, strict=True):
        signed = title.startswith("interval")
        matrix(
            axes,
            values,
            title=title,
            form="{:.0f}",
            unused=(column > row) | np.isnan(values),
            colours="RdBu_r" if signed else "Blues",
            limits=(-40, 40) if signed else (0, 16),
            rows=names,
            columns=["–", *names[:-1]],
        )
    return drawing
