"""The bytes of a MIDI file as events, of which a damaged one costs no other.

A Standard MIDI File is a header and tracks, each in a chunk of a name and a length (MIDI 1.0,
RP-001). Chunks of other names are skipped, and so is what lies before the header, as in RIFF files.
"""

import re
import struct
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from triptych.errors import UserError

NOTE_OFF, NOTE_ON, CONTROL, PROGRAM, PITCH_BEND = 0x80, 0x90, 0xB0, 0xC0, 0xE0
SYSEX, SYSEX_GOES_ON, META = 0xF0, 0xF7, 0xFF
CHANNEL, PORT, END, TEMPO, METER, KEY = 0x20, 0x21, 0x2F, 0x51, 0x58, 0x59
META_CONTENTS = {
    CHANNEL: rb".", PORT: rb".", END: rb"", TEMPO: rb"(?!\0\0\0)...", METER: rb"[^\0][\0-\x07]..",
    KEY: rb"[\xf9-\xff\0-\x07][\0\x01]",
}  # fmt: skip
"""Pattern of the content of META events, by type; others may hold anything. A meter is a number and
a power of 2, of which the largest is 128, a key at most 7 flats (signed) to 7 sharps and a mode."""
SYSTEM_LENGTHS = {0xF1: 1, 0xF2: 2, 0xF3: 1}
"""Data bytes of messages that no file may hold, by status; others have none."""
CHUNK = re.compile(rb"[A-Za-z0-9 ]{4}")
"""Name of a chunk."""
AHEAD = 8
"""Events that have to be sound where reading goes on after damage."""


class Event(NamedTuple):
    """Event of a track."""

    tick: int
    status: int
    """Kind and channel of a message, SYSEX or META."""
    data: bytes
    """Data bytes of a message, content of SYSEX, type and content of META."""
    track: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether it says what it may say."""
        if self.status == META:
            pattern = META_CONTENTS.get(self.data[0], b".*")
            return re.fullmatch(pattern, self.data[1:], re.DOTALL) is not None
        if 0 < self.status < SYSEX:
            return max(self.data) < 0x80
        return self.status in (SYSEX, SYSEX_GOES_ON)


@dataclass(frozen=True)
class Events:
    """What the bytes of a MIDI file say."""

    kind: int
    """0 for one track of all channels, 1 for tracks at a time, 2 for one after the other."""
    ticks_per_quarter: int
    tempo: int | None
    """Microseconds per quarter note where the file counts frames of time, and its tempo events do
    not count; else None."""
    events: list[Event]
    """Of all tracks, by tick."""
    faults: list[str]
    """A sentence about each damaged place."""


def read_events(content: bytes, name: str, *, to_damage: bool = False) -> Events:
    """Return the events of a file; raises UserError where it is no MIDI file or has no track.

    The tracks of a file of kind 2 come one after the other. to_damage: whether each track ends at
    its first damage.
    """
    place = content.find(b"MThd")
    header = content[place + 8 : place + 14]
    if place < 0 or len(header) < 6:
        raise UserError(f"{name} is not a MIDI file that can be read: it has no header MThd")
    kind, n_tracks, high, low = struct.unpack(">HHbB", header)
    # Ticks per quarter; or frames per second, of which 29 are 29.97, and ticks per frame.
    per_second = low * (30 / 1.001 if high == -29 else -high)
    ticks = round(per_second / 2) if high < 0 else 256 * high + low
    if not ticks:
        raise UserError(
            f"{name} is not a MIDI file that can be read: its header has the time division "
            f"{header[4:].hex()}; expected ticks per quarter note, or frames per second"
        )
    tempo = round(1e6 * ticks / per_second) if high < 0 else None
    tracks = _tracks(content, place)
    if not tracks:
        raise UserError(f"{name} is not a MIDI file that can be read: it has no track")
    events: list[Event] = []
    faults: list[str] = []
    start = 0
    for number, track in enumerate(tracks):
        own, end = _read_track(track, number, start, faults, to_damage=to_damage)
        events += own
        start = end if kind == 2 else 0
    if len(tracks) < n_tracks:
        faults.append(f"the header counts {n_tracks} tracks, and {len(tracks)} follow")
    return Events(kind, ticks, tempo, sorted(events, key=attrgetter("tick")), faults)


def _tracks(content: bytes, place: int) -> list[bytes]:
    """Return what the tracks after a header hold; one of a wrong length ends at the next one."""
    tracks = []
    while place < len(content):
        begin = place + 8
        end = begin + int.from_bytes(content[place + 4 : begin])
        if end != len(content) and not CHUNK.match(content, end):
            following = content.find(b"MTrk", begin)
            end = following if following >= 0 else len(content)
        if content.startswith(b"MTrk", place):
            tracks.append(content[begin:end])
        place = end
    return tracks


def _read_track(
    data: bytes, number: int, tick: int, faults: list[str], *, to_damage: bool
) -> tuple[list[Event], int]:
    """Return the events of a track that begins at a tick, and its end.

    What cannot be read is told in `faults`.
    """
    events: list[Event] = []
    place = running = 0
    before, is_ended = len(faults), False
    while place < len(data):
        event, after = _event(data, place, running)
        is_sound = event.is_sound
        if not is_sound:
            damaged = data[place : place + AHEAD].hex(" ")
            faults.append(f"track {number + 1}, tick {tick}: damage at the bytes {damaged}")
            if to_damage:
                break
            if not _event(data, place)[0].status:  # without a status its length is not sure
                place = _resume(data, place, after, running)
                if place != after:
                    continue
        tick, place = tick + event.tick, after
        running = event.status if event.status < SYSEX else running
        if is_sound:
            events.append(Event(tick, event.status, event.data, number))
            is_ended = event.status == META and event.data[0] == END
            if is_ended and _time(data, place) is None:  # what follows is no music
                break
    if not is_ended and len(faults) == before:
        faults.append(f"track {number + 1} is cut off: it has no mark at its end")
    return events, tick


def _event(data: bytes, place: int, running: int = 0) -> tuple[Event, int]:
    """Read an event, whose tick is the time since the one before, and the place after it.

    running: status of the last message of a channel, which the next one need not repeat. An event
    that cannot be read has status 0 and no length.
    """
    begin = place
    try:
        time, place = _number(data, place)
        status = running
        if data[place] >= NOTE_OFF:
            status, place = data[place], place + 1
        kind = b""
        if status in (META, SYSEX, SYSEX_GOES_ON):
            if status == META:
                kind, place = data[place : place + 1], place + 1
            length, place = _number(data, place)
        elif status < SYSEX:
            length = 1 if PROGRAM <= status < PITCH_BEND else 2
        else:
            length = SYSTEM_LENGTHS.get(status, 0)
    except IndexError:  # the track ends
        return Event(0, 0, b""), begin
    if not status or place + length > len(data):
        return Event(0, 0, b""), begin
    return Event(time, status, kind + data[place : place + length]), place + length


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of at most four bytes of 7 bits; return it and the place after it."""
    value = 0
    for following in range(place, place + 4):
        value = value << 7 | data[following] & 0x7F
        if data[following] < 0x80:
            return value, following + 1
    raise IndexError


def _resume(data: bytes, begin: int, after: int, running: int) -> int:
    """Return where events go on after a damaged one.

    after: where it ends if its beginning is right. Of the places near by, wrong ones give longer
    times, since they read data bytes as times.
    """
    places = [(after, running), *((place, 0) for place in range(begin + 1, begin + 1 + AHEAD))]
    times = [(_time(data, place, status), place) for place, status in places]
    near = [(time, place) for time, place in times if time is not None]
    far = range(begin + 1 + AHEAD, len(data))
    if near:
        return min(near)[1]
    return next((place for place in far if _time(data, place) is not None), len(data))


def _time(data: bytes, place: int, running: int = 0) -> int | None:
    """Return the time that the next events take, up to the end; None where one is damaged."""
    time = 0
    for _ in range(AHEAD):
        if place >= len(data):
            break
        event, place = _event(data, place, running)
        if not event.is_sound:
            return None
        time += event.tick
        if event.status == META and event.data[0] == END:
            break
        running = event.status if event.status < SYSEX else running
    return time
