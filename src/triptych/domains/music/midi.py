"""Files of music: MIDI, and scores in MusicXML, ABC and Humdrum, read, written and played."""

from __future__ import annotations

import io
import logging
import re
import wave
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import mido
import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.midi_events import CONTROL
from triptych.domains.music.midi_reading import DRUM_CHANNEL, SUSTAIN_PEDAL, read_score
from triptych.domains.music.musicxml import MUSICXML_SUFFIXES, parse_musicxml
from triptych.domains.music.musicxml_writing import musicxml_bytes
from triptych.domains.music.notes import DEFAULT_TEMPO, DRUMS, Score
from triptych.errors import UserError, library
from triptych.files.piano_roll import Piece, piano_roll_png
from triptych.files.results import write_atomically

if TYPE_CHECKING:
    import pretty_midi

LOG = logging.getLogger(__name__)

GivenMidi: TypeAlias = "pretty_midi.PrettyMIDI | Score | str | Path"
"""Music that a caller gives: in memory, or as a file."""
MAX_BYTES = 20_000_000
"""Largest file that is read, in bytes: six times the longest score of music21's corpus."""
MAX_SECONDS = 7200.0
"""Latest end of a piece, in seconds: damaged files claim weeks."""
CONVERTED = {".abc": "abc", ".krn": "humdrum"}
"""Suffix of the files that music21 converts -> its name of their format."""
NOTATION_SUFFIXES = (*MUSICXML_SUFFIXES, *CONVERTED)
MIDI_SUFFIXES = (".mid", ".midi", ".kar", ".rmi")
MUSIC_SUFFIXES = (*MIDI_SUFFIXES, *NOTATION_SUFFIXES)
"""Of all files that are read."""

PITCHED_CHANNELS = tuple(channel for channel in range(16) if channel != DRUM_CHANNEL)
MAJOR_KEYS = ["Cb", "Gb", "Db", "Ab", "Eb", "Bb", "F", "C", "G", "D", "A", "E", "B", "F#", "C#"]
MINOR_KEYS = [f"{key}m" for key in (*MAJOR_KEYS[3:], "G#", "D#", "A#")]
"""Names of the keys of 7 flats to 7 sharps."""
SAMPLE_RATE = 44_100
"""Samples of sound per second."""
FLUIDSYNTH = "fluidsynth (TimGM6mb soundfont)"
SINES = "sine waves and noise (fluidsynth is not installed)"


def read_content(path: Path, name: str) -> bytes:
    """Return the bytes of a file; UserError where it cannot be read.

    Of a larger file MAX_BYTES and one byte more, which `parse_midi` refuses.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from error


def read_midi(given: GivenMidi, name: str = "the piece") -> Score:
    """Return what a file of music holds, or a piece in memory, which error messages call `name`.

    Raises UserError as `parse_midi` does, and for a file that is missing.
    """
    if isinstance(given, Score):
        return given
    if isinstance(given, (str, Path)):
        score = parse_midi(read_content(Path(given), str(given)), name=str(given))
        if score.left_out:
            LOG.warning("%s: %s", given, left_out_of(score))
        return score
    buffer = io.BytesIO()
    given.write(buffer)
    return parse_midi(buffer.getvalue(), name=name)


def parse_midi(content: bytes, *, name: str) -> Score:
    """Parse the bytes of a MIDI file, or of a score as `parse_score` does, by the suffix of `name`.

    A damaged event is left out and told in `left_out`. Raises UserError for a file that is empty,
    larger than MAX_BYTES, no MIDI file or without notes, and for music that ends after MAX_SECONDS.
    """
    if not content:
        raise UserError(f"{name} is empty; expected a MIDI file")
    if len(content) > MAX_BYTES:
        raise UserError(f"{name} is too large: files of at most {MAX_BYTES:,} bytes are read")
    suffix = Path(name).suffix.lower()
    if suffix in NOTATION_SUFFIXES and b"MThd" not in content[:10_000]:
        score = parse_score(content, suffix, name=name)
    else:
        score = read_score(content, name)
        if score.left_out and score.duration > MAX_SECONDS:  # what follows damage may be no music
            score = read_score(content, name, to_damage=True)
    end = score.duration
    if end > MAX_SECONDS:
        raise UserError(
            f"{name} claims to last {end:,.0f} s; at most {MAX_SECONDS:,.0f} s are read"
        )
    if not len(score.notes):
        found = f"; {left_out_of(score)}" if score.left_out else ""
        raise UserError(f"{name} holds no notes{found}")
    return score


def parse_score(content: bytes, kind: str, *, name: str) -> Score:
    """Parse the bytes of a score; kind: suffix of its file, of NOTATION_SUFFIXES.

    Of a file of several ABC tunes the first. Raises UserError as `parse_musicxml`, and for ABC and
    Humdrum where music21 is missing or does not read them.
    """
    if kind not in CONVERTED:
        return parse_musicxml(content, name=name)
    tune, *others = re.split(rb"\n(?=X:)", content) if kind == ".abc" else [content]
    text = tune.decode("utf-8-sig", "replace")
    what = f"{name}, a score in ABC or Humdrum,"
    converter = library("music21.converter", what, "scores")
    try:
        music: Any = converter.parseData(text, format=CONVERTED[kind])
        exporter = library("music21.musicxml.m21ToXml", what, "scores").GeneralObjectExporter(music)
        # Measures stay as short as they are written; only music without any has to be divided.
        exporter.makeNotation = not music.recurse().getElementsByClass("Measure")
        document = exporter.parse()
    # The readers of music21 raise many types for damaged files.
    except Exception as error:
        raise UserError(f"{name} is not a {kind} file that music21 reads ({error!r})") from error
    score = parse_musicxml(document, name=name)
    further = [f"all tunes but the first, {len(others) + 1} in all"] * bool(others)
    return replace(score, left_out=[*score.left_out, *further])


def left_out_of(score: Score) -> str:
    """Return how many places of a file are left out, and the first; empty for none."""
    count = len(score.left_out)
    places = "place" if count == 1 else "places"
    return f"{count:,} {places} left out: {score.left_out[0]}" if count else ""


def score_instruments(score: Score) -> list[pretty_midi.Instrument]:
    """Return the parts of a score as they are drawn and played, times in seconds.

    Each has the program that it begins with.
    """
    import pretty_midi

    notes, instruments = score.notes_in_seconds, []
    for number, part in enumerate(score.parts):
        own = notes[notes.part == number]
        program = int(own.program[:1].sum())
        instrument = pretty_midi.Instrument(max(0, program), program == DRUMS, part.name)
        rows = own.rows("velocity", "pitch", "onset", "release")
        instrument.notes = [pretty_midi.Note(*row) for row in rows]
        instruments.append(instrument)
    return instruments


def piece_of(score: Score, name: str) -> Piece:
    """Return a score for a page, with its bars and as MusicXML too."""
    bars = score.seconds(score.bars()).tolist()
    return Piece(name, score_instruments(score), midi_bytes(score), musicxml_bytes(score), bars)


def read_piece(path: Path) -> Piece:
    """Read a MIDI file for a page; raises UserError for one that is damaged or has no notes."""
    content = read_content(path, str(path))
    return Piece(path.stem, score_instruments(parse_midi(content, name=str(path))), content)


def midi_bytes(score: Score) -> bytes:
    """Return the content of a MIDI file. It holds a tempo event, so every player agrees on it."""
    buffer = io.BytesIO()
    midi_file(score).save(file=buffer)
    return buffer.getvalue()


def midi_file(score: Score) -> mido.MidiFile:
    """Return a score as a file: its frame in the first track, then a track for each part.

    No channel has notes of two programs at a time: beyond 15 pitched parts, parts of one program
    share a channel, and further ones name a port of their own. Chord symbols become markers, and
    lyrics are in the first track.
    """
    file = mido.MidiFile(ticks_per_beat=score.ticks_per_quarter, charset="utf-8")
    meta = mido.MetaMessage
    tempos = {0: DEFAULT_TEMPO} | dict(score.tempos)  # by tick
    frame = [(tick, meta("set_tempo", tempo=tempo)) for tick, tempo in tempos.items()]
    for tick, count, unit in score.time_signatures:
        frame.append((tick, meta("time_signature", numerator=count, denominator=unit)))
    for tick, sharps, is_minor in score.key_signatures:
        key = (MINOR_KEYS if is_minor else MAJOR_KEYS)[sharps + 7]
        frame.append((tick, meta("key_signature", key=key)))
    for kind, texts in (("marker", score.chords), ("lyrics", score.lyrics)):
        frame += [(tick, meta(kind, text=text)) for tick, text in texts]
    file.tracks.append(_track(frame, score.last_tick))
    for number, (part, (port, channel)) in enumerate(
        zip(score.parts, _channels(score), strict=True)
    ):
        notes = score.notes[score.notes.part == number].sorted("onset", "pitch")
        events = [(0, meta("track_name", name=part.name))] if part.name else []
        if port:
            events.append((0, meta("midi_port", port=port)))
        at, last = {"channel": channel}, None
        rows = notes.rows("pitch", "onset", "release", "velocity", "program")
        for pitch, onset, release, velocity, program in rows:
            if program != last and not (program == DRUMS and part.messages):  # its kit
                change = mido.Message("program_change", program=max(0, program), **at)
                events.append((onset if last is not None else 0, change))
                last = program
            sound = {"note": pitch, **at}
            events.append((onset, mido.Message("note_on", velocity=velocity, **sound)))
            events.append((release, mido.Message("note_off", velocity=0, **sound)))
        pedal = [(tick, (CONTROL, SUSTAIN_PEDAL, 127 * down)) for tick, down in part.pedal]
        for tick, (status, *data) in [*pedal, *part.messages]:
            events.append((tick, mido.Message.from_bytes([status | channel, *data])))
        file.tracks.append(_track(events, score.last_tick))
    return file


def _channels(score: Score) -> list[tuple[int, int]]:
    """Return the port and channel of each part."""
    notes = score.notes
    programs = [{*notes.program[notes.part == part].tolist()} for part in range(len(score.parts))]
    # Parts of one program may share a channel; one that changes its program has its own.
    shares = sum(DRUMS not in own for own in programs) > len(PITCHED_CHANNELS)
    places: dict[Any, int] = {}
    channels = []
    for number, own in enumerate(programs):
        if DRUMS in own:
            channels.append((0, DRUM_CHANNEL))
            continue
        key = frozenset(own) if shares and len(own) == 1 else number
        port, place = divmod(places.setdefault(key, len(places)), len(PITCHED_CHANNELS))
        channels.append((port, PITCHED_CHANNELS[place]))
    return channels


def _track(events: list[tuple[int, Any]], end: int) -> mido.MidiTrack:
    """Return messages at ticks as a track; at one tick notes end before others begin."""
    order = {"note_off": 0, "note_on": 2, "end_of_track": 3}
    last = max([end, *(tick for tick, _ in events)])
    events = [*events, (last, mido.MetaMessage("end_of_track"))]
    events.sort(key=lambda event: (event[0], order.get(event[1].type, 1)))
    waits = np.diff([0, *(tick for tick, _ in events)]).tolist()
    return mido.MidiTrack(m.copy(time=wait) for wait, (_, m) in zip(waits, events, strict=True))


def write_wav(score: Score, path: str | Path) -> str:
    """Write a piece as a mono 16-bit .wav, atomically; return the name of the synthesiser."""
    samples, synthesiser = synthesise(score_instruments(score))
    peak = float(np.abs(samples).max(initial=0.0))
    # At 90 % of the range neither rounding nor playback clips. Silence stays silence.
    scaled = samples * (0.9 / peak) if peak > 0 else samples
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(np.round(scaled * 32767).astype("<i2").tobytes())
    write_atomically(path, buffer.getvalue())
    return synthesiser


def synthesise(parts: list[pretty_midi.Instrument]) -> tuple[NDArray[np.float64], str]:
    """Return the samples of a piece at any loudness, and the name of the synthesiser."""
    import pretty_midi

    try:
        import fluidsynth  # noqa: F401
    # Without the system library, pyfluidsynth raises ImportError, older versions OSError or
    # AttributeError.
    except (ImportError, OSError, AttributeError):
        sounds = [_drums(p) if p.is_drum else p.synthesize(SAMPLE_RATE) for p in parts]
        samples = np.zeros(max(map(len, sounds), default=0))
        for sound in sounds:
            samples[: len(sound)] += sound
        return samples, SINES
    midi = pretty_midi.PrettyMIDI()
    midi.instruments = parts
    return midi.fluidsynth(fs=SAMPLE_RATE), FLUIDSYNTH


def _drums(part: pretty_midi.Instrument) -> NDArray[np.float64]:
    """Return the sound of a part of drums, as loud as pretty_midi's sine waves: bursts of noise."""
    samples = np.zeros(int((part.get_end_time() + 1) * SAMPLE_RATE) + 1)
    seconds = np.arange(SAMPLE_RATE // 2) / SAMPLE_RATE
    hits = {}
    for pitch in {note.pitch for note in part.notes}:
        noise = np.random.default_rng(pitch).uniform(-1, 1, len(seconds))
        # Above 48 most drums are cymbals, which sound longer.
        hits[pitch] = noise * np.exp(-seconds / (0.2 if pitch > 48 else 0.06))
    for note in part.notes:
        own = samples[int(note.start * SAMPLE_RATE) :][: len(seconds)]
        own += note.velocity * hits[note.pitch][: len(own)]
    return samples


def write_piece(
    score: Score, path: Path, kept: Sequence[NDArray[np.bool_]] = (), *, score_too: bool = False
) -> str:
    """Write a piece as .mid, .wav and .png next to each other; return the synthesiser's name.

    kept: as in `piano_roll_png`. score_too: write .musicxml too, for music on a grid.
    """
    write_atomically(path.with_suffix(".mid"), midi_bytes(score))
    if score_too:
        write_atomically(path.with_suffix(".musicxml"), musicxml_bytes(score))
    bars = score.seconds(score.bars()).tolist()
    drawn = piano_roll_png(score_instruments(score), kept, bars)
    write_atomically(path.with_suffix(".png"), drawn)
    return write_wav(score, path.with_suffix(".wav"))
