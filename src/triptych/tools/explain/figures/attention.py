"""Attention of one translated sentence: in the encoder, in the decoder and between them."""

from __future__ import annotations

from typing import Any

from triptych.files.drawing import fonts_of_every_script, new_figure, png
from triptych.tools.explain.drawing import heat
from triptych.tools.explain.figure import Content, ExplainOptions, Figure
from triptych.tools.explain.translating import attention_of, translated


def draw(options: ExplainOptions, model: Any) -> Content:
    """Return three heat maps, each the mean of all heads of a layer."""
    shown = attention_of(model, translated(model, options), options)
    source, target, inputs = shown.source_pieces, shown.target_pieces, shown.decoder_pieces
    with fonts_of_every_script():
        longest = max(len(source), len(target))
        figure = new_figure(
            3.2 + 0.75 * longest,
            1.8 + 0.24 * longest,
            f"{shown.source}  →  {shown.translation}   (layer {shown.layer}, mean of all heads)",
        )
        panels = figure.subplots(1, 3, width_ratios=[len(source), len(inputs), len(source)])
        heat(panels[0], shown.encoder, source, source, title="encoder")
        heat(panels[1], shown.decoder, target, inputs, title="decoder: only what is written")
        image = heat(panels[2], shown.cross, target, source, title="decoder reads the encoder")
        for axes in panels:
            axes.set_xlabel("key", fontsize=8)
        panels[0].set_ylabel("query", fontsize=8)
        figure.colorbar(image, ax=list(panels), shrink=0.6, pad=0.01)
        return {"attention.png": png(figure)}


FIGURE = Figure(
    files=("attention.png",),
    draw=draw,
    domain="translation",
    pretrained="pretrained:multi30k-en-de",
    uses=("sentence", "layer"),
)
