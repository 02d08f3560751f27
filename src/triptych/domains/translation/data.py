"""Training and validation data of a run: vocabulary, encoded pairs and padded batches."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.translation.model import END, START, Tokenizers
from triptych.domains.translation.quality import N_USUAL, table
from triptych.domains.translation.sources import Pair
from triptych.errors import UserError
from triptych.text.batches import Examples, training_batches
from triptych.text.tokenizer import PAD
from triptych.training.loading.batches import Items, Ragged
from triptych.training.loading.loader import ResumableLoader

if TYPE_CHECKING:
    from triptych.domains.translation.config import DataConfig

LOG = logging.getLogger(__name__)


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


class EncodedPairs(Examples):
    """Sentence pairs as ids, sources with END, targets with START and END."""

    def __init__(self, sources: Ragged, targets: Ragged) -> None:
        self.sources = sources
        self.targets = targets

    @classmethod
    def of(cls, pairs: Sequence[Pair], tokenizers: Tokenizers) -> EncodedPairs:
        sources = tokenizers.source.encode_batch([source for source, _ in pairs])
        targets = tokenizers.target.encode_batch([target for _, target in pairs])
        return cls(
            Ragged.of(([*row, END] for row in sources), np.int32),
            Ragged.of(([START, *row, END] for row in targets), np.int32),
        )

    def __len__(self) -> int:
        return len(self.sources)

    def sizes(self, items: range) -> NDArray[np.int64]:
        """Return the tokens of consecutive sources and the tokens to predict, ends included."""
        sides = (self.sources.part(items).lengths, self.targets.part(items).lengths - 1)
        return np.stack(sides, axis=1)  # [N, 2]

    def batch(self, indices: Items, generator: torch.Generator | None = None) -> Batch:
        sides = (self.sources, self.targets)
        return Batch(*(torch.from_numpy(side.padded(indices, PAD)) for side in sides))


def read_training_data(
    config: DataConfig, *, seed: int, vocabulary: dict[str, Any] | None = None
) -> tuple[Tokenizers, ResumableLoader, list[Pair]]:
    """Return the vocabulary, learnt from the training split, its loader, and the validation pairs.

    Pairs with an empty side and pairs longer than `max_length` are left out, and counted in what is
    printed. vocabulary: of a trained model, see `Tokenizers.to_plain`.
    Raises UserError for missing or damaged files and without a training pair.
    """
    read = config.source.read_to_train()
    if config.source.held_out() and len(looks := table(read)) > N_USUAL:
        LOG.warning("what the data look like:\n%s", "\n".join(looks))
    validation, pairs = read["validation"], [*read.pop("train"), *config.more_pairs()]
    filled = list(filter(all, pairs))  # with text on both sides
    left_out = len(pairs) - len(filled)
    if vocabulary is None:
        tokenizers = Tokenizers.train(
            [source for source, _ in filled],
            [target for _, target in filled],
            kind=config.tokenizer,
            vocabulary_size=config.vocabulary_size,
            shared=config.shared_vocabulary,
        )
    else:
        tokenizers = Tokenizers.from_plain(vocabulary)
        print(
            "the vocabulary is that of the trained model; the settings of data do not apply to it",
            file=sys.stderr,
        )
    encoded = EncodedPairs.of(filled, tokenizers)

    if not len(encoded):
        raise UserError(f"no training pair is left: {left_out:,} with an empty side")
    loader = training_batches(encoded, config.max_tokens, seed=seed, max_length=config.max_length)
    print(
        f"{loader.n_items:,} training pairs; left out: {left_out:,} with an empty side, "
        f"{len(encoded) - loader.n_items:,} longer than {config.max_length} tokens "
        f"(data.max_length); {tokenizers}\n{len(loader):,} batches in the first epoch",
        file=sys.stderr,
    )
    return tokenizers, loader, validation
