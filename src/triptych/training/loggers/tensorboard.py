"""Metrics and samples as event files of TensorBoard, in the run's folder."""

from __future__ import annotations

import importlib.util
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from triptych.errors import UserError
from triptych.training.loggers.samples import SampleLog, read_table

FOLDER = "tensorboard"
"""Sub-folder of a run that contains the event files."""


class TensorBoardMetrics(SampleLog):
    """Event files of one run; pages and MIDI files are named by their place, as text.

    target: a `torch.utils.tensorboard.SummaryWriter`. TensorBoard shows neither pages nor MIDI; the
    piano roll of a piece is its picture.
    """

    service = "TensorBoard"

    def scalars(self, metrics: Mapping[str, float], step: int | None) -> None:
        for name, value in metrics.items():
            self.target.add_scalar(name, value, step)
        self.target.flush()

    def show(self, name: str, path: Path, step: int) -> None:
        match path.suffix:
            case ".csv":
                columns, rows = read_table(path)
                lines = columns, ["---"] * len(columns), *rows
                text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
                self.target.add_text(name, text, step)
            case ".png":
                with Image.open(path) as image:
                    pixels = np.asarray(image.convert("RGB"))  # [H, W, 3]
                self.target.add_image(name, pixels, step, dataformats="HWC")
            case ".wav":
                with wave.open(str(path), "rb") as file:  # 16 bits, see `render.write_wav`
                    rate, channels = file.getframerate(), file.getnchannels()
                    samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
                mono = samples.reshape(-1, channels).mean(1) / 32768  # [T]
                sound = torch.from_numpy(mono).float().unsqueeze(0)  # [1, T]
                self.target.add_audio(name, sound, step, rate)
            case _:
                self.target.add_text(name, f"`{path}`", step)

    def midi(self, paths: Sequence[Path], step: int) -> None:
        places = "\n".join(f"- `{path}`" for path in paths)
        self.target.add_text("samples/midi", places, step)

    def close(self, *, succeeded: bool) -> None:
        self.target.close()


def _cell(text: str) -> str:
    """Return a text that stays within its cell of a Markdown table."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")


def check_tensorboard() -> None:
    """Raise UserError if the package tensorboard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "run.log.tensorboard is true, and the package tensorboard is not installed; expected "
            "`pip install triptych[tensorboard]`"
        )


def open_tensorboard(folder: Path, *, keep_until: int) -> TensorBoardMetrics:
    """Return the logger of a run; keep_until: as for `CsvMetrics`, later values are hidden."""
    from torch.utils.tensorboard import SummaryWriter

    purge = keep_until + 1 if keep_until else None
    return TensorBoardMetrics(SummaryWriter(str(folder / FOLDER), purge_step=purge))
