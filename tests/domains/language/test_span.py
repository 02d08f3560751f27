"""Answers in documents: windows, places, loss, best spans, what is left out, use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triptych.domains.language.domain import ANSWERS, LanguageSampleOptions
from triptych.domains.language.inference import LanguageModel
from triptych.domains.language.model import (
    SPECIALS,
    LanguageSettings,
    ModelConfig,
    Vocabulary,
)
from triptych.domains.language.sources import TabSeparated
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.domains.language.tasks.span import (
    NO_ANSWER,
    SpanAnswer,
    SpanExamples,
    best_spans,
    overlap,
    row_start,
    span_in,
    windows_of,
)
from triptych.errors import UserError
from triptych.files.results import OutputFolder
from triptych.text.word_piece import WordPiece

LENGTH = 20
DOCUMENT = "The dog sees a cat. My horse follows one fish. The red bird hears the dog. It is old."
ROWS = [
    ("Who sees a cat?", DOCUMENT, "The dog"),
    ("Whom does the horse follow?", DOCUMENT, "one fish"),
    ("Who hears the dog?", DOCUMENT, "The red bird"),
]


def source(folder: Path, rows: list[tuple[str, ...]]) -> TabSeparated:
    lines = ["\t".join(row) for row in rows]
    (folder / "train.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return TabSeparated(directory=str(folder), files={"train": ["train.tsv"]})


@pytest.fixture
def words() -> Vocabulary:
    return Vocabulary(WordPiece().build([DOCUMENT, *(row[0] for row in ROWS)], 400, SPECIALS))


def answer_of(examples: SpanExamples, item: int) -> list[int]:
    rows = range(*examples.first[item : item + 2])
    first, last, row = next((*examples.spans[r], r) for r in rows if any(examples.spans[r]))
    return examples.windows[row][first : last + 1].tolist()


def texts_of(words: Vocabulary, examples: Any) -> list[str]:
    return [words.tokenizer.decode(answer_of(examples, item)) for item in range(len(examples))]


def test_windows_have_every_token_and_share_their_halves() -> None:
    document = list(range(100, 130))
    windows = windows_of([50, 51], document, 15)  # [CLS] 50 51 [SEP] and ten tokens, [SEP]
    assert [start for start, _ in windows] == [0, 5, 10, 15, 20]
    for start, row in windows:
        assert row == [1, 50, 51, 2, *document[start : start + 10], 2]
        assert row[row_start(row)] == document[start]
    assert windows_of([50], [], 15) == [(0, [1, 50, 2, 2])]
    assert windows_of([50], [7, 8], 15) == [(0, [1, 50, 2, 7, 8, 2])]
    assert all(len(row) == 15 for _, row in windows_of(list(range(40)), document, 15)[:1])
    for first in range(30):
        for last in range(first, min(first + 5, 30)):
            spans = [span_in(row, start, (first, last)) for start, row in windows]
            for (_, row), span in zip(windows, spans, strict=True):
                if span is not None:
                    assert row[span[0] : span[1] + 1] == document[first : last + 1]
            assert any(spans), "an answer of half a window is in one"


def test_the_answer_is_found_in_the_document(tmp_path: Path, words: Vocabulary) -> None:
    examples = SpanAnswer().encode(source(tmp_path, ROWS), "train", words, LENGTH)
    assert texts_of(words, examples) == ["the dog", "one fish", "the red bird"]
    assert len(examples.windows) > 3, "the document needs several windows"
    batch = examples.batch(range(3), None)
    assert batch.examples.tolist() == sorted(batch.examples.tolist())
    assert (batch.spans[:, 0] == NO_ANSWER).any()
    second = DOCUMENT.rindex("dog")
    placed = [(*ROWS[0][:2], "dog", str(second))]
    examples = SpanAnswer().encode(source(tmp_path, placed), "train", words, 64)
    assert examples.spans[0, 0] > SpanAnswer().encode(
        source(tmp_path, [(*ROWS[0][:2], "dog")]), "train", words, 64
    ).spans[0, 0]  # fmt: skip


def test_an_answer_ends_where_its_neighbours_begin(tmp_path: Path, words: Vocabulary) -> None:
    rows = [("Who?", "The dog,(one fish)sees a cat", "one fish")]
    examples = SpanAnswer().encode(source(tmp_path, rows), "train", words, 64)
    assert texts_of(words, examples) == ["one fish"]


def test_cut_questions_are_counted(
    tmp_path: Path, words: Vocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [*ROWS, ("Who " + "sees a cat " * 9 + "?", *ROWS[0][1:])]
    SpanAnswer().encode(source(tmp_path, rows), "train", words, 40)
    assert "1 of 4 questions" in caplog.text


def test_answers_that_are_not_in_their_document_are_counted_and_named_once(
    tmp_path: Path, words: Vocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    long = (ROWS[0][0], DOCUMENT, DOCUMENT[:60])
    rows = [*ROWS, ("Who?", DOCUMENT, "A cow"), (*ROWS[0][:2], "dog", "5"), long]
    rows = [row if len(row) == 4 else (*row, str(max(0, row[1].find(row[2])))) for row in rows]
    examples = SpanAnswer().encode(source(tmp_path, rows), "train", words, LENGTH)
    assert len(examples) == 3
    assert "3 of 6 answers" in caplog.text
    assert "'A cow'" in caplog.text
    with pytest.raises(UserError, match="1 of 1 answers"):
        SpanAnswer().encode(source(tmp_path, rows[3:4]), "train", words, LENGTH)
    with pytest.raises(UserError, match=r"train\.tsv, line 1 has the place 'x'"):
        SpanAnswer().encode(source(tmp_path, [(*ROWS[0], "x")]), "train", words, LENGTH)
    with pytest.raises(UserError, match="has 2 texts; SpanAnswer reads"):
        SpanAnswer().encode(source(tmp_path, [("a", "b")]), "train", words, LENGTH)


def test_the_best_span_is_that_of_all_pairs() -> None:
    torch.manual_seed(0)
    logits = 3 * torch.randn(40, 2, 9)
    for longest in (1, 3, 9):
        scores, first, last = best_spans(logits, longest)
        for row in range(40):
            start, end = logits[row].log_softmax(-1)
            pairs = {
                (a, b): float(start[a] + end[b])
                for a in range(1, 9)
                for b in range(a, min(a + longest, 9))
            }
            best = max(pairs, key=lambda pair: pairs[pair])
            assert (int(first[row]), int(last[row])) == best
            assert float(scores[row]) == pytest.approx(pairs[best], abs=1e-5)


def test_overlap_of_tokens() -> None:
    assert overlap([1, 2, 2], [2, 2, 3, 4]) == pytest.approx(4 / 7)
    assert overlap([1], [2]) == 0
    assert overlap([1, 2], [2, 1]) == 1


@torch.no_grad()
def test_loss_and_scores_from_the_definition(
    tmp_path: Path, words: Vocabulary, model_config: ModelConfig
) -> None:
    torch.manual_seed(3)
    task = SpanAnswer(longest_answer=4)
    model = task.build_model(model_config, words, LENGTH).eval()
    torch.nn.init.normal_(model.task_head.linear.weight)
    examples = task.encode(source(tmp_path, ROWS), "train", words, LENGTH)
    nats, exact, f1 = 0.0, 0, 0.0
    for item in range(3):
        best = (-np.inf, [])
        for row in range(examples.first[item], examples.first[item + 1]):
            ids = examples.windows[row].tolist()
            tokens = torch.tensor([ids])
            segments = torch.tensor([[0] * row_start(ids) + [1] * (len(ids) - row_start(ids))])
            segments[0, -1] = 0
            vectors = model.encoder(tokens, segments, torch.zeros_like(tokens).bool())
            logits = model.task_head(vectors)[0]  # [L, 2]
            allowed = [0, *range(row_start(ids), len(ids) - 1)]
            starts, ends = (logits[allowed, side].log_softmax(0) for side in (0, 1))
            of_place = {place: number for number, place in enumerate(allowed)}
            first, last = examples.spans[row]
            nats -= float(starts[of_place[first]] + ends[of_place[last]])
            for a in allowed[1:]:
                for b in range(a, min(a + 4, len(ids) - 1)):
                    score = float(starts[of_place[a]] + ends[of_place[b]])
                    best = max(best, (score, ids[a : b + 1]))
        exact += best[1] == answer_of(examples, item)
        f1 += overlap(best[1], answer_of(examples, item))
    totals = task.score(model, examples.batch(range(3), None))
    scores = task.metrics({name: float(value) for name, value in totals.items()})
    windows = len(examples.windows)
    assert scores == pytest.approx(
        {"nats_per_window": nats / windows, "exact_match": exact / 3, "f1": f1 / 3}, abs=1e-5
    )
    loss = task.predictions(model, examples.batch(range(3), None))
    mean = loss.head.losses(loss.features, loss.targets).mean()
    assert float(mean) == pytest.approx(nats / windows / 2, abs=1e-5)


class Pointer(torch.nn.Module):
    """Chooses the token `wanted` as the first and the last one, or else [CLS]."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.wanted = wanted
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens: torch.Tensor, segments: Any, padding: Any) -> torch.Tensor:
        logits = torch.zeros(len(tokens), 2, tokens.shape[1])
        logits[:, :, 0] = 5
        logits[tokens.unsqueeze(1).expand(-1, 2, -1) == self.wanted] = 9
        return logits


@pytest.mark.parametrize("word", ["dog", "fish", "old", "red"])
def test_the_answer_is_a_part_of_the_document_as_it_is_written(
    tmp_path: Path, words: Vocabulary, model_config: ModelConfig, word: str
) -> None:
    text = DOCUMENT.replace(word, word.upper()).replace(". ", ".\n\n")
    pointer = Pointer(words.tokenizer.encode(word)[0])
    model = LanguageModel(LanguageSettings(model_config, SpanAnswer(), LENGTH), pointer, words)
    answer, share = model.answer("Which?", text)
    assert answer == word.upper()
    assert 0.9 < share <= 1
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    (tmp_path / "lines.txt").write_text("Which?\nWho?\n", encoding="utf-8")
    for questions in ({"prompt": "Which?"}, {"lines": str(tmp_path / "lines.txt")}):
        out = tmp_path / "-".join(questions)
        options = LanguageSampleOptions(
            checkpoint="x", out=str(out), document=str(tmp_path / "text.txt"), **questions
        )
        model.write_samples(options, OutputFolder(str(out), overwrite=False))
        rows = [line.split("\t") for line in (out / ANSWERS).read_text().splitlines()]
        assert [row[:2] for row in rows] == [["Which?", word.upper()], ["Who?", word.upper()]][
            : len(rows)
        ]
        assert len(rows) == (1 if "prompt" in questions else 2)
    with pytest.raises(UserError, match="no text"):
        model.answer("Which?", " \n ")
    masked = LanguageModel(LanguageSettings(model_config, MaskedTokens(), LENGTH), pointer, words)
    with pytest.raises(UserError, match="MaskedTokens answers no questions"):
        masked.answer("Which?", text)
