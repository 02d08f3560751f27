"""What a model is trained with: learning rates, masked input, adversarial losses."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from triptych.domains.gan.model import SpectralNorm, discriminator_loss, generator_loss
from triptych.domains.language.model import MASK, SEP, SPECIALS, segments
from triptych.domains.language.tasks.labelled import (
    Classification,
    Entailment,
    LabelledTask,
    MultipleChoice,
    Similarity,
    join_texts,
)
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.files.drawing import BLUE, COLOURS, GREEN, GREY, RED, new_figure
from triptych.text.tokenizer import TextTokenizer
from triptych.text.word_piece import WordPiece
from triptych.tools.explain.figure import figure
from triptych.training.engine.optim import Noam

from ._drawing import UNUSED, light_grid

CURVES = ((512, 4000), (512, 8000), (256, 4000))
"""Widths and warm-up steps of the curves; the first is the published one."""
LAST_STEP = 20_000
MARKED = {1: (3300, 0.3e-4), 4000: (6300, 8.9e-4), 16_000: (15_000, 4.1e-4)}
"""Steps of the first curve whose learning rates are printed, and where."""
TEXTS = ("my dog is cute and small", "he likes playing in the park")
PROSE = ("green house two sings of never", "he likes to play in the park", TEXTS[0])
"""Text that the vocabulary is learnt from, besides some words that end as "playing" does."""
PIECES = 95
"""Size of the vocabulary: a whole word for all but "playing", which is rare there."""
TASKS: dict[LabelledTask, tuple[str, ...]] = {
    Classification(): ("my dog is cute",),
    Entailment(): ("my dog is small", "my dog is cute"),
    Similarity(): ("my dog is small", "my dog is cute"),
    MultipleChoice(): ("he likes to", "play", "park"),
}
"""Tasks with labels, each with the texts of an example."""
N_DRAWS = 4
FIRST_SEED = 33
"""Seed of the masks for the option's 0: its draws have tokens of all three kinds."""
WEIGHT = ((1.6, 0.9), (-0.4, 0.8))
"""Matrix W that is normalised."""
LOWEST, HIGHEST, N_POINTS = -3.0, 3.0, 121
"""Logits of the adversarial losses."""


def learning_rates(d_model: int, warmup: int, steps: Sequence[int]) -> list[float]:
    """Return the learning rates of Vaswani et al. 2017, section 5.3, equation 3, at some steps."""
    noam = Noam(warmup_steps=warmup)
    return [noam.rate(1.0, step, d_model=d_model) for step in steps]


@figure()
def schedule() -> Figure:
    """Learning rate over the updates: warm-up, then the inverse square root of the step."""
    drawing = new_figure(7.6, 4.2)
    axes = drawing.subplots()
    steps = range(1, LAST_STEP + 1, 20)
    for (d_model, warmup), colour in zip(CURVES, COLOURS, strict=False):
        label = f"d_model {d_model}, warm-up {warmup:,}"
        axes.plot(steps, learning_rates(d_model, warmup, steps), color=colour, label=label)
    for step, place in MARKED.items():
        (rate,) = learning_rates(*CURVES[0], [step])
        axes.plot([step], [rate], "o", color=COLOURS[0], markersize=4, clip_on=False, zorder=5)
        axes.annotate(f"step {step:,}: {rate:.2e}", (step, rate), xytext=place, fontsize=8,
                      arrowprops={"arrowstyle": "-", "color": "#9aa0a6"})  # fmt: skip
    axes.set(xlabel="update", ylabel="learning rate", xlim=(0, LAST_STEP), ylim=(0, None))
    axes.set_title("d_model^−0.5 · min(step^−0.5, step · warm-up^−1.5)", fontsize=10)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-4, -4))
    axes.legend()
    light_grid(axes)
    return drawing


class Reading(NamedTuple):
    """Rows of one input, with a word for each token."""

    tokens: list[str]
    segments: list[str]
    read: list[list[str]]
    """What the model reads in each draw."""
    predicted: list[list[bool]]
    """Which of these tokens are part of the loss."""


def vocabulary() -> TextTokenizer:
    """Return a WordPiece vocabulary that splits one word of the texts."""
    return WordPiece().build([*PROSE * 3, "walking", "going", TEXTS[1]], PIECES, SPECIALS)


def reading(seed: int) -> Reading:
    """Return the input of the two texts, masked at the published rates."""
    tokenizer = vocabulary()
    names = tokenizer.symbols
    row = join_texts([tokenizer.encode(text) for text in TEXTS], 100, with_cls=True)  # [L]
    generator = torch.Generator().manual_seed(FIRST_SEED + seed)
    tokens = torch.tensor(row).expand(N_DRAWS, -1)  # [draws, L]
    read, predicted = MaskedTokens().apply(tokens, range(len(SPECIALS) + 1, len(names)), generator)
    return Reading(
        [names[token] for token in row],
        ["AB"[segment] for segment in segments(tokens[0]).tolist()],
        [[names[token] for token in of_draw] for of_draw in read.tolist()],
        predicted.tolist(),
    )


@figure()
def bert_input(seed: int) -> Figure:
    """The input of BERT: tokens, segments, positions, and which tokens four draws of masks hide."""
    inputs = reading(seed)
    drawing = new_figure(
        11.0, 3.4, "blue: read as [MASK]; red: as a random token; green: as it is, and predicted"
    )
    axes = drawing.subplots()
    places = [str(place) for place in range(len(inputs.tokens))]
    top = [("token", inputs.tokens), ("segment", inputs.segments), ("position", places)]
    rows = top + [(f"draw {n}", words) for n, words in enumerate(inputs.read, start=1)]
    for line, (name, words) in enumerate(rows):
        y = -line - (0.5 if line >= len(top) else 0.0)
        axes.text(-0.7, y, name, ha="right", va="center", fontsize=9, color=GREY)
        for place, word in enumerate(words):
            ground, text = "white", "black"
            if line >= len(top) and inputs.predicted[line - len(top)][place]:
                same = word == inputs.tokens[place]
                ground = BLUE if word == SPECIALS[MASK] else GREEN if same else RED
                text = "white"
            box = {"facecolor": ground, "edgecolor": UNUSED, "boxstyle": "square,pad=0.35"}
            axes.text(place, y, word, ha="center", va="center", fontsize=8, color=text, bbox=box)
    axes.set(xlim=(-2.2, len(inputs.tokens) - 0.4), ylim=(-len(rows) - 0.1, 0.6))
    axes.set_axis_off()
    return drawing


def task_rows(task: LabelledTask, texts: Sequence[str], *, encoder: bool) -> list[list[str]]:
    """Return the rows of tokens of an example, as an encoder or a decoder reads them."""
    tokenizer = vocabulary()
    return [
        [
            tokenizer.symbols[token]
            for token in join_texts([*map(tokenizer.encode, row)], 100, with_cls=encoder)
        ]
        for row in task.rows(texts)
    ]


@figure()
def task_inputs() -> Figure:
    """Inputs of the tasks with labels, for an encoder (BERT) and for a decoder (GPT)."""
    drawing = new_figure(
        8.2, 5.6, "light: first text, dark: second text; red: the token whose vector is read"
    )
    names = ("BERT: an encoder, reads [CLS]", "GPT: a decoder, reads the last token")
    for encoder, name, axes in zip((True, False), names, drawing.subplots(2, 1), strict=True):
        line = 0.0
        for task, texts in TASKS.items():
            rows = task_rows(task, texts, encoder=encoder)
            for row in rows:
                texts_before = 0
                for place, word in enumerate(row):
                    read = place == (0 if encoder else len(row) - 1)
                    ground = ("#e8eef8", "#9dbbe6")[texts_before]
                    box = {"facecolor": RED if read else ground, "edgecolor": "white",
                           "boxstyle": "square,pad=0.35"}  # fmt: skip
                    axes.text(place, -line, word, ha="center", va="center", fontsize=8, bbox=box,
                              color="white" if read else "black")  # fmt: skip
                    texts_before = min(texts_before + (word == SPECIALS[SEP]), 1)
                line += 1
            label = type(task).__name__
            axes.text(-0.7, len(rows) / 2 - line + 0.5, label, ha="right", va="center",
                      fontsize=9, color=GREY)  # fmt: skip
            how = {"Similarity": "sum of both → label", "MultipleChoice": "softmax of scores"}
            axes.text(11.2, len(rows) / 2 - line + 0.5, how.get(label, "→ label"), va="center",
                      fontsize=8, color=GREY)  # fmt: skip
            line += 0.5
        axes.set_title(name, fontsize=10)
        axes.set(xlim=(-3.2, 13.4), ylim=(0.3 - line, 0.7))
        axes.set_axis_off()
    return drawing


class Losses(NamedTuple):
    """Part of a loss that one image has, at each logit: [n]."""

    logits: Tensor
    real: Tensor
    generated: Tensor
    generator: Tensor


def losses() -> Losses:
    """Return the losses of single images; the other images of a pair are beyond the margin."""
    logits = torch.linspace(LOWEST, HIGHEST, N_POINTS, dtype=torch.float64)  # [n]
    far = torch.tensor([10.0], dtype=torch.float64)  # [1]
    single = logits.split(1)
    real = torch.stack([discriminator_loss(one, -far) for one in single])  # [n]
    generated = torch.stack([discriminator_loss(far, one) for one in single])  # [n]
    return Losses(logits, real, generated, torch.stack([generator_loss(one) for one in single]))


class Circles(NamedTuple):
    """Points of the unit circle, and where two matrices map them: [2, n] each."""

    unit: Tensor
    after_weight: Tensor
    after_normalised: Tensor


def circles() -> Circles:
    """Return the unit circle, and what W and its normalised form make of it."""
    angle = torch.linspace(0, 2 * torch.pi, 200, dtype=torch.float64)  # [n]
    points = torch.stack([angle.cos(), angle.sin()])  # [2, n]
    weight = torch.tensor(WEIGHT, dtype=torch.float64)  # [2, 2]
    return Circles(points, weight @ points, SpectralNorm()(weight) @ points)


@figure()
def gan_losses() -> Figure:
    """Hinge losses of a GAN, and what spectral normalisation does to the unit circle."""
    drawing = new_figure(8.4, 3.6)
    left, right = drawing.subplots(1, 2)
    curves = losses()
    left.plot(curves.logits, curves.real, color=BLUE, label="discriminator, real image")
    left.plot(curves.logits, curves.generated, color=RED, label="discriminator, generated image")
    left.plot(curves.logits, curves.generator, color=GREEN, linestyle="--",
              label="generator, generated image")  # fmt: skip
    left.set(xlabel="logit of the image", ylabel="loss", xlim=(LOWEST, HIGHEST))
    light_grid(left)
    left.legend()
    drawn = circles()
    right.plot(*drawn.unit, color="black", linewidth=1, label="vectors of length 1")
    right.plot(*drawn.after_weight, color=RED, label="after W")
    right.plot(*drawn.after_normalised, color=BLUE, label="after W / σ(W): never longer")
    right.set_aspect("equal")
    right.set_axis_off()
    right.legend(loc="upper center", bbox_to_anchor=(0.5, 0.02))
    return drawing
