"""`triptych export CHECKPOINT --format FORMAT --out FOLDER`: a model for other libraries."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from triptych.cli.main import PLUGIN_HELP, plain_parser
from triptych.errors import UserError
from triptych.files.results import check_input_file, read_input_lines
from triptych.tools.export import FORMATS, check_packages


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = plain_parser(
        "export",
        "Write a trained model into a folder that Triptych and other libraries open, "
        "with its model card. The folder is compared with the model before it takes its place.",
    )
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="Checkpoint file of the model (.ckpt), folder of an earlier export, or "
        "pretrained:NAME.",
    )
    parser.add_argument(
        "--format",
        choices=list(FORMATS),
        required=True,
        help="safetensors: any model, which Triptych opens again. ctranslate2: a translator for "
        "CTranslate2. onnx: graphs of a decoding step. hf: a translator or language model for "
        "Hugging Face's transformers, which Triptych opens again.",
    )
    parser.add_argument("--out", type=str, required=True, metavar="FOLDER", help="Folder to write.")
    parser.add_argument(
        "--card",
        nargs="+",
        default=[],
        metavar="KEY=TEXT",
        help="Texts of the model card: what, data, terms, time, hardware, figure or limits.",
    )
    parser.add_argument(
        "--compare",
        type=str,
        metavar="FILE",
        help="Lines to translate with CTranslate2 and with Triptych, with the share of equal "
        "translations and the speed of both; for ctranslate2.",
    )
    parser.add_argument("--plugin", type=str, metavar="MODULE", help=PLUGIN_HELP)
    parser.add_argument("--overwrite", action="store_true", help="Replace an earlier export.")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Write the folder; raises UserError before it is written."""
    options = parser().parse_args(arguments)
    texts = dict(text.partition("=")[::2] for text in options.card)
    if wrong := [key for key, text in texts.items() if not text]:
        raise UserError(f"--card has {wrong[0]!r} without a text; expected KEY=TEXT")
    check_packages(options.format)
    from triptych.cli.options import check_checkpoint, import_plugin

    path = check_checkpoint(options.checkpoint)
    import_plugin(options.plugin)
    lines = None
    if options.compare is not None:
        if options.format != "ctranslate2":
            raise UserError("--compare translates with CTranslate2; expected --format ctranslate2")
        check_input_file(options.compare, "compare", expected="a text file with a sentence a line")
        lines = read_input_lines(options.compare)

    from triptych.tools.export.folder import check_folder, export
    from triptych.tools.export.original import open_original

    folder = check_folder(options.out, overwrite=options.overwrite)
    original = open_original(options.checkpoint, path, texts)
    for sentence in export(original, options.format, folder, lines=lines):
        print(sentence, file=sys.stderr)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    print(f"{original.name} as {options.format} in {options.out} ({size:.1f} MB)", file=sys.stderr)
    return 0
