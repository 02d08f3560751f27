"""All heads of one layer of a translator: self-attention of both sides and cross-attention."""

from __future__ import annotations

from typing import Any

from triptych.files.drawing import fonts_of_every_script, new_figure, png
from triptych.tools.explain.drawing import heat
from triptych.tools.explain.figure import Content, ExplainOptions, Figure
from triptych.tools.explain.translating import attention_of, translated


def draw(options: ExplainOptions, model: Any) -> Content:
    """Return a heat map for each head (column) of each kind of attention (row)."""
    sentence = translated(model, options)
    n_heads = model.settings.model.transformer.n_heads
    heads = [attention_of(model, sentence, options, head) for head in range(1, n_heads + 1)]
    with fonts_of_every_script():
        side = 1.1 + 0.16 * max(len(heads[0].source_pieces), len(heads[0].target_pieces))
        figure = new_figure(
            side * n_heads + 0.6,
            side * 3 + 0.4,
            f"{heads[0].source}  →  {heads[0].translation}   (layer {heads[0].layer})",
        )
        panels = figure.subplots(3, n_heads, squeeze=False)
        for number, (shown, column) in enumerate(zip(heads, panels.T, strict=True), start=1):
            source, target = shown.source_pieces, shown.target_pieces
            drawn = (
                ("encoder", shown.encoder, source, source),
                ("decoder", shown.decoder, target, shown.decoder_pieces),
                ("cross", shown.cross, target, source),
            )
            for (kind, weights, queries, keys), axes in zip(drawn, column, strict=True):
                first = number == 1  # the labels of the other columns are the same
                heat(axes, weights, queries if first else [""] * len(queries), keys,
                     title=f"{kind}, head {number}")  # fmt: skip
        return {"heads.png": png(figure)}


FIGURE = Figure(
    files=("heads.png",),
    draw=draw,
    domain="translation",
    pretrained="pretrained:multi30k-en-de",
    uses=("sentence", "layer"),
)
