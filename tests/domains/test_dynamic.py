"""Dynamic evaluation: windows in order, each scored before it is learned from, weights restored."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_music import Chorales, tiny_model
from torch import nn

from triptych.core.transformer import TransformerConfig
from triptych.domains.base import TrainedModel
from triptych.domains.language.config import Config, DataConfig
from triptych.domains.language.inference import LanguageModel
from triptych.domains.language.model import SEP, SPECIALS, ModelConfig, Vocabulary
from triptych.domains.language.sources import TextFiles
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.domains.language.tasks.next_token import NextToken
from triptych.domains.music.domain import MusicEvaluateOptions
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.errors import UserError
from triptych.text.word_piece import WordPiece

RATE = 0.5
LINES = ["the dog sees a cat", "a cat", "my horse hears the dog and the cat and a bird", "a bird"]


def chorales() -> Any:
    """Two pieces of several windows, in which the first half of a later window is known."""
    model = tiny_model(Chorales((50, 40), (50, 60)), length=128, overlap=64)
    model.full_model.double()
    return model


def language(folder: Path, task: Any = None) -> LanguageModel:
    """Documents of one sentence each, some of them longer than a window."""
    for split in ("train", "validation", "test"):
        (folder / f"{split}.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    files = {split: [f"{split}.txt"] for split in ("train", "validation", "test")}
    source = TextFiles(directory=str(folder), files=files, one_per_line=True)
    sizes = ModelConfig(TransformerConfig(n_layers=1, d_model=16, n_heads=2))
    data = DataConfig(source=source, vocabulary_size=60, max_length=8)
    config = Config(data=data, model=sizes, task=task or NextToken())
    vocabulary = Vocabulary(WordPiece().build(LINES, 60, SPECIALS))
    torch.manual_seed(0)
    model = config.build_model(vocabulary).double()
    return LanguageModel.of_run(config, model, vocabulary)


def windows_of_chorales(model: Any) -> Any:
    """Tokens of each window, the one before it, and how many of them are scored already."""
    for piece in model.data_settings.source.load("test", ChoraleTokenizer()):
        ids = ChoraleTokenizer().tokens(piece.content)
        for start in range(0, max(1, len(ids) - 64), 64):
            yield ids[start : start + 128], ids[start - 1] if start else -1, 64 if start else 0


def windows_of_lines(model: LanguageModel) -> Any:
    for line in LINES:
        ids = [*model.vocabulary.tokenizer.encode(line), SEP]
        for start in range(0, len(ids), 8):
            yield ids[start : start + 8], ids[start - 1] if start else -1, 0


def by_definition(model: nn.Module, windows: Any, rate: float) -> float:
    """Nats per token: the score of a window, then one step of gradient descent on it."""
    model = copy.deepcopy(model).eval()
    total, count = 0.0, 0
    for ids, before, known in windows:
        logits = model(torch.as_tensor(ids)[None], torch.tensor([before]))[0]  # [L, V]
        nats = [-logits[t].log_softmax(-1)[ids[t]] for t in range(known, len(ids))]
        loss = sum(nats) / len(nats)
        total, count = total + float(loss.detach()) * len(nats), count + len(nats)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.grad is not None:
                    weight -= rate * weight.grad
    return total / count


@pytest.mark.parametrize("domain", ["music", "language"])
def test_the_score_is_that_of_a_loop_and_the_weights_are_restored(
    domain: str, tmp_path: Path
) -> None:
    model: TrainedModel = chorales() if domain == "music" else language(tmp_path)
    windows = windows_of_chorales if domain == "music" else windows_of_lines
    before = copy.deepcopy(model.full_model.state_dict())
    found = model.evaluate("test", dynamic=RATE).metrics["nats_per_token"]
    assert found == pytest.approx(by_definition(model.full_model, windows(model), RATE), abs=1e-12)
    after = model.full_model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(weight.grad is None for weight in model.full_model.parameters())

    plain = model.evaluate("test").metrics["nats_per_token"]
    assert plain == pytest.approx(by_definition(model.full_model, windows(model), 0.0), abs=1e-12)
    assert abs(found - plain) > 1e-3
    assert model.evaluate("test", dynamic=0).metrics["nats_per_token"] == plain
    slow = model.evaluate("test", dynamic=1e-30).metrics["nats_per_token"]
    assert slow == pytest.approx(plain, abs=1e-12)


def test_the_weights_are_restored_after_an_error() -> None:
    model = chorales()
    before = copy.deepcopy(model.full_model.state_dict())

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.evaluate("test", dynamic=RATE, progress=stop)
    assert all(torch.equal(w, before[name]) for name, w in model.full_model.state_dict().items())


def test_what_it_cannot_serve_is_refused(tmp_path: Path) -> None:
    model = chorales()
    with pytest.raises(UserError, match="no dynamic evaluation"):
        model.averaged(transpositions=1).evaluate("test", dynamic=RATE)
    with pytest.raises(UserError, match="expected no batch_size"):
        model.evaluate("test", dynamic=RATE, batch_size=2)
    options = MusicEvaluateOptions(checkpoint="x.ckpt", dynamic=RATE)
    with pytest.raises(UserError, match="dtype is bf16"):
        model.with_dtype("bf16").check_evaluation(options)
    with pytest.raises(UserError, match="trained with MaskedTokens"):
        language(tmp_path, MaskedTokens()).evaluate("test", dynamic=RATE)
