"""Heads of a small encoder that follow relations: who did what to whom, and what "it" is.

The encoder has learnt from made sentences; scripts/relation_heads makes them, trains it and chooses
the heads.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from safetensors import safe_open
from torch import Tensor, nn

from triptych.core.attention.cross import capture_attention
from triptych.core.layers import GELU
from triptych.core.models.encoder_only import EncoderOnly
from triptych.core.transformer import TransformerConfig
from triptych.files.drawing import COLOURS, new_figure
from triptych.tools import explain
from triptych.tools.explain.figure import figure
from triptych.training.engine.devices import scoring

WEIGHTS = Path(explain.__path__[0]) / "relation_heads.safetensors"
RELATIONS = ("who", "did what", "to whom", "it")
N_LAYERS, N_HEADS, WIDTH = 6, 8, 64
LENGTH = 24
"""Longest sentence, in words."""
PAD = 0
KICKED = "i kicked the ball ."
TIRED, WIDE = (
    f"the animal did not cross the street because it was too {adjective} ."
    for adjective in ("tired", "wide")
)


class RelationModel(nn.Module):
    """Encoder of 6 layers with 8 heads; outputs name the word in each relation to a word."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        config = TransformerConfig(
            n_layers=N_LAYERS, d_model=WIDTH, n_heads=N_HEADS, feed_forward=GELU(128), dropout=0.0
        )
        self.encoder = EncoderOnly(config, vocabulary=vocabulary, max_length=LENGTH)
        self.outputs = nn.Linear(WIDTH, len(RELATIONS) * vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens int64 [B, L] -> logits of the related words, [B, L, R, V]."""
        x = self.encoder(tokens, padding=tokens == PAD)  # [B, L, D]
        logits: Tensor = self.outputs(x).unflatten(2, (len(RELATIONS), -1))  # [B, L, R, V]
        return logits


class Trained(NamedTuple):
    """The model that scripts/relation_heads has trained."""

    model: RelationModel
    words: list[str]
    chosen: dict[str, tuple[int, float]]
    """Relation -> head of the last layer, from 1, and its mean weight in the held-out sentences."""

    def read(self, text: str) -> Tensor:
        """Return the weights of the last layer's heads, [H, L, L]."""
        tokens = torch.tensor([[self.words.index(word) for word in text.split()]])
        with scoring(self.model), capture_attention(self.model.encoder.stack.blocks[-1]) as found:
            self.model(tokens)
        return found.self_attention[0][0]


def trained(path: Path = WEIGHTS) -> Trained:
    """Return the shipped model with its vocabulary and its chosen heads."""
    with safe_open(path, "pt") as file:
        header: Mapping[str, Any] = {
            name: json.loads(text) for name, text in file.metadata().items()
        }
        model = RelationModel(len(header["words"]))
        model.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
    chosen = {name: (head, weight) for name, (head, weight) in header["heads"].items()}
    return Trained(model.eval(), header["words"], chosen)


def draw_lines(axes: Axes, words: Sequence[str], rows: Mapping[int, Sequence[float]]) -> None:
    """Draw what words of the last layer (left) read in the layer before (right).

    rows: place of a word -> its weights of all words.
    """
    for place, word in enumerate(words):
        read = any(row[place] > 0.2 for row in rows.values())
        axes.text(0, -place, word, ha="right", va="center", fontsize=9,
                  weight="bold" if place in rows else "normal")  # fmt: skip
        axes.text(1, -place, word, ha="left", va="center", fontsize=9,
                  weight="bold" if read else "normal")  # fmt: skip
    for (place, row), colour in zip(rows.items(), COLOURS, strict=False):
        for key, weight in enumerate(row):
            axes.plot([0.04, 0.96], [-place, -key], color=colour, linewidth=2.5,
                      alpha=weight, solid_capstyle="butt")  # fmt: skip
    axes.set(xlim=(-0.7, 1.7), ylim=(0.2 - len(words), 0.6))
    axes.set_axis_off()


@figure()
def who_did_what() -> Figure:
    """Three heads of one layer for a sentence: who did it, what was done, and to whom."""
    known = trained()
    words, weights = KICKED.split(), known.read(KICKED)
    drawing = new_figure(
        8.4, 2.2, "layer 6 (left) reads layer 5 (right); a model of made sentences"
    )
    for name, axes in zip(RELATIONS[:3], drawing.subplots(1, 3), strict=True):
        head, score = known.chosen[name]
        rows = {words.index(word): weights[head - 1, words.index(word)].tolist()
                for word in ("i", "kicked", "ball")}  # fmt: skip
        draw_lines(axes, words, rows)
        axes.set_title(f"{name}: head {head} of {N_HEADS}\nmean weight {score:.2f}", fontsize=9)
    return drawing


@figure()
def it() -> Figure:
    """What "it" reads in two sentences that differ in one word, in one head of eight."""
    known = trained()
    drawing = new_figure(
        7.6, 3.6, "layer 6 (left) reads layer 5 (right); a model of made sentences"
    )
    names = {"it, the animal": TIRED, "it, the street": WIDE}
    for (name, text), axes in zip(names.items(), drawing.subplots(1, 2), strict=True):
        head, score = known.chosen[name]
        words, at = text.split(), text.split().index("it")
        draw_lines(axes, words, {at: known.read(text)[head - 1, at].tolist()})
        axes.set_title(f"{name}: head {head} of {N_HEADS}, mean weight {score:.2f}", fontsize=9)
    return drawing
