"""The published shapes have the published sizes, rates and scales."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from triptych.config.schema import parse_settings, parser_for
from triptych.core.layers import GELU, LayerNorm, ReLU
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.config import Config, ModelConfig
from triptych.training.engine.optim import Adam

CONFIGS = {
    path.name: path
    for path in (Path(__file__).resolve().parents[3] / "configs").rglob("translation/*.yaml")
}


def on_meta(config: ModelConfig, vocabulary: int) -> EncoderDecoder:
    with torch.device("meta"):
        return config.build(vocabulary, vocabulary)


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def read_config(name: str, *overrides: str) -> Config:
    from triptych.config.schema import build

    parser = parser_for(Config, prog="test", description="test")
    parser.add_argument("--trainer", type=dict)
    values, locate = parse_settings(parser, ["--config", str(CONFIGS[name]), *overrides])
    return build(Config, values, locate=locate)


def test_the_base_model_has_the_published_63_1_million_parameters() -> None:
    assert parameters(on_meta(read_config("transformer-base.yaml").model, 37_000)) == 63_082_496


def test_the_big_model_has_the_size_of_its_matrices() -> None:
    d, ff, vocabulary = 1024, 4096, 37_000
    attention, feed_forward, norm = 4 * (d * d + d), 2 * d * ff + ff + d, 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    expected = vocabulary * d + 6 * (encoder + decoder)
    assert parameters(on_meta(read_config("transformer-big.yaml").model, vocabulary)) == expected
    # Table 3 says 213 million for a vocabulary that it does not state for this row.
    assert expected == pytest.approx(213e6, rel=0.02)


def test_one_matrix_serves_source_target_and_output_times_the_root_of_d() -> None:
    model = ModelConfig(
        TransformerConfig(
            n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(8), norm_position="post"
        )
    ).build(50, 50)
    table = model.target_embedding.table.weight
    assert model.source_embedding.table.weight is table
    ids = torch.tensor([[7]])
    entered = model.source_embedding(ids, torch.arange(1))  # [1, 1, D]
    torch.testing.assert_close(entered[0, 0], table[7] * 4.0)
    # The output is not scaled: logits are plain products with the same vectors.
    table.data.mul_(0).add_(1.0)
    source, start = torch.tensor([[5, 2]]), torch.tensor([[1]])
    hidden: list[torch.Tensor] = []
    model.decoder.register_forward_hook(lambda module, inputs, output: hidden.append(output))
    model.eval()
    logits = model(source, None, start)
    torch.testing.assert_close(logits[0, 0, 3], hidden[0][0, 0].sum())


def test_the_published_models_are_post_norm_with_relu_and_their_dropout() -> None:
    for size, dropout in (("base", 0.1), ("big", 0.3)):
        config = read_config(f"transformer-{size}.yaml").model
        sizes = config.transformer
        assert (sizes.norm, sizes.norm_position) == (LayerNorm(), "post")
        assert config.share_embeddings == "all"
        assert isinstance(sizes.feed_forward, ReLU)
        assert sizes.dropout == dropout
        model = on_meta(config, 300)
        assert isinstance(model.encoder.final_norm, torch.nn.Identity)
        assert model.dropout.p == dropout
        whole = read_config(f"transformer-{size}.yaml")
        assert whole.data.vocabulary_size == 37_000
        assert whole.optim.optimizer == Adam(betas=(0.9, 0.98), epsilon=1e-9)


def test_fewer_embeddings_may_be_shared() -> None:
    sizes = TransformerConfig(n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(8))
    sizes_by_share = {
        share: parameters(ModelConfig(sizes, share_embeddings=share).build(50, 50))
        for share in ("all", "target", "none")
    }
    assert sizes_by_share["target"] - sizes_by_share["all"] == 50 * 16
    assert sizes_by_share["none"] - sizes_by_share["target"] == 50 * 16


def test_the_decoder_may_have_its_own_depth() -> None:
    model = ModelConfig(
        TransformerConfig(n_layers=3, d_model=16, n_heads=2, feed_forward=GELU(8)),
        n_decoder_layers=1,
    ).build(9, 9)
    assert (len(model.encoder.blocks), len(model.decoder.blocks)) == (3, 1)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_shipped_config_builds(name: str) -> None:
    config = read_config(name)
    on_meta(config.model, config.data.vocabulary_size)
