"""A translated sentence: its attention, and its search step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure

from triptych.domains.translation.render import SentenceAttention, pieces
from triptych.files.drawing import BLUE, GREY, new_figure
from triptych.tools.explain.drawing import animation, heat
from triptych.tools.explain.figure import figure
from triptych.tools.explain.figures.translator import (
    Step,
    attention_of,
    decoding_steps,
    piece,
    transformer_of,
    translated,
)
from triptych.training.engine.devices import device_of, scoring

if TYPE_CHECKING:
    from triptych.domains.translation.inference import TranslationModel


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
