"""Searches over sentences whose outputs have given lengths, with a cache and without."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.peers_hf import END, PAD, START
from benchmarks.setting import Setting
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.decoding.beam_search import beam_search


@dataclass(frozen=True)
class Batch:
    """Sources of like length; `lengths` says how many tokens each output has, its end included."""

    source: Tensor
    padding: Tensor
    lengths: Tensor


def in_batches(
    setting: Setting, sources: Sequence[Sequence[int]], lengths: Sequence[int], size: int
) -> list[Batch]:
    """Batches of like length, longest first, on the device."""
    order = sorted(range(len(sources)), key=lambda row: (-len(sources[row]), -lengths[row]))
    batches = []
    for first in range(0, len(order), size):
        rows = order[first : first + size]
        longest = max(len(sources[row]) for row in rows)
        source = torch.tensor(
            [[*sources[row], *[PAD] * (longest - len(sources[row]))] for row in rows],
            device=setting.device,
        )  # [B, S]
        out = torch.tensor([lengths[row] for row in rows], device=setting.device)
        batches.append(Batch(source, source == PAD, out))
    return batches


@torch.no_grad()
def forced_search(model: EncoderDecoder, batch: Batch, beam: int) -> list[list[int]]:
    """Search in which no row ends before its length."""
    memory = model.encode(batch.source, batch.padding)  # [B, S, D]
    state = model.init_cache(memory, batch.padding, int(batch.lengths.max()))
    rows = beam_search(
        model.step,
        state,
        beam=beam,
        start=START,
        end=END,
        max_lengths=batch.lengths,
        forbidden=(PAD, START, END),
        narrow=model.narrow,
    )
    return [found.best[0].tokens for found in rows]


@torch.no_grad()
def without_cache(model: EncoderDecoder, batch: Batch) -> list[list[int]]:
    """Greedy outputs of these lengths, the whole prefix anew for every token."""
    memory = model.encode(batch.source, batch.padding)  # [B, S, D]
    tokens = torch.full_like(batch.source[:, :1], START)  # [B, 1]
    never = torch.tensor([PAD, START, END], device=tokens.device)
    for _ in range(int(batch.lengths.max())):
        x = model._enter(model.target_embedding, tokens)  # [B, T, D]
        y = model.decoder(x, None, memory, batch.padding)[:, -1]  # [B, D]
        logits = model._logits(y).index_fill(1, never, -torch.inf)  # [B, V]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)  # [B, T + 1]
    rows = zip(tokens[:, 1:].tolist(), batch.lengths.tolist(), strict=True)
    return [row[:length] for row, length in rows]


def read_lines(setting: Setting, translator: object, count: int) -> list[str]:
    """The first lines of --translation-sentences, else of the checkpoint's own test split."""
    path = setting.sentences
    if path is None:
        pairs = translator.config.data.source.pairs("test")  # type: ignore[attr-defined]
        return [source for source, _ in pairs[:count]]
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    return text.splitlines()[:count]
