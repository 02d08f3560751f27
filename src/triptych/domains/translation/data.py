"""Training and validation data of a run: vocabulary, encoded pairs and padded batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.translation.model import END, START, Tokenizers
from triptych.domains.translation.packed import read_pack
from triptych.domains.translation.phrases import compounds, phrase_pairs
from triptych.domains.translation.sources import Pair
from triptych.errors import UserError
from triptych.text.tokenizer import PAD
from triptych.training.loading.batches import (
    Items,
    Ragged,
    batches_by_length,
    generator_for,
    padding_share,
    parts,
    plan_parts,
)
from triptych.training.loading.loader import FixedBatches, ResumableLoader
from triptych.training.loading.packed import release_maps

if TYPE_CHECKING:
    from triptych.domains.translation.config import DataConfig


class Batch(NamedTuple):
    """Sentence pairs as ids, padded at the end of each row."""

    source: Tensor
    """Source ids, int64 [B, K]; each row ends with END."""
    target: Tensor
    """Target ids, int64 [B, L + 1]; each row begins with START and ends with END."""

    @property
    def source_padding(self) -> Tensor:
        """True on padding, bool [B, K]."""
        return self.source == PAD

    @property
    def target_input(self) -> Tensor:
        """Decoder input, [B, L]: all columns but the last."""
        return self.target[:, :-1]  # [B, L]

    @property
    def expected(self) -> Tensor:
        """Targets to predict, [B, L]: all columns but START."""
        return self.target[:, 1:]  # [B, L]


class EncodedPairs:
    """Sentence pairs as ids, sources with END, targets with START and END."""

    def __init__(self, sources: Ragged, targets: Ragged) -> None:
        self.sources = sources
        self.targets = targets

    @classmethod
    def of(cls, pairs: Sequence[Pair], tokenizers: Tokenizers) -> EncodedPairs:
        """Return the ids of pairs."""
        sources = tokenizers.source.encode_batch([source for source, _ in pairs])
        targets = tokenizers.target.encode_batch([target for _, target in pairs])
        return cls(
            Ragged.of(([*row, END] for row in sources), np.int32),
            Ragged.of(([START, *row, END] for row in targets), np.int32),
        )

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def source_lengths(self) -> NDArray[np.int64]:
        """Tokens of each source, END included, [N]."""
        return self.sources.lengths

    @cached_property
    def target_lengths(self) -> NDArray[np.int64]:
        """Tokens to predict for each target, END included, [N]."""
        return self.targets.lengths - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of the longer side of each pair, [N]."""
        return np.maximum(self.source_lengths, self.target_lengths)

    def part(self, items: range) -> EncodedPairs:
        """Return consecutive pairs, without a copy."""
        return EncodedPairs(self.sources.part(items), self.targets.part(items))

    def batch(self, indices: Items, generator: torch.Generator | None = None) -> Batch:
        """Return the pairs of these indices as one batch; nothing is augmented."""
        sides = (self.sources, self.targets)
        return Batch(*(torch.from_numpy(side.padded(indices, PAD)) for side in sides))


def pad_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of ids as one int64 [B, longest], with PAD after the end of each row."""
    return torch.from_numpy(Ragged.of(rows).padded(range(len(rows)), PAD))  # [B, longest]


def read_training_data(
    config: DataConfig, *, seed: int, vocabulary: dict[str, Any] | None = None
) -> tuple[Tokenizers, ResumableLoader]:
    """Return the vocabulary, learnt from the training split, and the loader of this split.

    Pairs with an empty side and pairs longer than `max_length` are left out. seed: of the order of
    the pairs. vocabulary: of the checkpoint that initialises the run, which replaces the one to
    learn; see `Tokenizers.to_plain`. Prints the number of pairs, tokens and batches. Raises
    UserError for missing or damaged files and without a training pair.
    """
    if config.packed is not None:
        tokenizers, *sides, left_out = read_pack(config.packed, "train")
        encoded = EncodedPairs(*sides)
        if vocabulary not in (None, tokenizers.to_plain()):
            raise UserError(
                f"data.packed {config.packed} has another vocabulary than the checkpoint whose "
                "weights the run starts with"
            )
    else:
        tokenizers, encoded, left_out = _read_source(config, vocabulary)

    def chosen(items: range) -> tuple[EncodedPairs, NDArray[np.int64]]:
        part = encoded.part(items)
        found = np.flatnonzero(part.lengths <= config.max_length)
        release_maps()  # of the offsets
        return part, found

    n_chosen = sum(len(chosen(items)[1]) for items in parts(len(encoded)))
    counts = (
        f"{n_chosen:,} training pairs; left out: {left_out:,} with an empty side, "
        f"{len(encoded) - n_chosen:,} longer than {config.max_length} tokens (data.max_length)"
    )
    if not n_chosen:
        raise UserError(f"no training pair is left: {counts}")

    def plan(items: range, generator: torch.Generator) -> Ragged:
        batches = plan_batches(*chosen(items), max_tokens=config.max_tokens, generator=generator)
        return Ragged(batches.values + items.start, batches.offsets)

    loader = ResumableLoader(
        n_chosen,
        plan_parts(len(encoded), plan, seed=seed),
        encoded.batch,
        seed=seed,
        name="the training split",
        n_parts=len(parts(len(encoded))),
    )
    first = parts(len(encoded))[0]
    part = encoded.part(first)
    batches = plan(first, generator_for(seed, 0))
    share = padding_share(batches, part.source_lengths, part.target_lengths)
    print(
        f"{counts}; {tokenizers}\n{len(loader):,} batches in the first epoch; {share:.1%} of "
        "their tokens are padding",
        file=sys.stderr,
    )
    return tokenizers, loader


def _read_source(
    config: DataConfig, vocabulary: dict[str, Any] | None
) -> tuple[Tokenizers, EncodedPairs, int]:
    """Return the vocabulary, the training pairs and the number of pairs with an empty side."""
    read = config.source.pairs("train")
    pairs = [pair for pair in read if pair[0] and pair[1]]
    left_out = len(read) - len(pairs)
    if config.phrase_min_count:
        phrases = phrase_pairs(pairs, config.phrase_min_count)
        pairs += [*phrases, *compounds(phrases, config.phrase_compounds)]
    if vocabulary is None:
        tokenizers = Tokenizers.train(
            [source for source, _ in pairs],
            [target for _, target in pairs],
            kind=config.tokenizer,
            vocabulary_size=config.vocabulary_size,
            shared=config.shared_vocabulary,
        )
    else:
        tokenizers = Tokenizers.from_plain(vocabulary)
        print(
            "the vocabulary is the checkpoint's; the settings of data do not apply to it",
            file=sys.stderr,
        )
    return tokenizers, EncodedPairs.of(pairs, tokenizers), left_out


def read_validation_pairs(config: DataConfig) -> list[Pair]:
    """Return the validation pairs; those of a pack are decoded, as byte-level ids lose nothing."""
    if config.packed is None:
        return config.source.pairs("validation")
    tokenizers, sources, targets, _ = read_pack(config.packed, "validation")
    return list(
        zip(
            tokenizers.source.decode_batch(row.tolist() for row in sources),
            tokenizers.target.decode_batch(row.tolist() for row in targets),
            strict=True,
        )
    )


def evaluation_batches(pairs: EncodedPairs, max_tokens: int) -> FixedBatches:
    """Return batches of all pairs of a split, whatever their lengths, without shuffling."""
    batches = plan_batches(pairs, range(len(pairs)), max_tokens=max_tokens, generator=None)
    return FixedBatches(batches, pairs.batch)


def plan_batches(
    pairs: EncodedPairs,
    chosen: Items | range,
    *,
    max_tokens: int,
    generator: torch.Generator | None,
) -> Ragged:
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
    return batches_by_length(order[by_length], lengths[by_length], max_tokens, generator)
