"""Hugging Face transformers: GPT-2, Marian and T5 with random weights; nothing is downloaded."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

PAD, END, START = 0, 1, 2


def quiet() -> Any:
    """The library, without its progress bars and warnings; it never asks the network here."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


class GPT2(nn.Module):
    """GPT2LMHeadModel on SDPA, without dropout, else as it comes: its GELU is an approximation by
    tanh that the library writes out in several operations."""

    def __init__(
        self, vocabulary: int, length: int, *, d_model: int, n_layers: int, n_heads: int
    ) -> None:
        super().__init__()
        library = quiet()
        config = library.GPT2Config(
            vocab_size=vocabulary,
            n_positions=length,
            n_embd=d_model,
            n_layer=n_layers,
            n_head=n_heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=None,
            pad_token_id=0,
            tie_word_embeddings=False,
            attn_implementation="sdpa",
        )
        self.model = library.GPT2LMHeadModel(config)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, L] -> logits [B, L, V]."""
        return self.model(input_ids=tokens, use_cache=False).logits

    @torch.inference_mode()
    def generate(self, batch: int, length: int) -> Tensor:
        """Greedy tokens after one start token, with its cache: [B, length]."""
        start = torch.zeros(batch, 1, dtype=torch.int64, device=self.model.device)
        found = self.model.generate(
            start,
            attention_mask=torch.ones_like(start),
            max_new_tokens=length,
            min_new_tokens=length,
            do_sample=False,
        )
        return found[:, 1:]


class HFSeq2Seq(nn.Module):
    """MarianMTModel or T5ForConditionalGeneration under the sizes of the others."""

    def __init__(
        self,
        kind: str,
        vocabulary: int,
        length: int,
        *,
        d_model: int,
        n_layers: int,
        n_heads: int,
        d_ff: int,
        padded: bool,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        self.padded = padded
        library = quiet()
        ids = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": START}
        if kind == "marian":
            config = library.MarianConfig(
                vocab_size=vocabulary,
                d_model=d_model,
                encoder_layers=n_layers,
                decoder_layers=n_layers,
                encoder_attention_heads=n_heads,
                decoder_attention_heads=n_heads,
                encoder_ffn_dim=d_ff,
                decoder_ffn_dim=d_ff,
                activation_function=activation,
                dropout=0.0,
                attention_dropout=0.0,
                max_position_embeddings=length,
                forced_eos_token_id=None,
                attn_implementation="sdpa",
                **ids,
            )
            self.model = library.MarianMTModel(config)
        else:
            config = library.T5Config(
                vocab_size=vocabulary,
                d_model=d_model,
                d_kv=d_model // n_heads,
                d_ff=d_ff,
                num_layers=n_layers,
                num_heads=n_heads,
                feed_forward_proj=activation,
                dropout_rate=0.0,
                **ids,
            )
            self.model = library.T5ForConditionalGeneration(config)

    def forward(self, source: Tensor, padding: Tensor, target: Tensor) -> Tensor:
        """source and target [B, L], padding [B, L] True on padding -> logits [B, L, V]."""
        seen = (~padding).long() if self.padded else None
        return self.model(
            input_ids=source, attention_mask=seen, decoder_input_ids=target, use_cache=False
        ).logits

    @torch.inference_mode()
    def generate(self, source: Tensor, padding: Tensor, lengths: Tensor, beam: int) -> Tensor:
        """Outputs of exactly these lengths (their end included): source [B, S] -> [B, 1 + T]."""
        library = quiet()
        longest = int(lengths.max())
        return self.model.generate(
            input_ids=source,
            attention_mask=(~padding).long(),
            max_new_tokens=longest,
            num_beams=beam,
            do_sample=False,
            early_stopping=beam > 1,
            logits_processor=library.LogitsProcessorList([EndAt(lengths.repeat_interleave(beam))]),
        )


class EndAt:
    """A processor of logits that lets a row end at its length and nowhere before."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths

    def __call__(self, tokens: Tensor, scores: Tensor) -> Tensor:
        ends = tokens.shape[1] >= self.lengths  # [N]: this step makes the token of that number
        # One column is written: far below or far above what any logit is.
        scores[:, END] = torch.where(ends, 1e4, -1e4)
        return scores
