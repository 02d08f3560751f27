"""A score made of the events of a MIDI file.

Notes are made here because libraries lose some. pretty_midi drops notes without a release and notes
of zero length, ends all overlapping notes of a pitch at one release, and applies a sustain pedal to
its own track only. symusic drops notes without a release and has no channels. mido refuses a file
for one damaged event.
"""

import re
from collections import defaultdict, deque
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from triptych.domains.music import midi_events as midi
from triptych.domains.music.chords import chords_of
from triptych.domains.music.notes import DRUMS, Ids, Notes, Part, Score, one_string_per_key

Meta: TypeAlias = defaultdict[int, list[tuple[int, int, bytes]]]
"""(tick, track, content) of META events, by their type."""

DRUM_CHANNEL = 9
SUSTAIN_PEDAL = 64
"""Number of the pedal's control change."""
PEDAL_DOWN = 64
"""Smallest value of the control change at which the pedal is down."""
BANK, BANK_LOW, SOUND_OFF, RESET, NOTES_OFF = 0, 32, 120, 121, 123
"""Numbers of other control changes; from NOTES_OFF on all of them end notes."""
DRUM_BANKS, PITCHED_BANK = (120, 126, 127), 121
"""Banks of drums in GM2 and XG, and of all other instruments in GM2."""
RESET_ALL = re.compile(rb"\x7e.\x09[\1\3]|\x41.\x42\x12\x40\0\x7f\0|\x43.\x4c\0\0\x7e\0", re.DOTALL)
"""System messages of GM, GM2, GS and XG that reset all channels; the second byte is a device."""
RHYTHM = re.compile(rb"\x41.\x42\x12\x40([\x10-\x1f])\x15(.)", re.DOTALL)
"""System message of GS that makes a channel drums, or an instrument again."""
TEXT, TRACK_NAME, INSTRUMENT_NAME, LYRIC, MARKER = 1, 3, 4, 5, 6
MAX_REST, MAX_LATE = 8, 32
"""Longest rest at the end of a piece that is part of it, and longest time after the last note in
which other events than notes count, such as the pedal, in quarters."""
OPEN = np.iinfo(np.int64).max
"""Release of a note that the file does not end."""


class Channel:
    """What messages say about a channel, by tick."""

    def __init__(self, *, is_drum: bool) -> None:
        self.is_drum, self.bank = is_drum, 0
        self.programs: list[tuple[int, int, int | None]] = []
        """(tick, program or DRUMS, track that says so or None for all)."""
        self.pedal: list[tuple[int, bool]] = []
        self.messages: list[tuple[int, bytes]] = []
        """(tick, message) of controllers that concern no note, bends, pressures and drum kits."""
        self.ends: dict[int, list[int]] = defaultdict(list)
        """Ticks at which all notes of a track end, by track: instruments send a controller for that
        when all their keys are up, while another track of the channel goes on."""

    def add(self, tick: int, status: int, data: bytes, track: int) -> None:
        """Take a message that begins or ends no note."""
        if status & 0xF0 == midi.PROGRAM:
            is_drum = (self.is_drum and self.bank != PITCHED_BANK) or self.bank in DRUM_BANKS
            self.programs.append((tick, DRUMS if is_drum else data[0], track))
            if is_drum:
                self.messages.append((tick, bytes([midi.PROGRAM, *data])))
            return
        if status & 0xF0 != midi.CONTROL:
            self.messages.append((tick, bytes([status & 0xF0, *data])))
            return
        number, value = data
        if number == BANK:
            self.bank = value
        elif number == SUSTAIN_PEDAL:
            self.pedal.append((tick, value >= PEDAL_DOWN))
        elif number in (SOUND_OFF, RESET):
            self.lift_pedal(tick)
        elif number < SOUND_OFF and number != BANK_LOW:
            self.messages.append((tick, bytes([midi.CONTROL, number, value])))
        if number == SOUND_OFF or number >= NOTES_OFF:
            self.ends[track].append(tick)

    def lift_pedal(self, tick: int) -> None:
        """End the notes that the pedal holds."""
        if self.pedal:
            self.pedal.append((tick, False))

    def set_drums(self, tick: int, *, is_drum: bool) -> None:
        """Play drums from a tick on, or a piano."""
        self.is_drum = is_drum
        self.programs.append((tick, DRUMS if is_drum else 0, None))

    def programs_at(self, onsets: Ids, track: int) -> Ids:
        """Return the program in force at each onset; the first one before the first change, else 0.

        Files with more parts than channels set the program in every track: a track's own changes
        count.
        """
        changes = self.programs
        if any(change[2] == track for change in changes):
            changes = [change for change in changes if change[2] in (track, None)]
        changes = changes or [(0, DRUMS if self.is_drum else 0, None)]
        ticks, programs = np.array([change[:2] for change in changes]).T
        at: Ids = programs[np.maximum(0, np.searchsorted(ticks, onsets, side="right") - 1)]
        return at


def read_score(content: bytes, name: str, *, to_damage: bool = False) -> Score:
    """Return the music of a MIDI file, which may have no notes; raises UserError as `read_events`.

    What is left out of a damaged file is told in `left_out`. to_damage: as there.
    """
    file = midi.read_events(content, name, to_damage=to_damage)
    meta: Meta = defaultdict(list)
    for tick, status, data, track in file.events:
        if status == midi.META:
            meta[data[0]].append((tick, track, data[1:]))
    # Files for more than 16 channels name a port in each track.
    ports = {track: data[0] for _, track, data in reversed(meta[midi.PORT])}
    channels = {
        (port, number): Channel(is_drum=number == DRUM_CHANNEL)
        for port in {0, *ports.values()}
        for number in range(16)
    }
    # Messages of each key as (tick, velocity), velocity 0 for a release, by (track, channel).
    keys: dict[tuple[int, int], dict[int, list[tuple[int, int]]]] = {}
    for event in file.events:
        tick, status, data, track = event
        port, number = ports.get(track, 0), status & 0x0F
        if status & 0xF0 in (midi.NOTE_OFF, midi.NOTE_ON):
            messages = keys.setdefault((track, number), defaultdict(list))[data[0]]
            messages.append((tick, data[1] if status >= midi.NOTE_ON else 0))
        elif status < midi.SYSEX:
            channels[port, number].add(*event)
        elif status == midi.SYSEX and RESET_ALL.match(data):
            for number in range(16):
                channels[port, number].lift_pedal(tick)
                channels[port, number].bank = 0
        elif status == midi.SYSEX and (rhythm := RHYTHM.match(data)):
            block = rhythm[1][0] & 0x0F  # 0 for channel 10, 1 to 9, then 11 to 16
            number = DRUM_CHANNEL if not block else block - (block < 10)
            channels[port, number].set_drums(tick, is_drum=rhythm[2] > b"\0")
    tables = {
        (track, number): _notes(by_pitch, channels[ports.get(track, 0), number].ends[track])
        for (track, number), by_pitch in sorted(keys.items())
    }
    quarter = file.ticks_per_quarter
    times = np.concatenate([[0], *(table[:, 1:3].ravel() for table in tables.values())])
    last = int(times[times < OPEN].max())
    latest = last + MAX_LATE * quarter
    # pretty_midi ends each track a tick after its last note.
    rest = range(last + 2, last + MAX_REST * quarter + 1)
    end = max([last, *(tick for tick, *_ in meta[midi.END] if tick in rest)])
    name_kinds = (INSTRUMENT_NAME, TRACK_NAME)[: 1 if file.kind == 0 else 2]  # of a part
    names = {track: _text(data) for kind in name_kinds for _, track, data in reversed(meta[kind])}
    parts: list[Part] = []
    pieces = [np.empty((0, 6), dtype=np.int64)]
    for (track, number), table in tables.items():
        channel = channels[ports.get(track, 0), number]
        program = channel.programs_at(table[:, 1], track)
        pedal = [movement for movement in channel.pedal if movement[0] <= latest]
        others = [message for message in channel.messages if message[0] <= latest]
        for is_drum in (False, True):  # a channel may be both, one after the other
            own = (program == DRUMS) == is_drum
            if own.any():
                part = np.full(len(table), len(parts))
                pieces.append(np.column_stack([table, part, program])[own])
                parts.append(Part(names.get(track, ""), is_drum, pedal, others))
    pitch, onset, release, velocity, part, program = np.concatenate(pieces).T
    notes = Notes(pitch, onset, np.minimum(release, end), velocity, part, program)
    notes = one_string_per_key(notes, notes.onset, least=1)
    notes = notes.sorted("part", "onset", "release", "pitch")
    end = max(end, int(notes.release.max(initial=0)))
    frame = _frame(meta, latest)
    if file.tempo:
        frame["tempos"] = [(0, file.tempo)]
    return Score(name, parts, notes, quarter, end, **frame, left_out=file.faults)


def _notes(keys: dict[int, list[tuple[int, int]]], ends: list[int]) -> Ids:
    """Return pitch, onset, release and velocity of notes, [N, 4], of the messages of each key.

    ends: ticks at which all notes end.
    """
    rows = [(pitch, *note) for pitch, messages in keys.items() for note in _pair(messages)]
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    following = np.array([*ends, OPEN])[np.searchsorted(ends, table[:, 1], side="right")]
    table[:, 2] = np.minimum(table[:, 2], following)
    return table


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


def _frame(meta: Meta, latest: int) -> dict[str, Any]:
    """Return tempos, meters, keys and chords up to a tick as a Score has them, without repetitions.

    Chords are those of one kind of text of one track.
    """
    texts = defaultdict(list)
    for kind in (TEXT, LYRIC, MARKER):
        for tick, track, data in meta[kind]:
            texts[track, kind].append((tick, _text(data)))
    rows: dict[str, list[Any]] = {
        "tempos": [(tick, int.from_bytes(data)) for tick, _, data in meta[midi.TEMPO]],
        "time_signatures": [(tick, data[0], 2 ** data[1]) for tick, _, data in meta[midi.METER]],
        "key_signatures": [
            (tick, (data[0] ^ 0x80) - 0x80, data[1] == 1)  # a signed byte
            for tick, _, data in meta[midi.KEY]
        ],
        "chords": [chord for own in texts.values() for chord in chords_of(own)],
        "lyrics": [
            line
            for (_, kind), own in texts.items()
            if kind == LYRIC and not chords_of(own)
            for line in own
        ],
    }
    return {
        name: [row for row, _ in groupby(sorted(own, key=itemgetter(0))) if row[0] <= latest]
        for name, own in rows.items()
    }


def _text(content: bytes) -> str:
    """Read UTF-8, or Windows-1252."""
    content = content.strip(b"\0")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")
