"""Sentence pairs of known entropy: random words, and the same words backwards with mistakes."""

import string
from dataclasses import dataclass

import numpy as np

from triptych.domains.translation.corpora import Corpus, Pair
from triptych.training.known_law import KnownLaw, NoisyCopy, chances

LETTERS = np.array(list(string.ascii_lowercase))


@dataclass(frozen=True)
class ReversedSentences(Corpus, KnownLaw):
    """Random words, each a letter, to be said backwards; some of them are replaced on the way.

    The law: a source has from `shortest` to `longest` words, each length as likely, each word drawn
    from all, each as likely. The target has the words in reverse; each stays with probability
    1 - change, else it is one of the others, each as likely. A target of n words has, given its
    source, n h nats, h = -(1 - change) ln(1 - change) - change ln(change / (words - 1)), and n + 1
    tokens: words are letters between blanks, so that byte-pair encoding, which never joins what a
    blank parts, makes one token of each (its blank with it, wherever the training side has shown
    the two together), and the end, which costs nothing as the source tells how many words there
    are. Over many sentences of n words on average a token has n h / (n + 1) nats.
    """

    source_language: str = "art"
    """Language code of the source; art is that of artificial languages."""
    target_language: str = "art"
    """Language code of the target."""
    words: int = 16
    """Words of the language, 2 to 26."""
    shortest: int = 4
    """Fewest words in a sentence."""
    longest: int = 10
    """Most words in a sentence."""
    change: float = 0.1
    """Probability that a word of the target is another one, above 0 and below 1."""
    train: int = 40_000
    """Pairs to train on."""
    validation: int = 500
    """Pairs that are scored while training."""
    test: int = 1_000
    """Pairs for the end."""
    seed: int = 0
    """Seed of the draw; each split has its own random numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.words <= len(LETTERS):
            raise ValueError(f"words is {self.words}; expected 2 to {len(LETTERS)} letters.")
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"shortest {self.shortest} and longest {self.longest} are no range of lengths "
                "from 1 word on."
            )
        if min(self.train, self.validation, self.test) < 1:
            raise ValueError("train, validation and test must each be at least one pair.")
        self._copy()

    def _copy(self) -> NoisyCopy:
        return NoisyCopy(self.words, self.change)

    def splits(self) -> list[str]:
        """Always train, validation and test."""
        return ["train", "validation", "test"]

    def check(self) -> None:
        """Nothing is needed."""

    def pairs(self, split: str) -> list[Pair]:
        """Draw a split; the same one every time."""
        self.check_split(split)
        count = {"train": self.train, "validation": self.validation, "test": self.test}[split]
        drawn = chances(self.seed, split, (count, 1 + 2 * self.longest))
        lengths = self.shortest + (drawn[:, 0] * (self.longest - self.shortest + 1)).astype(int)
        sources = (drawn[:, 1 : self.longest + 1] * self.words).astype(np.int64)  # [N, longest]
        found = []
        for words, mistakes, length in zip(
            sources, drawn[:, self.longest + 1 :], lengths, strict=True
        ):
            source = words[:length]  # [n]
            target = self._copy().apply(source[::-1], mistakes[:length])  # [n]
            found.append((" ".join(LETTERS[source]), " ".join(LETTERS[target])))
        return found

    def entropy(self) -> float:
        """Nats per target token of the law, ends included."""
        length = (self.shortest + self.longest) / 2
        return length * self._copy().entropy() / (length + 1)

    def nll(self, split: str, limit: int | None = None) -> float:
        """The law's own nats of the split's targets, or of its first ones, given their sources."""
        stays = [
            word == other
            for source, target in self.pairs(split)[:limit]
            for word, other in zip(reversed(source.split()), target.split(), strict=True)
        ]
        return self._copy().nll(sum(stays), len(stays) - sum(stays))
