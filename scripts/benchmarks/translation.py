"""Translating many sentences: greedy and beam, the same weights without a cache, and Marian.

With a checkpoint its own model translates real sentences, and Marian of the same shape (random
weights) makes outputs of the same lengths. Without one the weights are random and sentences are
drawn; as such a model never ends, every row is given the length at which it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import peers_hf
from benchmarks.machine import missing
from benchmarks.measuring import Case, Run
from benchmarks.rows import Table
from benchmarks.setting import Setting
from benchmarks.translation_search import (
    END,
    Batch,
    forced_search,
    in_batches,
    read_lines,
    without_cache,
)
from triptych.core.feed_forward import GELU
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.decoding.quantize import Weights, for_decoding

FIRST_WORD = 4
BEAM = 4
WITHOUT = "same weights without a cache, greedy"


@dataclass(frozen=True)
class Sizes:
    sentences: int = 1000
    batch: int = 64
    d_model: int = 256
    n_layers: int = 3
    n_heads: int = 8
    vocabulary: int = 4000
    mean_tokens: float = 14.0
    """Of the drawn sentences; Multi30k's English test captions have 14 subwords at 4,000 types."""


SIZES = {
    "full": Sizes(),
    "quick": Sizes(sentences=200),
    "tiny": Sizes(sentences=5, batch=3, d_model=16, n_layers=1, n_heads=2, vocabulary=24),
    "gpu": Sizes(batch=256),
}


def run(setting: Setting) -> Iterator[Table]:
    sizes = setting.sizes(SIZES)
    if setting.checkpoint is None:
        yield drawn(setting, sizes)
    else:
        yield trained(setting, sizes)


def drawn(setting: Setting, sizes: Sizes) -> Table:
    """Random weights, drawn sentences, given lengths."""
    generator = torch.Generator().manual_seed(0)
    deviation = torch.randn(sizes.sentences, 2, generator=generator)
    lengths = (sizes.mean_tokens * (1 + 0.3 * deviation)).round().clamp(3, 40).long()  # [N, 2]
    sources = [
        [*torch.randint(FIRST_WORD, sizes.vocabulary, (n,), generator=generator).tolist(), END]
        for n in lengths[:, 0].tolist()
    ]
    batches = in_batches(setting, sources, lengths[:, 1].tolist(), sizes.batch)
    config = TransformerConfig(
        n_layers=sizes.n_layers,
        d_model=sizes.d_model,
        n_heads=sizes.n_heads,
        feed_forward=GELU(4 * sizes.d_model),
        dropout=0.0,
    )
    model = EncoderDecoder.build(
        config, source_vocabulary=sizes.vocabulary, target_vocabulary=sizes.vocabulary
    )
    model = model.to(setting.device).eval()

    ready = {name: for_decoding(model, name, rows=sizes.batch) for name in weights_here(setting)}

    def search(beam: int, weights: str) -> Run:
        return lambda: [forced_search(ready[weights], batch, beam) for batch in batches]

    cases = named(search, weights_here(setting))
    cases[WITHOUT] = lambda: [without_cache(model, batch) for batch in batches]
    table = new_table(sizes, len(sources), "random weights, drawn sentences, lengths given")
    both = dict.fromkeys((1, BEAM), batches)
    return compare(setting, table, cases, both, marian_sizes(sizes), len(sources))


def trained(setting: Setting, sizes: Sizes) -> Table:
    """A checkpoint's own model on real sentences."""
    import triptych

    translator = triptych.load(setting.checkpoint, device=setting.device.type)
    lines = read_lines(setting, translator, sizes.sentences)
    translators = {name: translator.with_weights(name) for name in weights_here(setting)}
    task = translator.task
    model, tokenizers = task.model.eval(), task.tokenizers

    def translate(beam: int, weights: str) -> Run:
        return lambda: translators[weights].translate(lines, beam=beam, batch_size=sizes.batch)

    sources = [[*ids, END] for ids in tokenizers.source.encode_batch(lines)]
    batches = {}
    for beam in (1, BEAM):
        found = tokenizers.target.encode_batch(translator.translate(lines, beam=beam))
        lengths = [len(ids) + 1 for ids in found]
        batches[beam] = in_batches(setting, sources, lengths, sizes.batch)
    cases = named(translate, weights_here(setting))
    cases[WITHOUT] = lambda: [without_cache(model, batch) for batch in batches[1]]
    block = model.decoder.blocks[0]
    shape = {
        "vocabulary": model.target_embedding.table.weight.shape[0],
        "d_model": model.target_embedding.table.weight.shape[1],
        "n_layers": len(model.decoder.blocks),
        "n_heads": block.attention.n_heads,
        "d_ff": block.feed_forward.fc1.weight.shape[0],
        "activation": block.feed_forward.activation.__name__,
    }
    what = (
        f"a trained model (d {shape['d_model']}, {shape['n_layers']} layers, "
        f"{shape['vocabulary']} types), real sentences"
    )
    table = new_table(sizes, len(lines), what)
    return compare(setting, table, cases, batches, shape, len(lines))


def weights_here(setting: Setting) -> tuple[Weights, ...]:
    """The weights that decode on this device; 8 bits do on a CPU only."""
    return ("fp32", "bf16") if setting.on_gpu else ("fp32", "bf16", "int8")


def named(make: Callable[[int, str], Run], weights: Sequence[str]) -> dict[str, Run]:
    """Greedy and beam search with these weights, by the names of their rows."""
    return {
        f"Triptych, {how}{'' if name == 'fp32' else f', {name} weights'}": make(beam, name)
        for name in weights
        for how, beam in (("greedy", 1), (f"beam {BEAM}", BEAM))
    }


def dtype_of(name: str) -> str:
    """The weights that a row of `named` speaks of."""
    return next((kind for kind in ("bf16", "int8") if f", {kind} weights" in name), "fp32")


def new_table(sizes: Sizes, count: int, what: str) -> Table:
    return Table(
        key="translating",
        title=f"Translating {count} sentences, batches of {sizes.batch}; {what}",
        base="Marian (Hugging Face), greedy",
        unit="sentences",
        sizes={"sentences": count, "batch": sizes.batch},
    )


def marian_sizes(sizes: Sizes) -> dict[str, Any]:
    return {
        "vocabulary": sizes.vocabulary,
        "d_model": sizes.d_model,
        "n_layers": sizes.n_layers,
        "n_heads": sizes.n_heads,
        "d_ff": 4 * sizes.d_model,
        "activation": "gelu",
    }


def compare(
    setting: Setting,
    table: Table,
    ours: dict[str, Run],
    batches: dict[int, list[Batch]],
    shape: dict[str, Any],
    count: int,
) -> Table:
    """Measure ours beside Marian of the same shape, whose outputs get the same lengths.

    batches: by the size of the beam.
    """

    def marian(beam: int) -> Callable[[], Run]:
        def build() -> Run:
            sizes = dict(shape)
            peer = peers_hf.HFSeq2Seq("marian", sizes.pop("vocabulary"), 512, **sizes, padded=True)
            peer = peer.to(setting.device).eval()
            return lambda: [
                peer.generate(batch.source, batch.padding, batch.lengths, beam)
                for batch in batches[beam]
            ]

        return build

    unable = missing("transformers")
    cases = [
        Case(name, lambda call=call: call, count, dtype_of(name)) for name, call in ours.items()
    ]
    cases += [
        Case("Marian (Hugging Face), greedy", marian(1), count, "fp32", unable),
        Case(f"Marian (Hugging Face), beam {BEAM}", marian(BEAM), count, "fp32", unable),
    ]
    return setting.measure(table, cases, 1)
