"""What the page of a translation model shows."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image
from tiny_models import translator

import triptych
from triptych.domains.translation.config import Config, DataConfig
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.sources import Corpus, ParallelText
from triptych.errors import UserError

page = pytest.importorskip(
    "triptych.tools.play.translation",
    reason="gradio is not installed (extra play)",
    exc_type=ImportError,
)

SENTENCE = "A man plays the guitar."


@pytest.fixture(scope="module")
def model() -> TranslationModel:
    opened = triptych.load("pretrained:multi30k-en-de", device="cpu")
    assert isinstance(opened, TranslationModel)
    return opened


def test_the_hypotheses_are_those_of_translate(model: TranslationModel) -> None:
    rows, png = page.search(model, f"  {SENTENCE} \n", 3, "1", 0, 0)
    (expected,) = model.translate([SENTENCE], beam=3, n_best=3, scores=True, length_penalty="1")
    for row, one in zip(rows, expected, strict=True):
        assert row[1] == one.text
        assert float(row[2]) == pytest.approx(one.score, abs=1e-3)
        assert float(row[3]) == pytest.approx(one.log_probability, abs=1e-3)
    assert [row[0] for row in rows] == ["1", "2", "3"]
    with Image.open(io.BytesIO(png)) as picture:
        assert min(picture.size) > 200


def test_characters_that_the_model_does_not_know_are_named(model: TranslationModel) -> None:
    with pytest.warns(UserWarning, match="does not know the characters 漢字$"):
        page.search(model, "A 漢字字 dog.", 1, "0", 0, 0)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (ParallelText(source_language="de", target_language="en"), "Ein Mann spielt Gitarre."),
        (ParallelText(source_language="xx", target_language="en"), ""),
        (ParallelText(target_language="en", targets="summaries"), ""),
        (ParallelText(source_language="ko+zh"), "저는 학생입니다."),
    ],
)
def test_the_text_at_first_is_of_the_model_s_language(source: Corpus, text: str) -> None:
    settings = Config(data=DataConfig(source=source))
    assert page.example(TranslationModel.of_run(settings, translator().model.full_model)) == text


def test_layer_and_head_choose_the_drawing(model: TranslationModel) -> None:
    drawings = {
        page.search(model, "A dog.", 1, "0", *chosen)[1] for chosen in ((0, 0), (1, 0), (0, 1))
    }
    assert len(drawings) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text": " \n "}, "no text"),
        ({"text": "漢字" * 100}, "tokens"),
        ({"length_penalty": "long"}, "length_penalty must be"),
    ],
)
def test_other_input_is_refused_in_a_sentence(
    model: TranslationModel, change: dict[str, Any], says: str
) -> None:
    usual = {"text": SENTENCE, "beam": 4, "length_penalty": "1", "layer": 0, "head": 0}
    with pytest.raises(UserError, match=says):
        page.search(model, **(usual | change))
