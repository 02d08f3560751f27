"""Question answering: the answer to a question is a part of a document."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.heads import GivenLogits, cross_entropy
from triptych.core.models.encoder_only import EncoderOnly, SpanModel, TaskHead
from triptych.domains.language.model import (
    CLS,
    SEP,
    ModelConfig,
    Task,
    Vocabulary,
    segments,
)
from triptych.domains.language.sources import Labelled, LabelledSource, Source
from triptych.errors import UserError
from triptych.files.folders import warn_once
from triptych.text.batches import Examples
from triptych.text.tokenizer import PAD
from triptych.training.engine.devices import device_of, scoring
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.objective import Predictions
from triptych.training.loading.batches import Items, Ragged
from triptych.types import PositiveInt

WINDOWS = 16
"""Windows of a document that are read at once."""
NO_ANSWER = 0
"""Place of [CLS], which is chosen in a window without the answer."""


class SpanBatch(NamedTuple):
    """Windows of some examples, padded at the end."""

    tokens: Tensor
    """Ids, int64 [W, L]: [CLS] question [SEP] window of the document [SEP]."""
    spans: Tensor
    """Places of the first and the last token of the answer, int64 [W, 2]; `NO_ANSWER` without."""
    examples: Tensor
    """Number of the example in the batch that a window belongs to, int64 [W]."""


def inputs_of(tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `SpanModel` reads of windows: tokens, segments and padding, each [W, L]."""
    # The last [SEP] is no part of the document.
    return tokens, segments(tokens).masked_fill(tokens == SEP, 0), tokens == PAD


class SpanExamples(Examples):
    """Examples of one window or more.

    windows: of all examples in order. spans: [M, 2], see `SpanBatch`. counts: windows of each
    example.
    """

    def __init__(self, windows: Ragged, spans: NDArray[np.int64], counts: Sequence[int]) -> None:
        self.windows, self.spans = windows, spans
        self.first = np.array([0, *accumulate(counts)])  # [N + 1]

    def __len__(self) -> int:
        return len(self.first) - 1

    def sizes(self, items: range) -> NDArray[np.int64]:
        """Return the tokens of each example, all windows as long as its longest one, [N, 1]."""
        first = self.first[items.start : items.stop + 1]  # [N + 1]
        longest = np.maximum.reduceat(self.windows.lengths[: first[-1]], first[:-1])  # [N]
        sizes: NDArray[np.int64] = (longest * np.diff(first))[:, None]  # [N, 1]
        return sizes

    def batch(self, items: Items, generator: torch.Generator | None) -> SpanBatch:
        of_items = [np.arange(*self.first[item : item + 2]) for item in np.asarray(items)]
        rows = np.concatenate(of_items)  # [W]
        counts = torch.tensor([len(each) for each in of_items])  # [B]
        return SpanBatch(
            torch.from_numpy(self.windows.padded(rows, PAD)),
            torch.from_numpy(self.spans[rows]),
            torch.arange(len(counts)).repeat_interleave(counts),
        )


@dataclass(frozen=True)
class SpanAnswer(Task):
    """Find the answer to a question in a document (Devlin et al. 2018, sections 4.2 and 4.3).

    A row of the data has question, document and answer, which is taken where it stands first; or
    question, document, answer and, from 0, the number of its first character in the document. A
    document longer than the model reads is divided into windows of which each shares its half with
    the next; a window without the answer has the answer [CLS].
    """

    longest_answer: PositiveInt = 40
    """Most tokens of an answer that is predicted."""

    monitor: ClassVar[str] = "nats_per_window"
    base: ClassVar[str] = "encoder"
    reads = LabelledSource
    use: ClassVar[str] = "--document FILE with the answer and --prompt with the question"

    def texts(self, source: Source) -> Iterable[str]:
        """Return questions and documents, each once: many questions may be of one document."""
        return dict.fromkeys(t for example in source.items("train") for t in example.texts[:2])

    def build_model(self, model: ModelConfig, vocabulary: Vocabulary, max_length: int) -> SpanModel:
        parts = model.transformer
        encoder = EncoderOnly(parts, vocabulary=len(vocabulary), max_length=max_length)
        return SpanModel(encoder, TaskHead(parts.d_model, 2, dropout=parts.dropout))

    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> SpanExamples:
        """Return the examples; those whose answer is not found are left out, and counted once.

        Raises UserError for another number of texts, and where no answer is found.
        """
        examples = source.items(split)
        for count, example in enumerate(examples, start=1):
            if len(example.texts) not in (2, 3):
                raise UserError(
                    f"{example.where or f'example {count}'} has {len(example.texts) + 1} texts; "
                    "SpanAnswer reads a question, a document, the answer and, if known, the number "
                    "of its first character"
                )
        questions = vocabulary.tokenizer.encode_batch([example.texts[0] for example in examples])
        if cut := sum(len(question) > _most_asked(max_length) for question in questions):
            warn_once(
                f"{cut:,} of {len(questions):,} questions of the {split} split have more than "
                f"{_most_asked(max_length)} tokens, half of data.max_length; their last tokens are "
                "cut"
            )
        documents = list(dict.fromkeys(example.texts[1] for example in examples))
        known = dict(zip(documents, vocabulary.tokenizer.located(documents), strict=True))
        rows, spans, counts, lost = [], [], [], []
        for example, question in zip(examples, questions, strict=True):
            document, place = known[example.texts[1]]
            answer = tokens_of(example, place)
            windows = windows_of(question, document, max_length)
            inside = [answer and span_in(row, start, answer) for start, row in windows]
            if not any(inside):
                lost.append(example)
                continue
            rows += [row for _, row in windows]
            spans += [span or (NO_ANSWER, NO_ANSWER) for span in inside]
            counts.append(len(windows))
        if lost:
            about = (
                f"the {split} split has {len(lost):,} of {len(examples):,} answers that are not in "
                f"their document or longer than half a window, such as "
                f"{(lost[0].texts[2:] or (lost[0].label,))[0]!r} ({lost[0].where or 'an example'})"
            )
            if not counts:
                raise UserError(f"{about}; expected answers that are parts of their documents")
            warn_once(f"{about}; they are left out")
        return SpanExamples(Ragged.of(rows, np.int32), np.array(spans, dtype=np.int64), counts)

    def predictions(self, model: SpanModel, batch: SpanBatch) -> Predictions:
        logits = model(*inputs_of(batch.tokens))  # [W, 2, L]
        return Predictions(logits, GivenLogits(logits.shape[-1]), batch.spans)

    def score(self, model: SpanModel, batch: SpanBatch) -> dict[str, Tensor]:
        logits = model(*inputs_of(batch.tokens))  # [W, 2, L]
        nats = in_double(cross_entropy(logits, batch.spans)).sum()
        scores, first, last = best_spans(logits, self.longest_answer)  # [W] each
        exact, f1, count = 0, 0.0, int(batch.examples.max()) + 1
        for item in range(count):
            windows = (batch.examples == item).nonzero().flatten()  # [w]
            best = windows[scores[windows].argmax()]
            right = windows[batch.spans[windows, 0].argmax()]  # a window with the answer
            found = batch.tokens[best, first[best] : last[best] + 1].tolist()
            start, end = batch.spans[right].tolist()
            expected = batch.tokens[right, start : end + 1].tolist()
            exact += found == expected
            f1 += overlap(found, expected)
        sums = {"exact": exact, "f1": f1, "examples": count, "windows": len(logits)}
        totals = {name: torch.tensor(value, dtype=torch.float64) for name, value in sums.items()}
        return {"nats": nats, **totals}

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return the scores; exact_match and f1 are of tokens, 0 to 1, of the best answer."""
        return {
            "nats_per_window": totals["nats"] / totals["windows"],
            "exact_match": totals["exact"] / totals["examples"],
            "f1": totals["f1"] / totals["examples"],
        }

    def answer(
        self, model: SpanModel, vocabulary: Vocabulary, question: str, document: str, most: int
    ) -> tuple[str, float]:
        """Return the likeliest answer, a part of the document, and its probability in its window.

        most: longest row in tokens. Raises UserError for a document without text.
        """
        ((ids, places),) = vocabulary.tokenizer.located([document])
        if not ids:
            raise UserError("the document has no text; expected some to find an answer in")
        windows = windows_of(vocabulary.tokenizer.encode(question), ids, most)
        rows = Ragged.of([row for _, row in windows], np.int32)
        found: list[tuple[float, int, int]] = []
        with scoring(model), torch.no_grad():
            for start in range(0, len(windows), WINDOWS):
                part = range(start, min(start + WINDOWS, len(windows)))
                tokens = torch.from_numpy(rows.padded(np.array(part), PAD))  # [W, L]
                inputs = inputs_of(tokens.to(device_of(model)))
                best = best_spans(model(*inputs), self.longest_answer)  # [W] each
                for number, (score, first, last) in zip(
                    part, zip(*(each.tolist() for each in best), strict=True), strict=True
                ):
                    before = windows[number][0] - row_start(windows[number][1])
                    found.append((score, before + first, before + last))
        score, first, last = max(found)
        return document[places[first][0] : places[last][1]], float(np.exp(score))


def tokens_of(example: Labelled, places: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the first and the last token of the answer in its document; None where it is not.

    places: characters of the tokens of the document. Raises UserError for a place that is none.
    """
    document, answer = example.texts[1], example.label
    if len(example.texts) == 3:
        answer = example.texts[2]
        if not example.label.isdecimal():
            raise UserError(
                f"{example.where or 'an example'} has the place {example.label!r} of its answer; "
                "expected the number of its first character in the document, from 0"
            )
        start = document.find(answer, int(example.label))
        start = start if start == int(example.label) else -1
    else:
        start = document.find(answer)
    end = start + len(answer)
    inside = [number for number, (a, b) in enumerate(places) if b > start and a < end]
    return (inside[0], inside[-1]) if start >= 0 and inside else None


def _most_asked(most: int) -> int:
    """Return the most tokens of a question in a row of `most` tokens."""
    return most // 2 - 2


def windows_of(
    question: Sequence[int], document: Sequence[int], most: int
) -> list[tuple[int, list[int]]]:
    """Return rows of at most `most` tokens, and which token of the document is their first one.

    A question longer than half a row is cut. Windows share their half with the next one.
    """
    asked = [CLS, *question[: _most_asked(most)], SEP]
    room = most - len(asked) - 1
    step = max(1, room // 2)
    starts = range(0, max(1, len(document) - room + step), step)
    return [(start, [*asked, *document[start : start + room], SEP]) for start in starts]


def row_start(row: Sequence[int]) -> int:
    """Return the place of the first token of the document in a row."""
    return list(row).index(SEP) + 1


def span_in(row: Sequence[int], start: int, answer: tuple[int, int]) -> tuple[int, int] | None:
    """Return the places in a row of the tokens of an answer; None where it has not all of them.

    start: token of the document that is the first one of the row. answer: first and last token.
    """
    shift = row_start(row) - start
    first, last = answer[0] + shift, answer[1] + shift
    return (first, last) if answer[0] >= start and last < len(row) - 1 else None


def best_spans(logits: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p of the likeliest span of each row and the places of its ends: three [W].

    logits: [W, 2, L]. A span has 1 to `longest` tokens and does not begin at `NO_ANSWER`; its
    probability is that of its first token times that of its last one.
    """
    log_p = logits.float().log_softmax(-1)  # [W, 2, L]
    pairs = log_p[:, 0, :, None] + log_p[:, 1, None, :]  # [W, L, L]
    ones = torch.ones(pairs.shape[1:], dtype=torch.bool, device=logits.device)
    allowed = ones.triu() & ones.tril(longest - 1)  # [L, L]
    allowed[NO_ANSWER] = False
    best, place = pairs.masked_fill(~allowed, -torch.inf).flatten(1).max(1)  # [W]
    return best, place // logits.shape[-1], place % logits.shape[-1]


def overlap(found: Sequence[int], expected: Sequence[int]) -> float:
    """Return F1 of the tokens of two texts, 0 to 1 (Rajpurkar et al. 2016, section 6.1)."""
    shared = sum((Counter(found) & Counter(expected)).values())
    return 2 * shared / (len(found) + len(expected))
