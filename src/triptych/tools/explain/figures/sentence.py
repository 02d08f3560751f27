"""A sentence through a translator as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from triptych.domains.translation.render import pieces
from triptych.tools.explain.figure import figure
from triptych.tools.explain.figures.translator import (
    Sentence,
    Step,
    decoding_steps,
    piece,
    transformer_of,
    translated,
)
from triptych.training.engine.devices import device_of, scoring

ROWS, COLUMNS = 4, 6
"""Positions and features of a tensor that are printed."""


class Walk:
    """Text with numbered stages."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._stages = 0

    def stage(self, title: str, *lines: str) -> None:
        """Add a stage with its lines."""
        self._stages += 1
        self.lines += [f"{self._stages}. {title}", *(f"   {line}" for line in lines), ""]

    def tensor(self, title: str, text: str, x: Tensor, names: Sequence[str]) -> None:
        """Add a stage with the shape and the first values of x [1, L, D]; names: of positions."""
        width = max(map(len, names[:ROWS]))
        rows = [
            f"{name:<{width}}  {' '.join(f'{value:7.3f}' for value in row[:COLUMNS])} ..."
            for name, row in zip(names[:ROWS], x[0].tolist(), strict=False)
        ]
        more = [f"... {len(names) - ROWS} more positions"] if len(names) > ROWS else []
        self.stage(f"{title}: {list(x.shape)}", text, *rows, *more)


@figure(".txt", domain="translation")
def sentence(model: Any, sentence: str | None) -> str:
    """One sentence through a translator: shape and values at every stage, as text."""
    line, walk = translated(model, sentence), Walk()
    names = _names(model.vocabulary.source, line.source)
    transformer = transformer_of(model)
    walk.stage("Sentence", line.line)
    walk.stage(
        f"Tokens: {len(names)}",
        "The tokenizer cuts the text into pieces of its vocabulary "
        f"({len(model.vocabulary.source):,} tokens); · is a space, <end> ends the sentence.",
        " | ".join(names),
    )
    walk.stage(
        f"Ids: [1, {len(line.source)}]  (batch, position)",
        "The number of each token in the vocabulary.",
        " ".join(map(str, line.source)),
    )
    with scoring(transformer):
        ids = torch.tensor([line.source], device=device_of(transformer))
        condition = _encoder(walk, transformer, ids, names)
    _decoder(walk, model, line, decoding_steps(transformer, condition, line.target))
    best = model.translate([line.line])[0]
    walk.stage(
        "Result",
        f"The pieces joined:         {model.vocabulary.target.decode(line.hypothesis.tokens)}",
        f"Beam search, 4 hypotheses: {best}",
    )
    return "\n".join(walk.lines)


def _encoder(walk: Walk, transformer: Any, ids: Tensor, names: Sequence[str]) -> Any:
    """Add the stages of the encoder and return the condition that the decoder reads."""
    index = torch.arange(ids.shape[1], device=ids.device)
    embedded = transformer.source_embedding(ids, index)  # [1, K, D]
    width = embedded.shape[-1]
    walk.tensor("Embedding", f"The learned vector of each token, times √{width}; axes: batch, "
                "position, feature.", embedded, names)  # fmt: skip
    encodings = transformer.positions(index).to(embedded.dtype)  # [K, D]
    walk.tensor("Position encodings", "One vector per position, whatever the token is.",
                encodings.unsqueeze(0), names)  # fmt: skip
    walk.tensor("Input of the encoder", "Embedding + position encoding.",
                transformer.add_positions(embedded, encodings), names)  # fmt: skip
    outputs: list[Tensor] = []
    handles = [
        block.register_forward_hook(lambda layer, inputs, output: outputs.append(output))
        for block in transformer.encoder.blocks
    ]
    try:
        condition = transformer.encode(ids)
    finally:
        for handle in handles:
            handle.remove()
    for number, output in enumerate(outputs, start=1):
        text = "x + self-attention(x), then x + feed-forward(x), with their norms."
        walk.tensor(f"Encoder layer {number} of {len(outputs)}", text, output, names)
    walk.tensor("Memory", "The encoder's output after the final norm; every step of the decoder "
                "reads it.", condition.memory.features, names)  # fmt: skip
    return condition


def _decoder(walk: Walk, model: Any, sentence: Sentence, steps: Sequence[Step]) -> None:
    """Add a stage for each step of the decoder."""
    n_layers = len(transformer_of(model).decoder.blocks)
    size = len(model.vocabulary.target)
    for number, step in enumerate(steps, start=1):
        names = [piece(model, token) for token, _ in step.candidates]
        width = max(map(len, names))
        rows = [
            f"{name:<{width}}  {probability:.4f}{'  <- written' if token == step.written else ''}"
            for name, (token, probability) in zip(names, step.candidates, strict=True)
        ]
        walk.stage(
            f"Decoder step {number} reads {piece(model, step.read)}: logits [1, 1, {size}]",
            f"{n_layers} layers of self-attention to the {number} tokens so far, cross-attention "
            f"to the memory [1, {len(sentence.source)}] and feed-forward; softmax:",
            *rows,
        )


def _names(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return a text for each id; one that is a part of a character has that of its piece."""
    runs, texts = pieces(tokenizer, ids)
    return [
        text if run == 1 else f"{text} ({part + 1} of {run})"
        for run, text in zip(runs, texts, strict=True)
        for part in range(run)
    ]
