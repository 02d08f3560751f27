"""Models of text: their sizes and vocabulary, the interface of their tasks, what use needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, ClassVar

from torch import Tensor, nn

from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import raster
from triptych.core.transformer import TransformerConfig
from triptych.decoding.sampling import SampleRequest
from triptych.domains.language.sources import Document, Source, TextSource
from triptych.errors import UserError
from triptych.text.batches import Examples
from triptych.text.tokenizer import TextTokenizer
from triptych.training.engine.objective import Predictions
from triptych.training.finetune.parts import InitialWeights
from triptych.training.run.checkpoint import ModelSettings
from triptych.types import Checked

CLS, SEP, MASK = 1, 2, 3
SPECIALS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
"""Names of the special ids."""
N_SPECIALS = len(SPECIALS)


@dataclass(frozen=True)
class Vocabulary:
    """Tokenizer and labels; saved in every checkpoint."""

    tokenizer: TextTokenizer
    labels: tuple[str, ...] = ()
    """Names of the classes that the task predicts, by number."""

    def __len__(self) -> int:
        """Number of tokens, special ids included."""
        return len(self.tokenizer)

    @property
    def known(self) -> range:
        """Ids of text but the unknown token."""
        return range(self.tokenizer.n_reserved, len(self.tokenizer))

    def encode_documents(self, documents: Sequence[Document]) -> Iterator[list[list[int]]]:
        """Yield the ids of the sentences of each document, without special ids."""
        encoded = iter(self.tokenizer.encode_batch(list(chain.from_iterable(documents))))
        return (list(islice(encoded, len(document))) for document in documents)

    def to_plain(self) -> dict[str, Any]:
        """Return JSON types for the checkpoint."""
        return {"tokenizer": self.tokenizer.to_json(), "labels": list(self.labels)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Vocabulary:
        tokenizer = TextTokenizer.from_json(plain["tokenizer"], SPECIALS)
        return cls(tokenizer, tuple(plain["labels"]))


def segments(tokens: Tensor) -> Tensor:
    """Return the segment of each id, int64 [..., L]: 0 to the first [SEP], then 1."""
    ends = tokens == SEP  # [..., L]
    return (ends.cumsum(-1) - ends.long()).clamp(max=1)  # [..., L]


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the encoder or decoder; the task decides which of both is built."""

    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    """Sizes and parts of the stack."""
    output_bias: bool = True
    """Whether the output layer of a decoder has a bias. Decoders of other libraries have none, see
    `triptych export --format hf`."""

    def build_decoder(self, vocabulary: int, max_length: int) -> DecoderOnly:
        """Return a decoder of the next token whose output matrix is the embedding."""
        parts = self.transformer
        embedding = TokenEmbedding(vocabulary, parts.d_model)
        return DecoderOnly(
            embedding,
            parts.input_positions(raster((max_length,))),
            parts.decoder((max_length,)),
            CategoricalHead(
                parts.d_model, vocabulary, bias=self.output_bias, weight=embedding.table.weight
            ),
            d_model=parts.d_model,
            dropout=parts.dropout,
        )


class Task(Checked, ABC):
    """What a run trains; subclasses are frozen dataclasses that settings name by class path.

    A task needs no Lightning: trained models use it too.
    """

    monitor: ClassVar[str]
    """Metric, without "val/", whose lowest value selects the best checkpoint."""
    reads: ClassVar[type[Source]] = TextSource  # type: ignore[type-abstract]
    """Kind of source of which the task reads the items."""
    use: ClassVar[str] = "--lines FILE with lines to label"
    """What `triptych sample` needs of a model that writes no text."""

    def texts(self, source: Source) -> Iterable[str]:
        """Return the training texts, from which the tokenizer is learnt; by default sentences."""
        return (sentence for document in source.items("train") for sentence in document)

    def labels(self, source: Source) -> tuple[str, ...]:
        """Return the names of the classes that the task predicts; none by default."""
        return ()

    @abstractmethod
    def build_model(self, model: ModelConfig, vocabulary: Vocabulary, max_length: int) -> nn.Module:
        """Return the model with initial weights; max_length: longest example in tokens."""

    @abstractmethod
    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> Examples:
        """Return the examples of a split, each of at most max_length tokens."""

    def initial_weights(
        self,
        header: dict[str, Any],
        labels: tuple[str, ...],
        weights: dict[str, Tensor],
        own: Iterable[str],
    ) -> InitialWeights:
        """Return what the task's model takes from another one, all weights by default.

        Of a task with a `base` those of the parts that both have; the head starts anew unless task
        and labels are the same. header, weights: of that model's checkpoint. labels, own: of this
        run, and the names of its weights. Raises UserError for a model without the base.
        """
        base, before = getattr(self, "base", None), header["task"]["class_path"]
        if base is None:
            return InitialWeights(weights)
        if base == "decoder" and "model.embedding.table.weight" in weights:  # of next tokens
            weights = {
                name.replace("model.", "model.decoder.", 1): w for name, w in weights.items()
            }
        parts = dict.fromkeys(name.split(".")[1] for name in own)
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        if before != kind or tuple(header["vocabulary"]["labels"]) != labels:
            weights = {name: weights[name] for name in weights if ".task_head." not in name}
        kept = {name: weights[name] for name in weights if name.split(".")[1] in parts}
        taken = {name.split(".")[1] for name in kept}
        if base not in taken:
            raise UserError(
                f"run.start.init_from is a model of the task {before.rpartition('.')[2]} without "
                f"{base}; expected a model that has one"
            )
        return InitialWeights(kept, tuple(f"model.{part}." for part in parts if part not in taken))

    @abstractmethod
    def predictions(self, model: Any, batch: Any) -> Predictions:
        """Return what a pass of a model predicts of a batch, for the training."""

    @abstractmethod
    def score(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """Return sums over a batch as float64 scalars; called in eval mode without gradients."""

    @abstractmethod
    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return ratios from the sums over a whole split; names contain the unit."""

    def table(
        self, model: Any, examples: Any, vocabulary: Vocabulary, seed: int
    ) -> list[dict[str, str]]:
        """Return rows to look at of the validation split, by the names of their columns."""
        return []

    def write(
        self, model: Any, vocabulary: Vocabulary, prompt: str, request: SampleRequest, most: int
    ) -> list[list[int]]:
        """Return `count` texts as ids, which begin with the prompt or fill its gaps.

        most: longest text in tokens. Raises UserError for a task that writes no text, and for a
        prompt that does not fit.
        """
        raise UserError(
            f"a model of the task {type(self).__name__} writes no text; expected {self.use}, or a "
            "model that was trained with NextToken or MaskedTokens"
        )


@dataclass(frozen=True)
class LanguageSettings(ModelSettings):
    """What use of a model of text needs besides its weights and vocabulary."""

    model: ModelConfig
    task: Task
    """What was trained."""
    max_length: int
    """Maximum length of an example in tokens, special ids included."""

    def build_model(self, vocabulary: Vocabulary) -> nn.Module:
        return self.task.build_model(self.model, vocabulary, self.max_length)
