"""The state of the keys that inputs of a performance have, by loops, and decoding with it."""

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
from triptych.domains.music.held_notes import HeldNotes
from triptych.domains.music.model import MelodyEncoder, ModelConfig
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import NOTE_OFF, PAST, SHIFT, VELOCITY

D, LENGTH = 16, 40
TRANSFORMER = TransformerConfig(
    2, D, 2, feed_forward=GELU(32), attention=Relative(LENGTH), dropout=0.0, positions=NoPositions()
)
TOKENIZER = EventTokenizer(infilling=True)
SETTINGS = ModelConfig(TRANSFORMER, held_notes=True, tokenizer=TOKENIZER)


@pytest.fixture
def model() -> DecoderOnly:
    torch.manual_seed(0)
    made = with_random_head(SETTINGS.build(length=LENGTH)).double().eval()
    assert isinstance(made.conditioner, HeldNotes)
    torch.nn.init.normal_(made.conditioner.proj.weight, std=0.3)
    return made


@pytest.fixture
def values() -> Tensor:
    """Events of few pitches, so that notes end, are struck again and are held, and of PAST."""
    kinds = [60, 61, 67, NOTE_OFF + 60, NOTE_OFF + 61, NOTE_OFF + 67, SHIFT + 4, SHIFT + 99]
    kinds += [VELOCITY + 3, PAST]
    picked = torch.randint(len(kinds), (4, LENGTH), generator=torch.Generator().manual_seed(3))
    return torch.tensor(kinds)[picked]


def test_a_position_has_the_pitches_that_sound_and_their_ages(
    model: DecoderOnly, values: Tensor
) -> None:
    conditioner = model.conditioner
    kept = conditioner.start(NO_CONDITION, len(values), LENGTH)
    found = conditioner.first_vectors(values[:, :-1], kept)
    assert found is not None
    held = 0
    for row, events in enumerate(values.tolist()):
        onsets: dict[int, float] = {}
        now = 0.0
        for position in range(LENGTH):
            expected = torch.zeros(D, dtype=torch.float64)
            for pitch, onset in onsets.items():
                weight = conditioner.proj.weight  # type: ignore[union-attr]
                age = math.log(1 + (now - onset) / 0.1)
                expected = expected + weight[:, pitch] + age * weight[:, 128 + pitch]
                held += 1
            torch.testing.assert_close(found[row, position], expected)
            event = events[position]
            if event < NOTE_OFF:
                onsets[event] = now
            elif event < SHIFT:
                onsets.pop(event - NOTE_OFF, None)
            elif event < VELOCITY:
                now += (event - SHIFT + 1) / 100
            elif event == PAST:
                onsets.clear()
    assert held > LENGTH


@pytest.mark.parametrize(("n_prefix", "together"), [(0, 1), (7, 1), (7, 3)])
def test_steps_predict_as_one_pass_does(
    model: DecoderOnly, values: Tensor, n_prefix: int, together: int
) -> None:
    """Also where a step reads several values and goes back to overwrite wrong ones."""
    assert_steps_predict(model, values, n_prefix, together, wrong=62)


def test_a_new_model_is_the_one_without(values: Tensor) -> None:
    torch.manual_seed(1)
    plain = with_random_head(ModelConfig(TRANSFORMER, tokenizer=TOKENIZER).build(length=LENGTH))
    assert_begins_as(SETTINGS.build(length=LENGTH), plain, values, ["conditioner.proj.weight"])


@pytest.mark.parametrize(
    "settings",
    [
        ModelConfig(TRANSFORMER, held_notes=True, tokenizer=ChoraleTokenizer()),
        ModelConfig(TRANSFORMER, held_notes=True, tokenizer=TOKENIZER, melody=MelodyEncoder(1)),
    ],
    ids=["chorales", "with a melody"],
)
def test_what_has_no_keys_or_a_melody_is_refused(settings: ModelConfig) -> None:
    with pytest.raises(ValueError, match="held_notes"):
        settings.build(length=64)
