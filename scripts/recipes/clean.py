"""Training pairs of a translation config without those that teach nothing or are held out.

Left out are pairs with a side without a letter, of equal sides, of unequal lengths, repeated pairs,
and pairs with a sentence of another split, compared in lower case without punctuation.

Writes train.SOURCE and train.TARGET, named by the languages, whose lines belong together, and
left_out.tsv with the numbers of pairs that were left out, by reason. The licence of the texts
applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from triptych.errors import UserError
from triptych.text.tables import SPACES
from triptych.types import Checked

from ._pairs import corpus_of, fault, held_out_keys, report


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """The pairs, and which are kept."""

    config: str = "multi30k-en-de"
    """Settings file, or name of a shipped one, whose data.source has the pairs."""
    directory: str | None = None
    """Folder of the source's files; null for the one of the config."""
    exclude: tuple[str, ...] = ()
    """More text files of which no sentence may be in a pair."""
    max_ratio: float = 3.0
    """Largest ratio of the lengths of both sides in bytes of UTF-8."""


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, ...]]]]:
    """Yield the files; raises UserError for a config of several source languages."""
    corpus, left_out = corpus_of(options.config, options.directory), Counter[str]()
    languages = [*corpus.source_language.split("+"), corpus.target_language]
    if len(languages) != 2:
        raise UserError(
            f"{options.config} has the languages {', '.join(languages)}; expected one source "
            "language and one target language"
        )
    held_out, kept = held_out_keys(corpus, options.exclude), dict[tuple[str, str], None]()
    for source, target in corpus.items("train"):
        pair = source.strip(SPACES), target.strip(SPACES)
        if reason := fault(*pair, held_out, options.max_ratio):
            left_out[reason] += 1
        elif pair in kept:
            left_out["repeated pairs"] += 1
        else:
            kept[pair] = None
    for side, language in enumerate(languages):
        yield f"train.{language}", ((pair[side],) for pair in kept)
    yield "left_out.tsv", report(left_out)
