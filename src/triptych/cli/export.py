"""`triptych export CHECKPOINT --format FORMAT --out FOLDER`: a model for other libraries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from triptych.cli.options import check_checkpoint, read_options
from triptych.domains.options import OVERWRITE, PluginOptions, argument
from triptych.errors import UserError
from triptych.files.lines import read_input_lines
from triptych.tools.export import check_packages


@dataclass(frozen=True, kw_only=True)
class Options(PluginOptions):
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


def run(arguments: Sequence[str]) -> int:
    """Write the folder; raises UserError before it is written."""
    options = read_options("export", arguments)
    texts = dict(text.partition("=")[::2] for text in options.card or ())
    if wrong := [key for key, text in texts.items() if not text]:
        raise UserError(f"--card has {wrong[0]!r} without a text; expected KEY=TEXT")
    check_packages(options.format)
    lines = None
    if options.compare is not None:
        if options.format != "ctranslate2":
            raise UserError("--compare translates with CTranslate2; expected --format ctranslate2")
        lines = read_input_lines(options.compare)

    from triptych.tools.export.folder import check_folder, export
    from triptych.tools.export.original import open_original

    folder = check_folder(options.out, overwrite=options.overwrite)
    original = open_original(options.checkpoint, check_checkpoint(options.checkpoint), texts)
    for sentence in export(original, options.format, folder, lines=lines):
        print(sentence, file=sys.stderr)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    print(f"{original.name} as {options.format} in {options.out} ({size:.1f} MB)", file=sys.stderr)
    return 0
