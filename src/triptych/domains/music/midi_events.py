"""The bytes of a MIDI file as tracks of events, of which a damaged one costs no other.

A Standard MIDI File is a header and tracks, each in a chunk of a name and a length (MIDI 1.0,
RP-001). Chunks of other names are skipped; what lies before the header, as in RIFF files, too.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from triptych.errors import UserError

Event: TypeAlias = tuple[int, int, int, int, bytes]
"""Tick, status, two data bytes and content: (tick, 0x90, 60, 64, b"") presses a key. META has its
type as the first data byte; content is that of META and SYSEX."""

NOTE_OFF, NOTE_ON, CONTROL, PROGRAM = 0x80, 0x90, 0xB0, 0xC0
SYSEX, META = 0xF0, 0xFF
END_OF_TRACK = 0x2F
META_LENGTHS = {0x20: 1, 0x21: 1, END_OF_TRACK: 0, 0x51: 3, 0x54: 5, 0x58: 4, 0x59: 2}
"""Length of the content of a META event, by type."""
SYSTEM_LENGTHS = {0xF1: 1, 0xF2: 2, 0xF3: 1}
"""Data bytes of messages that no file may hold, by status; others have none."""
FRAMES = {24: 24.0, 25: 25.0, 29: 30 / 1.001, 30: 30.0}
"""Frames per second, by the number in the header."""
CHUNK = re.compile(rb"[A-Za-z0-9 ]{4}")
"""Name of a chunk."""
AHEAD = 8
"""Events that are read to see whether one begins at a place after damage."""
DENSE = 8, 64
FIRST = 1, 1
"""How dense damage is that ends a track, see `read_events`: usual, and at the first place."""


@dataclass(frozen=True)
class Track:
    """Events of a track, by tick."""

    events: list[Event]
    end: int
    """Tick of the mark at its end, or of the last event without one."""


@dataclass(frozen=True)
class Events:
    """What the bytes of a MIDI file say."""

    kind: int
    """0 for one track of all channels, 1 for tracks at a time, 2 for one after the other."""
    ticks_per_quarter: int
    tempo: int | None
    """Microseconds per quarter note where the file counts frames of time, and its tempo events do
    not count; else None."""
    tracks: list[Track] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """A sentence about each damaged place."""


class EventError(Exception):
    """An event that cannot be read.

    after: places at which the next event may begin, the most probable first. delta: its time.
    status: of a message of a channel, else 0. is_framed: whether it has a status of its own.
    """

    def __init__(
        self,
        reason: str,
        after: list[int],
        delta: int = 0,
        status: int = 0,
        *,
        is_framed: bool = False,
    ) -> None:
        super().__init__(reason)
        self.after, self.delta, self.status, self.is_framed = after, delta, status, is_framed


def read_events(content: bytes, name: str, dense: tuple[int, int] = DENSE) -> Events:
    """Return the events of a file; raises UserError where it is no MIDI file or has no track.

    dense: number of damaged places without a status, and of sound events within which they end a
    track, which is cut at the first one.
    """
    place = content.find(b"MThd")
    header = content[place + 8 : place + 14]
    if place < 0 or len(header) < 6:
        raise UserError(f"{name} is not a MIDI file that can be read: it has no header MThd")
    kind, n_tracks = int.from_bytes(header[:2]), int.from_bytes(header[2:4])
    ticks_per_quarter, tempo = _division(header[4:], name)
    events = Events(kind, ticks_per_quarter, tempo)
    for number, chunk in enumerate(_track_chunks(content, place), start=1):
        events.tracks.append(_read_track(chunk, f"track {number}", events.faults, dense))
    if not events.tracks:
        raise UserError(f"{name} is not a MIDI file that can be read: it has no track")
    if len(events.tracks) < n_tracks:
        events.faults.append(
            f"the header counts {n_tracks} tracks, and {len(events.tracks)} follow"
        )
    return events


def _division(division: bytes, name: str) -> tuple[int, int | None]:
    """Return ticks per quarter note, and the tempo where the header counts frames."""
    if division[0] < 0x80:
        ticks, tempo = int.from_bytes(division), None
    else:
        frames = 256 - division[0]
        # A quarter of half a second, as at the default tempo, unless that would split a tick.
        per_second = (30 if frames == 29 else frames) * division[1]
        ticks = per_second // (2 - per_second % 2)
        tempo = round(1e6 * ticks / (FRAMES.get(frames, 0) * division[1] or 1))
        ticks = ticks if frames in FRAMES else 0
    if not ticks:
        raise UserError(
            f"{name} is not a MIDI file that can be read: its header has the time division "
            f"{division.hex()}; expected ticks per quarter note, or per frame of 24, 25, 29.97 or "
            "30 a second"
        )
    return ticks, tempo


def _track_chunks(content: bytes, place: int) -> list[bytes]:
    """Return what the tracks after a header hold, also where a chunk has a wrong length."""
    tracks = []
    while 0 <= place <= len(content) - 8:
        begin, end = place + 8, _chunk_end(content, place)
        is_end_known = end <= len(content) and (
            end == len(content)
            or _is_chunk(content, end)
            or content[end - 3 : end] == bytes([META, END_OF_TRACK, 0])
        )
        if not is_end_known:  # a damaged length, or a file that is cut off
            following = content.find(b"MTrk", begin)
            end = following if following >= 0 else len(content)
        if content[place:begin].startswith(b"MTrk"):
            tracks.append(content[begin:end])
        place = end if _is_chunk(content, end) else content.find(b"MTrk", end)
    return tracks


def _chunk_end(content: bytes, place: int) -> int:
    return place + 8 + int.from_bytes(content[place + 4 : place + 8])


def _is_chunk(content: bytes, place: int) -> bool:
    if CHUNK.fullmatch(content, place, place + 4) is None:
        return False
    return content.startswith(b"MTrk", place) or _chunk_end(content, place) <= len(content)


def _read_track(data: bytes, name: str, faults: list[str], dense: tuple[int, int]) -> Track:
    """Return the events of a track; what cannot be read is skipped and told in `faults`."""
    events: list[Event] = []
    tick = place = running = 0
    before, is_ended = len(faults), False
    lost: deque[tuple[int, int]] = deque(maxlen=dense[0])  # numbers of events and faults before
    while place < len(data):
        try:
            delta, status, first, second, content, place = _event(data, place, running)
        except EventError as damage:
            if not damage.is_framed:
                lost.append((len(events), len(faults)))
                if len(lost) == dense[0] and len(events) - lost[0][0] < dense[1]:
                    del events[lost[0][0] :], faults[lost[0][1] :]
                    faults.append(f"{name}: the rest, since much of it is damaged")
                    break
            faults.append(f"{name}, tick {tick + damage.delta}: {damage}")
            place, is_in_step = _resume(data, place, running, damage)
            tick += damage.delta * is_in_step
            running = damage.status or running
            continue
        tick += delta
        if status < SYSEX:
            running = status
        elif status == META and first == END_OF_TRACK:
            is_ended = True
            if _sound(data, place, 0)[0] < AHEAD:  # what follows is no music
                break
            continue
        events.append((tick, status, first, second, content))
        is_ended = False
    if not is_ended and len(faults) == before:
        faults.append(f"{name} is cut off: it has no mark at its end")
    return Track(events, tick if is_ended or not events else events[-1][0])


def _event(data: bytes, place: int, running: int) -> tuple[int, int, int, int, bytes, int]:
    """Read an event: its delta time, status, data bytes and content, and the place after it.

    running: status of the last message of a channel, which the next one need not repeat; 0 for
    none. Raises EventError.
    """
    begin = place
    try:
        delta, place = _number(data, place)
        status = data[place]
        is_framed = status >= 0x80
        if is_framed:
            place += 1
        elif running:
            status = running
        else:
            reason = f"the byte {status}, where a message should begin"
            raise EventError(reason, [place + 2, place + 1], delta)
        if status < SYSEX:
            first = data[place]
            second = 0 if 0xC0 <= status < 0xE0 else data[place + 1]
            place += 1 if 0xC0 <= status < 0xE0 else 2
            if first > 127 or second > 127:
                byte = first if first > 127 else second
                reason = f"a message with the data byte {byte}; expected at most 127"
                raise EventError(reason, [place], delta, status, is_framed=is_framed)
            return delta, status, first, second, b"", place
        if SYSEX < status < META and status != 0xF7:
            reason = f"the message {status:02X}, which no file may hold"
            after = [place + SYSTEM_LENGTHS.get(status, 0)]
            raise EventError(reason, after, delta, is_framed=True)
        first = 0
        if status == META:
            first = data[place]
            place += 1
        length, place = _number(data, place)
    except IndexError:
        raise EventError("the track ends within an event", [], 0) from None
    usual = META_LENGTHS.get(first, length) if status == META else length
    end = place + length
    if end > len(data) or length != usual:
        # A message of the system may lack its length, but ends with F7.
        others = [place + usual] if status == META else [data.find(0xF7, begin) + 1]
        after = [other for other in (end, *others) if place <= other <= len(data)]
        what = f"an event FF {first:02X}" if status == META else "a system message"
        reason = f"{what} of {length} bytes; expected {usual if length != usual else 'fewer'}"
        raise EventError(reason, after, delta)
    return delta, status, first, 0, data[place:end], end


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of 7 bits a byte; return it and the place after it."""
    value = data[place]
    if value < 0x80:
        return value, place + 1
    value &= 0x7F
    for following in range(place + 1, place + 4):
        byte = data[following]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, following + 1
    raise EventError("a number of more than four bytes", [])


def _resume(data: bytes, begin: int, running: int, damage: EventError) -> tuple[int, bool]:
    """Return where events go on after a damaged one, and whether it was as long as it should be.

    That is where most of the next events can be read, or else the first place after its beginning
    from which all of them can. Without a status, a message may also have begun in the wrong place:
    the times of the next events, which are small in the right one, decide.
    """
    count = AHEAD // 2 if damage.is_framed else AHEAD
    for place in damage.after:
        n_sound, time = _sound(data, place, damage.status or running, count)
        if n_sound >= count // 2:
            near = range(begin + 1, min(begin + AHEAD, len(data)) if not damage.is_framed else 0)
            others = ((other, *_sound(data, other, 0)) for other in near)
            times = [(time, place), *((late, other) for other, n, late in others if n == AHEAD)]
            best = min(times)[1]
            return best, best == place
    for place in range(begin + 1, len(data)):
        if _sound(data, place, 0)[0] == AHEAD:
            return place, False
    return len(data), False


def _sound(data: bytes, place: int, running: int, count: int = AHEAD) -> tuple[int, int]:
    """Return how many of the next `count` events can be read, and their time.

    All where the end mark comes first. running: as in `_event`. With 0 the first one has a status
    of its own and all can be read; otherwise a damaged one counts where it has a status.
    """
    is_lenient, n_sound, time = running != 0, 0, 0
    for number in range(count):
        if place == len(data):
            return (count if number or is_lenient else 0), time
        try:
            delta, status, first, _, _, place = _event(data, place, running)
        except EventError as damage:
            if not is_lenient or not damage.after:
                break
            n_sound, time = n_sound + damage.is_framed, time + damage.delta
            place, running = damage.after[0], damage.status or running
            continue
        n_sound, time = n_sound + 1, time + delta
        if status == META and first == END_OF_TRACK:
            return count, time
        running = status if status < SYSEX else running
    return n_sound, time
