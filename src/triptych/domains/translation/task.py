"""Training a translation model: smoothed loss, honest nats, real decoding in validation."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from triptych.config.schema import from_plain, to_plain
from triptych.core.heads import cross_entropy
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.domains.translation.corpora import Pair
from triptych.domains.translation.data import (
    Batch,
    DataConfig,
    EncodedPairs,
    PairCounts,
    plan_batches,
    read_split,
    short_enough,
    without_empty,
)
from triptych.domains.translation.decode import translate_lines
from triptych.domains.translation.losses import smoothed_cross_entropy
from triptych.domains.translation.model import ModelConfig, build_model
from triptych.domains.translation.score import score_translations
from triptych.domains.translation.tokenizer import PAD, Tokenizers
from triptych.errors import UserError
from triptych.training.data import (
    FixedBatches,
    ResumableLoader,
    fixed_batches,
    padding_share,
)
from triptych.training.loggers.media import Media
from triptych.training.metric_sums import in_double
from triptych.training.module import TrainingModule
from triptych.training.optim import OptimConfig
from triptych.training.run_settings import RunConfig


@dataclass(frozen=True)
class Config:
    """All settings of a translation run."""

    data: DataConfig = field(default_factory=DataConfig)
    """Sentence pairs, vocabulary and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes of the model and what it is trained for."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser and learning rate."""
    run: RunConfig = field(default_factory=RunConfig)
    """Name, place and seed of the run."""

    def __post_init__(self) -> None:
        if self.model.tie == "all" and not self.data.shared_vocabulary:
            raise ValueError(
                "model.tie is all, which needs one vocabulary for both sides, and "
                "data.shared_vocabulary is false; expected tie target or none."
            )


class TranslationTask(TrainingModule):
    """An encoder-decoder model of sentence pairs, scored in nats per target token and in BLEU."""

    domain: ClassVar[str] = "translation"
    monitor: ClassVar[str] = "nats_per_token"
    model: EncoderDecoder

    def __init__(
        self, config: Config, tokenizers: Tokenizers, validation: Sequence[Pair] = ()
    ) -> None:
        """validation: the pairs that are decoded after each validation; none in a restored task."""
        metadata = {
            "domain": self.domain,
            "config": to_plain(config),
            "vocabulary": tokenizers.to_plain(),
        }
        model = build_model(config.model, tokenizers)
        super().__init__(
            model, config.optim, d_model=config.model.transformer.d_model, metadata=metadata
        )
        self.config = config
        self.tokenizers = tokenizers
        self.decoded_pairs = list(validation)
        self.hypotheses: list[str] = []
        """Translations of `decoded_pairs` at the last validation."""

    def training_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Smoothed nats per real target, and the number of real targets."""
        logits = self.model(batch.source, batch.source_padding, batch.target_input)  # [B, T, V]
        smoothing = self.config.model.label_smoothing
        loss = smoothed_cross_entropy(logits, batch.expected, smoothing)
        return loss, (batch.expected != PAD).sum()

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Sums of unsmoothed nats, target tokens (ends included, padding not) and pairs."""
        logits = self.model(batch.source, batch.source_padding, batch.target_input)
        nats = cross_entropy(logits, batch.expected)  # [B, T]
        return {
            "nats": in_double(nats.masked_fill(batch.expected == PAD, 0.0)).sum(),
            "tokens": in_double((batch.expected != PAD).sum()),
            "pairs": torch.tensor(len(batch.source), dtype=torch.float64),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Nats per target token over everything that was scored."""
        return {"nats_per_token": totals["nats"] / totals["tokens"]}

    def generation_metrics(self) -> dict[str, float]:
        """BLEU, chrF and exact match of translations that the model made by itself."""
        if not self.decoded_pairs:
            return {}
        data = self.config.data
        self.hypotheses = [
            best[0]
            for best in translate_lines(
                self.model,
                self.tokenizers,
                [source for source, _ in self.decoded_pairs],
                beam=data.validation_beam,
            )
        ]
        references = [target for _, target in self.decoded_pairs]
        tokenizer = data.source.bleu_tokenizer()
        return score_translations(self.hypotheses, references, tokenizer=tokenizer).metrics()

    def log_samples(self, folder: Path) -> list[Media]:
        """The first validation lines: source, reference, translation, and whether they agree."""
        shown = list(zip(self.decoded_pairs, self.hypotheses, strict=True))[
            : self.config.data.shown
        ]
        rows = [
            [source, reference, hypothesis, "yes" if reference == hypothesis else "no"]
            for (source, reference), hypothesis in shown
        ]
        if not rows:
            return []
        columns = ["source", "reference", "translation", "exact match"]
        return [Media("table", "translations", columns=columns, rows=rows)]


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[TranslationTask, ResumableLoader, FixedBatches]:
    """Read the pairs, learn the vocabulary, build the model and both loaders.

    vocabulary: that of the weights which the run starts with; none is learnt then. Raises UserError
    for missing or broken files and where no training pair is left.
    """
    data, corpus = config.data, config.data.source
    corpus.check()
    read, validation = read_split(corpus, "train"), read_split(corpus, "validation")
    pairs = without_empty(read)
    if not pairs:
        raise UserError("every training pair has an empty side; there is nothing to train on.")
    if vocabulary is not None:
        tokenizers = Tokenizers.from_plain(vocabulary)
        print("the vocabulary is that of the weights, whatever data says of one", file=sys.stderr)
    else:
        tokenizers = Tokenizers.train(
            [source for source, _ in pairs],
            [target for _, target in pairs],
            vocabulary_size=data.vocabulary_size,
            shared=data.shared_vocabulary,
        )
    training = EncodedPairs(pairs, tokenizers)
    held_out = EncodedPairs(validation, tokenizers)
    chosen = short_enough(training, data.max_length)
    counts = PairCounts(len(read), len(read) - len(pairs), len(pairs) - len(chosen))
    if not chosen:
        raise UserError(
            f"no training pair is left: {counts.sentence(data.max_length)}; data.max_length is too "
            "small for these sentences."
        )
    print(f"{counts.sentence(data.max_length)}; {describe(tokenizers)}", file=sys.stderr)
    torch.manual_seed(config.run.seed)
    try:
        task = TranslationTask(config, tokenizers, validation[: data.validation_lines])
    except ValueError as error:  # a variant that cannot read a source says so in a sentence
        raise UserError(f"the model does not fit sentences: {error}") from error

    def plan(epoch: int, generator: torch.Generator) -> list[list[int]]:
        return plan_batches(training, chosen, budget=data.tokens_per_batch, generator=generator)

    loader = ResumableLoader(
        len(chosen),
        plan,
        lambda items, _: training.batch(items),
        seed=config.run.seed,
        name="The training split",
    )
    batches = loader.batches_of(0)
    share = padding_share(batches, training.source_lengths, training.target_lengths)
    print(
        f"{len(batches):,} batches in the first epoch; {share:.1%} of their tokens are padding",
        file=sys.stderr,
    )
    return task, loader, scoring_batches(held_out, data.tokens_per_batch)


def scoring_batches(pairs: EncodedPairs, budget: int) -> FixedBatches:
    """Every pair of a held-out split, whatever its length, in batches of like length."""
    return fixed_batches(
        len(pairs),
        lambda indices, _: pairs.batch(indices),
        batches=plan_batches(pairs, range(len(pairs)), budget=budget, generator=None),
    )


def describe(tokenizers: Tokenizers) -> str:
    """The vocabulary sizes for a person."""
    if tokenizers.shared:
        return f"one vocabulary of {len(tokenizers.source):,} types"
    return (
        f"vocabularies of {len(tokenizers.source):,} source and "
        f"{len(tokenizers.target):,} target types"
    )


def restore(checkpoint: dict[str, Any]) -> TranslationTask:
    """The task of a checkpoint, without its training data."""
    header = checkpoint["triptych"]
    config = from_plain(Config, header["config"])
    task = TranslationTask(config, Tokenizers.from_plain(header["vocabulary"]))
    task.load_state_dict(checkpoint["state_dict"])
    return task
