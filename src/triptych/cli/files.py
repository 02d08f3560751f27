"""`triptych report`, `export` and `average`: files about runs, of a model, of several models."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from triptych.cli.options import check_checkpoint
from triptych.domains.options import OVERWRITE, CommandOptions, PluginOptions, argument
from triptych.errors import UserError
from triptych.files.lines import read_input_lines
from triptych.files.results import atomic_file, check_result_file, write_atomically
from triptych.tools.export import check_packages
from triptych.types import PositiveInt

MOST_NAMED = 4
"""Runs whose names are the title of a report; the title of more runs is their number."""


@dataclass(frozen=True, kw_only=True)
class Report(CommandOptions):
    """Write one HTML file about a run, or about several side by side.

    It has settings, curves, samples, attention, statistics and versions, and needs no network. Runs
    may be unfinished.
    """

    runs: list[str]
    out: str
    """HTML file to write."""
    title: str | None = None
    """Title of the page; null for the names of the runs, or the number of many."""
    steps: PositiveInt = 12
    """Largest number of validations of a run whose samples are shown, evenly spaced with the first
    and the last."""
    overwrite: bool = False

    parser_arguments = OVERWRITE | argument("runs", "Folder of a run.", nargs="+", metavar="RUN")

    def run(self) -> None:
        out = check_result_file(self.out, "out", replaces=self.overwrite)

        from triptych.tools.report.page import report
        from triptych.tools.report.run import read_runs

        runs = read_runs([Path(folder) for folder in self.runs], most=self.steps)
        named = ", ".join(run.name for run in runs)
        title = self.title or (named if len(runs) <= MOST_NAMED else f"{len(runs)} runs")
        content = report(runs, title=title)
        write_atomically(out, content)
        for shown in runs:
            for notice in shown.notices:
                print(f"{shown.name}: {notice}", file=sys.stderr)
        print(f"{out} ({len(content) / 1e6:.1f} MB)", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Export(PluginOptions):
    """Write a trained model into a folder that Triptych and other libraries open.

    The folder has the model's card, and is compared with the model before it takes its place.
    """

    checkpoint: str
    format: Literal["safetensors", "ctranslate2", "onnx", "hf"]
    """safetensors: any model, which Triptych opens again. ctranslate2: a translator for
    CTranslate2. onnx: graphs of a decoding step. hf: a translator or language model for Hugging
    Face's transformers, which Triptych opens again."""
    out: str
    """Folder to write."""
    card: list[str] | None = None
    compare: str | None = None
    """File of lines to translate with CTranslate2 and with Triptych, with the share of equal
    translations and the speed of both; for ctranslate2."""
    overwrite: bool = False

    parser_arguments = (
        OVERWRITE
        | argument(
            "checkpoint",
            "Checkpoint file (.ckpt), folder of an earlier export, or pretrained:NAME.",
            metavar="CHECKPOINT",
        )
        | argument(
            "--card",
            "Texts of the model card: what, data, terms, time, hardware, figure or limits.",
            nargs="+",
            metavar="KEY=TEXT",
        )
    )

    def checkpoints(self) -> list[str]:
        return [self.checkpoint]

    def input_files(self) -> dict[str, str]:
        return {"compare": "a text file with a sentence a line"}

    def run(self) -> None:
        texts = dict(text.partition("=")[::2] for text in self.card or ())
        if wrong := [key for key, text in texts.items() if not text]:
            raise UserError(f"--card has {wrong[0]!r} without a text; expected KEY=TEXT")
        check_packages(self.format)
        lines = None
        if self.compare is not None:
            if self.format != "ctranslate2":
                raise UserError(
                    "--compare translates with CTranslate2; expected --format ctranslate2"
                )
            lines = read_input_lines(self.compare)

        from triptych.tools.export.folder import check_folder, export
        from triptych.tools.export.original import open_original

        folder = check_folder(self.out, overwrite=self.overwrite)
        original = open_original(self.checkpoint, check_checkpoint(self.checkpoint), texts)
        for sentence in export(original, self.format, folder, lines=lines):
            print(sentence, file=sys.stderr)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(f"{original.name} as {self.format} in {self.out} ({size:.1f} MB)", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Average(PluginOptions):
    """Write a checkpoint whose weights are the mean of those of checkpoints of one model.

    Such as the last ones of a run, which `run.keep_late` keeps. A run with a moving average of the
    weights has it in its checkpoints, so the mean is of the averages. The probabilities of several
    models are averaged by --average of evaluate, sample and translate.
    """

    models: list[str]
    out: str
    """Checkpoint file (.ckpt) to write."""
    overwrite: bool = False

    parser_arguments = OVERWRITE | argument(
        "models",
        "Checkpoint file (.ckpt), folder of an export, or pretrained:NAME.",
        nargs="+",
        metavar="CHECKPOINT",
    )

    def checkpoints(self) -> list[str]:
        return self.models

    def run(self) -> None:
        out = check_result_file(self.out, "out", replaces=self.overwrite)
        paths = [check_checkpoint(name) for name in self.models]

        import torch

        from triptych.training.run.checkpoint import average_weights

        content = average_weights(paths)
        try:
            with atomic_file(out) as file:
                torch.save(content, file)
        except OSError as error:
            raise UserError(f"{out} cannot be written: {error.strerror or error}") from error
        steps = ", ".join(str(part["step"]) for part in content["triptych"]["averaged"])
        print(f"{out}: the mean of {len(paths)} checkpoints, of steps {steps}", file=sys.stderr)
