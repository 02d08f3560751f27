"""The two models of the core: decoder-only and encoder-decoder."""

from __future__ import annotations

import pytest
import torch

from triptych.core import generation_order as orders
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import ChannelEmbedding, PixelEmbedding, TokenEmbedding
from triptych.core.feed_forward import GELU
from triptych.core.heads import CategoricalHead, MixtureOfLogisticsHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.positions import AxialEmbedding, SinusoidalEmbedding
from triptych.core.transformer import TransformerConfig

EXACT = {"rtol": 0.0, "atol": 1e-12}
D = 12


def config(attention: object = None) -> TransformerConfig:
    return TransformerConfig(
        n_layers=2,
        d_model=D,
        n_heads=3,
        feed_forward=GELU(16),
        dropout=0.0,
        attention=attention or Full(),
    )


def tokens_model() -> DecoderOnly:
    return DecoderOnly(
        TokenEmbedding(7, D), SinusoidalEmbedding(D), config(Relative(4)).decoder((11,)),
        CategoricalHead(D, 7), d_model=D,
    ).double()  # fmt: skip


def related_notes_model() -> DecoderOnly:
    """Symbols 0 to 4 are pitches, 5 and 6 are not; three voices."""
    attention = PitchTime(max_distance=6, n_voices=3, max_time=2, n_pitches=5)
    return DecoderOnly(
        TokenEmbedding(7, D), SinusoidalEmbedding(D), config(attention).decoder((11,)),
        CategoricalHead(D, 7), d_model=D,
    ).double()  # fmt: skip


def sub_pixel_model() -> DecoderOnly:
    attention, shape = Local2D(2, 2, 1, 1, order="blocks"), (3, 4, 3)
    order = attention.order_of(shape)
    return DecoderOnly(
        ChannelEmbedding(7, order.coordinates[:, 2], D), AxialEmbedding(order, D),
        config(attention).decoder(shape), CategoricalHead(D, 7), d_model=D,
    ).double()  # fmt: skip


def pixel_model() -> DecoderOnly:
    attention, shape = Local2D(2, 2, 1, 1), (3, 4, 1)
    return DecoderOnly(
        PixelEmbedding(7, 3, D), AxialEmbedding(orders.raster(shape), D),
        config(attention).decoder(shape),
        MixtureOfLogisticsHead(D, levels=7, channels=3, components=2), d_model=D,
    ).double()  # fmt: skip


MODELS = {
    "tokens": (tokens_model, (11,)),
    "related notes": (related_notes_model, (11,)),
    "sub-pixels": (sub_pixel_model, (36,)),
    "pixels": (pixel_model, (12, 3)),
}
every_model = pytest.mark.parametrize("kind", MODELS)


@every_model
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("extras", [False, True])
def test_decoding_predicts_what_training_predicts(kind: str, prefix: int, extras: bool) -> None:
    build, shape = MODELS[kind]
    model, values = build(), torch.randint(7, (2, *shape))
    previous = torch.tensor([3, -1]) if extras and shape == (11,) else None
    condition = torch.randn(2, D).double() if extras else None
    expected = model(values, previous, condition)
    state = model.init_cache(2, shape[0])
    parts = [model.prefill(values[:, :prefix], state, previous, condition)]
    for t in range(prefix + 1, shape[0]):
        parts.append(model.step(values[:, t - 1], torch.tensor(t), state, condition))
    torch.testing.assert_close(torch.stack(parts, dim=1), expected[:, prefix:], **EXACT)


@every_model
def test_several_values_at_once_predict_what_training_predicts(kind: str) -> None:
    build, shape = MODELS[kind]
    model, values, condition = build(), torch.randint(7, (2, *shape)), torch.randn(2, D).double()
    expected = model(values, None, condition)
    state = model.init_cache(2, shape[0], ahead=3)
    model.prefill(values[:, :0], state, None, condition)
    for t in (1, 2, 5, 7):  # with steps back
        positions = torch.arange(t, t + 4)
        parameters = model.extend(values[:, t - 1 : t + 3], positions, state, condition)
        torch.testing.assert_close(parameters, expected[:, positions], **EXACT)


@every_model
def test_a_value_moves_only_later_predictions(kind: str) -> None:
    """The shift neither leaks the target nor drops a value: all later positions can see it."""
    build, shape = MODELS[kind]
    model, values = build(), torch.randint(6, (1, *shape))
    before = model(values)
    for t in range(shape[0]):
        other = values.clone()
        other[:, t] = (other[:, t] + 1) % 7
        changed = (model(other) != before).any(-1)[0]
        assert not changed[: t + 1].any()
        if t + 1 < shape[0]:
            assert changed[t + 1], f"the value at {t} is never read"


def test_no_value_before_the_first_is_the_learned_start() -> None:
    model, values = tokens_model(), torch.randint(7, (2, 11))
    none = torch.tensor([-1, -1])
    torch.testing.assert_close(model(values, none), model(values), **EXACT)
    assert not torch.allclose(model(values, torch.tensor([0, 1])), model(values))


@every_model
def test_likelihood_of_a_row_does_not_depend_on_its_batch(kind: str) -> None:
    build, shape = MODELS[kind]
    model, values = build(), torch.randint(7, (3, *shape))
    together = model.nll(values)
    assert together.shape == (3, shape[0])
    for row in range(3):
        torch.testing.assert_close(model.nll(values[row : row + 1])[0], together[row], **EXACT)


def translator(share: str = "all", norm: str = "pre") -> EncoderDecoder:
    sizes = TransformerConfig(
        n_layers=2, d_model=D, n_heads=3, feed_forward=GELU(16), dropout=0.0, norm_position=norm
    )
    return EncoderDecoder.build(
        sizes, source_vocabulary=9, target_vocabulary=9, share_embeddings=share
    ).double()


@pytest.mark.parametrize("share", ["all", "target", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_translator_steps_as_it_trains(share: str, norm: str) -> None:
    model = translator(share, norm)
    source, target = torch.randint(9, (2, 6)), torch.randint(9, (2, 8))
    padding = torch.arange(6).expand(2, -1) >= torch.tensor([6, 4]).unsqueeze(1)
    expected = model(source, padding, target)
    state = model.init_cache(model.encode(source, padding), padding, 8)
    stepped = [model.step(target[:, t], torch.tensor(t), state) for t in range(8)]
    torch.testing.assert_close(torch.stack(stepped, dim=1), expected, **EXACT)


def test_source_padding_changes_nothing() -> None:
    model = translator()
    source, target = torch.randint(9, (1, 5)), torch.randint(9, (1, 4))
    longer = torch.cat([source, torch.full((1, 70), 8)], dim=1)
    padding = torch.arange(75).unsqueeze(0) >= 5
    torch.testing.assert_close(model(longer, padding, target), model(source, None, target), **EXACT)


def test_tied_matrices_are_one_and_their_scale_is_the_published_one() -> None:
    model = translator("all")
    assert model.source_embedding is model.target_embedding
    assert model.output is None
    x = model.target_embedding(torch.tensor([[4]]), torch.tensor([0]))
    torch.testing.assert_close(x[0, 0], model.target_embedding.table.weight[4] * D**0.5, **EXACT)
    with pytest.raises(ValueError, match="one vocabulary"):
        EncoderDecoder.build(
            config(), source_vocabulary=9, target_vocabulary=8, share_embeddings="all"
        )
    with pytest.raises(ValueError, match="share_embeddings is all, target or none, got both"):
        EncoderDecoder.build(
            config(), source_vocabulary=9, target_vocabulary=9, share_embeddings="both"
        )


def test_attention_to_symbols_refuses_whole_pixels() -> None:
    decoder = config(PitchTime()).decoder((12,))
    head = MixtureOfLogisticsHead(D, levels=7, channels=3, components=2)
    with pytest.raises(ValueError, match="one symbol a position"):
        DecoderOnly(PixelEmbedding(7, 3, D), SinusoidalEmbedding(D), decoder, head, d_model=D)
