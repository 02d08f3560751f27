"""A trained model of text in use: labels of lines, sampled texts, and the files they come into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.domains.language.domain import LABELS, LanguageSampleOptions
from triptych.domains.language.inference import LanguageModel
from triptych.domains.language.model import CLS, SEP, LanguageSettings, ModelConfig, Vocabulary
from triptych.domains.language.sources import Labelled
from triptych.domains.language.tasks.labelled import Classification
from triptych.domains.language.tasks.next_token import NextToken
from triptych.errors import UserError
from triptych.files.results import OutputFolder

LINES = ["The dog sees a cat.", "One fish hears my horse."]


def trained(task: Any, vocabulary: Vocabulary, config: ModelConfig, *labels: str) -> LanguageModel:
    words = Vocabulary(vocabulary.tokenizer, labels)
    model = task.build_model(config, words, 32).eval()
    return LanguageModel(LanguageSettings(config, task, 32), model, words)


def written(model: LanguageModel, folder: Path, **options: Any) -> dict[str, str]:
    """The files of `triptych sample language` by name."""
    made = LanguageSampleOptions(checkpoint="model.ckpt", out=str(folder), **options)
    out = OutputFolder(str(folder), overwrite=False)
    model.write_samples(made, out)
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert files.keys() == set(made.output_names())
    return files


@torch.no_grad()
def test_lines_get_their_most_probable_label(
    tmp_path: Path, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    model = trained(Classification(base="encoder"), vocabulary, model_config, "a", "b", "c")
    torch.nn.init.normal_(model.model.task_head.linear.weight)
    assert model.probabilities([]) == []
    rows = model.probabilities([Labelled((line,)) for line in LINES])
    expected = []
    for line, row in zip(LINES, rows, strict=True):
        tokens = torch.tensor([[CLS, *vocabulary.tokenizer.encode(line), SEP]])
        rows = tokens[None], torch.zeros_like(tokens)[None], tokens[None] < 0
        vector = model.model.vectors(*rows)[0]
        shares = model.model.task_head(vector).softmax(-1)[0]
        assert list(row.values()) == pytest.approx(shares.tolist(), abs=1e-6)
        expected.append(("abc"[int(shares.argmax())], pytest.approx(float(shares.max()))))
    assert model.classify(LINES) == expected
    (tmp_path / "lines.txt").write_text("\n".join(LINES), encoding="utf-8")
    files = written(model, tmp_path / "out", lines=str(tmp_path / "lines.txt"))
    assert [line.split("\t")[0] for line in files[LABELS].splitlines()] == [x for x, _ in expected]
    with pytest.raises(UserError, match="expected --lines"):
        written(model, tmp_path / "none")


def test_every_sampled_text_is_a_file(
    tmp_path: Path, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    model = trained(NextToken(), vocabulary, model_config)
    options = {"prompt": "The dog", "length": 9, "seed": 4}
    texts = model.sample(3, **options)
    assert all(text.lower().startswith("the dog") for text in texts), texts
    assert len(set(texts)) > 1
    assert len(model.sample(**options)) == 1
    files = written(model, tmp_path / "out", count=3, **options)
    assert [files[name] for name in sorted(files)] == [f"{text}\n" for text in texts]
    with pytest.raises(UserError, match="has no labels"):
        model.classify(LINES)
