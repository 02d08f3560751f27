"""Translation beside Marian of the same size: greedy and beam search."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import models
from benchmarks.goals import MARIAN
from benchmarks.measure import Run, Table, measure
from benchmarks.models import END, PAD, START, Shape
from benchmarks.setting import Setting, missing
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.decoding.beam_search import beam_search
from triptych.decoding.execution import quantize

BEAMS = {"greedy": 1, "beam 4": 4}
BATCH = 64


class Batch(NamedTuple):
    """Padded sources and the length of each output, its end included."""

    source: Tensor
    padding: Tensor
    lengths: Tensor


def run(setting: Setting) -> Iterator[Table]:
    shape = Shape(vocabulary=4000, d_model=256, n_layers=3)
    sizes = setting.sizes((Shape(24, 16, 16, 1, 2), 5), (shape, 32), (shape, 512))
    yield random_weights(setting, *sizes)


def random_weights(setting: Setting, shape: Shape, sentences: int) -> Table:
    """Random weights and sentences; every output has a given length, since no model ends itself."""
    batches = random_batches(setting, shape, sentences)
    full = models.encoder_decoder(shape).to(setting.device).eval()

    def ours(dtype: str, beam: int) -> Run:
        model = quantize(full, dtype)
        return lambda: [search(model, batch, beam) for batch in batches]

    def marian(beam: int) -> Run:
        model = models.Marian(shape).to(setting.device).eval()
        return lambda: [model.generate(*batch, beam) for batch in batches]

    builders = {f"{MARIAN}, {how}": partial(marian, beam) for how, beam in BEAMS.items()}
    builders |= {
        f"Triptych {dtype}, {how}": partial(ours, dtype, beam)
        for dtype in ("fp32", "bf16", "int8")
        for how, beam in BEAMS.items()
    }
    skip = {MARIAN: missing("transformers")}
    skip |= {"bf16": setting.without_bf16, "int8": setting.without_int8}
    title = f"Translation of {sentences} sentences, batch {BATCH}, {shape} on each side"
    table = Table("translation", title, f"{MARIAN}, greedy", "sentences", sentences)
    return measure(setting, table, builders, skip)


def random_batches(setting: Setting, shape: Shape, sentences: int) -> list[Batch]:
    """Sentences of 14 tokens on average, those of like length together, longest first."""
    generator = torch.Generator().manual_seed(0)
    deviation = torch.randn(sentences, 2, generator=generator)
    lengths = (14 * (1 + 0.3 * deviation)).round().clamp(3, 40).long()  # [N, 2]
    lengths = lengths[lengths[:, 0].argsort(descending=True)]
    batches = []
    for part in lengths.split(BATCH):
        n_source, n_target = part.unbind(1)
        positions = torch.arange(int(n_source.max()) + 1)
        size = (len(part), len(positions))
        source = torch.randint(START + 1, shape.vocabulary, size, generator=generator)  # [B, S]
        source = source.masked_fill(positions == n_source.unsqueeze(1), END)
        source = source.masked_fill(positions > n_source.unsqueeze(1), PAD).to(setting.device)
        batches.append(Batch(source, source == PAD, n_target.to(setting.device)))
    return batches


@torch.no_grad()
def search(model: EncoderDecoder, batch: Batch, beam: int) -> list[list[int]]:
    """Search in which no row ends before its length."""
    condition = model.encode(batch.source, batch.padding)
    state = model.init_state(len(batch.source), int(batch.lengths.max()), condition=condition)
    results = beam_search(
        model,
        state,
        beam=beam,
        start=START,
        end=END,
        max_lengths=batch.lengths.tolist(),
        forbidden=(PAD, START, END),
    )
    return [result.best[0].tokens for result in results]
