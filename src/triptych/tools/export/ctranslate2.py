"""Format `ctranslate2`: a translator for CTranslate2, a runtime in C++.

The weights go into `ctranslate2.specs.TransformerSpec`. Its layers are the same functions as ours:
pre-norm or post-norm, LayerNorm or RMSNorm, ReLU, GELU or SwiGLU, rotary positions that rotate
neighbouring features. Added position encodings are stored as a table.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.layers import GELU, FeedForward, LayerNorm, ReLU, RMSNorm, SwiGLU
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.positions import Learned, NoPositions, Rotary, Sinusoidal
from triptych.core.transformer import Block, Stack, TransformerConfig
from triptych.errors import UserError
from triptych.pretrained import EXPORTED
from triptych.text.tokenizer import TextFormat
from triptych.tools.export.original import Original, Written, usage
from triptych.tools.export.parts import check_parts, embedding_weight, position_table
from triptych.tools.export.tokenizer import tokenizer_files

NAME = "CTranslate2"
MAX_POSITIONS = 1024
"""Positions of the table of encodings; CTranslate2 refuses longer sentences."""
TOLERANCE = 1e-3
"""Largest difference of a log p from ours, in nats, with which an export is written."""
CHECKED, CHECKED_LENGTH = 20, 30
"""Random sentences whose log p are compared, and their length in tokens."""


def write(original: Original, folder: Path) -> Written:
    """Write model.bin, config.json, the vocabulary and the tokenizer.

    Raises UserError for a model that CTranslate2 cannot represent.
    """
    model = original.model.full_model
    if not isinstance(model, EncoderDecoder):
        raise UserError(
            f"{NAME} can represent a translation model with an encoder and a decoder, and this is "
            f"{type(model).__name__} of the domain {original.domain}; expected another --format"
        )
    files, text = tokenizer_files(original.model), original.model.text_format()
    assert text is not None, "a translator reads text"
    spec = specification(model, text, original.model.settings.model.transformer)
    spec.register_source_vocabulary(text.names())
    spec.register_target_vocabulary(text.names(target=True))
    settings = original.model.settings
    about = ("source_languages", "target_language", "summaries")  # for `triptych serve`
    spec.config.add_attribute(EXPORTED, {name: getattr(settings, name) for name in about})
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    difference = largest_difference(model, text, folder)
    if not difference <= TOLERANCE:
        raise RuntimeError(f"CTranslate2 gives other probabilities: {difference:.2g} nats")
    target = "source"
    if text.target is not None:
        target = 'Tokenizer.from_file("FOLDER/target_tokenizer.json")'
    size = (folder / "model.bin").stat().st_size / 1e6
    return Written(
        weights=f"{size:.1f} MB in float32",
        use=usage("ctranslate2", target=target),
        checks=[
            f"Largest difference of a token's log p between CTranslate2 {version('ctranslate2')} "
            f"and Triptych: {difference:.2g} nats, over {CHECKED} random pairs of up to "
            f"{CHECKED_LENGTH} tokens, float32 on a CPU."
        ],
    )


def specification(model: EncoderDecoder, text: TextFormat, config: TransformerConfig) -> Any:
    """Return the `TransformerSpec` with the weights of a model.

    Raises UserError for a part that CTranslate2 cannot represent.
    """
    from ctranslate2 import specs

    check_parts(
        config,
        NAME,
        norm=(LayerNorm, RMSNorm),
        feed_forward=(ReLU, GELU, SwiGLU),
        positions=(Sinusoidal, Learned, Rotary, NoPositions),
    )
    activations = {ReLU: "RELU", GELU: "GELU", SwiGLU: "SWISH"}
    rotary = {}
    if isinstance(config.positions, Rotary):
        rotary = {"rotary_dim": 0, "rotary_base": config.positions.base}
    settings = {
        "num_heads": config.n_heads,
        "pre_norm": config.norm_position == "pre",
        "activation": getattr(specs.Activation, activations[type(config.feed_forward)]),
        "ffn_glu": isinstance(config.feed_forward, SwiGLU),
        "rms_norm": isinstance(config.norm, RMSNorm),
        **rotary,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(model.encoder.n_layers, **settings),
        specs.TransformerDecoderSpec(model.decoder.n_layers, **settings),
    )
    length = MAX_POSITIONS
    if isinstance(config.positions, Learned):
        length = len(embedding_weight(model.positions))
    for part, stack, embedding in (
        (spec.encoder, model.encoder, model.source_embedding),
        (spec.decoder, model.decoder, model.target_embedding),
    ):
        table = part.embeddings[0] if isinstance(part.embeddings, list) else part.embeddings
        table.weight = embedding_weight(embedding)
        part.scale_embeddings = True  # by sqrt(D)
        if not rotary:
            part.position_encodings.encodings = position_table(model.positions, length)
        _set_stack(part, stack)
    head: Any = model.head
    spec.decoder.projection.weight = head.logits.weight.detach()
    spec.config.layer_norm_epsilon = config.norm.epsilon
    spec.config.bos_token, spec.config.eos_token = text.specials[1:]
    spec.config.decoder_start_token = text.specials[text.START]
    spec.config.add_source_eos = True
    return spec


def _set_stack(spec: Any, stack: Stack) -> None:
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _set_block(layer, block)
    if not isinstance(stack.final_norm, nn.Identity):
        _set_norm(spec.layer_norm, stack.final_norm)


def _set_block(spec: Any, block: Block) -> None:
    attention, feed_forward = block.attention, block.feed_forward
    assert isinstance(attention, MultiHeadAttention)
    assert isinstance(feed_forward, FeedForward)
    _set_norm(spec.self_attention.layer_norm, block.attention_residual.norm)
    _set_linear(spec.self_attention.linear, [attention.qkv_proj, attention.out_proj])
    cross = block.cross
    if isinstance(cross, CrossAttention):
        _set_norm(spec.attention.layer_norm, block.cross_residual.norm)
        _set_linear(spec.attention.linear, [cross.q_proj, cross.kv_proj, cross.out_proj])
    _set_norm(spec.ffn.layer_norm, block.feed_forward_residual.norm)
    if feed_forward.gate is None:
        _set_linear([spec.ffn.linear_0], [feed_forward.fc1])
    else:  # the library applies the activation to its first matrix
        inner = [spec.ffn.linear_0, spec.ffn.linear_0_noact]
        _set_linear(inner, [feed_forward.gate, feed_forward.fc1])
    _set_linear([spec.ffn.linear_1], [feed_forward.fc2])


def _set_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = norm.weight.detach()  # type: ignore[operator]
    if isinstance(norm, nn.LayerNorm):
        spec.beta = norm.bias.detach()


def _set_linear(specs: list[Any], layers: list[nn.Linear]) -> None:
    for spec, layer in zip(specs, layers, strict=True):
        spec.weight = layer.weight.detach()
        if layer.bias is not None:
            spec.bias = layer.bias.detach()


def largest_difference(model: EncoderDecoder, text: TextFormat, folder: Path) -> float:
    """Return the largest difference of a token's log p, in nats, on random pairs of sentences."""
    from ctranslate2 import Translator

    generator = torch.Generator().manual_seed(0)
    translator = Translator(str(folder), compute_type="float32", intra_threads=1)
    names = text.names(), text.names(target=True)
    worst = 0.0
    for length in torch.randint(1, CHECKED_LENGTH, (CHECKED,), generator=generator).tolist():
        source, target = (
            torch.randint(len(text.specials), len(side), (length,), generator=generator)
            for side in names
        )
        (scored,) = translator.score_batch(
            [[names[0][token] for token in source]], [[names[1][token] for token in target]]
        )
        expected = log_probabilities(model, source, target)
        worst = max(worst, float((torch.tensor(scored.log_probs) - expected).abs().max()))
    return worst


def log_probabilities(model: EncoderDecoder, source: Tensor, target: Tensor) -> Tensor:
    """Return the log p of each token of a target [L] and of its end: [L + 1], in nats."""
    end = torch.tensor([TextFormat.END])
    inputs = torch.cat([torch.tensor([TextFormat.START]), target])  # [L + 1]
    with torch.no_grad():
        logits = model(torch.cat([source, end])[None], None, inputs[None])[0]  # [L + 1, V]
    log_p: Tensor = logits.log_softmax(-1).gather(1, torch.cat([target, end])[:, None])[:, 0]
    return log_p
