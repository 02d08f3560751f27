"""What the page of a translation model shows: hypotheses with scores, and attention weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triptych.domains.translation.attention_maps import sentence_attention
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.render import draw
from triptych.errors import UserError
from triptych.tools.play.limits import checked_text, sampling, within

MAX_CHARACTERS = 5_000
"""Longest text, in characters."""
MAX_BEAM = 12
EXAMPLES = {
    "en": "A man plays the guitar.",
    "de": "Ein Mann spielt Gitarre.",
    "fr": "Un homme joue de la guitare.",
    "ko": "저는 학생입니다.",
    "zh": "我是学生。",
}
"""Sentences by their language."""
COLUMNS = ["rank", "translation", "score", "log p in nats"]


@dataclass(frozen=True)
class Translated:
    """Translations of a sentence, best first."""

    columns: list[str]
    rows: list[list[str]]
    attention: bytes | None = None
    """PNG of the cross-attention of the best one, where it was searched."""


def example(model: TranslationModel) -> str:
    """Return a text for the model to begin with; empty where none fits."""
    settings = model.settings
    if settings.example or settings.summaries:
        return settings.example
    return EXAMPLES.get(settings.source_languages[0], "")


def search(
    model: TranslationModel, text: str, beam: Any, length_penalty: str, layer: Any, head: Any
) -> Translated:
    """Return all hypotheses of beam search, and the attention weights of the best one.

    layer, head: from 1; 0 for the last layer and for the mean of all heads. Raises UserError for a
    text that is empty or too long and for settings that the model does not have.
    """
    line = checked_line(model, text)
    beam = within("Beam", beam, 1, MAX_BEAM)
    layer = within("Layer", layer, 0, model.full_model.n_layers)
    head = within("Head", head, 0, model.settings.model.transformer.n_heads)
    (hypotheses,) = model.search([line], beam=beam, n_best=beam, length_penalty=length_penalty)
    (texts,) = model.texts([hypotheses])
    rows = [
        [str(rank), translation, f"{one.score:.3f}", f"{one.log_probability:.3f}"]
        for rank, (translation, one) in enumerate(zip(texts, hypotheses, strict=True), start=1)
    ]
    attended = sentence_attention(
        model.full_model,
        model.vocabulary,
        line,
        hypotheses[0],
        layer=layer or None,
        head=head or None,
    )
    return Translated(COLUMNS, rows, draw(attended, encoder=False)[0])


def sample(
    model: TranslationModel, text: str, seed: Any, temperature: Any, count: Any
) -> Translated:
    """Return sampled translations; raises UserError as `search`."""
    line = checked_line(model, text)
    options = sampling(seed, temperature, count)
    texts = model.translate([line] * options.pop("count"), sample=True, **options)
    rows = [[str(number), str(one)] for number, one in enumerate(texts, start=1)]
    return Translated(["sample", "translation"], rows)


def checked_line(model: TranslationModel, text: str) -> str:
    """Return the text as one line; UserError where it is empty or longer than the limits."""
    line = " ".join(checked_text(text, MAX_CHARACTERS).split())
    most = model.settings.max_length
    if (length := len(model.vocabulary.source.encode(line))) >= most:
        raise UserError(
            f"The text has {length} tokens; this model was trained on texts of fewer than {most}."
        )
    return line
