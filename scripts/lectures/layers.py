"""Parts of a Transformer's layers: norms, activations, their number at a position, their costs."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from einops.layers.torch import Rearrange
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn

from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.layers import GELU, FeedForward, FeedForwardConfig, LayerNorm, ReLU, SwiGLU
from triptych.core.universal import AdaptiveDepth, Halted, steps_of
from triptych.files.drawing import BLUE, COLOURS, GREY, new_figure
from triptych.files.progress import aligned
from triptych.tools.complexity import kept_bytes
from triptych.tools.explain.figure import figure

from ._drawing import light_grid
from ._layer_costs import LayerKind, attention, convolution, recurrent

SENTENCES, POSITIONS, FEATURES = 4, 5, 6
AT = (3, 0, 0)
"""Sentence, position and feature of the number that is normalised; on the visible sides."""
ACTIVATIONS: dict[str, FeedForwardConfig] = {
    "ReLU": ReLU(d_ff=1),
    "GELU": GELU(d_ff=1),
    "Swish": SwiGLU(d_ff=1),
}
"""Layers whose activations are drawn, by the names of the activations."""
LOWEST, HIGHEST, N_POINTS = -4.0, 4.0, 401
THRESHOLD = 0.9
PROBABILITIES = (
    (0.95, 0.5, 0.5, 0.5),
    (0.6, 0.2, 0.5, 0.5),
    (0.3, 0.3, 0.2, 0.6),
    (0.1, 0.1, 0.1, 0.1),
)
"""Halting probability of each step, by position."""
WIDTH, HEADS = 512, 8
"""Of the layers whose costs are drawn or listed."""
WINDOW = 64
"""Positions of a block of local attention, and of the memory before it."""
KERNEL = 5
LENGTHS = tuple(2**power for power in range(6, 13))
LISTED = 512
"""Length for which the costs are listed."""


def norm_layers() -> dict[str, nn.Module]:
    """Return a layer of each kind by name: [B, L, D] -> [B, L, D]."""
    batch_norm = nn.Sequential(
        Rearrange("b l d -> b d l"), nn.BatchNorm1d(FEATURES), Rearrange("b d l -> b l d")
    )
    return {"batch norm": batch_norm, "layer norm": LayerNorm().build(FEATURES)}


def read_by(layer: nn.Module, at: tuple[int, int, int] = AT) -> NDArray[np.bool_]:
    """Return which inputs the layer reads for one output, from the gradient: bool [B, L, D]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SENTENCES, POSITIONS, FEATURES, generator=generator, dtype=torch.float64)
    x.requires_grad_()
    layer.double()(x)[at].backward()
    assert x.grad is not None
    return (x.grad != 0).numpy()


@figure()
def norms() -> Figure:
    """Batch norm and layer norm: the numbers that share a mean and a variance."""
    drawing = new_figure(8.6, 4.3, "coloured: the numbers whose mean and variance normalise the "
                         "dark one")  # fmt: skip
    for index, (name, layer) in enumerate(norm_layers().items(), start=1):
        # Axes of the drawing: sentences to the right, features to the back, positions downwards.
        shown = read_by(layer).transpose(0, 2, 1)[:, :, ::-1]
        colours = np.full(shown.shape, "#f4f3ef", dtype=object)
        colours[shown] = "#8fb1e3"
        sentence, position, feature = AT
        colours[sentence, feature, POSITIONS - 1 - position] = BLUE
        axes = drawing.add_subplot(1, 2, index, projection="3d")
        axes.voxels(np.ones(shown.shape), facecolors=colours, shade=False,
                    edgecolor="#8a8f94", linewidth=0.5)  # fmt: skip
        axes.set_box_aspect(shown.shape)
        axes.view_init(elev=24, azim=-60)
        axes.set(xticks=[], yticks=[], zticks=[])
        for label, name_of_axis in zip("xyz", ("sentences", "features", "positions"), strict=True):
            getattr(axes, f"set_{label}label")(name_of_axis, fontsize=9, labelpad=-12)
            getattr(axes, f"{label}axis").set_pane_color("white")
            getattr(axes, f"{label}axis").line.set_color("white")
        axes.set_title(name, fontsize=10)
    return drawing


class Curves(NamedTuple):
    """Values at the inputs `z`: [n] each."""

    z: NDArray[np.float64]
    values: dict[str, NDArray[np.float64]]
    slopes: dict[str, NDArray[np.float64]]


def curves() -> Curves:
    """Return the activations that the layers apply, and their gradients."""
    values, slopes = {}, {}
    z = torch.linspace(LOWEST, HIGHEST, N_POINTS, dtype=torch.float64)  # [n]
    for name, kind in ACTIVATIONS.items():
        layer = kind.build(1)
        assert isinstance(layer, FeedForward)
        x = z.clone().requires_grad_()
        y = layer.activation(x)  # [n]
        (slope,) = torch.autograd.grad(y.sum(), x)
        values[name], slopes[name] = y.detach().numpy(), slope.numpy()
    return Curves(z.numpy(), values, slopes)


@figure()
def activations() -> Figure:
    """ReLU, GELU and Swish, the activations of feed-forward layers, and their derivatives."""
    drawing, computed = new_figure(8.4, 3.2), curves()
    panels = drawing.subplots(1, 2)
    drawn = ((computed.values, "activation"), (computed.slopes, "derivative"))
    for axes, (lines, title) in zip(panels, drawn, strict=True):
        for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
            axes.plot(computed.z, line, color=colour, label=name)
        axes.set(xlabel="z", xlim=(LOWEST, HIGHEST))
        axes.set_title(title, fontsize=10)
        light_grid(axes)
    panels[0].legend()
    return drawing


def halted() -> Halted:
    """Return what the halting rule makes of the probabilities, as of one sequence."""
    probabilities = torch.tensor(PROBABILITIES, dtype=torch.float64)  # [P, T]
    n_positions, n_steps = probabilities.shape
    depth = AdaptiveDepth(1, THRESHOLD).double()
    states = probabilities.logit().T.reshape(n_steps, 1, n_positions, 1)
    with torch.no_grad():  # with this unit the state is the logit of the probability
        depth.unit.weight.fill_(1.0)
        depth.unit.bias.zero_()
        result: Halted = depth(torch.zeros_like(states[0]), [lambda _, h=h: h for h in states])
    return result


@figure()
def halting() -> Figure:
    """Adaptive computation time: steps until the halting probabilities add up to the threshold."""
    passes = halted()
    steps = steps_of(passes.weights[0]).tolist()
    drawing = new_figure(8.4, 3.0, "a bar: weights of the steps of one position, which add up to 1")
    axes = drawing.subplots()
    for position, weights in enumerate(passes.weights[0].tolist()):
        left = 0.0
        for step, weight in enumerate(weights[: steps[position]]):
            p = PROBABILITIES[position][step]
            last = step == steps[position] - 1
            named = f"step {step + 1}" if position == len(PROBABILITIES) - 1 else None
            text = f"R = {weight:.2g}" if last else f"p = {p:.2g}"
            axes.barh(position, weight, left=left, height=0.7, color=COLOURS[step],
                      edgecolor="white", label=named)  # fmt: skip
            axes.text(left + weight / 2, position, text, ha="center", va="center", fontsize=8,
                      color="white")  # fmt: skip
            left += weight
        axes.text(1.02, position, f"N = {steps[position]}, ponder cost "
                  f"{float(passes.ponder[0, position]):.2g}", va="center", fontsize=8)  # fmt: skip
    axes.axvline(THRESHOLD, color=GREY, linestyle="--", linewidth=1)
    axes.set(xlabel="sum of the weights", ylabel="position", xlim=(0, 1))
    axes.set_yticks(range(len(PROBABILITIES)), [str(n + 1) for n in range(len(PROBABILITIES))])
    axes.set_xticks([0, 0.5, THRESHOLD, 1], ["0", "0.5", f"threshold {THRESHOLD}", "1"], fontsize=8)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    drawing.legend(loc="outside lower center", ncols=4)
    return drawing


def kinds(length: int) -> dict[str, LayerKind]:
    """Return a causal layer of each kind by name. length: of the sequences."""

    def attention_of(config: AttentionConfig, order: str) -> LayerKind:
        pattern = config.mask_pattern((length,), causal=True)
        return attention(config.build(WIDTH, HEADS, pattern), order)

    return {
        "self-attention": attention_of(Full(), "n^2 d"),
        "LSTM": recurrent("lstm", WIDTH),
        f"convolution, kernel {KERNEL}": convolution(WIDTH, KERNEL),
        f"local attention, blocks of {WINDOW}": attention_of(
            Local1D(block=WINDOW, memory=WINDOW), "r n d"
        ),
    }


@figure()
def costs() -> Figure:
    """Operations and longest path of kinds of layers over the length (Vaswani 2017, table 1)."""
    layers = {length: kinds(length) for length in LENGTHS}
    drawing = new_figure(8.6, 3.6, f"one causal layer with {WIDTH} features; dotted: as "
                         "many positions as features")  # fmt: skip
    left, right = drawing.subplots(1, 2)
    for name, colour in zip(layers[LENGTHS[0]], COLOURS, strict=False):
        operations = [layers[length][name].flops(length) / 1e9 for length in LENGTHS]
        paths = [layers[length][name].longest_path(length) for length in LENGTHS]
        left.plot(LENGTHS, operations, marker=".", color=colour, label=name)
        right.plot(LENGTHS, paths, marker=".", color=colour)
    left.set_title("billions of operations", fontsize=10)
    right.set_title("layers or steps from the first to the last position", fontsize=10)
    for axes in (left, right):
        axes.set(xlabel="length", xscale="log", yscale="log")
        axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS], fontsize=8)
        axes.minorticks_off()
        light_grid(axes)
        axes.axvline(WIDTH, color=GREY, linestyle=":", linewidth=1)
    drawing.legend(loc="outside lower center", ncols=4)
    return drawing


@figure(".txt")
def layer_costs() -> str:
    """Operations, path, parameters and memory of kinds of layers as a table (table 1)."""
    lines: list[tuple[str, ...]] = [
        ("layer", "order", "parameters", "FLOPs", "sequential", "path", "kept MiB")
    ]
    for name, kind in kinds(LISTED).items():
        x = torch.randn(1, LISTED, WIDTH, requires_grad=True)
        cells = (
            sum(parameter.numel() for parameter in kind.layer.parameters()),
            kind.flops(LISTED),
            LISTED if kind.one_by_one else 1,
            kind.longest_path(LISTED),
        )
        kept = kept_bytes(kind.layer, partial(kind.run, x)) / 2**20
        order = f"O({kind.order})"
        lines.append((name, order, *(f"{cell:,}" for cell in cells), f"{kept:.2f}"))
    about = f"one causal layer, width {WIDTH}, {HEADS} heads, {LISTED} positions:"
    return "\n".join([about, *aligned(lines, right_from=2), ""])
