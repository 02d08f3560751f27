"""Tasks with labels: classification, entailment, similarity, multiple choice."""

import hashlib
import sys
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.heads import GivenLogits, cross_entropy
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import (
    EncoderOnly,
    Pooler,
    SequenceTaskModel,
    TaskHead,
)
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
from triptych.text.batches import Examples, evaluation_batches
from triptych.text.tokenizer import PAD
from triptych.training.engine.devices import device_of, scoring, to_device
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.objective import Predictions
from triptych.training.loading.batches import Items, Ragged
from triptych.types import PositiveInt


class LabelledBatch(NamedTuple):
    """Examples of R rows each, padded at the end."""

    tokens: Tensor
    """Ids, int64 [B, R, L]: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]; without [CLS] for a decoder."""
    labels: Tensor
    """Number of the class, or of the right row, int64 [B]."""

    @property
    def padding(self) -> Tensor:
        """True on padding, bool [B, R, L]."""
        return self.tokens == PAD


class LabelledExamples(Examples):
    """Examples of R rows each; rows: those of all examples in order. labels: [N]."""

    def __init__(self, rows: Ragged, labels: NDArray[np.int64], n_rows: int) -> None:
        self.rows = rows
        self.labels = labels
        self.n_rows = n_rows

    def __len__(self) -> int:
        return len(self.labels)

    def sizes(self, items: range) -> NDArray[np.int64]:
        """Return the tokens of each example, all rows as long as its longest one, [N, 1]."""
        of_rows = self.rows.lengths.reshape(-1, self.n_rows)[items.start : items.stop]  # [N, R]
        longest: NDArray[np.int64] = of_rows.max(1, keepdims=True) * self.n_rows  # [N, 1]
        return longest

    def batch(self, items: Items, generator: torch.Generator | None) -> LabelledBatch:
        chosen = np.asarray(items)
        rows = (chosen[:, None] * self.n_rows + np.arange(self.n_rows)).reshape(-1)  # [B x R]
        tokens = torch.from_numpy(self.rows.padded(rows, PAD))  # [B x R, L]
        return LabelledBatch(
            tokens.unflatten(0, (-1, self.n_rows)), torch.from_numpy(self.labels[chosen])
        )


def join_texts(texts: Sequence[Sequence[int]], most: int, *, with_cls: bool) -> list[int]:
    """Return [CLS] A [SEP], or [CLS] A [SEP] B [SEP], of at most `most` tokens.

    The longer text loses its last tokens first, as in the published code of BERT. texts: one or
    two. with_cls: whether the row begins with [CLS].
    """
    room = _room(texts, most)
    lengths = [len(text) for text in texts]
    while sum(lengths) > room:
        lengths[int(np.argmax(lengths))] -= 1
    row = [CLS] if with_cls else []
    for text, length in zip(texts, lengths, strict=True):
        row += [*text[:length], SEP]
    return row


def _room(texts: Sequence[Sequence[int]], most: int) -> int:
    """Return how many tokens of texts a row of `most` tokens holds, beside [CLS] and [SEP]."""
    return most - 1 - len(texts)


@dataclass(frozen=True)
class LabelledTask(Task):
    """Predict the label of an example from one vector for each of its rows of texts."""

    base: Literal["encoder", "decoder"] = "encoder"
    """Model under the head: the `encoder` of masked tokens, or the `decoder` of next tokens, of
    which the last token is read."""
    pooling: Literal["cls", "mean"] = "cls"
    """Vector of a row that the encoder has read: `cls`, that of [CLS] after the pooler, or `mean`,
    the mean of the vectors of all tokens."""
    train_examples: PositiveInt | None = None
    """Number of training examples, chosen by hash; null for all. The vocabulary is learnt from the
    texts of all."""
    examples_seed: int = 0
    """Seed of the hash that chooses the training examples."""

    monitor: ClassVar[str] = "nats_per_example"
    reads = LabelledSource
    n_texts: ClassVar[range]
    """Numbers of texts that an example may have."""
    wanted: ClassVar[str]
    """What the task reads, for errors."""
    chooses_a_row: ClassVar[bool] = False
    """Whether each row has one score, and the right row is the label; otherwise the sum of the
    vectors of all rows gives a score to each class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling != "cls" and self.base == "decoder":
            raise ValueError(
                f"pooling is {self.pooling} with base decoder, of which the last token is read; "
                "expected base encoder"
            )

    @abstractmethod
    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the rows of an example, each of one text or two."""

    def logits(self, model: SequenceTaskModel, batch: LabelledBatch) -> Tensor:
        """Return the logits of the labels, [B, C]."""
        vectors = model.vectors(batch.tokens, segments(batch.tokens), batch.padding)  # [B, R, D]
        read = vectors if self.chooses_a_row else vectors.sum(1)  # [B, R, D] or [B, D]
        logits: Tensor = model.task_head(read)  # [B, R, 1] or [B, C]
        return logits.squeeze(-1) if self.chooses_a_row else logits

    def texts(self, source: Source) -> Iterable[str]:
        return (text for example in source.items("train") for text in example.texts)

    def labels(self, source: Source) -> tuple[str, ...]:
        """Return the labels of the training split in alphabetical order."""
        labels = sorted({example.label for example in source.items("train")})
        if len(labels) < 2:
            raise UserError(
                f"every training example has the label {labels[0]!r}; expected two labels or more"
            )
        return tuple(labels)

    def build_model(
        self, model: ModelConfig, vocabulary: Vocabulary, max_length: int
    ) -> SequenceTaskModel:
        parts = model.transformer
        base: EncoderOnly | DecoderOnly
        if self.base == "decoder":
            base = model.build_decoder(len(vocabulary), max_length)
        else:
            base = EncoderOnly(parts, vocabulary=len(vocabulary), max_length=max_length)
        pooled = self.base == "encoder" and self.pooling == "cls"
        pooler = Pooler(parts.d_model) if pooled else None
        n_outputs = 1 if self.chooses_a_row else len(vocabulary.labels)
        head = TaskHead(parts.d_model, n_outputs, dropout=parts.dropout)
        return SequenceTaskModel(base, pooler, head)

    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> LabelledExamples:
        examples = source.items(split)
        if split == "train" and self.train_examples is not None:
            if self.train_examples > len(examples):
                raise UserError(
                    f"task.train_examples is {self.train_examples:,}, but the train split has "
                    f"{len(examples):,} examples"
                )

            def order(example: Labelled) -> bytes:
                return hashlib.sha256(f"{self.examples_seed} {example.texts}".encode()).digest()

            examples = sorted(examples, key=order)[: self.train_examples]
        return self.encode_examples(examples, vocabulary, max_length)

    def encode_examples(
        self, examples: Sequence[Labelled], vocabulary: Vocabulary, max_length: int
    ) -> LabelledExamples:
        """Return examples as rows; UserError for other numbers of texts and unknown labels."""
        number = {label: index for index, label in enumerate(vocabulary.labels)}
        rows = []
        for count, example in enumerate(examples, start=1):
            where = example.where or f"example {count}"
            if example.label not in number:
                raise UserError(
                    f"{where} has the label {example.label!r}; expected one of "
                    f"{', '.join(vocabulary.labels)}"
                )
            if (n_texts := len(example.texts)) not in self.n_texts:
                kind = type(self).__name__
                raise UserError(f"{where} has {n_texts} texts; {kind} reads {self.wanted}")
            rows.append(self.rows(example.texts))
            if len(rows[-1]) != len(rows[0]):
                raise UserError(
                    f"{where} has {len(rows[-1])} candidates and the first example has "
                    f"{len(rows[0])}; expected equal numbers"
                )
        flat = [text for of_example in rows for row in of_example for text in row]
        ids = iter(vocabulary.tokenizer.encode_batch(flat))
        parts = [[next(ids) for _ in row] for of_example in rows for row in of_example]
        if cut := sum(sum(map(len, row)) > _room(row, max_length) for row in parts):
            warn_once(
                f"{cut:,} of {len(parts):,} texts or pairs of texts have more than {max_length} "
                "tokens (data.max_length); the longer text of each loses its last tokens"
            )
        tokens = (join_texts(row, max_length, with_cls=self.base == "encoder") for row in parts)
        labels = np.array([number[example.label] for example in examples], dtype=np.int64)
        return LabelledExamples(Ragged.of(tokens, np.int32), labels, len(rows[0]))

    def predictions(self, model: SequenceTaskModel, batch: LabelledBatch) -> Predictions:
        logits = self.logits(model, batch)  # [B, C]
        return Predictions(logits, GivenLogits(logits.shape[-1]), batch.labels)

    def score(self, model: SequenceTaskModel, batch: LabelledBatch) -> dict[str, Tensor]:
        logits = self.logits(model, batch)  # [B, C]
        right = logits.argmax(-1) == batch.labels  # [B]
        return {
            "nats": in_double(cross_entropy(logits, batch.labels)).sum(),
            "correct": in_double(right).sum(),
            "examples": in_double(right.new_ones(len(right))).sum(),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        count = totals["examples"]
        return {"nats_per_example": totals["nats"] / count, "accuracy": totals["correct"] / count}

    def probabilities(
        self, model: SequenceTaskModel, examples: LabelledExamples, max_tokens: int
    ) -> Tensor:
        """Return the probability of each class for each example: [N, C]."""
        batches = evaluation_batches(examples, max_tokens)
        row_of: dict[int, Tensor] = {}
        with scoring(model), torch.no_grad():
            for items in batches.batches:
                batch = to_device(examples.batch(items, None), device_of(model))
                logits = self.logits(model, batch)  # [B, C]
                row_of |= zip(map(int, items), logits.float().softmax(-1).cpu(), strict=True)
        return torch.stack([row_of[item] for item in range(len(examples))])  # [N, C]


@dataclass(frozen=True)
class Classification(LabelledTask):
    """Predict the class of a text (Devlin et al. 2018, section 4.1; Radford et al. 2018)."""

    n_texts = range(1, 2)
    wanted = "one text and a label"

    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(texts)]


@dataclass(frozen=True)
class Entailment(Classification):
    """Predict the relation of a text to a second one, which are read as one row in this order."""

    n_texts = range(2, 3)
    wanted = "two texts and a label"


@dataclass(frozen=True)
class Similarity(Entailment):
    """Predict whether two texts are similar, whatever their order (Radford et al. 2018, figure 1).

    Both orders are read and their vectors are added. The labels are classes, such as the same and
    another meaning.
    """

    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        return [*super().rows(texts), tuple(reversed(texts))]


@dataclass(frozen=True)
class MultipleChoice(LabelledTask):
    """Choose one of several candidates for a context (Radford et al. 2018, section 3.3).

    Context and candidate are a row; each row has one score, and a softmax over the candidates gives
    their probabilities.
    """

    n_texts = range(3, sys.maxsize)
    wanted = "a context, two candidates or more and the number of the right one"
    chooses_a_row = True

    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        return [(texts[0], candidate) for candidate in texts[1:]]

    def labels(self, source: Source) -> tuple[str, ...]:
        first = source.items("train")[0]
        return tuple(str(number) for number in range(1, len(first.texts)))
