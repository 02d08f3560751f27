"""Word pairs of a Chinese-English dictionary in the form of CC-CEDICT, for a small corpus.

A line is `TRADITIONAL SIMPLIFIED [pin1 yin1] /gloss/gloss; gloss/`, lines that begin with # are
comments. Many glosses explain and do not translate: only short ones of plain words are kept, as
they stand. Written forms with glosses of several readings (行) say too little without a sentence.

Writes pairs.tsv with the columns `source` and `target`, for data.additional_pairs, and left_out.tsv
with the numbers of what was left out, by reason. No sentence of a split other than training is in a
pair, compared in lower case without punctuation. CC-CEDICT has the licence CC BY-SA 4.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from triptych.domains.translation.sources import Pair
from triptych.files.lines import read_lines
from triptych.types import Checked, PositiveInt

from ._pairs import HEADER, corpus_of, held_out_keys, key, report

ENTRY = re.compile(r"(\S+) (\S+) \[([^\]]*)\] /(.+)/\s*")
"""Traditional and simplified form, reading, glosses."""
HAN = re.compile(r"[\u3400-\u9fff\U00020000-\U000323af]+")
"""Forms that are kept: without Latin letters, digits and punctuation marks."""
END = re.compile(r"/|;(?![^(]*\))")
"""What ends a gloss: a semicolon in brackets does not."""
RULES = {
    "glosses with brackets": r"[()\[\]{}]",
    "references to other entries": r"\b(variant|form|short|contraction|equivalent) (of|for|to)\b"
    r"|\babbr\.|^(see|same as|also (written|called|known)|also pr|pr|cf|[ie]\.[eg])\b",
    "surnames": r"\bsurnames?\b",
    "notes on use": r"^(CL:|used (in|as|to|for|with|before|after)\b|lit\.|fig\.|classifier|name of"
    r"|onom|((radical|prefix|suffix|particle) (in|of|for)|(indicat|denot|express|referr)ing)\b)",
    "glosses with alternatives or placeholders": r"\b(or|sb|sth|one's|oneself|etc|esp|usu)\b",
    "glosses with marks, digits or letters of other scripts": r"[^A-Za-zÀ-ÿ' -]",
}
"""Reason -> glosses that are left out for it; the first reason counts."""


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """The dictionary, and which of its glosses are kept."""

    dictionary: str
    """File of the dictionary: text, .gz or .xz."""
    config: str = "ko-zh-en"
    """Settings file, or name of a shipped one, with the splits that no pair may touch."""
    directory: str | None = None
    """Folder of the source's files; null for the one of the config."""
    exclude: tuple[str, ...] = ()
    """More text files of which no sentence may be in a pair."""
    max_glosses: PositiveInt = 3
    """Maximum number of glosses of an entry, the first ones."""
    max_words: PositiveInt = 4
    """Maximum number of words of a gloss."""
    names: bool = False
    """Keep names of people and places: glosses with capitals under a reading with one."""
    traditional: bool = True
    """Write the traditional form too, where it differs."""


def main(options: Options) -> Iterator[tuple[str, Iterable[Pair]]]:
    """Yield the files."""
    lines, left_out = read_lines(Path(options.dictionary)), Counter[str]()
    held_out = held_out_keys(corpus_of(options.config, options.directory), options.exclude)
    yield "pairs.tsv", [HEADER, *pairs(lines, held_out, left_out, options)]
    yield "left_out.tsv", report(left_out)


def pairs(
    lines: Iterable[str], held_out: set[str], left_out: Counter[str], options: Options
) -> list[Pair]:
    """Return the pairs of a dictionary, each once; count what is left out."""
    readings: dict[str, list[tuple[str, list[str]]]] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if (entry := ENTRY.fullmatch(line)) is None:
            left_out["damaged lines"] += 1
        elif not HAN.fullmatch(entry[1] + entry[2]):
            left_out["entries with other signs than Chinese characters"] += 1
        elif found := glosses(entry[4], entry[3][:1].isupper(), left_out, options):
            readings.setdefault(entry[2], []).append((entry[1], found))
    kept: dict[Pair, None] = {}
    for simplified, entries in readings.items():
        if len(entries) > 1:
            left_out["entries of one form with several readings"] += len(entries)
            continue
        traditional, found = entries[0]
        forms = [simplified, traditional] if options.traditional else [simplified]
        for pair in ((form, gloss) for gloss in found for form in dict.fromkeys(forms)):
            if held_out & {*map(key, pair)}:
                left_out["pairs with a held-out sentence"] += 1
            else:
                kept[pair] = None
    return list(kept)


def glosses(text: str, name: bool, left_out: Counter[str], options: Options) -> list[str]:
    """Return the first glosses of an entry that no rule leaves out."""
    found: list[str] = []
    for gloss in filter(None, map(str.strip, END.split(text))):
        reason = next((reason for reason, rule in RULES.items() if re.search(rule, gloss)), None)
        if reason:
            left_out[reason] += 1
        elif name and not options.names and gloss != gloss.lower():
            left_out["names"] += 1
        elif len(gloss.split()) > options.max_words:
            left_out["glosses of too many words"] += 1
        elif len(found) == options.max_glosses:
            left_out["glosses after the first ones"] += 1
        else:
            found.append(gloss)
    return found
