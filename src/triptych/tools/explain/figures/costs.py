"""Operations and longest path of four kinds of layers over the length (Vaswani 2017, table 1)."""

from __future__ import annotations

from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.files.drawing import COLOURS, GREY, new_figure, png
from triptych.tools.complexity.layers import Attention, Convolution, LayerKind, Recurrent
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

WIDTH, HEADS = 512, 8
WINDOW = 64
"""Positions of a block of local attention, and of the memory before it."""
KERNEL = 5
LENGTHS = tuple(2**power for power in range(6, 13))


def kinds(length: int) -> dict[str, LayerKind]:
    """Return a causal layer of each kind by name. length: of the sequences."""

    def attention(config: AttentionConfig) -> Attention:
        pattern = config.mask_pattern((length,), causal=True)
        return Attention(WIDTH, config.build(WIDTH, HEADS, pattern))

    return {
        "self-attention": attention(Full()),
        "LSTM": Recurrent("lstm", WIDTH),
        f"convolution, kernel {KERNEL}": Convolution(WIDTH, KERNEL),
        f"local attention, blocks of {WINDOW}": attention(Local1D(block=WINDOW, memory=WINDOW)),
    }


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the operations on the left and the longest path on the right."""
    layers = {length: kinds(length) for length in LENGTHS}
    figure = new_figure(8.6, 3.6, f"one causal layer with {WIDTH} features; dotted: as "
                        "many positions as features")  # fmt: skip
    panels = figure.subplots(1, 2)
    for name, colour in zip(layers[LENGTHS[0]], COLOURS, strict=False):
        operations = [layers[length][name].flops(length) / 1e9 for length in LENGTHS]
        paths = [layers[length][name].longest_path(length) for length in LENGTHS]
        panels[0].plot(LENGTHS, operations, marker=".", color=colour, label=name)
        panels[1].plot(LENGTHS, paths, marker=".", color=colour)
    panels[0].set_title("billions of operations", fontsize=10)
    panels[1].set_title("layers or steps from the first to the last position", fontsize=10)
    for axes in panels:
        axes.set(xlabel="length", xscale="log", yscale="log")
        axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS], fontsize=8)
        axes.minorticks_off()
        axes.grid(color="#eeeeee")
        axes.set_axisbelow(True)
        axes.axvline(WIDTH, color=GREY, linestyle=":", linewidth=1)
    panels[0].legend(fontsize=8, frameon=False)
    return {"costs.png": png(figure)}


FIGURE = Figure(files=("costs.png",), draw=draw)
