"""Tokenizers of text as files of Hugging Face's libraries, with the ids of the model."""

from __future__ import annotations

import json
from typing import Any

from triptych.domains.base import TrainedModel
from triptych.domains.files import json_bytes
from triptych.domains.language.tokenizers import base as language
from triptych.domains.language.vocabulary import Vocabulary
from triptych.domains.translation.tokenizers import base as translation
from triptych.errors import UserError

SPECIALS = ("<pad>", "<s>", "</s>")
"""Names of padding, start and end of translation models in exports, by id."""
TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "target_tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def tokenizer_files(model: TrainedModel) -> dict[str, bytes]:
    """Return the files of the tokenizers of a model of text, by name; none for other models.

    Encoding adds the end to a text to translate, and the start to a text to continue. Unlike
    Triptych, Hugging Face's tokenizers read the characters "</s>" of a text as the end. Raises
    UserError for a tokenizer that has no such file.
    """
    vocabulary = model.vocabulary
    if isinstance(vocabulary, translation.Tokenizers):
        pad, start, end = SPECIALS
        files = {TOKENIZER: json_bytes(_translation(vocabulary.source))}
        if not vocabulary.shared:
            files[TARGET_TOKENIZER] = json_bytes(_translation(vocabulary.target))
        names = {"pad_token": pad, "bos_token": start, "eos_token": end}
    elif isinstance(vocabulary, Vocabulary):
        files = {TOKENIZER: json_bytes(_language(vocabulary.tokenizer))}
        pad, start, end, mask = language.SPECIALS
        names = {"pad_token": pad, "bos_token": start, "eos_token": end, "mask_token": mask}
    else:
        return {}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "unk_token": json.loads(files[TOKENIZER])["model"].get("unk_token"),
        "model_max_length": model.settings.max_length,
        "clean_up_tokenization_spaces": False,
    }
    return {**files, TOKENIZER_CONFIG: json_bytes(config)}


def pieces(tokenizer: translation.TextTokenizer) -> list[str]:
    """Return the name of each id of a translation model, as in its tokenizer file."""
    return [*SPECIALS, *tokenizer.symbols[translation.N_SPECIALS :]]


def _translation(tokenizer: translation.TextTokenizer) -> dict[str, Any]:
    """Return a tokenizer whose library counts its pieces from 0 with the ids of the model."""
    plain: dict[str, Any] = json.loads(tokenizer.to_json())
    if translation.REPLACED in plain:
        raise UserError(
            "the tokenizer replaces characters before it reads a text (SimplifiedChinese), which a "
            "tokenizer file cannot say; expected --format safetensors"
        )
    vocabulary = plain["model"]["vocab"]
    if taken := [name for name in SPECIALS if name in vocabulary]:
        raise UserError(
            f"the vocabulary has a piece {taken[0]!r}, the name of a special id in tokenizer "
            "files; expected --format safetensors"
        )
    shifted = {name: index + translation.N_SPECIALS for name, index in vocabulary.items()}
    plain["model"]["vocab"] = {**{name: n for n, name in enumerate(SPECIALS)}, **shifted}
    plain["added_tokens"] = [_added(n, name) for n, name in enumerate(SPECIALS)]
    plain["post_processor"] = _template([None, SPECIALS[translation.END]], translation.END)
    return plain


def _language(tokenizer: language.TextTokenizer) -> dict[str, Any]:
    """Return a tokenizer that begins a text with [CLS] and knows its special ids."""
    plain: dict[str, Any] = json.loads(tokenizer.to_json())
    plain["added_tokens"] = [_added(n, name) for n, name in enumerate(language.SPECIALS)]
    plain["post_processor"] = _template([language.SPECIALS[language.CLS], None], language.CLS)
    return plain


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
