"""Tokenizers of text as files of Hugging Face's libraries, with the ids of the model."""

from typing import Any

from triptych.domains.base import TrainedModel
from triptych.files.results import json_bytes
from triptych.text.tokenizer import TextFormat

ROLES = ("pad_token", "bos_token", "eos_token", "mask_token")
"""Names of the special ids in the library, in the order of `TextFormat.specials`."""
TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "target_tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def tokenizer_files(model: TrainedModel) -> dict[str, bytes]:
    """Return the files of the tokenizers of a model of text, by name; none for other models.

    Encoding adds the end to a text to translate, and the start to a text to continue. Unlike
    Triptych, Hugging Face's tokenizers read the characters "</s>" of a text as the end. Raises
    UserError for a tokenizer that has no such file.
    """
    text = model.text_format()
    if text is None:
        return {}
    files = {TOKENIZER: json_bytes(_complete(text.source, text))}
    if text.target is not None:
        files[TARGET_TOKENIZER] = json_bytes(_complete(text.target, text))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict(zip(ROLES, text.specials, strict=False)),
        "unk_token": text.source["model"].get("unk_token"),
        "model_max_length": text.max_length,
        "clean_up_tokenization_spaces": False,
    }
    return {**files, TOKENIZER_CONFIG: json_bytes(config)}


def _complete(tokenizer: dict[str, Any], text: TextFormat) -> dict[str, Any]:
    """Return a tokenizer with its special ids, and with what it adds to a text."""
    if text.translates:
        added = _template([None, text.specials[text.END]], text.END)
    else:
        added = _template([text.specials[text.START], None], text.START)
    names = [_added(index, name) for index, name in enumerate(text.specials)]
    return {**tokenizer, "added_tokens": names, "post_processor": added}


def _added(index: int, name: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": name, **flags, "special": True}


def _template(parts: list[str | None], index: int) -> dict[str, Any]:
    """Return a post-processor that joins a special token and a text; None stands for the text."""
    (name,) = filter(None, parts)

    def written(text: str, kind: int) -> list[dict[str, Any]]:
        return [
            {"Sequence": {"id": text, "type_id": kind}}
            if part is None
            else {"SpecialToken": {"id": part, "type_id": kind}}
            for part in parts
        ]

    return {
        "type": "TemplateProcessing",
        "single": written("A", 0),
        "pair": written("A", 0) + written("B", 1),
        "special_tokens": {name: {"id": name, "ids": [index], "tokens": [name]}},
    }
