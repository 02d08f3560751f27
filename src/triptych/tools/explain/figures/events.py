"""Notes of a performance, and the events as which a model reads them (Oore et al. 2018)."""

from __future__ import annotations

from typing import NamedTuple

from triptych.domains.music.notes import Notes
from triptych.domains.music.tokenizers.event_rules import SYMBOLS
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.files.drawing import BLUE, COLOURS, GREEN, GREY, RED, new_figure, png
from triptych.tools.explain.drawing import UNUSED
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

NOTES = ((60, 0.0, 0.5, 80), (64, 0.253, 1.0, 80), (67, 0.5, 1.0, 100))
"""Pitch, beginning and end in seconds, velocity; the second beginning lies beside the grid."""
KINDS = {"note_on": BLUE, "note_off": RED, "shift": GREEN, "velocity": COLOURS[3]}
"""Colour of each kind of event."""


class Event(NamedTuple):
    """One event of the sequence."""

    symbol: str
    time: float
    """Sum of the shifts before it, in seconds."""


def events() -> list[Event]:
    """Return the events of the notes in order."""
    listed, time = [], 0.0
    for index in EventTokenizer().encode(Notes.of(NOTES)):
        symbol = SYMBOLS[index]
        listed.append(Event(symbol, time))
        if symbol.startswith("shift"):
            time += int(symbol.split("_")[1]) / 1000
    return listed


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the piano roll above the events, each joined with its time."""
    listed = events()
    figure = new_figure(10, 4.6, "above: three notes; below: their events from left to right, each "
                        "joined with the time at which it happens")  # fmt: skip
    axes = figure.subplots()
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
    return {"events.png": png(figure)}


FIGURE = Figure(files=("events.png",), draw=draw)
