"""Layout of a translator as Pegasus (pre-norm) or Marian (post-norm) of transformers."""

from __future__ import annotations

from typing import Any

import torch

from triptych.core.layers import GELU, LayerNorm, ReLU
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.positions import Learned, Sinusoidal
from triptych.core.transformer import TransformerConfig
from triptych.errors import UserError
from triptych.text.tokenizer import TextFormat
from triptych.tools.export.hf_layouts import Layout, each, linear
from triptych.tools.export.parts import check_parts, embedding_weight, position_table
from triptych.training.run.model_files import StoredAs

MAX_POSITIONS = 1024
"""Positions of the table of a translator's sinusoids."""
SIDES = ("encoder", "decoder")
FIXED_EPSILON = 1e-5
"""Epsilon of the norms of Pegasus and Marian."""


def translator_layout(
    model: EncoderDecoder, config: TransformerConfig, text: TextFormat, name: str
) -> Layout:
    """Return the layout of a translator. name: of the format.

    Raises UserError for a model that no architecture computes.
    """
    check_architecture(model, config, name)
    pre = config.norm_position == "pre"
    stored = stored_weights(model, pre=pre)
    positions, vocabulary = MAX_POSITIONS, len(embedding_weight(model.source_embedding))
    tables = [f"model.{side}.embed_positions.weight" for side in SIDES]
    if isinstance(config.positions, Learned):
        stored["positions.table.weight"] = StoredAs((tables[0],))
        positions = len(embedding_weight(model.positions))
    encodings = position_table(model.positions, positions)
    ids = {
        "pad_token_id": text.PAD,
        "bos_token_id": text.START,
        "eos_token_id": text.END,
        "decoder_start_token_id": text.START,
        "forced_eos_token_id": None,
    }
    architecture = "PegasusForConditionalGeneration" if pre else "MarianMTModel"
    return Layout(
        architecture,
        config={
            "architectures": [architecture],
            "model_type": "pegasus" if pre else "marian",
            **library_sizes(model, config),
            "vocab_size": vocabulary,
            "decoder_vocab_size": vocabulary,
            "max_position_embeddings": positions,
            "scale_embedding": True,
            "share_encoder_decoder_embeddings": True,
            "tie_word_embeddings": True,
            "is_encoder_decoder": True,
            **ids,
        },
        generation={
            **ids,
            "num_beams": 5,
            "length_penalty": 1.0,
            "max_new_tokens": 256,
            "bad_words_ids": [[token] for token in text.forbidden],
        },
        stored=stored,
        added={**dict.fromkeys(tables, encodings), "final_logits_bias": torch.zeros(1, vocabulary)},
    )


def check_architecture(model: EncoderDecoder, config: TransformerConfig, name: str) -> None:
    """Raise UserError for a model that neither architecture computes. name: of the format."""
    check_parts(
        config,
        name,
        norm=(LayerNorm,),
        feed_forward=(ReLU, GELU),
        positions=(Sinusoidal, Learned),
    )
    table = embedding_weight(model.source_embedding)
    head: Any = model.head
    others = embedding_weight(model.target_embedding), head.logits.weight
    if any(other.data_ptr() != table.data_ptr() for other in others):
        raise UserError(
            f"{name} cannot represent model.share_embeddings other than all; expected "
            "--format safetensors"
        )
    if config.norm.epsilon != FIXED_EPSILON:
        raise UserError(
            f"{name} cannot represent model.transformer.norm.epsilon {config.norm.epsilon}; "
            f"expected {FIXED_EPSILON}, or --format safetensors"
        )


def stored_weights(model: EncoderDecoder, *, pre: bool) -> dict[str, StoredAs]:
    """Return how the weights other than positions are stored. pre: whether the model is pre-norm.

    Only a pre-norm stack has a norm after its last layer.
    """
    stored = {
        key: StoredAs(("model.shared.weight",))
        for key in (
            "source_embedding.table.weight",
            "target_embedding.table.weight",
            "head.logits.weight",
        )
    }
    for side in SIDES:
        for index in range(getattr(model, side).n_layers):
            ours, theirs = f"{side}.blocks.{index}", f"model.{side}.layers.{index}"
            stored |= linear(f"{ours}.attention.qkv_proj", each(f"{theirs}.self_attn", "qkv"))
            stored |= linear(f"{ours}.attention.out_proj", [f"{theirs}.self_attn.out_proj"])
            stored |= linear(f"{ours}.attention_residual.norm", [f"{theirs}.self_attn_layer_norm"])
            if side == "decoder":
                cross = f"{theirs}.encoder_attn"
                stored |= linear(f"{ours}.cross.q_proj", each(cross, "q"))
                stored |= linear(f"{ours}.cross.kv_proj", each(cross, "kv"))
                stored |= linear(f"{ours}.cross.out_proj", [f"{cross}.out_proj"])
                stored |= linear(f"{ours}.cross_residual.norm", [f"{cross}_layer_norm"])
            for layer in ("fc1", "fc2"):
                stored |= linear(f"{ours}.feed_forward.{layer}", [f"{theirs}.{layer}"])
            stored |= linear(f"{ours}.feed_forward_residual.norm", [f"{theirs}.final_layer_norm"])
        if pre:
            stored |= linear(f"{side}.final_norm", [f"model.{side}.layer_norm"])
    return stored


def library_sizes(model: EncoderDecoder, config: TransformerConfig) -> dict[str, Any]:
    """Return sizes, activation and dropout by their names in the library's config.json."""
    sizes: dict[str, Any] = {"d_model": config.d_model}
    for side in SIDES:
        sizes |= {
            f"{side}_layers": getattr(model, side).n_layers,
            f"{side}_attention_heads": config.n_heads,
            f"{side}_ffn_dim": config.feed_forward.d_ff,
        }
    return {
        **sizes,
        "activation_function": type(config.feed_forward).__name__.lower(),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
    }
