"""Export of trained models: folders that Triptych and other libraries open.

Each format is a module with the function `write(source, folder)`, see `source`. Imports nothing
heavy.
"""

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, NamedTuple

from triptych.domains.options import OVERWRITE, PluginOptions, argument, check_checkpoint
from triptych.errors import UserError, library
from triptych.files.results import new_folder
from triptych.pretrained import FOLDER_CARD


class Format(NamedTuple):
    """Format of an export."""

    packages: tuple[str, ...] = ()
    """Packages of the extra `export` that it needs."""
    opens: bool = False
    """Whether Triptych opens the folder."""


FORMATS = {
    "safetensors": Format(opens=True),
    "ctranslate2": Format(("ctranslate2",)),
    "onnx": Format(("onnx", "onnxruntime", "onnxscript")),
    "hf": Format(opens=True),
}
"""Formats by the names of the modules that write them."""

FILES = (
    "README.md",
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "target_tokenizer.json",
    "generation_config.json",
    "model.bin",
    "shared_vocabulary.json",
    "source_vocabulary.json",
    "target_vocabulary.json",
    "step.onnx",
    "onnx.json",
)
"""Names of all files that exports write; a folder with another file is never replaced."""


@dataclass(frozen=True, kw_only=True)
class Export(PluginOptions):
    """Write a trained model into a folder that Triptych and other libraries open.

    The folder has the model's card, and is compared with the model before it takes its place.
    """

    checkpoint: str
    format: Literal["safetensors", "ctranslate2", "onnx", "hf"]
    """safetensors: any model, which Triptych opens again. ctranslate2: a translator for
    CTranslate2. onnx: the graph of a decoding step of images, music or text. hf: a language
    model for Hugging Face's transformers, which Triptych opens again."""
    out: str
    """Folder to write."""
    card: list[str] | None = None
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

    def run(self) -> None:
        texts = dict(text.partition("=")[::2] for text in self.card or ())
        if wrong := [key for key, text in texts.items() if not text]:
            raise UserError(f"--card has {wrong[0]!r} without a text; expected KEY=TEXT")
        form = FORMATS[self.format]
        for package in form.packages:
            library(package, f"--format {self.format}", "export")

        from triptych.tools.export.card import render_card
        from triptych.tools.export.original import open_original

        with new_folder(self.out, files=FILES, overwrite=self.overwrite) as folder:
            original = open_original(self.checkpoint, check_checkpoint(self.checkpoint), texts)
            written = import_module(f"{__name__}.{self.format}").write(original, folder)
            card = render_card(
                vars(original) | {"parameters": original.parameters, "triptych": original.header},
                source="FOLDER" if form.opens else "CHECKPOINT",
                use=written.use,
                weights=written.weights,
                checks=written.checks,
            )
            (folder / FOLDER_CARD).write_text(card, encoding="utf-8")
            size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(*written.checks, sep="\n", file=sys.stderr)
        print(f"{original.name} as {self.format} in {self.out} ({size:.1f} MB)", file=sys.stderr)
