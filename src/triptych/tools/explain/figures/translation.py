"""Animation of a translation: each step's candidates, and the source pieces that it reads."""

from __future__ import annotations

from typing import Any

from triptych.domains.translation.attention_maps import SentenceAttention, pieces
from triptych.files.drawing import BLUE, GREY, fonts_of_every_script, new_figure
from triptych.tools.explain.drawing import animation
from triptych.tools.explain.figure import Content, ExplainOptions, Figure
from triptych.tools.explain.translating import (
    Step,
    attention_of,
    decoding_steps,
    piece,
    transformer_of,
    translated,
)
from triptych.training.engine.evaluate import device_of, scoring


def frames(options: ExplainOptions, model: Any) -> tuple[SentenceAttention, list[Step]]:
    """Return the attention of a sentence, and the step that begins each target piece."""
    import torch

    transformer, sentence = transformer_of(model), translated(model, options)
    attended = attention_of(model, sentence, options)
    with scoring(transformer):
        condition = transformer.encode(
            torch.tensor([sentence.source], device=device_of(transformer))
        )
    steps = decoding_steps(transformer, condition, sentence.target)
    runs, _ = pieces(model.vocabulary.target, sentence.target)
    return attended, [steps[sum(runs[:index])] for index in range(len(runs))]


def draw(options: ExplainOptions, model: Any) -> Content:
    """Return a GIF with one frame for each piece of the translation."""
    attended, steps = frames(options, model)
    with fonts_of_every_script():
        drawn = [draw_frame(model, attended, steps, index) for index in range(len(steps))]
        return {"translation.gif": animation(drawn, milliseconds=1100)}


def draw_frame(model: Any, attended: SentenceAttention, steps: list[Step], index: int) -> Any:
    """Draw the sentence, the pieces that are written, and the candidates for the next one."""
    source, target = attended.source_pieces, attended.target_pieces
    columns = max(len(source), len(target) + 1)
    figure = new_figure(max(6.0, 0.85 * columns + 1.4), 3.7, fitted=False)
    upper, lower = figure.subplots(2, 1, height_ratios=[1, 1.25])
    figure.subplots_adjust(left=0.13, right=0.98, top=0.98, bottom=0.14, hspace=0.1)
    upper.set(xlim=(-1.5, columns - 0.4), ylim=(1.5, -0.6))
    upper.set_axis_off()
    weights = attended.cross[index]
    upper.text(-0.6, 0, "source", ha="right", va="center", fontsize=9, color=GREY)
    upper.text(-0.6, 1, "written", ha="right", va="center", fontsize=9, color=GREY)
    for column, (text, weight) in enumerate(zip(source, weights, strict=True)):
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
    return figure


FIGURE = Figure(
    files=("translation.gif",),
    draw=draw,
    domain="translation",
    pretrained="pretrained:multi30k-en-de",
    uses=("sentence", "layer"),
)
