"""Ids of the events of a piano performance (Huang et al. 2018, arXiv 1809.04281, section 4.2).

id 0..127    note-on of that pitch           id 256..355  time shift of (id - 255) x 10 ms
id 128..255  note-off of pitch id - 128      id 356..387  velocity bin id - 356 of later notes
id 388       END of the piece
"""

from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.tokenizers.notes import STEPS_PER_SECOND

N_PITCHES = 128
N_SHIFTS = 100
N_VELOCITIES = 32

NOTE_ON = 0
NOTE_OFF = NOTE_ON + N_PITCHES
SHIFT = NOTE_OFF + N_PITCHES  # id SHIFT + n - 1 waits n steps of 10 ms
VELOCITY = SHIFT + N_SHIFTS
END = VELOCITY + N_VELOCITIES

SYMBOLS = (
    *(f"note_on_{pitch}" for pitch in range(N_PITCHES)),
    *(f"note_off_{pitch}" for pitch in range(N_PITCHES)),
    *(f"shift_{10 * (step + 1)}_ms" for step in range(N_SHIFTS)),
    *(f"velocity_{velocity}" for velocity in range(N_VELOCITIES)),
    "end",
)
"""Name of each id, in order."""

MAX_STEPS = int(MAX_SECONDS * STEPS_PER_SECOND)
PIANO_LOWEST, PIANO_HIGHEST = 21, 108
"""MIDI pitches A0 to C8, the keys of a piano."""
