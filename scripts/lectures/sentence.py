"""A sentence through a translator as text."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from triptych.core.layers import Residual
from triptych.core.positions import NoEmbedding
from triptych.core.state import ForwardContext, ProjectedMemory
from triptych.core.transformer import Block
from triptych.domains.translation.model import START
from triptych.tools.explain.figure import figure
from triptych.training.engine.devices import device_of, scoring

from .translator import (
    Sentence,
    Step,
    decoding_steps,
    piece,
    token_names,
    transformer_of,
    translated,
)

ROWS, COLUMNS = 6, 6
"""Positions and features of a tensor that are printed."""


Pass = tuple[Tensor, Tensor]
"""What a layer read, and what it returned: [1, L, D] each."""


class Source(NamedTuple):
    """Ids [1, K] of a source, and a name for each."""

    ids: Tensor
    names: Sequence[str]


class Walk:
    """Text with numbered stages."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._stages = 0

    def stage(self, title: str, *lines: str) -> None:
        """Add a stage with its lines."""
        self._stages += 1
        self.lines += [f"{self._stages}. {title}", *(f"   {line}" for line in lines), ""]

    def tensor(
        self, title: str, text: str, x: Tensor, names: Sequence[str], columns: Sequence[str] = ()
    ) -> None:
        """Add a stage with the shape and the first values of x [..., L, F].

        names: of the L positions. columns: of the F values, where they have names.
        """
        width = max(map(len, names[:ROWS]))
        values = x.flatten(0, -3)[0].tolist()  # [L, F]
        dots = " ..." if x.shape[-1] > COLUMNS else ""
        rows = [
            f"{name:<{width}}  {' '.join(f'{value:7.3f}' for value in row[:COLUMNS])}{dots}"
            for name, row in zip(names[:ROWS], values, strict=False)
        ]
        if columns:
            heads = " ".join(f"{column[:7]:>7}" for column in columns[:COLUMNS])
            rows.insert(0, f"{'':<{width}}  {heads}{dots}")
        if len(names) > ROWS:
            rows.append(f"... {len(names) - ROWS} more")
        self.stage(f"{title}: {list(x.shape)}", text, *rows)


@figure(".txt", domain="translation")
def sentence(model: Any, sentence: str | None) -> str:
    """One sentence through a translator: shape and values at every stage, as text."""
    line, walk = translated(model, sentence), Walk()
    names = token_names(model.vocabulary.source, line.source)
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
        condition = encoder(walk, transformer, ids, names)
        written = [START, *line.target[:-1]]
        target = torch.tensor([written], device=ids.device)
        inputs = [piece(model, token) for token in written]
        decoder(walk, transformer, condition, target, inputs, Source(ids, names))
    _steps(walk, model, line, decoding_steps(transformer, condition, line.target))
    best = model.translate([line.line])[0]
    walk.stage(
        "Result",
        f"The pieces joined:         {model.vocabulary.target.decode(line.hypothesis.tokens)}",
        f"Beam search, 4 hypotheses: {best}",
    )
    return "\n".join(walk.lines)


def encoder(walk: Walk, transformer: Any, ids: Tensor, names: Sequence[str]) -> Any:
    """Add the stages of the encoder and return the condition that the decoder reads."""
    index = torch.arange(ids.shape[1], device=ids.device)
    embedded = transformer.source_embedding(ids, index)  # [1, K, D]
    width = embedded.shape[-1]
    walk.tensor("Embedding", f"The learned vector of each token, times √{width}; axes: batch, "
                "position, feature.", embedded, names)  # fmt: skip
    if not isinstance(transformer.positions, NoEmbedding):
        encodings = transformer.positions(index).to(embedded.dtype)  # [K, D]
        walk.tensor("Position encodings", "One vector per position, whatever the token is.",
                    encodings.unsqueeze(0), names)  # fmt: skip
        walk.tensor("Input of the encoder", "Embedding + position encoding.",
                    transformer.add_positions(embedded, encodings), names)  # fmt: skip
    blocks = transformer.encoder.blocks
    passes, condition = _passes(blocks, lambda: transformer.encode(ids))
    _layers(walk, "Encoder", blocks[0], passes, names)
    walk.tensor("Memory", "The encoder's output after the final norm; every step of the decoder "
                "reads it.", condition.memory.features, names)  # fmt: skip
    return condition


def decoder(
    walk: Walk, transformer: Any, condition: Any, ids: Tensor, names: Sequence[str], source: Source
) -> Tensor:
    """Add the stages of a pass over the target ids [1, L], and return its logits [1, L, V]."""
    embedded = transformer.target_embedding(ids, torch.arange(ids.shape[1], device=ids.device))
    walk.tensor("Input of the decoder", "Embedding of the start token and of all that is written "
                "but its end; in training all positions are computed at once.",
                embedded, names)  # fmt: skip
    blocks = transformer.decoder.blocks
    passes, logits = _passes(blocks, lambda: transformer(source.ids, None, ids))
    projected = blocks[0].project_memory(ForwardContext(memory=condition.memory))
    _layers(walk, "Decoder", blocks[0], passes, names, projected, source.names)
    return logits  # type: ignore[no-any-return]


def _passes(blocks: Iterable[Block], run: Callable[[], Any]) -> tuple[list[Pass], Any]:
    """Return what each layer read and returned in a run, and the result of the run."""
    passes: list[Pass] = []
    with ExitStack() as hooks:
        for block in blocks:
            hooks.enter_context(
                block.register_forward_hook(
                    lambda layer, inputs, output: passes.append((inputs[0], output))
                )
            )
        return passes, run()


def _layers(
    walk: Walk,
    side: str,
    first: Block,
    passes: Sequence[Pass],
    names: Sequence[str],
    memory: ProjectedMemory | None = None,
    sources: Sequence[str] = (),
) -> None:
    """Add all parts of the first layer, and the results of the others."""
    for number, (read, output) in enumerate(passes, start=1):
        title = f"{side} layer {number} of {len(passes)}"
        if number == 1:
            layer(walk, title, first, read, names, memory, sources)
        else:
            walk.tensor(title, "All parts of layer 1 again.", output, names)


def layer(
    walk: Walk,
    title: str,
    block: Block,
    x: Tensor,
    names: Sequence[str],
    memory: ProjectedMemory | None = None,
    sources: Sequence[str] = (),
) -> None:
    """Add a stage for each part of a layer that reads x [1, L, D].

    memory: of the positions `sources`, which a decoder reads; None for an encoder.
    """
    attention, residual = block.attention, block.attention_residual

    def box(name: str, text: str, x: Tensor, keys: Sequence[str] = ()) -> Tensor:
        walk.tensor(f"{title}, {name}", text, x, names, keys)
        return x

    def norm(residual: Residual, x: Tensor) -> Tensor:
        text = "Each vector normalised over its features, then the layer's learned factors."
        return box(type(residual.norm).__name__, text, residual.norm(x))

    y = norm(residual, x) if residual.pre_norm else x  # [1, L, D]
    pattern = "1 l (three h e) -> three h l e"
    q, k, v = rearrange(attention.qkv_proj(y), pattern, three=3, h=attention.n_heads)
    n_heads, n_positions, width = q.shape
    position = torch.arange(n_positions, device=x.device)
    axes = f"Head 1 of {n_heads}; axes: head, position, feature."
    for name, part in (("queries Q", q), ("keys K", k), ("values V", v)):
        box(name, f"The vectors times a matrix. {axes}", part)
    if attention.rotary is not None:
        rotation = attention.rotary.rotation(position)
        q, k = attention.rotary(q, rotation), attention.rotary(k, rotation)
        for name, part in (("queries Q", q), ("keys K", k)):
            box(f"{name} at their positions", "Position n turns each pair of features n times by "
                "the pair's angle, so that Q K^T depends on the distance.", part)  # fmt: skip
    scores, formula = q @ k.mT, "Q K^T"  # [H, L, L]
    if attention.bias is not None:
        index = attention.bias.index(position.unsqueeze(1), position)
        scores = scores + attention.bias(q.unsqueeze(0), index)[0]  # [H, L, L]
        formula = "(Q K^T + relative bias)"
    scores = scores / math.sqrt(width)
    box("scores", f"{formula} / √{width}. Head 1; axes: head, query, key.", scores, names)
    visible = attention.mask_pattern.visible(position.unsqueeze(1), position)  # [L, L]
    if not visible.all():
        scores = scores.masked_fill(~visible, -math.inf)
        box("masked scores", "No position reads a later one.", scores, names)
    weights = attention.weights(y)[0]  # [H, L, L]
    box("softmax", "Attention weights: each row adds up to 1 over the keys.", weights, names)
    heads = box("heads", f"Weights times V. {axes}", weights @ v)  # [H, L, E]
    joined = attention.out_proj(rearrange(heads, "h l e -> 1 l (h e)"))  # [1, L, D]
    box("heads joined", f"The {n_heads} heads side by side, times a matrix.", joined)
    x = box("add", "What the attention read + its result.", x + joined)
    if not residual.pre_norm:
        x = norm(residual, x)
    if block.cross is not None and memory is not None:
        residual = block.cross_residual
        y = norm(residual, x) if residual.pre_norm else x
        weights = block.cross.weights(y, memory)[0]  # [H, L, K]
        box("cross-attention", "Attention weights: queries from the decoder, keys from the memory. "
            "Head 1; axes: head, query, key.", weights, sources)  # fmt: skip
        x = box("add", "What the cross-attention read + its result.", x + block.cross(y, memory))
        if not residual.pre_norm:
            x = norm(residual, x)
    residual = block.feed_forward_residual
    y = block.feed_forward(norm(residual, x) if residual.pre_norm else x)  # [1, L, D]
    box("feed-forward", "A wider hidden layer and back, each position on its own.", y)
    x = box("add", "What the feed-forward layer read + its result.", x + y)
    if not residual.pre_norm:
        norm(residual, x)


def _steps(walk: Walk, model: Any, sentence: Sentence, steps: Sequence[Step]) -> None:
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
