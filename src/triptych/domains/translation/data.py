"""Training and validation data of a run: vocabulary, encoded pairs and padded batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from triptych.domains.translation.config import DataConfig
from triptych.domains.translation.sources import Pair
from triptych.domains.translation.tokenizer import END, PAD, START, Tokenizers
from triptych.errors import UserError
from triptych.training.data import FixedBatches, ResumableLoader, padding_share


class RaggedArray:
    """Rows of ids of different lengths in one flat int32 array."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(row) for row in rows], dtype=np.int64)
        self._ends = np.cumsum(self.lengths)
        self._ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32)

    def __getitem__(self, index: int) -> list[int]:
        end = self._ends[index]
        ids: list[int] = self._ids[end - self.lengths[index] : end].tolist()
        return ids


class Batch(NamedTuple):
    """Sentence pairs as ids, padded at the end of each row."""

    source: Tensor
    """Source ids, int64 [B, S]; each row ends with END."""
    target: Tensor
    """Target ids, int64 [B, T + 1]; each row begins with START and ends with END."""

    @property
    def source_padding(self) -> Tensor:
        """True on padding, bool [B, S]."""
        return self.source == PAD

    @property
    def target_input(self) -> Tensor:
        """Decoder input, [B, T]: all columns but the last."""
        return self.target[:, :-1]  # [B, T]

    @property
    def expected(self) -> Tensor:
        """Targets to predict, [B, T]: all columns but START."""
        return self.target[:, 1:]  # [B, T]


class EncodedPairs:
    """Sentence pairs as ids, sources with END, targets with START and END.

    source_lengths, target_lengths: tokens of each source and tokens to predict for each target,
    END included, int64 [N]. lengths: of the longer side.
    """

    def __init__(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> None:
        sources = tokenizers.source.encode_batch([source for source, _ in pairs])
        targets = tokenizers.target.encode_batch([target for _, target in pairs])
        self.sources = RaggedArray([[*row, END] for row in sources])
        self.targets = RaggedArray([[START, *row, END] for row in targets])
        self.source_lengths = self.sources.lengths
        self.target_lengths = self.targets.lengths - 1
        self.lengths = np.maximum(self.source_lengths, self.target_lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the pairs of these indices as one batch."""
        return Batch(
            pad_rows([self.sources[index] for index in indices]),
            pad_rows([self.targets[index] for index in indices]),
        )


def pad_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of ids as one int64 [B, longest], with PAD after the end of each row."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])  # [B, longest]


def read_training_data(
    config: DataConfig, *, seed: int, vocabulary: dict[str, Any] | None = None
) -> tuple[Tokenizers, ResumableLoader]:
    """Return the vocabulary, learnt from the training split, and the loader of this split.

    Pairs with an empty side and pairs longer than `max_length` are left out. seed: of the order of
    the pairs. vocabulary: of the checkpoint that initialises the run, which replaces the one to
    learn; see `Tokenizers.to_plain`. Prints the number of pairs, tokens and batches. Raises
    UserError for missing or damaged files and without a training pair.
    """
    read = config.source.pairs("train")
    pairs = [pair for pair in read if pair[0] and pair[1]]
    if vocabulary is None:
        tokenizers = Tokenizers.train(
            [source for source, _ in pairs],
            [target for _, target in pairs],
            vocabulary_size=config.vocabulary_size,
            shared=config.shared_vocabulary,
        )
    else:
        tokenizers = Tokenizers.from_plain(vocabulary)
        print(
            "the vocabulary is the checkpoint's; the settings of data do not apply to it",
            file=sys.stderr,
        )
    encoded = EncodedPairs(pairs, tokenizers)
    chosen = np.flatnonzero(encoded.lengths <= config.max_length).tolist()
    counts = (
        f"{len(chosen):,} training pairs; left out: {len(read) - len(pairs):,} with an empty side, "
        f"{len(pairs) - len(chosen):,} longer than {config.max_length} tokens (data.max_length)"
    )
    if not chosen:
        raise UserError(f"no training pair is left: {counts}")

    def plan(epoch: int, generator: torch.Generator) -> list[list[int]]:
        return plan_batches(encoded, chosen, max_tokens=config.max_tokens, generator=generator)

    loader = ResumableLoader(
        len(chosen),
        plan,
        lambda indices, _: encoded.batch(indices),
        seed=seed,
        name="the training split",
    )
    batches = loader.batches_of(0)
    share = padding_share(batches, encoded.source_lengths, encoded.target_lengths)
    print(
        f"{counts}; {tokenizers}\n{len(batches):,} batches in the first epoch; {share:.1%} of "
        "their tokens are padding",
        file=sys.stderr,
    )
    return tokenizers, loader


def evaluation_batches(pairs: EncodedPairs, max_tokens: int) -> FixedBatches:
    """Return batches of all pairs of a split, whatever their lengths, without shuffling."""
    batches = plan_batches(pairs, range(len(pairs)), max_tokens=max_tokens, generator=None)
    return FixedBatches(batches, lambda indices, _: pairs.batch(indices))


def plan_batches(
    pairs: EncodedPairs,
    chosen: Sequence[int],
    *,
    max_tokens: int,
    generator: torch.Generator | None,
) -> list[list[int]]:
    """Group the chosen pairs into batches with little padding on both sides.

    Pairs are sorted by the length of their longer side, which fills the batch, and within one
    length by the difference of both sides, in alternating direction, so that neighbours differ
    little in either. Sorting by target and then source, as is usual, pads about twice as much.

    max_tokens: maximum size of a batch in tokens, padding included, on either side; a longer pair
    is a batch of its own. generator: shuffles pairs of equal lengths and the order of the batches;
    None keeps the sorted order. Each chosen pair is in exactly one batch.
    """
    order = np.array(chosen, dtype=np.int64)  # [N]
    if generator is not None:
        order = order[torch.randperm(len(order), generator=generator).numpy()]
    lengths = pairs.lengths[order]  # [N]
    difference = pairs.source_lengths[order] - pairs.target_lengths[order]  # [N]
    alternating = np.where(lengths % 2 == 0, difference, -difference)  # [N]
    # lexsort is stable: pairs of equal lengths keep the shuffled order.
    by_length = np.lexsort((alternating, lengths))  # [N]
    batches: list[list[int]] = []
    # Lengths rise, so that the next pair is the longest of the batch that it joins.
    for index, length in zip(order[by_length].tolist(), lengths[by_length].tolist(), strict=True):
        if not batches or (len(batches[-1]) + 1) * length > max_tokens:
            batches.append([])
        batches[-1].append(index)
    if generator is not None:
        shuffled = torch.randperm(len(batches), generator=generator).tolist()
        batches = [batches[index] for index in shuffled]
    return batches
