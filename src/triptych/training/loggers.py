"""Loggers of a run: rows of metrics.csv, and TensorBoard; see also `wandb_logger`."""

import csv
import io
import wave
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from pytorch_lightning.loggers.logger import Logger

from triptych.files.results import atomic_file
from triptych.training.callbacks.progress import say
from triptych.training.engine.histograms import Histograms


class RunLogger(Logger):
    """Base of the run's loggers; settings are in config.yaml, and a folder contains one run."""

    name = "triptych"
    version = ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        return

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show the samples of a validation; the files are in the run's folder anyway."""

    def log_update(self, ratios: Mapping[str, float], histograms: Histograms, step: int) -> None:
        """Log what `UpdateRecord.end` returns; nothing unless overridden."""


class CsvMetrics(RunLogger):
    """One row per report, on disk at once: its step and the metrics, blank for missing ones.

    A new metric adds a column to all rows. keep_until: step at which the run starts; rows of later
    steps are dropped, since a resumed run writes them again. Lightning's CSVLogger deletes the rows
    of an earlier start in the same folder.
    """

    def __init__(self, path: Path, *, keep_until: int = 0) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        rows: list[dict[str, str]] = []
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                rows = list(reader)
                self.columns = list(reader.fieldnames or self.columns)
        # A process killed during a write leaves an incomplete last row.
        whole = [row for row in rows if None not in row.values() and row["step"].isdigit()]
        self._rewrite([row for row in whole if int(row["step"]) <= keep_until])

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        new = [name for name in metrics if name not in self.columns]
        if new:
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.columns += new
            self._rewrite(rows)
        short = {name: f"{float(value):.10g}" for name, value in metrics.items()}
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writerow({"step": step if step is not None else "", **short})

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with atomic_file(self.path) as file:
            file.write(text.getvalue().encode("utf-8"))


KINDS = {".csv": "", ".png": "", ".wav": "-sound", ".html": "-page"}
"""Suffix of a file that is shown -> end of the name under which it is."""


def sample_name(path: Path) -> str:
    """Return the name under which a file is shown, samples/ and its own without the suffix."""
    return f"samples/{path.stem}{KINDS[path.suffix]}"


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    return columns, rows


class SampleLog(RunLogger):
    """Logger of metrics and samples that is closed with one sentence after its first error.

    A subclass speaks to one service, whose object is `target`; None once closed. With Lightning's
    own loggers an error of the service ends the training.
    """

    service: ClassVar[str]
    """Name of the service, for messages."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self.target = target

    @abstractmethod
    def scalars(self, metrics: Mapping[str, float], step: int | None) -> None:
        """Log metrics."""

    @abstractmethod
    def show(self, paths: Sequence[Path], step: int) -> None:
        """Show the PNG, WAV and HTML files of a validation, and the tables of CSV files."""

    @abstractmethod
    def histograms(self, histograms: Histograms, step: int) -> None:
        """Log histograms by name."""

    @abstractmethod
    def midi(self, paths: Sequence[Path], step: int) -> None:
        """Keep the MIDI files of a validation, or name their place."""

    @abstractmethod
    def close(self, *, succeeded: bool) -> None:
        """Write what is left and close the service's object."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._try(self.scalars, metrics, step)

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show files under `sample_name`, and MIDI."""
        if shown := [path for path in files if path.suffix in KINDS]:
            self._try(self.show, shown, step)
        if midi := [path for path in files if path.suffix == ".mid"]:
            self._try(self.midi, midi, step)

    def log_update(self, ratios: Mapping[str, float], histograms: Histograms, step: int) -> None:
        self._try(self.scalars, ratios, step)
        self._try(self.histograms, histograms, step)

    def finalize(self, status: str) -> None:
        """Close the logger; a status other than success marks the run as failed."""
        self._try(lambda: self.close(succeeded=status == "success"))
        self.target = None

    def _try(self, action: Callable[..., object], *arguments: Any) -> None:
        if self.target is None:
            return
        try:
            action(*arguments)
        except Exception as error:
            self.target = None
            say(
                f"{self.service} failed ({type(error).__name__}: {error}) and is off from here; "
                "the training goes on, metrics are in metrics.csv."
            )


FOLDER = "tensorboard"
"""Sub-folder of a run that contains the event files."""


class TensorBoardMetrics(SampleLog):
    """Event files of one run; target: a `torch.utils.tensorboard.SummaryWriter`.

    TensorBoard shows neither pages nor MIDI, which are named by their place, as text.
    """

    service = "TensorBoard"

    def scalars(self, metrics: Mapping[str, float], step: int | None) -> None:
        for name, value in metrics.items():
            self.target.add_scalar(name, value, step)
        self.target.flush()

    def show(self, paths: Sequence[Path], step: int) -> None:
        for path in paths:
            self._add(path, step)

    def _add(self, path: Path, step: int) -> None:
        name = sample_name(path)
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

    def histograms(self, histograms: Histograms, step: int) -> None:
        for name, (counts, edges) in histograms.items():
            middles, places = (edges[1:] + edges[:-1]) / 2, edges[1:].tolist()
            sums = [(counts * middles**power).sum() for power in (0, 1, 2)]
            ends = edges[0], edges[-1]
            self.target.add_histogram_raw(name, *ends, *sums, places, counts.tolist(), step)

    def midi(self, paths: Sequence[Path], step: int) -> None:
        places = "\n".join(f"- `{path}`" for path in paths)
        self.target.add_text("samples/midi", places, step)

    def close(self, *, succeeded: bool) -> None:
        self.target.close()


def _cell(text: str) -> str:
    """Return a text that stays within its cell of a Markdown table."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")


def open_tensorboard(folder: Path, *, keep_until: int) -> TensorBoardMetrics:
    """Return the logger of a run; keep_until: as for `CsvMetrics`, later values are hidden."""
    from torch.utils.tensorboard import SummaryWriter

    purge = keep_until + 1 if keep_until else None
    return TensorBoardMetrics(SummaryWriter(str(folder / FOLDER), purge_step=purge))
