"""Rates of the training loaders without a model, and their memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from torch.utils import benchmark

from benchmarks.measure import Row, Table
from benchmarks.setting import Setting
from triptych.domains.music.config import Config as MusicConfig
from triptych.domains.music.config import DataConfig as MusicData
from triptych.domains.music.data import TrainingPieces, training_batches
from triptych.domains.music.model import ModelConfig
from triptych.domains.music.notes import Notes, settle
from triptych.domains.music.sources.base import Piece
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.translation.data import EncodedPairs
from triptych.domains.translation.model import END
from triptych.text.batches import training_batches as text_batches
from triptych.training.loading.batches import Ragged
from triptych.training.loading.loader import ResumableLoader

PAIRS = 29_000
"""Pairs of Multi30k; the corpora here have such lengths and random ids."""


def run(setting: Setting) -> Iterator[Table]:
    seconds = setting.sizes(0.1, 3.0, 20.0)
    table = Table("loader", "Batches of the training loaders, no model", unit="tokens")
    with tempfile.TemporaryDirectory() as folder:
        text = text_batches(random_pairs(PAIRS), 4_096, seed=0)
        table.rows += rates(f"text, {PAIRS:,} pairs", text, seconds)
        random = np.random.default_rng(0)
        onsets = np.sort(random.uniform(0, 600, (8, 6000)))
        columns = [(random.integers(21, 109, 6000), row) for row in onsets]
        notes = [
            settle(Notes.of(zip(pitch, on, on + 0.5, pitch, strict=True))) for pitch, on in columns
        ]
        config = MusicConfig(
            MusicData(MidiFolder(folder), sequence_length=2048, overlap=1024, batch_size=4),
            ModelConfig(tokenizer=EventTokenizer()),
        )
        data, settings = config.data, config.model_settings()
        played = (Piece("p", piece) for piece in notes)
        pieces = TrainingPieces.of(played, settings.tokenizer, data.augmentation)
        crops = training_batches(pieces, data, settings, seed=0)
        table.rows += rates("crops of performances", crops, seconds)
    yield table


def rates(name: str, loader: ResumableLoader, seconds: float) -> Iterator[Row]:
    """The loader without workers and with two, which run when the time begins."""
    for workers in (0, 2):
        loader.close()
        loader.workers = workers
        next(iter(loader))
        yield rate(f"{name}, {workers} workers", loader, seconds)
    loader.close()


def rate(name: str, loader: ResumableLoader, seconds: float) -> Row:
    """Targets per second over some seconds, and the most memory above that at the start."""
    tokens, most, start, first = 0, 0.0, benchmark.timer(), resident()
    while benchmark.timer() - start < seconds:
        for number, batch in enumerate(loader):
            tokens += int((batch[0] > 0).sum() if len(batch) > 2 else (batch[1][:, 1:] > 0).sum())
            if number % 100 == 0:
                most = max(most, resident() - first)
            if benchmark.timer() - start > seconds:
                break
    return Row(name, rate=tokens / (benchmark.timer() - start), extra={"memory, MB": most})


def resident() -> float:
    """Memory of this process in MB, pages of mapped files included; 0 off Linux."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * 4096 / 1e6 if path.exists() else 0.0


def random_pairs(count: int) -> EncodedPairs:
    """Return pairs of random ids."""
    random, sides = np.random.default_rng(0), []
    for _ in range(2):
        lengths = random.normal(16, 5, count).clip(4, 60).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        sides.append(Ragged(random.integers(END + 1, 500, offsets[-1], dtype=np.int32), offsets))
    return EncodedPairs(*sides)
