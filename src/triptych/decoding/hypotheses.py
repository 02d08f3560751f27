"""Result of a beam search: its hypotheses and their margin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One output sequence of a beam search."""

    tokens: list[int]
    """Token ids without start and end."""
    score: float
    """log p over the length penalty."""
    log_probability: float
    """log p in nats, the end token included where the hypothesis is finished."""
    finished: bool
    """Whether it ends with the end token rather than at the length limit."""


@dataclass(frozen=True)
class SearchResult:
    """The result of the search for one row."""

    best: list[Hypothesis]
    """The n best hypotheses, best first."""
    margin: float
    """Smallest difference in log p per token between two candidates that a decision compared, in
    nats. If every log p per token changes by less than half of it, every decision stays as it was,
    and so do the tokens of `best`. Near-ties, which rounding could decide, have a small margin: the
    caller may search them again in double precision."""
