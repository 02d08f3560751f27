"""What the page of a model of text shows: continuations, filled masks, or the label of a text."""

from __future__ import annotations

from typing import Any

from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.language.inference import LanguageModel
from triptych.domains.language.tasks.labelled import LabelledTask
from triptych.tools.play.limits import checked_text, sampling, within
from triptych.types import Progress

MAX_CHARACTERS = 2_000
"""Longest text, in characters."""
CONTINUE, FILL, LABEL = "Continue", "Fill masks", "Label"


def action(model: LanguageModel) -> str:
    """Return what a model does with a text."""
    if isinstance(model.settings.task, LabelledTask):
        return LABEL
    return CONTINUE if isinstance(model.full_model, DecoderOnly) else FILL


def write(
    model: LanguageModel,
    prompt: str,
    length: Any,
    seed: Any,
    temperature: Any,
    count: Any,
    progress: Progress | None = None,
) -> list[list[str]]:
    """Return rows of number and text: the prompt continued, or with its masks filled.

    length: most tokens of a continuation, prompt included; ignored where masks are filled. Raises
    UserError for settings outside of the limits and for a prompt that the model cannot read.
    """
    options = sampling(seed, temperature, count)
    prompt = checked_text(prompt, MAX_CHARACTERS, may_be_empty=action(model) == CONTINUE)
    if action(model) == CONTINUE:
        options["length"] = within("Length", length, 1, model.settings.max_length)
    texts = model.sample(prompt=prompt, progress=progress, **options)
    return [[str(number), text] for number, text in enumerate(texts, start=1)]


def label(model: LanguageModel, text: str) -> list[list[str]]:
    """Return rows of label and probability, the most probable first.

    text: each of its lines is a text of the example. Raises UserError for another number of texts
    than the model reads.
    """
    lines = checked_text(text, MAX_CHARACTERS).splitlines()
    (probabilities,) = model.probabilities([[line.strip() for line in lines if line.strip()]])
    ranked = sorted(probabilities.items(), key=lambda each: -each[1])
    return [[name, f"{probability:.4f}"] for name, probability in ranked]
