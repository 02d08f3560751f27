"""A recurrent model as an architecture of translation: settings, training, use, drawings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.config.files import read_settings_file
from triptych.config.schema import from_plain, to_plain
from triptych.core.models.recurrent import RecurrentEncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.config import Config, ModelConfig
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.model import Recurrent
from triptych.errors import UserError

CONFIGS = Path(__file__).parents[3] / "configs" / "translation"
SIZES = TransformerConfig(n_layers=2, d_model=24, n_heads=1, dropout=0.1)


def recurrent(config: Config, **settings: Any) -> Config:
    return replace(config, model=ModelConfig(SIZES, architecture=Recurrent(**settings)))


@pytest.fixture(scope="module")
def translator(tiny_config: Config, teach: Any) -> TranslationModel:
    task = teach(recurrent(tiny_config), 150)
    return TranslationModel.of_run(task.config, task.model, task.tokenizers)


def test_it_translates_a_line_alone_as_in_a_batch(translator: TranslationModel) -> None:
    lines = ["two hundred and thirty-four", "five", "nine hundred and ninety"]
    together = translator.translate(lines)
    assert together == [translator.translate([line])[0] for line in lines]
    assert all(together)


def test_the_attention_of_a_sentence(translator: TranslationModel) -> None:
    found = next(translator.attention(["two hundred and thirty-four"]))
    assert found.encoder is None
    assert (found.layer, len(found.cross), len(found.cross[0])) == (
        1, len(found.target_pieces), len(found.source_pieces)
    )  # fmt: skip
    for row in found.cross:
        assert sum(row) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"transformer": {"n_heads": 2}}, "transformer.n_heads is 2; expected 1"),
        ({"transformer": {"n_heads": 1}, "n_decoder_layers": 2}, "n_decoder_layers is 2"),
        ({"transformer": {"n_heads": 1}, "max_offset": 2}, "max_offset is 2; expected 0"),
    ],
)
def test_settings_that_it_cannot_have(plain: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        from_plain(Config, {"model": {**plain, "architecture": "Recurrent"}})
    assert says in str(caught.value)
    odd = TransformerConfig(d_model=9, n_heads=1)
    with pytest.raises(ValueError, match="even"):
        ModelConfig(odd, architecture=Recurrent(bidirectional=True))


@pytest.mark.parametrize("name", ["numbers-en-de", "multi30k-en-de"])
def test_the_shipped_configs_have_equal_parameters(name: str) -> None:
    counts = []
    for suffix in ("", "-rnn"):
        content = read_settings_file(CONFIGS / f"{name}{suffix}.yaml").content
        config = from_plain(Config, {k: v for k, v in content.items() if k != "trainer"})
        assert from_plain(Config, to_plain(config)) == config
        size = config.data.vocabulary_size
        with torch.device("meta"):
            model = config.model.build(size, size)
        counts.append(sum(p.numel() for p in model.parameters()))
        assert isinstance(model, RecurrentEncoderDecoder) == bool(suffix)
    assert counts[1] == pytest.approx(counts[0], rel=0.02)
