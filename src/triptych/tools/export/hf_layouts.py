"""Architectures of Hugging Face's transformers that compute the same functions as our models.

| model | architecture |
|---|---|
| language model, pre-norm, RMSNorm, SwiGLU, rotary positions, no output bias | Llama |
| language model, pre-norm, LayerNorm, ReLU or GELU, added positions, no output bias | GPT-2 |

Position encodings are stored as a table. The texts of Llama and GPT-2 start from a token: [CLS]
gets our start vector as its embedding. Its embedding in our model, which nothing reads, stays in
the output matrix.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from triptych.core.layers import GELU, LayerNorm, ReLU, RMSNorm, SwiGLU
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import Learned, Rotary, Sinusoidal
from triptych.core.transformer import TransformerConfig
from triptych.errors import UserError
from triptych.text.tokenizer import TextFormat
from triptych.tools.export.parts import check_parts, embedding_weight, position_table
from triptych.training.run.checkpoint import StoredAs

Table = Mapping[str, Sequence[str]]
"""Layer of a block of ours -> layers of the library that hold its rows in turn."""
LLAMA: Table = {
    "attention_residual.norm": ["input_layernorm"],
    "feed_forward_residual.norm": ["post_attention_layernorm"],
    "feed_forward.gate": ["mlp.gate_proj"],
    "feed_forward.fc1": ["mlp.up_proj"],
    "feed_forward.fc2": ["mlp.down_proj"],
}
"""Layers without a bias."""
GPT2_NORMS: Table = {
    "attention_residual.norm": ["ln_1"],
    "feed_forward_residual.norm": ["ln_2"],
}
GPT2: Table = {
    "attention.qkv_proj": ["attn.c_attn"],
    "attention.out_proj": ["attn.c_proj"],
    "feed_forward.fc1": ["mlp.c_fc"],
    "feed_forward.fc2": ["mlp.c_proj"],
}
"""Layers whose matrices are transposed."""


@dataclass(frozen=True)
class Layout:
    """How an architecture of the library stores a model of ours."""

    architecture: str
    """Class of the library."""
    config: dict[str, Any]
    """Its config.json."""
    generation: dict[str, Any]
    """Its generation_config.json."""
    stored: dict[str, StoredAs]
    """Name in our model -> tensors of the file."""
    added: dict[str, Tensor]
    """Tensors that the library alone needs."""


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
    architecture, table, sizes, stored, added = layout(model, config, text, name)
    start = StoredAs((table,), row=TextFormat.START)
    ends = dict.fromkeys(
        ("embedding.table.weight", "head.logits.weight"), StoredAs(("lm_head.weight",))
    )
    ids = _ids(text)
    return Layout(
        architecture,
        config={
            "architectures": [architecture],
            "vocab_size": model.head.n_parameters,
            "tie_word_embeddings": False,
            **sizes,
            **ids,
        },
        generation={
            **ids,
            "do_sample": True,
            "max_length": text.max_length,
            "bad_words_ids": [[token] for token in text.forbidden],
        },
        stored={**ends, "start": start, **stored},
        added={table: _embeddings(model), **added},
    )


Parts = tuple[str, str, dict[str, Any], dict[str, StoredAs], dict[str, Tensor]]
"""Architecture, its embeddings, sizes in its config.json, stored layers and added tensors."""


def _llama(model: DecoderOnly, config: TransformerConfig, text: TextFormat, name: str) -> Parts:
    check_parts(config, name, norm=(RMSNorm,), feed_forward=(SwiGLU,), positions=(Rotary,))
    assert isinstance(config.positions, Rotary)
    n_layers, base = model.decoder.n_layers, config.positions.base
    ours, theirs = "decoder.blocks", "model.layers"
    qkv = {"attention.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]}
    out = {"attention.out_proj": ["self_attn.o_proj"]}
    stored = (
        layer("decoder.final_norm", ["model.norm"], bias=False)
        | blocks(ours, theirs, n_layers, qkv, heads=config.n_heads)
        | blocks(ours, theirs, n_layers, out)
        | blocks(ours, theirs, n_layers, LLAMA, bias=False)
    )
    sizes = {
        "model_type": "llama",
        "hidden_size": config.d_model,
        "intermediate_size": config.feed_forward.d_ff,
        "num_hidden_layers": n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_heads,
        "hidden_act": "silu",
        "max_position_embeddings": text.max_length,
        "rms_norm_eps": config.norm.epsilon,
        "rope_theta": base,
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        "attention_bias": True,
        "mlp_bias": False,
    }
    return "LlamaForCausalLM", "model.embed_tokens.weight", sizes, stored, {}


def _gpt2(model: DecoderOnly, config: TransformerConfig, text: TextFormat, name: str) -> Parts:
    added = (Learned, Sinusoidal)
    check_parts(config, name, norm=(LayerNorm,), feed_forward=(ReLU, GELU), positions=added)
    n_layers, positions = model.decoder.n_layers, "transformer.wpe.weight"
    ours, theirs = "decoder.blocks", "transformer.h"
    stored = (
        layer("decoder.final_norm", ["transformer.ln_f"])
        | blocks(ours, theirs, n_layers, GPT2_NORMS)
        | blocks(ours, theirs, n_layers, GPT2, transposed=True)
    )
    if isinstance(config.positions, Learned):
        stored["positions.table.weight"] = StoredAs((positions,))
    sizes = {
        "model_type": "gpt2",
        "n_embd": config.d_model,
        "n_inner": config.feed_forward.d_ff,
        "n_layer": n_layers,
        "n_head": config.n_heads,
        "n_positions": text.max_length,
        "activation_function": type(config.feed_forward).__name__.lower(),
        "layer_norm_epsilon": config.norm.epsilon,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }
    encodings = {positions: position_table(model.positions, text.max_length)}
    return "GPT2LMHeadModel", "transformer.wte.weight", sizes, stored, encodings


def _embeddings(model: DecoderOnly) -> Tensor:
    """Return the embeddings as the library adds them to positions: [V, D]."""
    table = embedding_weight(model.embedding)
    scaled = table * math.sqrt(table.shape[1])
    scaled[TextFormat.START] = model.start.detach()
    return scaled


def _ids(text: TextFormat) -> dict[str, int | None]:
    return {"pad_token_id": text.PAD, "bos_token_id": text.START, "eos_token_id": text.END}


def blocks(ours: str, theirs: str, n_layers: int, table: Table, **how: Any) -> dict[str, StoredAs]:
    """Return how the layers of all blocks of a stack are stored; how: as in `layer`."""
    stored: dict[str, StoredAs] = {}
    for index in range(n_layers):
        for key, names in table.items():
            held_by = [f"{theirs}.{index}.{name}" for name in names]
            stored |= layer(f"{ours}.{index}.{key}", held_by, **how)
    return stored


def layer(
    ours: str,
    theirs: Sequence[str],
    *,
    bias: bool = True,
    transposed: bool = False,
    heads: int | None = None,
) -> dict[str, StoredAs]:
    """Return how the weight and the bias, a vector, of a linear map or norm are stored."""
    return {
        f"{ours}.{name}": StoredAs(
            tuple(f"{part}.{name}" for part in theirs), transposed and name == "weight", heads
        )
        for name in ("weight", "bias")[: 1 + bias]
    }
