"""Training and validation data of a run: settings, reading, vocabulary and loader."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from triptych.domains.translation.batches import EncodedPairs, plan_batches, short_enough
from triptych.domains.translation.sources import Corpus, Pair
from triptych.domains.translation.synthetic import NumberWords
from triptych.domains.translation.tokenizer import MIN_VOCABULARY, Tokenizers
from triptych.errors import UserError
from triptych.training.data import ResumableLoader, padding_share


@dataclass(frozen=True)
class DataConfig:
    """Settings of the corpus, the vocabulary, the batches and the decoding in validation."""

    source: Corpus = field(default_factory=NumberWords)
    """Corpus: NumberWords, ReversedSentences, ParallelText or TabSeparated."""
    vocabulary_size: int = 8_000
    """Size of the byte-level BPE vocabulary in tokens, special ids and 256 bytes included; a small
    corpus gives fewer."""
    shared_vocabulary: bool = True
    """Whether one vocabulary is learnt from both languages together, or one from each."""
    max_tokens: int = 4_096
    """Maximum size of a batch in tokens, padding included, on the source side and on the target
    side."""
    max_length: int = 256
    """Maximum length of a training pair in tokens, end included, on either side; longer pairs are
    left out of training, and of nothing else."""
    validation_lines: int = 200
    """Number of validation lines to translate after each validation for BLEU, chrF and exact match;
    0 for none. Nats per token always covers the whole split."""
    validation_beam: int = 1
    """Beam size of these translations, 1 for greedy search."""
    shown: int = 20
    """Number of these translations to log as a table, 0 for none."""

    def __post_init__(self) -> None:
        if self.vocabulary_size < MIN_VOCABULARY:
            raise ValueError(
                f"vocabulary_size is {self.vocabulary_size}; expected at least {MIN_VOCABULARY}: "
                "every byte and the special ids"
            )
        if self.max_length < 2:
            raise ValueError(f"max_length is {self.max_length}; expected at least 2 tokens")
        if min(self.validation_lines, self.shown) < 0 or self.validation_beam < 1:
            raise ValueError(
                f"validation_lines {self.validation_lines} and shown {self.shown} must be 0 or "
                f"more, validation_beam {self.validation_beam} at least 1"
            )
        if self.max_tokens < self.max_length:
            raise ValueError(
                f"max_tokens {self.max_tokens} is less than max_length {self.max_length}: the "
                "longest pair would not fit into a batch"
            )


@dataclass(frozen=True)
class TrainingData:
    """What a run reads before it starts."""

    tokenizers: Tokenizers
    loader: ResumableLoader
    """Training batches."""
    validation: list[Pair]
    """All pairs of the validation split."""


def read_training_data(
    config: DataConfig, *, seed: int, vocabulary: dict[str, Any] | None = None
) -> TrainingData:
    """Read the corpus and learn the vocabulary from its training split.

    seed: of the order of the training pairs. vocabulary: of the checkpoint that initialises the
    run, which replaces the one to learn; see `Tokenizers.to_plain`. Prints the number of pairs,
    tokens and batches. Raises UserError for missing or damaged files and without a training pair.
    """
    config.source.check()
    read = read_split(config.source, "train")
    validation = read_split(config.source, "validation")
    pairs = without_empty(read)
    if not pairs:
        raise UserError("every training pair has an empty side; there is nothing to train on")
    if vocabulary is not None:
        tokenizers = Tokenizers.from_plain(vocabulary)
        print(
            "the vocabulary is the checkpoint's; the settings of data do not apply to it",
            file=sys.stderr,
        )
    else:
        tokenizers = Tokenizers.train(
            [source for source, _ in pairs],
            [target for _, target in pairs],
            vocabulary_size=config.vocabulary_size,
            shared=config.shared_vocabulary,
        )
    encoded = EncodedPairs(pairs, tokenizers)
    chosen = short_enough(encoded, config.max_length)
    counts = (
        f"{len(chosen):,} training pairs; left out: {len(read) - len(pairs):,} with an empty side, "
        f"{len(pairs) - len(chosen):,} longer than {config.max_length} tokens"
    )
    if not chosen:
        raise UserError(
            f"no training pair is left: {counts}; data.max_length is too small for these sentences"
        )
    print(f"{counts}; {tokenizers}", file=sys.stderr)
    loader = training_batches(encoded, chosen, max_tokens=config.max_tokens, seed=seed)
    return TrainingData(tokenizers, loader, validation)


def training_batches(
    pairs: EncodedPairs, chosen: Sequence[int], *, max_tokens: int, seed: int
) -> ResumableLoader:
    """Return the loader of the chosen pairs; prints the number of batches and their padding."""

    def plan(epoch: int, generator: torch.Generator) -> list[list[int]]:
        return plan_batches(pairs, chosen, max_tokens=max_tokens, generator=generator)

    loader = ResumableLoader(
        len(chosen),
        plan,
        lambda indices, _: pairs.batch(indices),
        seed=seed,
        name="the training split",
    )
    batches = loader.batches_of(0)
    share = padding_share(batches, pairs.source_lengths, pairs.target_lengths)
    print(
        f"{len(batches):,} batches in the first epoch; {share:.1%} of their tokens are padding",
        file=sys.stderr,
    )
    return loader


def read_split(corpus: Corpus, split: str) -> list[Pair]:
    """Return the pairs of a split. Raises UserError if there are none."""
    pairs = corpus.pairs(split)
    if not pairs:
        raise UserError(f"the {split} split of the corpus has no sentence pairs")
    return pairs


def without_empty(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with text on both sides: those used for training and the vocabulary."""
    return [pair for pair in pairs if pair[0] and pair[1]]
