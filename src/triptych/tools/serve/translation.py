"""Folders of `triptych export --format ctranslate2` as a server has them, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.errors import UserError, library
from triptych.pretrained import EXPORTED, FOLDER_METADATA
from triptych.types import Dtype, Progress

if TYPE_CHECKING:
    from triptych.text.tokenizer import TextTokenizer
    from triptych.tools.serve.services import Translator

COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
"""Names of number formats in CTranslate2."""


def is_export(checkpoint: str) -> bool:
    """Return whether a checkpoint is a folder of CTranslate2."""
    return (Path(checkpoint) / "model.bin").is_file()


def open_export(folder: str, device: str, dtype: Dtype) -> Translator:
    """Open a folder of `triptych export`; UserError for another one, and for an absent device."""
    runtime = library("ctranslate2", folder, "export")
    from triptych.domains.translation import lines as text
    from triptych.text.tables import SPACES
    from triptych.text.tokenizer import in_usual_case
    from triptych.tools.serve.services import Translator

    try:
        about = _read(folder, FOLDER_METADATA)[EXPORTED]
        settings = _read(folder, "tokenizer_config.json")
        specials = [settings[role] for role in ("pad_token", "bos_token", "eos_token")]
        source = target = _tokenizer(_read(folder, "tokenizer.json"), specials)
        if (Path(folder) / "target_tokenizer.json").is_file():
            target = _tokenizer(_read(folder, "target_tokenizer.json"), specials)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{folder} is damaged or was not written by this version of `triptych export` "
            f"({type(error).__name__}: {error}); export the model again"
        ) from error
    kind, _, number = device.partition(":")
    if number and not number.isdigit():
        raise UserError(f"device is {device!r}; expected auto, cpu, cuda or a GPU such as cuda:1")
    try:
        network = runtime.Translator(
            folder, kind, device_index=int(number or 0), compute_type=COMPUTE_TYPES[dtype]
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{folder} cannot be opened on {device} in {dtype}: {error}") from error
    names, ids = source.symbols, {name: index for index, name in enumerate(target.symbols)}
    longest = settings["model_max_length"]
    between = "" if text.primary_subtag(about["target_language"]) in text.NO_SPACES else " "

    # Lines are read and written as `TranslationModel.translate` does.
    def translate(
        lines: list[str], *, beam: int, n_best: int, batch_size: int, progress: Progress | None
    ) -> list[list[str]]:
        usual = [in_usual_case(line, source.count) for line in lines]
        parts = [
            [line] if about["summaries"] else text.split_long(case or line, source, longest - 1)
            for line, case in zip(lines, usual, strict=True)
        ]
        read = [source.readable(part).strip(SPACES) for each in parts for part in each]
        rows = [[names[piece] for piece in source.encode(part)] for part in read if part]
        results: list[Any] = []
        while len(results) < len(rows):
            if progress is not None:
                progress(len(results), len(rows))
            results += network.translate_batch(
                rows[len(results) : len(results) + batch_size],
                beam_size=beam,
                num_hypotheses=n_best,
                max_decoding_length=longest + text.EXTRA_TOKENS,
                suppress_sequences=[[name] for name in specials[:2]],
            )
        every = iter(results)
        found = iter(written(next(every)) if part else [""] * n_best for part in read)
        joined = [
            [between.join(one) for one in zip(*(next(found) for _ in each), strict=True)]
            for each in parts
        ]
        return [
            best if case is None else [one.upper() for one in best]
            for best, case in zip(joined, usual, strict=True)
        ]

    def written(result: Any) -> list[str]:
        rows = [[ids[name] for name in hypothesis] for hypothesis in result.hypotheses]
        return [text.one_line(one) for one in target.decode_batch(rows)]

    return Translator(about["source_languages"], about["target_language"], translate)


def _read(folder: str, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(folder) / name).read_text(encoding="utf-8"))
    return content


def _tokenizer(plain: dict[str, Any], specials: list[str]) -> TextTokenizer:
    """Return the tokenizer of the text alone, to which "</s>" is text too."""
    from triptych.text.tokenizer import TextTokenizer

    first, model = len(specials), plain["model"]
    vocabulary = {name: id_ - first for name, id_ in model["vocab"].items() if id_ >= first}
    whole = plain | {"model": model | {"vocab": vocabulary}}
    return TextTokenizer.from_json(
        json.dumps(whole | {"added_tokens": [], "post_processor": None}), specials
    )
