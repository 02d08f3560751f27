"""One sentence in a translator: its attention, and the decoding of its translation step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from triptych.core.models.base import Condition
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.domains.options import check_layer_and_head
from triptych.domains.translation.attention_maps import (
    SentenceAttention,
    pieces,
    sentence_attention,
)
from triptych.domains.translation.model import END, START
from triptych.domains.translation.translate import FORBIDDEN
from triptych.errors import UserError
from triptych.text.files import SPACES
from triptych.tools.explain.figure import ExplainOptions, example_sentence
from triptych.training.engine.evaluate import device_of, scoring

if TYPE_CHECKING:
    from triptych.decoding.beams import Hypothesis
    from triptych.domains.translation.inference import TranslationModel

CANDIDATES = 5
"""Candidates for the next token that are shown."""


class Step(NamedTuple):
    """One step of the decoder."""

    read: int
    """Token that it reads; the start token first."""
    written: int
    """Token that follows in the translation."""
    candidates: list[tuple[int, float]]
    """Most likely tokens with their probabilities, best first."""


class Sentence(NamedTuple):
    """A sentence and its greedy translation."""

    line: str
    source: list[int]
    """Ids with the end token."""
    hypothesis: Hypothesis
    target: list[int]
    """Ids with the end token, where the translation has one."""


def transformer_of(model: TranslationModel) -> EncoderDecoder:
    """Return the Transformer of a translator; UserError for a model of another kind."""
    if not isinstance(model.full_model, EncoderDecoder):
        kind = type(model.full_model).__name__
        raise UserError(f"the figure shows a Transformer, and this model is a {kind}")
    return model.full_model


def translated(model: TranslationModel, options: ExplainOptions) -> Sentence:
    """Translate the sentence of the options by greedy search."""
    line = example_sentence(model, options).strip(SPACES)
    hypothesis = model.search([line], beam=1)[0][0]
    source = [*model.vocabulary.source.encode(line), END]
    end = [END] if hypothesis.finished else []
    return Sentence(line, source, hypothesis, [*hypothesis.tokens, *end])


def attention_of(
    model: TranslationModel, sentence: Sentence, options: ExplainOptions, head: int | None = None
) -> SentenceAttention:
    """Return the attention weights of a sentence; head: from 1, None for the mean of all.

    Raises UserError for a layer that the model does not have.
    """
    transformer = transformer_of(model)
    n_layers = min(len(transformer.encoder.blocks), len(transformer.decoder.blocks))
    n_heads = model.settings.model.transformer.n_heads
    check_layer_and_head(options.layer, head, n_layers=n_layers, n_heads=n_heads)
    return sentence_attention(
        transformer,
        model.vocabulary,
        sentence.line,
        sentence.hypothesis,
        layer=options.layer,
        head=head,
    )


def decoding_steps(
    model: EncoderDecoder, condition: Condition, target: Sequence[int]
) -> list[Step]:
    """Return the steps that write the target, each with the candidates of its position.

    condition: of the source, as `encode` returns it.
    """
    device = device_of(model)
    positions = torch.arange(len(target), device=device)
    steps = []
    with scoring(model):
        state = model.init_state(1, len(target), condition=condition)
        for index, (read, written) in enumerate(zip([START, *target], target, strict=False)):
            view = model.state_view(state, index + 1)
            token = torch.tensor([[read]], device=device)
            logits = model.step(token, positions[index : index + 1], view)[0, 0]  # [V]
            logits[list(FORBIDDEN)] = -torch.inf
            best, tokens = logits.softmax(-1).topk(min(CANDIDATES, len(logits)))
            candidates = list(zip(tokens.tolist(), best.tolist(), strict=True))
            steps.append(Step(read, written, candidates))
    return steps


def piece(model: TranslationModel, token: int) -> str:
    """Return the text of one token of the target, with a visible character for a space."""
    return "<start>" if token == START else pieces(model.vocabulary.target, [token])[1][0]
