"""Tokenizers of text as files of Hugging Face's libraries, with the ids of the model."""

import json
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

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


def _complete(plain: dict[str, Any], text: TextFormat) -> dict[str, Any]:
    """Return a tokenizer with its special ids, and with what it adds to a text."""
    tokenizer = Tokenizer.from_str(json.dumps(plain))
    tokenizer.add_special_tokens([*text.specials])
    added, form = (text.END, "{0} {1}") if text.translates else (text.START, "{1} {0}")
    name = text.specials[added]
    parts = [form.format(f"${each}:{kind}", f"{name}:{kind}") for kind, each in enumerate("AB")]
    tokenizer.post_processor = TemplateProcessing(
        single=parts[0], pair=" ".join(parts), special_tokens=[(name, added)]
    )
    complete: dict[str, Any] = json.loads(tokenizer.to_str())
    return complete
