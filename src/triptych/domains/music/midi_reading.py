"""A score made of the events of a MIDI file.

Notes are made here because libraries lose some. pretty_midi drops notes without a release and notes
of zero length, ends all overlapping notes of a pitch at one release, and applies a sustain pedal to
its own track only. symusic drops notes without a release and has no channels. mido refuses a file
for one damaged event.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from triptych.domains.music.chord_symbols import chord_symbols
from triptych.domains.music.midi_events import (
    CONTROL,
    DENSE,
    META,
    NOTE_ON,
    PROGRAM,
    SYSEX,
    Event,
    Events,
    Track,
    read_events,
)
from triptych.domains.music.notes import (
    DEFAULT_TEMPO,
    DRUMS,
    Ids,
    Notes,
    Part,
    Score,
    one_string_per_key,
)

Row = TypeVar("Row", bound=tuple[Any, ...])

DRUM_CHANNEL = 9
SUSTAIN_PEDAL = 64
"""Number of the pedal's control change."""
PEDAL_DOWN = 64
"""Smallest value of the control change at which the pedal is down."""
BANK, SOUND_OFF, RESET, NOTES_OFF = 0, 120, 121, 123
"""Numbers of other control changes; from NOTES_OFF on all of them end notes."""
DRUM_BANKS, PITCHED_BANK = (120, 126, 127), 121
"""Banks of drums in GM2 and XG, and of all other instruments in GM2."""
GS_RESET = bytes([0x41, 0x42, 0x12, 0x40, 0, 0x7F, 0])
RESETS = (bytes([0x7E, 9, 1]), bytes([0x7E, 9, 3]), GS_RESET, bytes([0x43, 0x4C, 0, 0, 0x7E, 0]))
"""System messages that reset all channels, without the number of the device: GM, GM2, GS and XG."""
TEXT, TRACK_NAME, INSTRUMENT_NAME, LYRIC, MARKER = 1, 3, 4, 5, 6
CHANNEL, PORT, TEMPO, METER, KEY = 0x20, 0x21, 0x51, 0x58, 0x59
SHORTEST_UNIT = 7
"""Shortest unit of a meter, a 128th, as a power of 2."""
MAX_REST, MAX_PEDAL = 8, 32
"""Longest rest at the end of a piece that is part of it, and longest time after the last note in
which other events than notes count, such as the pedal, in quarters."""
OPEN = np.iinfo(np.int64).max
"""Release of a note that the file does not end."""


class Frame:
    """What the META events of all tracks say; times in ticks."""

    def __init__(self) -> None:
        self.tempos: list[tuple[int, int]] = []
        self.meters: list[tuple[int, int, int]] = []
        self.keys: list[tuple[int, int, bool]] = []
        self.texts: dict[Any, list[tuple[int, str]]] = defaultdict(list)
        """(tick, text) by track and type."""
        self.names: dict[tuple[int, int, int | None], str] = {}
        """Names of tracks and instruments by track, type and channel, None for a whole track."""

    def add(self, event: Event, number: int, channel: int | None) -> str:
        """Take an event of a track; return why it cannot be used, or an empty string.

        channel: that an event before it names, or None.
        """
        tick, _, kind, _, content = event
        if kind == TEMPO:
            if not (tempo := int.from_bytes(content)):
                return "a tempo of 0 microseconds a quarter"
            self.tempos.append((tick, tempo))
        elif kind == METER:
            count, unit = content[:2]
            if not count or unit > SHORTEST_UNIT:
                return f"a time signature of {count} over 2 to the power of {unit}"
            self.meters.append((tick, count, 2**unit))
        elif kind == KEY:
            sharps = (content[0] ^ 0x80) - 0x80  # a signed byte
            if abs(sharps) > 7 or content[1] > 1:
                return f"a key signature of {sharps} sharps and mode {content[1]}"
            self.keys.append((tick, sharps, content[1] == 1))
        elif kind in (TRACK_NAME, INSTRUMENT_NAME):
            if name := _text(content):
                self.names.setdefault((number, kind, channel), name)
        elif kind in (TEXT, LYRIC, MARKER):
            self.texts[number, kind].append((tick, _text(content)))
        return ""

    def name(self, number: int, channel: int, kind: int) -> str:
        """Return the name of a part. kind: of the file; the one track of kind 0 names the piece."""
        places: list[tuple[int, int | None]]
        places = [(TRACK_NAME, channel), (INSTRUMENT_NAME, channel)]
        places += [(TRACK_NAME, None)] * (kind != 0) + [(INSTRUMENT_NAME, None)]
        names = (self.names.get((number, *place)) for place in places)
        return next(filter(None, names), "")


class Channels:
    """What messages say about the channels, by (port, channel)."""

    def __init__(self) -> None:
        self.pedals: dict[Any, list[tuple[int, bool]]] = defaultdict(list)
        self.ends: dict[Any, list[int]] = defaultdict(list)
        """Ticks at which all notes end, or those of (port, channel, track)."""
        self.programs: dict[Any, list[tuple[int, int, int | None]]] = defaultdict(list)
        """(tick, program or DRUMS, track that says so or None for all)."""
        self._banks: dict[Any, int] = {}  # also of (port, channel, track), which comes first
        self._drums: dict[Any, bool] = {}
        self._is_gs: dict[int, bool] = {}

    def add(self, event: Event, number: int, port: int, *, has_notes: bool) -> None:
        """Take a message of a track. has_notes: whether the track has notes of its channel."""
        tick, status, first, second, content = event
        channel = status & 0x0F
        place = port, channel
        if status == SYSEX:
            self._add_system(tick, content, port)
        elif status & 0xF0 == PROGRAM:
            bank = self._banks.get((*place, number), self._banks.get(place, 0))
            is_drum = self._is_drum(place) and bank != PITCHED_BANK
            # In GS, bank 127 has the sounds of an older device.
            is_drum |= bank in DRUM_BANKS[: 1 if self._is_gs.get(port) else 3]
            self.programs[place].append((tick, DRUMS if is_drum else first, number))
        elif first == BANK:
            self._banks[place] = self._banks[*place, number] = second
        elif first == SUSTAIN_PEDAL:
            self.pedals[place].append((tick, second >= PEDAL_DOWN))
        elif first in (SOUND_OFF, RESET):
            self._lift(tick, place)
        if status & 0xF0 == CONTROL and (first == SOUND_OFF or first >= NOTES_OFF):
            # Instruments send it when all keys are up; the notes of another track go on.
            self.ends[(*place, number) if has_notes else place].append(tick)

    def _is_drum(self, place: tuple[int, int]) -> bool:
        return self._drums.get(place, place[1] == DRUM_CHANNEL)

    def _lift(self, tick: int, place: tuple[int, int]) -> None:
        if self.pedals[place] and self.pedals[place][-1][1]:
            self.pedals[place].append((tick, False))

    def _add_system(self, tick: int, content: bytes, port: int) -> None:
        """Take a reset, or what GS and XG say about the drums of a channel."""
        message = content[:1] + content[2:]  # without the number of the device
        if message.startswith(RESETS):
            self._is_gs[port] = message.startswith(GS_RESET)
            for place in ((port, channel) for channel in range(16)):
                self._lift(tick, place)
                self.ends[place].append(tick)
                self._set_drums(tick, place, is_drum=place[1] == DRUM_CHANNEL)
            self._banks = {key: bank for key, bank in self._banks.items() if key[0] != port}
        elif message[:4] == GS_RESET[:4] and message[5:6] == b"\x15":
            block = message[4] & 0x0F  # 0 for channel 10, 1 to 9, then 11 to 16
            channel = DRUM_CHANNEL if not block else block - (block < 10)
            self._set_drums(tick, (port, channel), is_drum=message[6:7] > b"\0")
        elif message[:3] == RESETS[3][:2] + b"\x08" and message[4:5] == b"\x07":
            self._set_drums(tick, (port, message[3] & 0x0F), is_drum=message[5:6] > b"\0")

    def _set_drums(self, tick: int, place: tuple[int, int], *, is_drum: bool) -> None:
        if is_drum != self._is_drum(place):
            pitched = [program for _, program, _ in self.programs[place] if program != DRUMS]
            program = DRUMS if is_drum else [0, *pitched][-1]
            self.programs[place].append((tick, program, None))
        self._drums[place] = is_drum


def read_score(content: bytes, name: str, dense: tuple[int, int] = DENSE) -> Score:
    """Return the music of a MIDI file, which may have no notes; raises UserError as `read_events`.

    What is left out of a damaged file is told in `left_out`. dense: see `read_events`.
    """
    file = read_events(content, name, dense)
    if file.kind == 2:
        _one_after_the_other(file)
    frame, channels = Frame(), Channels()
    # Messages of each key as (tick, velocity), velocity 0 for a release, by (track, channel).
    keys: dict[tuple[int, int], dict[int, list[tuple[int, int]]]] = {}
    messages: list[tuple[int, Event]] = []  # with the number of their track
    ports: list[int] = []
    for number, track in enumerate(file.tracks):
        # Files for more than 16 channels name a port in each track.
        named = (event[4][0] for event in track.events if event[1:3] == (META, PORT))
        ports.append(next(named, 0))
        channel: int | None = None  # that the next META events are about
        for event in track.events:
            tick, status, first, second, content = event
            if status == META:
                if first == CHANNEL:
                    channel = content[0]
                elif fault := frame.add(event, number, channel):
                    file.faults.append(f"track {number + 1}, tick {tick}: {fault}")
                continue
            if status < SYSEX:
                channel = None
            if status < 0xA0:
                by_pitch = keys.setdefault((number, status & 0x0F), defaultdict(list))
                by_pitch[first].append((tick, second if status >= NOTE_ON else 0))
            elif status & 0xF0 in (CONTROL, PROGRAM) or status == SYSEX:
                messages.append((number, event))
    for number, event in sorted(messages, key=lambda message: message[1][0]):
        has_notes = (number, event[1] & 0x0F) in keys
        channels.add(event, number, ports[number], has_notes=has_notes)
    return _score(name, file, frame, channels, keys, ports)


def _score(
    name: str,
    file: Events,
    frame: Frame,
    channels: Channels,
    keys: dict[tuple[int, int], dict[int, list[tuple[int, int]]]],
    ports: list[int],
) -> Score:
    tables: dict[tuple[int, int], Ids] = {}  # pitch, onset, release and velocity, [N, 4]
    last = 0
    for number, channel in sorted(keys):
        rows = [(p, *note) for p, own in keys[number, channel].items() for note in _pair(own)]
        if rows:
            table = np.array(rows, dtype=np.int64)
            place = ports[number], channel
            own_ends = [*channels.ends[place], *channels.ends[*place, number]]
            ends = np.array([*sorted(own_ends), OPEN])
            following = ends[np.searchsorted(ends[:-1], table[:, 1], side="right")]
            table[:, 2] = np.minimum(table[:, 2], following)
            tables[number, channel] = table
            last = max(last, *table[:, 1].tolist(), *table[table[:, 2] < OPEN, 2].tolist())
    quarter = file.ticks_per_quarter
    # pretty_midi ends each track a tick after its last note.
    rest = range(last + 2, last + MAX_REST * quarter + 1)
    end = max([last, *(track.end for track in file.tracks if track.end in rest)])
    parts: list[Part] = []
    pieces: list[Ids] = []
    for (number, channel), table in tables.items():
        place = ports[number], channel
        program = _programs(table[:, 1], channels.programs[place], number, channel)
        pedal = sorted(channels.pedals[place], key=itemgetter(0))
        pedal = [movement for movement in pedal if movement[0] <= last + MAX_PEDAL * quarter]
        for is_drum in (False, True):  # a channel may be both, one after the other
            own = (program == DRUMS) == is_drum
            if own.any():
                part = np.full(len(table), len(parts))
                pieces.append(np.column_stack([table, part, program])[own])
                parts.append(Part(frame.name(number, channel, file.kind), is_drum, pedal))
    columns = np.concatenate([np.empty((0, 6), dtype=np.int64), *pieces])
    pitch, onset, release, velocity, part, program = columns.T
    notes = Notes(pitch, onset, np.minimum(release, end), velocity, part, program)
    notes = one_string_per_key(notes, notes.onset, least=1)
    notes = notes.sorted("part", "onset", "release", "pitch")
    chords = [chord for texts in frame.texts.values() for chord in chord_symbols(texts)]

    def in_time(rows: list[Row]) -> list[Row]:
        """Order rows by tick, without repetitions in a row and those long after the music."""
        ordered = [row for row, _ in groupby(sorted(rows, key=itemgetter(0)))]
        return [row for row in ordered if row[0] <= last + MAX_PEDAL * quarter]

    return Score(
        name,
        parts,
        notes,
        quarter,
        max(end, int(notes.release.max(initial=0))),
        [(0, file.tempo)] if file.tempo else in_time(frame.tempos),
        in_time(frame.meters),
        in_time(frame.keys),
        in_time(chords),
        file.faults,
    )


def _text(content: bytes) -> str:
    """Read UTF-8, or Windows-1252, or Latin-1, which has a letter for every byte."""
    content = content.strip(b"\0")
    for encoding in ("utf-8", "cp1252"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return content.decode("latin-1")


def _programs(
    onsets: Ids, changes: list[tuple[int, int, int | None]], number: int, channel: int
) -> Ids:
    """Return the program in force at each onset; the first one before the first change, else 0.

    Files with more parts than channels set the program in every track: a track's own changes count.
    """
    if any(track == number for _, _, track in changes):
        changes = [change for change in changes if change[2] in (number, None)]
    if not changes:
        return np.full(len(onsets), DRUMS if channel == DRUM_CHANNEL else 0)
    ticks, programs = np.array([change[:2] for change in changes]).T
    found: Ids = programs[np.maximum(0, np.searchsorted(ticks, onsets, side="right") - 1)]
    return found


def _pair(messages: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (onset, release, velocity) of one key's notes, of its (tick, velocity) in file order.

    With as many releases as presses, the first release ends the first note, as two voices on one
    key are written. Otherwise a release is missing, and each release ends the latest note, so that
    one lost release damages one note only. The release of the others is OPEN.
    """
    balanced = 2 * sum(velocity > 0 for _, velocity in messages) == len(messages)
    open_notes: deque[tuple[int, int]] = deque()  # (onset, velocity)
    notes: list[tuple[int, int, int]] = []
    for tick, velocity in messages:
        if velocity > 0:
            open_notes.append((tick, velocity))
        elif open_notes:  # a release without a press is ignored
            onset, loudness = open_notes.popleft() if balanced else open_notes.pop()
            notes.append((onset, tick, loudness))
    return [*notes, *((onset, OPEN, velocity) for onset, velocity in open_notes)]


def _one_after_the_other(file: Events) -> None:
    """Move each track of a file of patterns behind the one before; none changes the next one."""
    start, usual = 0, {TEMPO: DEFAULT_TEMPO.to_bytes(3), METER: bytes([4, 2, 24, 8])}
    seen: set[int] = set()
    for number, track in enumerate(file.tracks):
        last = max((event[0] for event in track.events if event[1] < 0xA0), default=0)
        end = track.end if track.end <= last + MAX_REST * file.ticks_per_quarter else last
        events = [event for event in track.events if event[0] <= end]
        own = [kind for tick, status, kind, *_ in events if status == META and not tick]
        missing = [kind for kind in usual if kind in seen and kind not in own]
        seen.update(kind for _, status, kind, *_ in events if status == META)
        events = [*((0, META, kind, 0, usual[kind]) for kind in missing), *events]
        channels = {status & 0x0F for _, status, *_ in events if status < SYSEX}
        events += [
            (end, CONTROL | channel, control, 0, b"")
            for channel in channels
            for control in (RESET, NOTES_OFF)
        ]
        moved = [(start + tick, *event) for tick, *event in events]
        file.tracks[number] = Track(moved, start + end)  # type: ignore[arg-type]
        start += end
