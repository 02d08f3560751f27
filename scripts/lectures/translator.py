"""A sentence in a translator: attention, heads, and its decoding step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from triptych.core.attention.cross import capture_attention
from triptych.core.models.base import Condition
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.domains.options import check_layer_and_head
from triptych.domains.translation.model import END, START
from triptych.domains.translation.render import (
    EXAMPLES,
    SentenceAttention,
    pieces,
    sentence_attention,
)
from triptych.domains.translation.search import FORBIDDEN
from triptych.errors import UserError
from triptych.files.drawing import BLUE, GREY, RED, new_figure
from triptych.text.tables import SPACES
from triptych.tools.explain.figure import figure
from triptych.training.engine.devices import device_of, scoring

from ._drawing import animation, heat

if TYPE_CHECKING:
    from triptych.decoding.beams import Hypothesis
    from triptych.domains.translation.inference import TranslationModel

CANDIDATES = 5
"""Candidates for the next token that are shown."""


class Sentence(NamedTuple):
    """A sentence and its greedy translation."""

    line: str
    source: list[int]
    """Ids with the end token."""
    hypothesis: Hypothesis
    target: list[int]
    """Ids with the end token, where the translation has one."""


class Step(NamedTuple):
    """One step of the decoder."""

    read: int
    """Token that it reads; the start token first."""
    written: int
    """Token that follows in the translation."""
    candidates: list[tuple[int, float]]
    """Most likely tokens with their probabilities, best first."""


def transformer_of(model: TranslationModel) -> EncoderDecoder:
    """Return the Transformer of a translator; UserError for a model of another kind."""
    if not isinstance(model.full_model, EncoderDecoder):
        kind = type(model.full_model).__name__
        raise UserError(f"the figure shows a Transformer, and this model is a {kind}")
    return model.full_model


def translated(model: TranslationModel, sentence: str | None) -> Sentence:
    """Translate a sentence, by default an example in the model's source language, by greedy search.

    Raises UserError for a language without an example.
    """
    language = model.settings.source_languages[0].partition("-")[0]
    line = EXAMPLES.get(language) if sentence is None else sentence.strip(SPACES)
    if line is None:
        raise UserError(
            f"there is no example sentence in {language!r}, which the model translates; "
            "give one with --sentence"
        )
    hypothesis = model.search([line], beam=1)[0][0]
    source = [*model.vocabulary.source.encode(line), END]
    end = [END] if hypothesis.finished else []
    return Sentence(line, source, hypothesis, [*hypothesis.tokens, *end])


def attention_of(
    model: TranslationModel, sentence: Sentence, layer: int | None, head: int | None = None
) -> SentenceAttention:
    """Return the attention weights of a sentence; head: from 1, None for the mean of all.

    Raises UserError for a layer that the model does not have.
    """
    transformer = transformer_of(model)
    n_layers = min(len(transformer.encoder.blocks), len(transformer.decoder.blocks))
    n_heads = model.settings.model.transformer.n_heads
    check_layer_and_head(layer, head, n_layers=n_layers, n_heads=n_heads)
    return sentence_attention(
        transformer, model.vocabulary, sentence.line, sentence.hypothesis, layer=layer, head=head
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


def token_names(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return a text for each id; one that is a part of a character has that of its piece."""
    runs, texts = pieces(tokenizer, ids)
    return [
        text if run == 1 else f"{text} ({part + 1} of {run})"
        for run, text in zip(runs, texts, strict=True)
        for part in range(run)
    ]


@figure(domain="translation")
def attention(model: TranslationModel, sentence: str | None, layer: int | None) -> Figure:
    """Attention of one translated sentence: in the encoder, in the decoder and between them."""
    shown = attention_of(model, translated(model, sentence), layer)
    source, target, inputs = shown.source_pieces, shown.target_pieces, shown.decoder_pieces
    longest = max(len(source), len(target))
    drawing = new_figure(
        3.2 + 0.75 * longest,
        1.8 + 0.24 * longest,
        f"{shown.source}  →  {shown.translation}   (layer {shown.layer}, mean of all heads)",
    )
    panels = drawing.subplots(1, 3, width_ratios=[len(source), len(inputs), len(source)])
    heat(panels[0], shown.encoder, source, source, title="encoder")
    heat(panels[1], shown.decoder, target, inputs, title="decoder: only what is written")
    image = heat(panels[2], shown.cross, target, source, title="decoder reads the encoder")
    for axes in panels:
        axes.set_xlabel("key", fontsize=8)
    panels[0].set_ylabel("query", fontsize=8)
    drawing.colorbar(image, ax=list(panels), shrink=0.6, pad=0.01)
    return drawing


@figure(domain="translation")
def heads(model: TranslationModel, sentence: str | None, layer: int | None) -> Figure:
    """All heads of one layer of a translator: self-attention of both sides and cross-attention."""
    line = translated(model, sentence)
    n_heads = model.settings.model.transformer.n_heads
    shown = [attention_of(model, line, layer, head) for head in range(1, n_heads + 1)]
    source, target = shown[0].source_pieces, shown[0].target_pieces
    side = 1.1 + 0.16 * max(len(source), len(target))
    drawing = new_figure(
        side * n_heads + 0.6,
        side * 3 + 0.4,
        f"{shown[0].source}  →  {shown[0].translation}   (layer {shown[0].layer})",
    )
    panels = drawing.subplots(3, n_heads, squeeze=False)
    for number, (of_head, column) in enumerate(zip(shown, panels.T, strict=True), start=1):
        drawn = (
            ("encoder", of_head.encoder, source, source),
            ("decoder", of_head.decoder, target, of_head.decoder_pieces),
            ("cross", of_head.cross, target, source),
        )
        for (kind, weights, queries, keys), axes in zip(drawn, column, strict=True):
            rows = queries if number == 1 else [""] * len(queries)  # all columns have the same
            heat(axes, weights, rows, keys, title=f"{kind}, head {number}")
    return drawing


def frames(
    model: TranslationModel, sentence: str | None, layer: int | None
) -> tuple[SentenceAttention, list[Step]]:
    """Return the attention of a sentence, and the step that begins each target piece."""
    transformer, line = transformer_of(model), translated(model, sentence)
    attended = attention_of(model, line, layer)
    with scoring(transformer):
        condition = transformer.encode(torch.tensor([line.source], device=device_of(transformer)))
    steps = decoding_steps(transformer, condition, line.target)
    runs, _ = pieces(model.vocabulary.target, line.target)
    return attended, [steps[sum(runs[:index])] for index in range(len(runs))]


@figure(".gif", domain="translation")
def translation(model: TranslationModel, sentence: str | None, layer: int | None) -> bytes:
    """Animation of a translation: each step's candidates, and the source pieces that it reads."""
    attended, steps = frames(model, sentence, layer)
    drawn = [draw_frame(model, attended, steps, index) for index in range(len(steps))]
    return animation(drawn, milliseconds=1100)


def draw_frame(
    model: TranslationModel, attended: SentenceAttention, steps: list[Step], index: int
) -> Figure:
    """Draw the sentence, the pieces that are written, and the candidates for the next one."""
    source, target = attended.source_pieces, attended.target_pieces
    columns = max(len(source), len(target) + 1)
    drawing = new_figure(max(6.0, 0.85 * columns + 1.4), 3.7, fitted=False)
    upper, lower = drawing.subplots(2, 1, height_ratios=[1, 1.25])
    drawing.subplots_adjust(left=0.13, right=0.98, top=0.98, bottom=0.14, hspace=0.1)
    upper.set(xlim=(-1.5, columns - 0.4), ylim=(1.5, -0.6))
    upper.set_axis_off()
    upper.text(-0.6, 0, "source", ha="right", va="center", fontsize=9, color=GREY)
    upper.text(-0.6, 1, "written", ha="right", va="center", fontsize=9, color=GREY)
    for column, (text, weight) in enumerate(zip(source, attended.cross[index], strict=True)):
        box = {"boxstyle": "round,pad=0.3", "facecolor": (0.2, 0.42, 0.78, weight**0.7),
               "edgecolor": "#c9ced6"}  # fmt: skip
        colour = "white" if weight > 0.55 else "#222222"
        upper.text(column, 0, text, ha="center", va="center", fontsize=11, bbox=box, color=colour)
    for column, text in enumerate([*target[:index], "?"]):
        upper.text(column, 1, text, ha="center", va="center", fontsize=11,
                   color=BLUE if text == "?" else "#222222")  # fmt: skip
    step = steps[index]
    names = [piece(model, token) for token, _ in step.candidates]
    colours = [BLUE if token == step.written else "#c9ced6" for token, _ in step.candidates]
    bars = lower.barh(range(len(names)), [p for _, p in step.candidates], color=colours)
    lower.bar_label(bars, [f"{p:.3f}" for _, p in step.candidates], padding=3, fontsize=8)
    lower.set_yticks(range(len(names)), names, fontsize=10)
    lower.invert_yaxis()
    lower.set(xlim=(0, 1.12), xlabel="probability of the next token")
    lower.spines[["top", "right"]].set_visible(False)
    return drawing


class Layers(NamedTuple):
    """Attention weights of all layers, each the mean of its heads: [layer, query, key]."""

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


def weights_of_layers(model: TranslationModel, sentence: Sentence) -> Layers:
    """Return the weights of one pass over a sentence and its translation."""
    transformer = transformer_of(model)
    device = device_of(transformer)
    target = torch.tensor([[START, *sentence.target[:-1]]], device=device)
    with scoring(transformer), capture_attention(transformer) as found:
        transformer(torch.tensor([sentence.source], device=device), None, target)
    own = [weights[0].mean(0).cpu() for weights in found.self_attention]  # [L, L] each
    cross = torch.stack([weights[0].mean(0).cpu() for weights in found.cross])  # [N, L, K]
    n_encoder = len(own) - len(cross)
    return Layers(torch.stack(own[:n_encoder]), torch.stack(own[n_encoder:]), cross)


@figure(".gif", domain="translation")
def decoding(model: TranslationModel, sentence: str | None) -> bytes:
    """Animation of a translation through all layers: the source at once, the target in steps."""
    line = translated(model, sentence)
    weights = weights_of_layers(model, line)
    source = token_names(model.vocabulary.source, line.source)
    target = ["<start>", *token_names(model.vocabulary.target, line.target)]
    n_encoder, n_decoder = len(weights.encoder), len(weights.decoder)
    moments = [(layer, 0, 0) for layer in range(n_encoder + 1)]
    moments += [
        (n_encoder, step, layer)
        for step in range(1, len(target))
        for layer in range(1, n_decoder + 1)
    ]
    drawn = [draw_moment(source, target, weights, moment) for moment in moments]
    return animation(drawn, milliseconds=450)


def draw_moment(
    source: Sequence[str], target: Sequence[str], weights: Layers, moment: tuple[int, int, int]
) -> Figure:
    """Draw the vectors that are computed, and what the newest ones read.

    moment: layers of the encoder that are done, step of the decoder (0: none), and its layer.
    """
    done, step, layer = moment
    n_rows, gap = max(len(weights.encoder), len(weights.decoder)), len(source) + 1
    up = 0.6  # rows of the decoder, so that lines between equal layers are not level
    drawing = new_figure(0.52 * (gap + len(target)) + 0.6, 0.42 * n_rows + 1.4, fitted=False)
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-1, gap + len(target) - 1), ylim=(-1.2, n_rows + up + 1.1))
    axes.set_axis_off()
    lines: list[tuple[tuple[float, float], tuple[float, float], float, str]] = []
    if done and not step:
        for query, row in enumerate(weights.encoder[done - 1].tolist()):
            lines += [((key, done - 1), (query, done), w, BLUE) for key, w in enumerate(row)]
    elif step:
        at = (gap + step - 1, layer + up)
        own = weights.decoder[layer - 1, step - 1].tolist()[:step]
        lines += [((gap + key, layer - 1 + up), at, w, BLUE) for key, w in enumerate(own)]
        cross = weights.cross[layer - 1, step - 1].tolist()
        top = len(weights.encoder)
        lines += [((key, top), at, w, RED) for key, w in enumerate(cross)]
    for start, end, weight, colour in lines:
        axes.plot(*zip(start, end, strict=True), color=colour, alpha=min(1, weight**0.7),
                  linewidth=2.5, solid_capstyle="round", zorder=1)  # fmt: skip
    for column, name in enumerate(source):
        axes.text(column, -0.7, name, ha="center", va="center", fontsize=8)
        for row in range(len(weights.encoder) + 1):
            axes.plot(column, row, "o", markersize=8, zorder=2, markeredgecolor="#8a8f94",
                      color="#9dbbe6" if row <= done else "white")  # fmt: skip
    for column, name in enumerate(target[:-1]):
        known = column < step
        axes.text(gap + column, up - 0.7, name if known or not column else "", ha="center",
                  va="center", fontsize=8)  # fmt: skip
        ready = step and (column < step - 1 or (known and layer == len(weights.decoder)))
        written = target[column + 1] if ready else ""
        axes.text(gap + column, len(weights.decoder) + up + 0.7, written, ha="center", va="center",
                  fontsize=8, color=BLUE)  # fmt: skip
        for row in range(len(weights.decoder) + 1):
            filled = column < step - 1 or (column == step - 1 and row <= layer)
            colour = "#9dbbe6" if filled else "white"
            axes.plot(gap + column, row + up, "o", markersize=8, zorder=2,
                      markeredgecolor="#8a8f94", color=colour)  # fmt: skip
    return drawing
