"""BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267): the pieces of a text drawn at random.

Byte-pair encoding merges neighbours, the most wanted pair of a word first, until no learnt merge is
left. With dropout each merge that could be done next is passed over with a probability, anew before
every merge, and a word is done when all were passed over. A model so sees rare words in many
spellings. The tokenizers library has it too, drawing from a generator that nobody can seed.

All words of a batch are merged side by side in arrays. A word whose best merge is never passed over
comes out as without dropout, so how many of its best merges are kept is drawn first, one number for
each word, and only the words that lose one are merged at all: 0.9^5 = 59 % are not, for five merges
at a dropout of 0.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from triptych.domains.translation.sentences import Sentences
from triptych.domains.translation.tokenizer import BytePairTokenizer


class Merges:
    """The learnt merges: for a pair of neighbours how soon it is merged, and into what."""

    def __init__(self, tokenizer: BytePairTokenizer) -> None:
        learnt = np.array(tokenizer.merges(), dtype=np.int64).reshape(-1, 3)  # [M, 3]
        self.none = len(learnt)
        """The rank of a pair that is not merged."""
        self.outcome = learnt[:, 2]
        """The id that the merge of each rank gives, int64 [M]."""
        self._types = len(tokenizer)
        keys = learnt[:, 0] * self._types + learnt[:, 1]  # [M]
        order = np.argsort(keys)
        # One more at the end, so that a key above all others has a place to be compared with.
        self._keys = np.append(keys[order], np.iinfo(np.int64).max)  # [M + 1]
        self._ranks = np.append(order, self.none)  # [M + 1]

    def ranks(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The rank of each pair of ids, 0 for what is merged first, `none` for never; int64 [N]."""
        keys = left * self._types + right
        places = np.searchsorted(self._keys, keys)
        return np.where(self._keys[places] == keys, self._ranks[places], self.none)


class DroppedMerges:
    """Lines of text whose ids are drawn anew at each asking.

    dropout: probability that a merge is passed over, above 0 and below 1.
    """

    def __init__(
        self, tokenizer: BytePairTokenizer, lines: Sequence[str], *, dropout: float
    ) -> None:
        self.dropout = dropout
        self._merges = Merges(tokenizer)
        numbers: dict[tuple[int, ...], int] = {}
        # Every different word once; its undropped ids are its name.
        self._lines = Sentences(
            [
                [numbers.setdefault(word, len(numbers)) for word in words]
                for words in tokenizer.encode_words(lines)
            ]
        )
        letters = [tokenizer.letters(word) for word in numbers]
        self._undropped = Sentences(list(numbers))
        self._letters = Sentences(letters)
        self._merges_of = self._letters.lengths - self._undropped.lengths
        ends = np.cumsum(self._letters.lengths) - 1  # [words]
        ids, _ = self._letters.gather(np.arange(len(letters)))
        ranks = self._merges.ranks(ids, np.append(ids[1:], 0))
        ranks[ends] = self._merges.none  # nothing is merged across two words
        self._ranks = Sentences(np.split(ranks, ends[:-1] + 1)) if letters else Sentences([])

    def rows(self, indices: Sequence[int], generator: torch.Generator) -> list[list[int]]:
        """Ids of the lines of these indices, without start and end, as `generator` draws them."""
        words, counts = self._lines.gather(np.array(indices, dtype=np.int64))  # [N], [rows]
        # P(kept >= n) = (1 - dropout)^n: a stretch of tries that all succeed.
        uniform = torch.rand(len(words), generator=generator, dtype=torch.float64).numpy()
        kept = np.floor(np.log1p(-uniform) / np.log1p(-self.dropout))
        touched = kept < self._merges_of[words]  # [N]
        some, others = np.flatnonzero(touched), np.flatnonzero(~touched)
        place, ids = self.merge(words[some], kept[some], generator) if len(some) else (some, some)
        whole, lengths = self._undropped.gather(words[others])
        owner = np.concatenate([some[place], np.repeat(others, lengths)])  # [T]
        order = np.argsort(owner, kind="stable")
        row = np.repeat(np.arange(len(counts)), counts)[owner[order]]  # [T]
        sizes = np.bincount(row, minlength=len(counts))  # [rows]
        ends = np.cumsum(sizes)  # [rows]
        tokens = np.concatenate([ids, whole])[order].tolist()
        spans = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
        return [tokens[start:end] for start, end in spans]

    def merge(
        self, words: np.ndarray, kept: np.ndarray, generator: torch.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Merge words by their numbers, int64 [W]; returns (place in `words`, id) of each piece.

        kept: for each word how many best merges are done before the first is passed over.
        The pieces of one word are in order; those of different words may be mixed.
        """
        ids, lengths = self._letters.gather(words)  # [T], [W]
        ranks, _ = self._ranks.gather(words)  # [T]
        owner = np.repeat(np.arange(len(words)), lengths)  # [T]
        done: list[tuple[np.ndarray, np.ndarray]] = []
        step = 0
        while len(ids):
            size, never = len(ids), self._merges.none * len(ids)
            starts = np.flatnonzero(np.diff(owner, prepend=-1))  # [living words]
            living = owner[starts]
            # The lowest rank of a word, and of equal ones the leftmost.
            key = ranks * size + np.arange(size)  # [T]
            passed_over = torch.rand(size, generator=generator).numpy() < self.dropout
            passed_over &= (kept <= step)[owner]
            passed_over[np.minimum.reduceat(key, starts)[kept[living] == step] % size] = True
            best = np.minimum.reduceat(np.where(passed_over, never, key), starts)
            going = best < never  # [living words]
            going_piece = np.repeat(going, np.diff(starts, append=size))  # [T]
            done.append((owner[~going_piece], ids[~going_piece]))
            left = best[going] % size
            ids[left] = self._merges.outcome[ranks[left]]
            going_piece[left + 1] = False
            at = np.cumsum(going_piece)[left] - 1  # where the merged pieces stand from now on
            ids, owner, ranks = ids[going_piece], owner[going_piece], ranks[going_piece]  # [T']
            changed = np.concatenate([at, at[at > 0] - 1])
            right = np.minimum(changed + 1, len(ids) - 1)
            inside = (owner[changed] == owner[right]) & (changed != right)
            new = self._merges.ranks(ids[changed], ids[right])
            ranks[changed] = np.where(inside, new, self._merges.none)
            step += 1
        places, pieces = zip(*done, strict=True)
        return np.concatenate(places), np.concatenate(pieces)
