"""Triptych's models and its peers, of the same shape, without dropout and with random weights."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.full import Full
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.layers import GELU
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.positions import Learned, NoPositions, raster
from triptych.core.transformer import TransformerConfig

PAD, END, START = 0, 1, 2


@dataclass(frozen=True)
class Shape:
    """Sizes that all competitors share."""

    vocabulary: int = 512
    length: int = 512
    d_model: int = 512
    n_layers: int = 6
    n_heads: int = 8

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    def __str__(self) -> str:
        return f"d {self.d_model}, {self.n_layers} layers"


def config(shape: Shape, attention: AttentionConfig) -> TransformerConfig:
    return TransformerConfig(
        n_layers=shape.n_layers,
        d_model=shape.d_model,
        n_heads=shape.n_heads,
        dropout=0.0,
        feed_forward=GELU(4 * shape.d_model),
        positions=NoPositions() if isinstance(attention, Relative) else Learned(),
        attention=attention,
    )


def decoder_only(shape: Shape, attention: AttentionConfig | None = None) -> DecoderOnly:
    """Triptych's decoder-only model over token sequences."""
    stack, width = config(shape, attention or Full()), shape.d_model
    return DecoderOnly(
        TokenEmbedding(shape.vocabulary, width),
        stack.positions.build(width, raster((shape.length,))),
        stack.decoder((shape.length,)),
        CategoricalHead(width, shape.vocabulary),
        d_model=width,
    )


def encoder_decoder(shape: Shape) -> EncoderDecoder:
    """Triptych's encoder-decoder model with one shared vocabulary."""
    types = {"source_vocabulary": shape.vocabulary, "target_vocabulary": shape.vocabulary}
    return EncoderDecoder(config(shape, Full()), **types)


def split_heads(qkv: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """[B, L, 3 D] -> 3 x [B, H, L, E]."""
    batch, length, _ = qkv.shape
    q, k, v = qkv.view(batch, length, 3, n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v


class SDPABlock(nn.Module):
    """Pre-norm block: one projection for q, k and v, causal SDPA, GELU feed-forward."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.fc1, self.fc2 = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = split_heads(self.qkv(self.norm1(x)), self.n_heads)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def rest(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    def step(self, x: Tensor, t: int, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = split_heads(self.qkv(self.norm1(x)), self.n_heads)  # 3 x [B, H, 1, E]
        keys[:, :, t : t + 1], values[:, :, t : t + 1] = k, v
        keys, values = keys[:, :, : t + 1], values[:, :, : t + 1]  # [B, H, t + 1, E]
        return self.rest(x, F.scaled_dot_product_attention(q, keys, values))


class SDPADecoder(nn.Module):
    """Hand-written decoder on SDPA, with a preallocated cache for generation."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.d_model)
        self.positions = nn.Embedding(shape.length, shape.d_model)
        self.stack = nn.Sequential(
            *(SDPABlock(shape.d_model, shape.n_heads) for _ in range(shape.n_layers))
        )
        self.norm = nn.LayerNorm(shape.d_model)
        self.logits = nn.Linear(shape.d_model, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, L] -> logits [B, L, V]."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]  # [B, L, D]
        return self.logits(self.norm(self.stack(x)))

    @torch.inference_mode()
    def generate(self, batch: int, length: int) -> Tensor:
        """Greedy tokens after one start token: [B, length]."""
        size = (2, batch, self.shape.n_heads, length, self.shape.d_head)
        caches = [self.tokens.weight.new_zeros(size) for _ in self.stack]
        token = torch.zeros(batch, dtype=torch.int64, device=self.tokens.weight.device)
        found = []
        for t in range(length):
            x = (self.tokens(token) + self.positions.weight[t]).unsqueeze(1)  # [B, 1, D]
            for block, (keys, values) in zip(self.stack, caches, strict=True):
                x = block.step(x, t, keys, values)
            token = self.logits(self.norm(x[:, -1])).argmax(-1)  # [B]
            found.append(token)
        return torch.stack(found, dim=1)


def x_decoder(shape: Shape) -> nn.Module:
    """x-transformers with its flash attention: tokens [B, L] -> logits [B, L, V]."""
    from x_transformers import Decoder, TransformerWrapper

    heads = {"heads": shape.n_heads, "attn_dim_head": shape.d_head, "attn_flash": True}
    stack = Decoder(dim=shape.d_model, depth=shape.n_layers, verbose=False, **heads)
    sizes = {"num_tokens": shape.vocabulary, "max_seq_len": shape.length}
    return TransformerWrapper(attn_layers=stack, **sizes)


def hugging_face() -> Any:
    """The library transformers, silent and offline."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


class GPT2(nn.Module):
    """Hugging Face GPT2LMHeadModel on SDPA."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        library = hugging_face()
        names = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
        sizes = dict(zip(names, astuple(shape), strict=True))
        dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        ids = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
        config = library.GPT2Config(
            **sizes, **dropouts, **ids, tie_word_embeddings=False, attn_implementation="sdpa"
        )
        self.model = library.GPT2LMHeadModel(config)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits

    @torch.inference_mode()
    def generate(self, batch: int, length: int) -> Tensor:
        """Greedy tokens after one start token, with its cache: [B, length]."""
        start = torch.zeros(batch, 1, dtype=torch.int64, device=self.model.device)
        number = {"max_new_tokens": length, "min_new_tokens": length}
        mask = torch.ones_like(start)
        return self.model.generate(start, attention_mask=mask, do_sample=False, **number)[:, 1:]


class Marian(nn.Module):
    """Hugging Face MarianMTModel on SDPA."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.transformers = hugging_face()
        sizes = {"layers": shape.n_layers, "attention_heads": shape.n_heads}
        sizes["ffn_dim"] = 4 * shape.d_model
        sides = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}
        config = self.transformers.MarianConfig(
            vocab_size=shape.vocabulary,
            d_model=shape.d_model,
            max_position_embeddings=512,
            activation_function="gelu",
            **dict.fromkeys(("dropout", "attention_dropout"), 0.0),
            **{"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": START},
            forced_eos_token_id=None,
            attn_implementation="sdpa",
            **sides,
        )
        self.model = self.transformers.MarianMTModel(config)

    @torch.inference_mode()
    def generate(self, source: Tensor, padding: Tensor, lengths: Tensor, beam: int) -> Tensor:
        """Outputs of these lengths, their end included: source [B, S] -> [B, 1 + T]."""
        limits = lengths.repeat_interleave(beam)  # [N]

        def end_at_limit(tokens: Tensor, scores: Tensor) -> Tensor:
            scores[:, END] = torch.where(tokens.shape[1] >= limits, 1e4, -1e4)
            return scores

        return self.model.generate(
            input_ids=source,
            attention_mask=(~padding).long(),
            max_new_tokens=int(lengths.max()),
            num_beams=beam,
            do_sample=False,
            early_stopping=beam > 1,
            logits_processor=self.transformers.LogitsProcessorList([end_at_limit]),
        )
