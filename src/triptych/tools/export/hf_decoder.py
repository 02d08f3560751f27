"""Layout of a language model as Llama or GPT-2 of transformers.

Their texts start from a token: [CLS] gets our start vector as its embedding. Its embedding in our
model, which nothing reads, stays in the output matrix.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from triptych.core.layers import GELU, LayerNorm, ReLU, RMSNorm, SwiGLU
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import Learned, Rotary, Sinusoidal
from triptych.core.transformer import TransformerConfig
from triptych.errors import UserError
from triptych.text.tokenizer import TextFormat
from triptych.tools.export.hf_layouts import Layout, each, linear
from triptych.tools.export.parts import check_parts, embedding_weight, position_table
from triptych.training.run.model_files import StoredAs


def decoder_layout(
    model: DecoderOnly, config: TransformerConfig, text: TextFormat, name: str
) -> Layout:
    """Return the layout of a language model. name: of the format.

    Raises UserError for a model that no architecture computes.
    """
    head: Any = model.head
    if head.logits.bias is not None:
        raise UserError(
            f"{name} cannot represent the bias of the output layer; expected a model trained with "
            "--model.output_bias false, or --format safetensors"
        )
    if config.norm_position != "pre":
        raise UserError(
            f"{name} cannot represent model.transformer.norm_position post in a language model; "
            "expected pre, or --format safetensors"
        )
    layout = _llama if isinstance(config.norm, RMSNorm) else _gpt2
    return layout(model, config, text, name)


def _llama(model: DecoderOnly, config: TransformerConfig, text: TextFormat, name: str) -> Layout:
    check_parts(config, name, norm=(RMSNorm,), feed_forward=(SwiGLU,), positions=(Rotary,))
    assert isinstance(config.positions, Rotary)
    table = "model.embed_tokens.weight"
    stored = _ends(table, "lm_head.weight") | linear("decoder.final_norm", ["model.norm"], False)
    for index in range(model.decoder.n_layers):
        ours, theirs = f"decoder.blocks.{index}", f"model.layers.{index}"
        qkv = each(f"{theirs}.self_attn", "qkv")
        stored |= linear(f"{ours}.attention.qkv_proj", qkv, heads=config.n_heads)
        stored |= linear(f"{ours}.attention.out_proj", [f"{theirs}.self_attn.o_proj"])
        for key, layer in {
            "attention_residual.norm": "input_layernorm",
            "feed_forward_residual.norm": "post_attention_layernorm",
            "feed_forward.gate": "mlp.gate_proj",
            "feed_forward.fc1": "mlp.up_proj",
            "feed_forward.fc2": "mlp.down_proj",
        }.items():
            stored |= linear(f"{ours}.{key}", [f"{theirs}.{layer}"], False)
    base = config.positions.base
    return _decoder(
        model,
        "LlamaForCausalLM",
        {
            "model_type": "llama",
            "hidden_size": config.d_model,
            "intermediate_size": config.feed_forward.d_ff,
            "num_hidden_layers": model.decoder.n_layers,
            "num_attention_heads": config.n_heads,
            "num_key_value_heads": config.n_heads,
            "hidden_act": "silu",
            "max_position_embeddings": text.max_length,
            "rms_norm_eps": config.norm.epsilon,
            "rope_theta": base,
            "rope_parameters": {"rope_type": "default", "rope_theta": base},
            "attention_bias": True,
            "mlp_bias": False,
        },
        stored,
        {table: _embeddings(model)},
        text,
    )


def _gpt2(model: DecoderOnly, config: TransformerConfig, text: TextFormat, name: str) -> Layout:
    check_parts(
        config,
        name,
        norm=(LayerNorm,),
        feed_forward=(ReLU, GELU),
        positions=(Learned, Sinusoidal),
    )
    table, positions = "transformer.wte.weight", "transformer.wpe.weight"
    stored = _ends(table, "lm_head.weight") | linear("decoder.final_norm", ["transformer.ln_f"])
    for index in range(model.decoder.n_layers):
        ours, theirs = f"decoder.blocks.{index}", f"transformer.h.{index}"
        for key, layer in {
            "attention_residual.norm": "ln_1",
            "feed_forward_residual.norm": "ln_2",
        }.items():
            stored |= linear(f"{ours}.{key}", [f"{theirs}.{layer}"])
        for key, layer in {
            "attention.qkv_proj": "attn.c_attn",
            "attention.out_proj": "attn.c_proj",
            "feed_forward.fc1": "mlp.c_fc",
            "feed_forward.fc2": "mlp.c_proj",
        }.items():
            stored |= linear(f"{ours}.{key}", [f"{theirs}.{layer}"], transposed=True)
    if isinstance(config.positions, Learned):
        stored["positions.table.weight"] = StoredAs((positions,))
    return _decoder(
        model,
        "GPT2LMHeadModel",
        {
            "model_type": "gpt2",
            "n_embd": config.d_model,
            "n_inner": config.feed_forward.d_ff,
            "n_layer": model.decoder.n_layers,
            "n_head": config.n_heads,
            "n_positions": text.max_length,
            "activation_function": type(config.feed_forward).__name__.lower(),
            "layer_norm_epsilon": config.norm.epsilon,
            "embd_pdrop": config.dropout,
            "resid_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
        },
        stored,
        {table: _embeddings(model), positions: position_table(model.positions, text.max_length)},
        text,
    )


def _decoder(
    model: DecoderOnly,
    architecture: str,
    config: dict[str, Any],
    stored: dict[str, StoredAs],
    added: dict[str, Tensor],
    text: TextFormat,
) -> Layout:
    """Return the layout of a language model with what both architectures share."""
    ids = {"pad_token_id": text.PAD, "bos_token_id": text.START, "eos_token_id": text.END}
    return Layout(
        architecture,
        config={
            "architectures": [architecture],
            "vocab_size": model.head.n_parameters,
            "tie_word_embeddings": False,
            **config,
            **ids,
        },
        generation={
            **ids,
            "do_sample": True,
            "max_length": text.max_length,
            "bad_words_ids": [[token] for token in text.forbidden],
        },
        stored=stored,
        added=added,
    )


def _ends(embeddings: str, output: str) -> dict[str, StoredAs]:
    """Return how the embeddings, the output and the start vector of a decoder are stored."""
    return {
        "embedding.table.weight": StoredAs((output,)),
        "head.logits.weight": StoredAs((output,)),
        "start": StoredAs((embeddings,), row=TextFormat.START),
    }


def _embeddings(model: DecoderOnly) -> Tensor:
    """Return the embeddings as the library adds them to positions: [V, D]."""
    table = embedding_weight(model.embedding)
    scaled = table * math.sqrt(table.shape[1])
    scaled[TextFormat.START] = model.start.detach()
    return scaled
