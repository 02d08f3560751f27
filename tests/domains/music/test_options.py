"""Options of the commands on music, and how long a sample of a tokenizer is."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from triptych.domains.music.domain import DOMAIN, MusicSampleOptions, MusicScoreRequest
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.remi import RemiTokenizer


def options(**changes: Any) -> MusicSampleOptions:
    return MusicSampleOptions(checkpoint="x", out="y", **changes)


GIVEN = {"given": "a.mid", "keep": "soprano"}
VALUES: dict[str, dict[str, Any]] = {
    "given": GIVEN, "melody": {"melody": "a.mid"}, "primer": {"primer": "a.mid"},
    "seconds": {"seconds": 1.0}, "length": {"length": 1}, "instruments": {"instruments": "viola"},
    "top_k": {"top_k": 1}, "top_p": {"top_p": 0.5}, "temperature": {"temperature": 0.0},
    "seed": {"seed": 1},
}  # fmt: skip
TOGETHER = {
    *combinations(("instruments", "top_k", "top_p", "temperature", "primer", "seed"), 2),
    *((name, other) for name in ("length", "seconds", "melody")
      for other in ("instruments", "top_k", "top_p", "temperature", "seed")),
    ("length", "primer"), ("seconds", "primer"),
    *(("given", other) for other in ("instruments", "top_k", "top_p", "seed")),
}  # fmt: skip


@pytest.mark.parametrize(("name", "other"), combinations(VALUES, 2))
def test_which_options_go_together(name: str, other: str) -> None:
    """Each alone, and no two that say how long a piece is or with what it begins."""
    assert options(**VALUES[name])
    both = VALUES[name] | VALUES[other]
    if {name, other} == {"top_k", "temperature"} or {name, other} == {"top_p", "temperature"}:
        return  # a matter of sampling, not of music
    if (name, other) in TOGETHER or (other, name) in TOGETHER:
        assert options(**both)
    else:
        with pytest.raises(ValueError, match=rf"{name}|{other}"):
            options(**both)


@pytest.mark.parametrize("alone", [{"given": "a.mid"}, {"keep": "soprano"}])
def test_half_of_a_pair_is_refused(alone: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"given.*keep"):
        options(**alone)
    with pytest.raises(ValueError, match="statistics"):
        MusicScoreRequest(sample_length=1)
    assert MusicScoreRequest(sample_length=1, statistics=1)


def test_the_files_of_samples() -> None:
    names = [f"piece-0{n}{end}" for n in range(4) for end in (".mid", ".wav", ".png", ".musicxml")]
    assert options().output_names() == names
    assert set(DOMAIN.piece_files) == {".mid"}


@pytest.mark.parametrize(
    ("tokenizer", "seconds", "length", "expected"),
    [
        (ChoraleTokenizer(), 1.0, None, 20), (ChoraleTokenizer(), 0.01, None, 4),
        (ChoraleTokenizer(), None, 3, 12), (EventTokenizer(), 1.0, None, 200),
        (EventTokenizer(), 0.001, None, 1), (EventTokenizer(), None, 3, 3),
        (RemiTokenizer(("viola",)), 1.0, None, 200), (RemiTokenizer(("viola",)), None, 3, 3),
    ],
)  # fmt: skip
def test_tokens_of_a_length(
    tokenizer: MusicTokenizer, seconds: float | None, length: int | None, expected: int
) -> None:
    """Four in a sixteenth of 0.2 s, at most 200 in a second of other music; one unit at least."""
    assert tokenizer.n_tokens(seconds=seconds, length=length) == expected
