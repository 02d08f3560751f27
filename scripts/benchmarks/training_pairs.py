"""Training steps of encoder-decoder models on short sentence pairs, beside the peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks import peers_hf, peers_torch, peers_xt
from benchmarks.machine import missing
from benchmarks.measuring import Case, Run
from benchmarks.rows import Table
from benchmarks.setting import Setting
from benchmarks.training_step import step
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.transformer import TransformerConfig


@dataclass(frozen=True)
class PairSizes:
    pairs: int = 64
    """Sentence pairs in a batch."""
    tokens: int = 24
    """Tokens of a sentence."""
    d_model: int = 256
    n_layers: int = 3
    n_heads: int = 8
    vocabulary: int = 4000


def translation(setting: Setting, sizes: PairSizes, dtype: str, tables_left: int) -> Table:
    """Encoder-decoder models on short sentences, with masks for padding and without."""
    shape = {
        "d_model": sizes.d_model,
        "n_layers": sizes.n_layers,
        "n_heads": sizes.n_heads,
        "d_ff": 4 * sizes.d_model,
    }
    count, length, vocabulary = sizes.pairs, sizes.tokens, sizes.vocabulary
    table = Table(
        key=f"translation/{dtype}",
        title=f"Training step, translation, d {shape['d_model']}, {sizes.n_layers}+"
        f"{sizes.n_layers} layers, {count} pairs x {length} tokens, vocabulary {vocabulary}, "
        f"{dtype}{' autocast' if dtype == 'bf16' else ''}",
        base="torch.nn.Transformer",
        unit="target tokens",
        sizes={**shape, "pairs": count, "tokens": length, "vocabulary": vocabulary},
    )
    device = setting.device
    source = torch.randint(1, vocabulary, (count, length), device=device)
    target = torch.randint(1, vocabulary, (count, length + 1), device=device)
    real = torch.randint(2 * length // 3, length + 1, (count, 1), device=device)
    padding = torch.arange(length, device=device) >= real  # [B, L]: up to a third is padding

    def peer(make: Callable[..., nn.Module]) -> Callable[[], Run]:
        def build() -> Run:
            model = make(vocabulary, length, **shape)
            return step(setting, model, (source, padding, target[:, :-1]), target[:, 1:], dtype)

        return build

    def ours(*, padded: bool) -> Callable[[], Run]:
        def build() -> Run:
            config = TransformerConfig(**shape, dropout=0.0)
            model = EncoderDecoder.build(
                config,
                source_vocabulary=vocabulary,
                target_vocabulary=vocabulary,
                tie="none",
                max_length=length,
            )
            inputs = (source, padding if padded else None, target[:, :-1])
            return step(setting, model, inputs, target[:, 1:], dtype)

        return build

    def torch_nn(padded: bool) -> Callable[..., nn.Module]:
        return lambda *sizes, **named: peers_torch.TorchSeq2Seq(*sizes, **named, padded=padded)

    def x(padded: bool) -> Callable[..., nn.Module]:
        return lambda *sizes, **named: peers_xt.XSeq2Seq(*sizes, **named, padded=padded)

    def hf(kind: str, padded: bool) -> Callable[..., nn.Module]:
        return lambda *sizes, **named: peers_hf.HFSeq2Seq(kind, *sizes, **named, padded=padded)

    no_x, no_hf = missing("x_transformers"), missing("transformers")
    cases = [
        Case(f"{name}{', padding masked' if padded else ''}", build, count * length, dtype, unable)
        for padded in (False, True)
        for name, build, unable in (
            ("torch.nn.Transformer", peer(torch_nn(padded)), None),
            ("x-transformers", peer(x(padded)), no_x),
            ("Marian (Hugging Face)", peer(hf("marian", padded)), no_hf),
            ("T5 (Hugging Face)", peer(hf("t5", padded)), no_hf),
            ("Triptych", ours(padded=padded), None),
        )
    ]
    return setting.measure(table, cases, tables_left)
