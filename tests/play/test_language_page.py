"""What the page of a model of text shows."""

from __future__ import annotations

import pytest
import torch
from tiny_models import LINES, language_model, randomised

from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.language.config import Config, DataConfig
from triptych.domains.language.inference import LanguageModel
from triptych.domains.language.model import SPECIALS, ModelConfig, Task, Vocabulary
from triptych.domains.language.sources import TabSeparated, TextFiles
from triptych.domains.language.tasks.labelled import (
    Classification,
    Entailment,
    LabelledTask,
    MultipleChoice,
)
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.errors import UserError
from triptych.text.word_piece import WordPiece

page = pytest.importorskip(
    "triptych.tools.play.language", reason="gradio is not installed (extra play)"
)


def model_of(task: Task, *labels: str) -> LanguageModel:
    torch.manual_seed(0)
    sizes = TransformerConfig(n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(16))
    source = TabSeparated() if isinstance(task, LabelledTask) else TextFiles()
    config = Config(data=DataConfig(source, max_length=24), model=ModelConfig(sizes), task=task)
    vocabulary = Vocabulary(WordPiece().build(LINES, 60, SPECIALS), labels)
    return LanguageModel.of_run(config, randomised(config.build_model(vocabulary)), vocabulary)


def next_token() -> LanguageModel:
    model = language_model().model
    assert isinstance(model, LanguageModel)
    return model


def test_continuations_are_those_of_the_seed() -> None:
    model = next_token()
    assert page.action(model) == page.CONTINUE
    rows = page.write(model, " a man \n", 12, 5, 0.8, 3)
    expected = model.sample(3, prompt="a man", length=12, seed=5, temperature=0.8)
    assert rows == [[str(number), text] for number, text in enumerate(expected, start=1)]
    assert len(set(expected)) > 1
    assert page.write(model, "", 12, 5, 0.8, 1)[0][1]


def test_masks_are_filled() -> None:
    model = model_of(MaskedTokens())
    assert page.action(model) == page.FILL
    (row,) = page.write(model, "a [MASK] plays", None, 0, 1.0, 1)
    assert row[1].startswith("a ")
    assert row[1].endswith(" plays")
    assert "MASK" not in row[1]


def test_each_label_has_its_probability_the_most_probable_first() -> None:
    model = model_of(Classification(), "x", "y", "z")
    assert page.action(model) == page.LABEL
    rows = page.label(model, "the man runs\n")
    best, probability = model.classify(["the man runs"])[0]
    assert rows[0] == [best, f"{probability:.4f}"]
    assert {row[0] for row in rows} == {"x", "y", "z"}
    assert float(rows[0][1]) > float(rows[2][1])
    assert sum(float(row[1]) for row in rows) == pytest.approx(1, abs=1e-3)


def test_lines_are_the_texts_of_an_example() -> None:
    model = model_of(Entailment(), "no", "yes")
    rows = page.label(model, "a dog\n\n two dogs ")
    assert rows[0][0] == model.classify(["a dog\ttwo dogs"])[0][0]
    with pytest.raises(UserError, match="example 1 has 1 texts; Entailment reads two"):
        page.label(model, "a dog")


def test_a_choice_has_at_most_as_many_candidates_as_in_training() -> None:
    model = model_of(MultipleChoice(), "1", "2", "3")
    assert [row[0] for row in page.label(model, "a man\nruns\nplays")] in (["1", "2"], ["2", "1"])
    with pytest.raises(UserError, match="line 1 has 4 candidates; expected at most 3"):
        model.classify(["a man\truns\tplays\truns\ta dog"])


def test_a_prompt_that_leaves_no_room_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="shorter than length"):
        page.write(next_token(), "a man " * 20, 12, 0, 1.0, 1)


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_text_is_refused_where_the_model_reads_one(text: str) -> None:
    with pytest.raises(UserError, match="no text yet"):
        page.write(model_of(MaskedTokens()), text, 12, 0, 1.0, 1)
    with pytest.raises(UserError, match="no text yet"):
        page.label(model_of(Classification(), "x", "y"), text)
