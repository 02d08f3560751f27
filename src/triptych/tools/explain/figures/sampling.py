"""One distribution under temperature, top-k and top-p (Holtzman et al. 2020, section 3.1)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.decoding.sampling import Sampling, filter_logits
from triptych.files.drawing import BLUE, new_figure, png
from triptych.tools.explain.drawing import UNUSED
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

PROBABILITIES = (0.34, 0.22, 0.14, 0.10, 0.07, 0.05, 0.04, 0.02, 0.01, 0.01)
"""Of ten tokens, as the model predicts them."""
SETTINGS = {
    "temperature 0.5": Sampling(temperature=0.5),
    "temperature 2": Sampling(temperature=2.0),
    "top-k 3": Sampling(top_k=3),
    "top-p 0.75": Sampling(top_p=0.75),
}


def distributions() -> dict[str, NDArray[np.float64]]:
    """Return the probabilities [V] from which each setting samples."""
    logits = torch.tensor(PROBABILITIES, dtype=torch.float64).log()
    return {
        name: filter_logits(logits, setting).softmax(-1).numpy()
        for name, setting in SETTINGS.items()
    }


def draw(options: ExplainOptions, model: None) -> Content:
    """Return one panel per setting, with the prediction behind it."""
    figure = new_figure(
        9.6, 2.6, "grey: predicted probabilities; blue: those that are sampled from"
    )
    panels = figure.subplots(1, len(SETTINGS), sharey=True)
    tokens = np.arange(len(PROBABILITIES))
    for (name, values), axes in zip(distributions().items(), panels, strict=True):
        axes.bar(tokens, PROBABILITIES, width=0.9, color=UNUSED, edgecolor="#b9b6ae")
        axes.bar(tokens, values, width=0.5, color=BLUE)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("token")
        axes.set_xticks(tokens)
        axes.tick_params(labelsize=7)
    panels[0].set_ylabel("probability")
    return {"sampling.png": png(figure)}


FIGURE = Figure(files=("sampling.png",), draw=draw)
