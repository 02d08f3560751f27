"""Pieces of music as piano rolls: one geometry, drawn as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from triptych.files.drawing import GREY, new_figure, png

if TYPE_CHECKING:  # loaded only where a piece is drawn
    import pretty_midi
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

COLOURS = ("#c8443c", "#d99a2b", "#3c8a5f", "#33589c", "#7d4f9e", GREY)
"""Of the parts in order; soprano, alto, tenor, bass for chorales. The last one is that of drums."""
GIVEN = "#a3a39c"
"""Grey of the notes that were given."""
BLACK_KEYS = (1, 3, 6, 8, 10)
"""Pitch classes, 0 for C."""
SECONDS_PER_INCH = 2.5


class Voice(NamedTuple):
    """Part of a piece that has notes."""

    name: str
    number: int
    """Among all parts of the piece."""
    colour: int
    part: pretty_midi.Instrument


class PianoRoll:
    """Places of the notes of the parts of a piece, in seconds and semitones."""

    def __init__(self, parts: Sequence[pretty_midi.Instrument]) -> None:
        self.voices = voices = list[Voice]()
        for index, part in enumerate(parts):
            before = sum(not voice.part.is_drum for voice in voices)
            colour = len(COLOURS) - 1 if part.is_drum else before % len(COLOURS)
            name = part.name or ("drums" if part.is_drum else f"part {before + 1}")
            if part.notes:
                voices.append(Voice(name, index, colour, part))
        pitches = [note.pitch for v in voices if not v.part.is_drum for note in v.part.notes]
        low, high = (min(pitches), max(pitches)) if pitches else (60, 72)
        end = max((note.end for voice in voices for note in voice.part.notes), default=1.0)
        self.low, self.high = low - 2, high + 2
        self.seconds = max(float(end), 0.1)
        self.drums = self.low + 0.6
        """Place of drums: at the lower edge, below the notes."""
        every = range(self.low, self.high + 1)
        self.dark_rows = [pitch for pitch in every if pitch % 12 in BLACK_KEYS]
        """Pitches of black keys."""


@dataclass(frozen=True)
class Piece:
    """Piece of music from a MIDI file."""

    name: str
    parts: Sequence[pretty_midi.Instrument]
    midi: bytes
    """Content of the file."""
    musicxml: bytes | None = None
    """Content of its score in MusicXML."""
    bars: Sequence[float] = ()
    """Times at which its bars begin, in seconds."""

    @property
    def roll(self) -> PianoRoll:
        """Its piano roll."""
        return PianoRoll(self.parts)


def pitch_name(pitch: int) -> str:
    """Return the name of a MIDI pitch; 60 is C4."""
    names = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")
    return f"{names[pitch % 12]}{pitch // 12 - 1}"


def pitch_labels(low: int, high: int) -> dict[int, str]:
    """Return the names of the Cs from low to high, in a narrow range of the Es and Gs too."""
    named = (0,) if high - low > 30 else (0, 4, 7)
    return {pitch: pitch_name(pitch) for pitch in range(low, high + 1) if pitch % 12 in named}


def label_pitches(axes: Axes, low: int, high: int) -> None:
    """Make the pitches low to high the y axis."""
    labels = pitch_labels(low, high)
    axes.set_ylim(low, high)
    axes.set_yticks([*labels], [*labels.values()])
    axes.set_ylabel("pitch")
    axes.spines[["top", "right"]].set_visible(False)


def strength(velocity: Any) -> Any:
    """Return the strength of a note's colour, paler for softer notes; velocity: or an array."""
    import numpy as np

    return 0.25 + 0.75 * np.minimum(velocity / 100, 1)


def piano_roll_png(
    parts: Sequence[pretty_midi.Instrument],
    kept: Sequence[NDArray[Any]] = (),
    bars: Sequence[float] = (),
) -> bytes:
    """Draw parts as a PNG: one colour per part, paler for softer notes, drums at the lower edge.

    kept: for each part which of its notes were given, which are grey, bool [N]; empty for none.
    bars: times of bar lines, in seconds.
    """
    import numpy as np
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    roll = PianoRoll(parts)
    # A long piece is drawn narrower.
    width = min(max(8.0, roll.seconds / SECONDS_PER_INCH), 40.0)  # inches
    figure = new_figure(width, min(max(3.0, (roll.high - roll.low) / 9), 9.0), fitted=False)
    axes = figure.add_subplot()
    for pitch in roll.dark_rows:
        axes.axhspan(pitch - 0.5, pitch + 0.5, color="#f1f0ec", linewidth=0)
    for time in bars:
        axes.axvline(time, color="#d6d6d0", linewidth=0.6, zorder=0.5)
    velocities, legend, any_kept = set(), [], False
    for name, number, shade, part in roll.voices:
        table = np.array([(n.pitch, n.start, n.end, n.velocity) for n in part.notes])
        pitch, start, stop, velocity = table.T
        given = kept[number] if kept else np.zeros(len(part.notes), dtype=bool)  # [N]
        any_kept |= bool(given.any())
        if not given.all():
            label = f"{name}, new" if given.any() else name
            legend.append(Patch(color=COLOURS[shade], label=label))
        if part.is_drum:
            for colour, shown in ((COLOURS[shade], ~given), (GIVEN, given)):
                places = np.full(int(shown.sum()), roll.drums)
                axes.plot(start[shown], places, "|", color=colour)
            continue
        colours = 1 - strength(velocity)[:, None] * (1 - np.array(to_rgb(COLOURS[shade])))  # [N, 3]
        colours[given] = to_rgb(GIVEN)
        # A white edge separates repeated notes. It is thin, since it hides short notes.
        drawn = axes.barh(pitch, stop - start, left=start, height=0.9, color=colours,
                          edgecolor="white", linewidth=0.3)  # fmt: skip
        for note_index in np.flatnonzero(given):  # above sampled notes of the same pitch
            drawn[note_index].set_zorder(2)
        velocities |= {*velocity}
    if any_kept:
        legend.append(Patch(color=GIVEN, label="given"))
    axes.set_xlim(0, roll.seconds)
    label_pitches(axes, roll.low, roll.high)
    axes.set_xlabel("seconds (darker notes are louder)" if len(velocities) > 1 else "seconds")
    if not roll.voices:
        axes.text(0.5, 0.5, "no notes", transform=axes.transAxes, ha="center", va="center")
    if len(roll.voices) > 1 or any_kept:
        axes.legend(handles=legend, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.tight_layout()
    return png(figure)
