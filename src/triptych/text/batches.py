"""Examples of text as ids, and their batches: of a number of tokens, with little padding."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.errors import UserError
from triptych.training.loading.batches import Items, Ragged, batches_by_length, parts, plan_parts
from triptych.training.loading.loader import FixedBatches, ResumableLoader


class Examples(ABC):
    """Examples of a split as ids, of one side or, for translation, of two."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of examples."""

    @abstractmethod
    def sizes(self, items: range) -> NDArray[np.int64]:
        """Return the length of each side of consecutive examples in tokens, [N, sides]."""

    @abstractmethod
    def batch(self, items: Items, generator: torch.Generator | None) -> Any:
        """Return the examples of these numbers as one batch of tensors.

        generator: of everything that is drawn anew in each epoch; None in a validation, where what
        is drawn depends on the number of the example alone.
        """

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of the longer side of each example in tokens, [N]."""
        longer: NDArray[np.int64] = self.sizes(range(len(self))).max(1)
        return longer


def training_batches(
    examples: Examples, max_tokens: int, *, seed: int, max_length: int | None = None
) -> ResumableLoader:
    """Return the loader of the training examples; those longer than max_length are left out.

    Its first epoch is planned here. Raises UserError where no example is left.
    """

    def chosen(items: range) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        sizes = examples.sizes(items)  # [N, sides]
        kept = np.arange(len(items))
        if max_length is not None:
            kept = np.flatnonzero(sizes.max(1) <= max_length)
        return kept, sizes[kept]

    def plan(items: range, generator: torch.Generator) -> Ragged:
        kept, sizes = chosen(items)
        batches = plan_batches(sizes, max_tokens, generator)
        return Ragged(kept[batches.values] + items.start, batches.offsets)

    every = parts(len(examples))
    count = sum(len(chosen(items)[0]) for items in every)
    if not count:
        longer = f", all {len(examples):,} longer than {max_length} tokens" if examples else ""
        raise UserError(f"no training example is left{longer} (data.max_length)")
    whole = plan_parts(len(examples), plan, seed=seed)
    return ResumableLoader(
        count, whole, examples.batch, seed=seed, name="the training split", n_parts=len(every)
    )


def evaluation_batches(
    examples: Examples, max_tokens: int, *, limit: int | None = None
) -> FixedBatches:
    """Return batches of all examples, or of the first ones, whatever their lengths, in order."""
    sizes = examples.sizes(range(min(len(examples), limit or len(examples))))
    return FixedBatches(plan_batches(sizes, max_tokens, None), examples.batch)


def plan_batches(
    sizes: NDArray[np.int64], max_tokens: int, generator: torch.Generator | None
) -> Ragged:
    """Group examples into batches with little padding on every side; return their numbers.

    Examples are sorted by the length of their longer side, which fills the batch, and within one
    length by the difference of both sides, in alternating direction. Sorting by target and then
    source, as is usual, pads about twice as much.

    sizes: lengths in tokens, [N, sides]. max_tokens: of a batch, padding included, on either side;
    a longer example is a batch of its own. generator: shuffles examples of equal lengths and the
    batches; None keeps the sorted order.
    """
    order = np.arange(len(sizes))
    if generator is not None:
        order = torch.randperm(len(sizes), generator=generator).numpy()
    sides = sizes[order]  # [N, sides]
    lengths = sides.max(1)  # [N]
    difference = sides[:, 0] - sides[:, -1]  # [N]
    # lexsort is stable: examples of equal lengths keep the shuffled order.
    by_length = np.lexsort((np.where(lengths % 2 == 0, difference, -difference), lengths))
    return batches_by_length(order[by_length], lengths[by_length], max_tokens, generator)
