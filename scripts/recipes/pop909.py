"""Songs of POP909 on their beats: melody, bridge and piano with chord symbols, as MIDI files.

The data set (Wang et al. 2020, arXiv 2008.07142) has the notes in seconds, and beats, chords and
keys that programs found. Here times are beats: every beat of the annotations is a quarter, bars
begin at the downbeats, and the tempo is the median one. Chord symbols are markers on the nearest
beat. The melody is for voice oohs, the bridge for an electric piano, the rest for a piano.

Writes NNN.mid, and splits.csv with the columns midi_filename and split. The annotations have the
MIT licence; the songs are protected works, so that neither they nor a model that repeats them may
be shared.
"""

from __future__ import annotations

import csv
import itertools
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.conditions import signature_of
from triptych.domains.music.midi import midi_bytes, parse_midi
from triptych.domains.music.notes import Part, Score, one_string_per_key
from triptych.errors import UserError
from triptych.types import Checked

TICKS = 480
"""Of a quarter, one beat."""
PROGRAMS = {"melody": 53, "bridge": 4, "piano": 0}


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Where the songs lie, and the split of each."""

    directory: str
    """Folder with a folder NNN for each song, or a .tar.xz of it: NNN.mid, beat_midi.txt,
    chord_midi.txt and key_audio.txt."""
    splits: str
    """File with the columns song and split."""


def main(options: Options) -> Iterator[tuple[str, Iterable[str] | bytes]]:
    """Yield the files."""
    with Path(options.splits).open(encoding="utf-8", newline="") as file:
        splits = {row["song"]: row["split"] for row in csv.DictReader(file)}
    with tempfile.TemporaryDirectory() as unpacked:
        root = Path(options.directory)
        if root.is_file():
            with tarfile.open(root) as archive:
                archive.extractall(unpacked, filter="data")
            root = next(Path(unpacked).rglob("beat_midi.txt")).parents[1]
        songs = sorted(path.parent for path in root.rglob("beat_midi.txt"))
        missing = [song.name for song in songs if song.name not in splits]
        if missing or not songs:
            raise UserError(f"{options.splits} has no split of {missing or root}")
        for song in songs:
            yield f"{song.name}.mid", midi_bytes(read_song(song))
        yield (
            "splits.csv",
            ["midi_filename,split"] + [f"{song.name}.mid,{splits[song.name]}" for song in songs],
        )


def read_song(folder: Path) -> Score:
    """Return a song of the data set with its annotations, times in beats."""
    path = folder / f"{folder.name}.mid"
    score = parse_midi(path.read_bytes(), name=str(path))
    table = np.loadtxt(folder / "beat_midi.txt")
    beats, is_downbeat = table[:, 0], table[:, 2] > 0
    notes = score.notes_in_seconds.with_times(lambda times: ticks_of(times, beats))
    names = [part.name.strip().lower() for part in score.parts]
    names = [name if name in PROGRAMS else "piano" for name in names]
    players = list(PROGRAMS)
    part = np.array([players.index(name) for name in names])[notes.part]
    program = np.array([*PROGRAMS.values()])[part]
    notes = replace(notes, part=part, program=program)
    notes = notes[notes.onset >= 0]
    notes = one_string_per_key(notes, notes.onset, least=1)
    used = np.unique(notes.part)
    notes = replace(notes, part=np.searchsorted(used, notes.part))
    tempo = round(60 / float(np.median(np.diff(beats))))
    return Score(
        folder.name,
        [Part(players[number], is_drum=False) for number in used.tolist()],
        notes.sorted("part", "onset", "release", "pitch"),
        TICKS,
        int(notes.release.max()),
        [(0, round(60e6 / tempo))],
        meters_of(is_downbeat),
        keys_of(folder / "key_audio.txt"),
        chords_of(folder / "chord_midi.txt", beats),
    )


def ticks_of(times: NDArray[np.float64], beats: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return times in seconds as ticks of beats, whose length beyond the last one stays."""
    first, last = np.diff(beats)[0], np.diff(beats)[-1]
    grid = np.concatenate([[beats[0] - 64 * first], beats, [beats[-1] + 64 * last]])
    count = np.concatenate([[-64], np.arange(len(beats)), [len(beats) + 63]])
    ticks: NDArray[np.int64] = np.rint(np.interp(times, grid, count) * TICKS).astype(np.int64)
    return ticks


def meters_of(is_downbeat: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Return the time signatures of bars between downbeats; a pickup is a bar of its own."""
    downs = np.flatnonzero(is_downbeat).tolist()
    starts = downs if downs and downs[0] == 0 else [0, *downs]
    meters: list[tuple[int, int, int]] = []
    for start, stop in itertools.pairwise(starts):
        if not meters or meters[-1][1] != stop - start:
            meters.append((start * TICKS, stop - start, 4))
    return meters or [(0, 4, 4)]


def keys_of(path: Path) -> list[tuple[int, int, bool]]:
    """Return the longest key of the recording at the start; none where there is none."""
    rows = [line.split() for line in path.read_text().splitlines()]
    if not rows:
        return []
    *_, key = max(rows, key=lambda row: float(row[1]) - float(row[0]))
    tonic, mode = key.split(":")
    return [(0, *signature_of(f"{tonic}:{'minor' if mode.startswith('min') else 'major'}"))]


def chords_of(path: Path, beats: NDArray[np.float64]) -> list[tuple[int, str]]:
    """Return the chords at the nearest beats, each where it differs from the one before."""
    rows = [line.split() for line in path.read_text().splitlines()]
    at = {
        round(int(ticks_of(np.array(float(start)), beats)) / TICKS): name for start, _, name in rows
    }
    chords: list[tuple[int, str]] = []
    for beat, name in sorted(at.items()):
        if beat >= 0 and (not chords or chords[-1][1] != name):
            chords.append((beat * TICKS, name))
    return chords
