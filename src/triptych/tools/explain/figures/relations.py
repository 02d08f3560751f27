"""Distance, time and interval of pairs of notes of a chorale (Huang et al. 2018)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.attention.pitch_time import PitchTime
from triptych.files.drawing import new_figure, png
from triptych.tools.explain.drawing import matrix
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

PITCHES = (72, 67, 64, 48, 74, 67, 65, 47, 76, 67, 60, 48)
"""Soprano, alto, tenor and bass of three sixteenths, MIDI numbers."""
LOWEST, N_PITCHES = 36, 46
VOICES = "SATB"


class Relations(NamedTuple):
    """Relations of a query at a position (row) and a key at a position (column): [L, L] each."""

    distance: NDArray[np.float64]
    time: NDArray[np.float64]
    """In sixteenths, from the note read at the key to the note predicted at the query."""
    interval: NDArray[np.float64]
    """In semitones, from the pitch read at the query to that at the key; NaN where one read none.
    """


def relations() -> Relations:
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


def draw(options: ExplainOptions, model: None) -> Content:
    """Return one panel per relation."""
    distances = relations()
    figure = new_figure(13.5, 4.9, "rows: the note that is predicted; columns: the note that was "
                        "read (S A T B: voices, 0 to 2: sixteenths)")  # fmt: skip
    names = [f"{VOICES[index % 4]}{index // 4}" for index in range(len(PITCHES))]
    row, column = np.indices(distances.distance.shape)
    titles = ("distance, in positions", "time, in sixteenths",
              "interval to the pitch read last, in semitones")  # fmt: skip
    for axes, values, title in zip(figure.subplots(1, 3), distances, titles, strict=True):
        matrix(
            axes,
            values,
            title=title,
            form="{:.0f}",
            unused=(column > row) | np.isnan(values),
            colours="RdBu_r" if title.startswith("interval") else "Blues",
            limits=(-40, 40) if title.startswith("interval") else (0, 16),
            rows=names,
            columns=["–", *names[:-1]],
        )
    return {"relations.png": png(figure)}


FIGURE = Figure(files=("relations.png",), draw=draw)
