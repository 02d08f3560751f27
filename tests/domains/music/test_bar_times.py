"""The time in bars that inputs have, by loops over the symbols, and decoding with it."""

from __future__ import annotations

import math

import pytest
import torch
from decoders import assert_begins_as, assert_steps_predict
from random_head import with_random_head
from torch import Tensor

from triptych.core.attention.relative import Relative
from triptych.core.layers import GELU
from triptych.core.models.base import NO_CONDITION
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import NoPositions
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.bar_times import PERIODS, BarTimes
from triptych.domains.music.model import ModelConfig
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.remi import RemiTokenizer

D, LENGTH = 16, 48
TRANSFORMER = TransformerConfig(
    2, D, 2, feed_forward=GELU(32), attention=Relative(LENGTH), dropout=0.0, positions=NoPositions()
)
TOKENIZER = RemiTokenizer(("violin", "cello"), infilling=True)
SETTINGS = ModelConfig(TRANSFORMER, bar_times=True, tokenizer=TOKENIZER)
METERS = {"TimeSig_3/4": 36, "TimeSig_6/8": 36, "TimeSig_5/16": 15}


@pytest.fixture
def model() -> DecoderOnly:
    torch.manual_seed(0)
    made = with_random_head(SETTINGS.build(length=LENGTH)).double().eval()
    assert isinstance(made.conditioner, BarTimes)
    torch.nn.init.normal_(made.conditioner.proj.weight, std=0.3)
    return made


@pytest.fixture
def symbols() -> list[list[str]]:
    """Rows that begin in the middle of a bar, with bars of several lengths, some made anew."""
    names = ["Bar", *METERS, "Position_0", "Position_9", "Position_14", "Pitch_60", "Duration_6"]
    names += ["New", "Past", "Program_cello"]
    picked = torch.randint(len(names), (4, LENGTH), generator=torch.Generator().manual_seed(5))
    return [[names[number] for number in row] for row in picked.tolist()]


@pytest.fixture
def values(symbols: list[list[str]]) -> Tensor:
    return torch.tensor([[TOKENIZER.id_of[symbol] for symbol in row] for row in symbols])


def test_a_position_has_the_time_in_bars(
    model: DecoderOnly, symbols: list[list[str]], values: Tensor
) -> None:
    conditioner = model.conditioner
    kept = conditioner.start(NO_CONDITION, len(values), LENGTH)
    found = conditioner.first_vectors(values[:, :-1], kept)
    assert found is not None
    for row, names in enumerate(symbols):
        bars, length, place = 0, 48, 0
        for position in range(LENGTH):
            time = bars + place / length
            phases = [2 * math.pi * time / period for period in PERIODS]
            waves = [*map(math.sin, phases), *map(math.cos, phases)]
            weight = conditioner.proj.weight  # type: ignore[union-attr]
            expected = weight @ torch.tensor(waves, dtype=weight.dtype)
            torch.testing.assert_close(found[row, position], expected, atol=1e-4, rtol=1e-4)
            name = names[position]
            bars += name == "Bar"
            length = METERS.get(name, length)
            if name in ("Bar", "New"):
                place = 0
            elif name.startswith("Position"):
                place = int(name.removeprefix("Position_"))


@pytest.mark.parametrize(("n_prefix", "together"), [(0, 1), (7, 1), (7, 3)])
def test_steps_predict_as_one_pass_does(
    model: DecoderOnly, values: Tensor, n_prefix: int, together: int
) -> None:
    """Also where a step reads several values and goes back to overwrite wrong ones."""
    wrong = TOKENIZER.id_of["Bar"]
    assert_steps_predict(model, values, n_prefix, together, wrong=wrong)


def test_a_new_model_is_the_one_without(values: Tensor) -> None:
    torch.manual_seed(1)
    plain = with_random_head(ModelConfig(TRANSFORMER, tokenizer=TOKENIZER).build(length=LENGTH))
    assert_begins_as(SETTINGS.build(length=LENGTH), plain, values, ["conditioner.proj.weight"])


def test_music_without_bars_is_refused() -> None:
    settings = ModelConfig(TRANSFORMER, bar_times=True, tokenizer=ChoraleTokenizer())
    with pytest.raises(ValueError, match="bar_times"):
        settings.build(length=64)
