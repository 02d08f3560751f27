"""Rates of the training loaders without a model, and their memory on a corpus of any size."""

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
from triptych.domains.translation.config import DataConfig
from triptych.domains.translation.data import read_training_data
from triptych.domains.translation.model import END, N_SPECIALS, START, Tokenizers
from triptych.text.byte_level import BytePairs
from triptych.training.loading.batches import Ragged, parts
from triptych.training.loading.loader import ResumableLoader
from triptych.training.loading.packed import PackWriter

MIN_VOCABULARY = N_SPECIALS + BytePairs.min_pieces
PAIRS = 29_000
"""Pairs of Multi30k; the corpora here have such lengths and random ids."""
BYTES_PER_PAIR = 80
"""Ids of two bytes, about 16 a side, and an offset of eight bytes for each side."""


def run(setting: Setting) -> Iterator[Table]:
    seconds, size = setting.sizes((0.1, 3e6), (3.0, 3e8), (20.0, 4e9))
    table = Table("loader", "Batches of the training loaders, no model", unit="tokens")
    with tempfile.TemporaryDirectory() as folder:
        for name, pairs in (("text", PAIRS), ("large text", int(size / BYTES_PER_PAIR))):
            write_corpus(Path(folder) / name, pairs)
            _, loader, _ = read_training_data(DataConfig(packed=f"{folder}/{name}"), seed=0)
            table.rows += rates(f"{name}, {pairs:,} pairs", loader, seconds)
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


def write_corpus(folder: Path, pairs: int) -> None:
    """Write packed pairs of random ids, for training and, 200 of them, for validation."""
    folder.mkdir()
    writer, random = PackWriter(folder), np.random.default_rng(0)
    tokenizers = Tokenizers.train(
        [""], [""], kind=BytePairs(), vocabulary_size=MIN_VOCABULARY, shared=True
    )
    for split, items in [("validation", range(200)), *(("train", part) for part in parts(pairs))]:
        for side in ("sources", "targets"):
            lengths = random.normal(16, 5, len(items)).clip(4, 60).astype(np.int64)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            ids = random.integers(END + 1, MIN_VOCABULARY, offsets[-1], dtype=np.uint16)
            ids[offsets[1:] - 1] = END
            if side == "targets":
                ids[offsets[:-1]] = START
            writer.append_ragged(f"{split}.{side}", Ragged(ids, offsets))
    counts = {"train": {"empty": 0}, "validation": {"empty": 0}}
    about = {"domain": "translation", "vocabulary": tokenizers.to_plain(), "counts": counts}
    writer.finish(about)
