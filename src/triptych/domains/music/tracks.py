"""The messages of a MIDI file put in order, before `pretty_midi` makes notes of them.

What it does not do by itself is done here: notes that are never released are closed at the end of
the piece (it drops them), overlapping notes of one pitch are paired with their own releases (it
lets one release close all), notes of zero length get one tick (it drops them), and the sustain
pedal of a channel holds the notes of all tracks on it (it keeps it to its own track, and drops a
pedal whose track has no notes).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import mido

Events = list[tuple[int, mido.Message]]
"""Messages with the tick of each, counted from the start."""

SUSTAIN_PEDAL = 64
"""The control that a sustain pedal changes."""
MOST_COPIES = 1_000_000
"""Movements of pedals in all tracks that they hold notes of: damaged files would fill the memory.
A performance of MAESTRO has 5,000 in its one track."""


class _Sounding(NamedTuple):
    """One key held down: ticks of its press and release, and its velocity."""

    onset: int
    release: int
    velocity: int


def normalise(raw: mido.MidiFile) -> None:
    """Rewrite the tracks in place: notes of one pitch apart, all tempo events in track 0, the
    movements of a channel's pedal in each of its tracks that has notes."""
    tracks = [_absolute(track) for track in raw.tracks]
    pedals = _pedals(tracks)
    last_tick = max(
        (tick for track in tracks for tick, message in track if message.type != "end_of_track"),
        default=0,
    )
    tempos = [(tick, message) for track in tracks for tick, message in track if _is_tempo(message)]
    copies = 0
    for number, track in enumerate(tracks):
        notes, others = _split_notes(track, last_tick)
        others = [event for event in others if not (_is_tempo(event[1]) or _is_pedal(event[1]))]
        for channel in sorted({message.channel for _, _, message in notes}):
            movements = pedals[_port(track), channel]
            copies += len(movements)
            if copies > MOST_COPIES:
                raise ValueError(f"over {MOST_COPIES:,} pedal movements in the tracks of a channel")
            others += [(tick, message.copy()) for tick, message in movements]
        if number == 0:
            others = sorted([*tempos, *others], key=lambda event: event[0])
        # Releases first and onsets last inside one tick: a repeated key stays two notes, and a
        # program change counts for the notes that start with it.
        ordered = sorted(
            # An end-of-track mark hours after the last message must not cost memory.
            [(min(tick, last_tick + 1), 1, message) for tick, message in others] + notes,
            key=lambda event: event[:2],
        )
        raw.tracks[number] = _relative(ordered)


def _pedals(tracks: list[Events]) -> dict[tuple[int, int], Events]:
    """The movements of each channel's pedal on each port, in the order of time."""
    found: dict[tuple[int, int], Events] = defaultdict(list)
    for track in tracks:
        port = _port(track)
        for tick, message in track:
            if _is_pedal(message):
                found[port, message.channel].append((tick, message))
    for movements in found.values():
        movements.sort(key=lambda event: event[0])
    return found


def _port(track: Events) -> int:
    """The port whose channels the track plays on; files for more than 16 channels name one."""
    return next((message.port for _, message in track if message.type == "midi_port"), 0)


def _is_tempo(message: mido.Message) -> bool:
    return bool(message.type == "set_tempo")


def _is_pedal(message: mido.Message) -> bool:
    return bool(message.type == "control_change" and message.control == SUSTAIN_PEDAL)


def _absolute(track: mido.MidiTrack) -> Events:
    tick = 0
    events = []
    for message in track:
        tick += message.time
        events.append((tick, message))
    return events


def _relative(events: list[tuple[int, int, mido.Message]]) -> mido.MidiTrack:
    track = mido.MidiTrack()
    previous = 0
    for tick, _, message in events:
        message.time = tick - previous  # each message stands in one place only
        track.append(message)
        previous = tick
    return track


def _split_notes(
    track: Events, last_tick: int
) -> tuple[list[tuple[int, int, mido.Message]], Events]:
    """Separate the notes, paired anew and never overlapping, from all other messages."""
    keys: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    others = []
    for tick, message in track:
        if message.type == "note_on":
            # A note-on with velocity 0 is a release.
            keys[message.channel, message.note].append((tick, message.velocity))
        elif message.type == "note_off":
            keys[message.channel, message.note].append((tick, 0))
        else:
            others.append((tick, message))
    notes = []
    for (channel, pitch), presses in keys.items():
        for onset, release, velocity in _pair(presses, last_tick):
            # Unchecked, which halves the time of reading: the values come from checked messages.
            key = {"channel": channel, "note": pitch, "skip_checks": True}
            on = mido.Message("note_on", velocity=velocity, **key)
            off = mido.Message("note_off", **key)
            notes += [(onset, 2, on), (release, 0, off)]
    return notes, others


def _pair(presses: list[tuple[int, int]], last_tick: int) -> list[_Sounding]:
    """Pair the presses (velocity > 0) and releases (velocity 0) of one key, given in file order.

    As many releases as presses: the first release belongs to the first press, as two voices on one
    key are written. Otherwise some releases are missing, and each belongs to the latest press, so
    that one lost release damages one note only. What stays open ends with the piece. A note ends at
    the latest where the key is pressed again; two presses in one tick are one note, the louder.
    """
    balanced = 2 * sum(velocity > 0 for _, velocity in presses) == len(presses)
    held: list[tuple[int, int]] = []
    notes = []
    for tick, velocity in presses:
        if velocity > 0:
            held.append((tick, velocity))
        elif held:  # a release without a press says nothing
            onset, loudness = held.pop(0 if balanced else -1)
            notes.append(_Sounding(onset, tick, loudness))
    notes += [_Sounding(onset, last_tick, velocity) for onset, velocity in held]
    notes.sort()
    apart: list[_Sounding] = []
    for note in notes:
        release = max(note.release, note.onset + 1)
        if apart and apart[-1].onset == note.onset:
            last = apart.pop()
            note = _Sounding(note.onset, note.release, max(last.velocity, note.velocity))
            release = max(last.release, release)
        elif apart and apart[-1].release > note.onset:
            apart[-1] = apart[-1]._replace(release=note.onset)
        apart.append(note._replace(release=release))
    return apart
