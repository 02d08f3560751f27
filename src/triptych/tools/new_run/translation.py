"""What a user's parallel text holds: pairs, languages, scripts, and what is wrong with it."""

import statistics
from pathlib import Path
from typing import Any

from triptych.config.schema import to_plain
from triptych.domains.options import counted
from triptych.domains.translation.domain import TranslationNewRunOptions
from triptych.domains.translation.sources import Pair, ParallelText, TabSeparated
from triptych.errors import UserError
from triptych.files.splits import hash_position
from triptych.tools.new_run.columns import LANGUAGES, language_code
from triptych.tools.new_run.data import (
    HELD_OUT,
    SHARES,
    Description,
    Setting,
    held_out,
    left_out,
    letters,
    scripts,
    span,
)
from triptych.tools.new_run.parallel import FoundText, find_text, is_side

LANGUAGE_OF_SCRIPT = {
    "HANGUL": "ko", "HIRAGANA": "ja", "KATAKANA": "ja", "CJK": "zh", "THAI": "th", "LAO": "lo",
    "KHMER": "km", "MYANMAR": "my", "GREEK": "el",
}  # fmt: skip
"""Scripts of one language, as Unicode names begin."""
UNKNOWN = ("qaa", "qab")
"""Codes for a source and a target of unknown language: ISO 639-2 reserves them for private use."""
LOOKED_AT = 2000
"""Lines whose script is looked at."""
LEAST = 100
"""Fewest pairs of which a vocabulary and a model can be learnt."""
CHARACTERS_PER_TOKEN = 3.5
"""Rough length of a token of byte-pair encoding."""


def describe(options: TranslationNewRunOptions) -> Description:
    """Look at parallel text.

    Raises UserError as `find_text` does, for files with unequal numbers of lines, for text that is
    not UTF-8, and for too few pairs.
    """
    data = Path(options.data).expanduser()
    found = find_text(data, (options.source_language, options.target_language))
    missing = [split for split in HELD_OUT if split not in found.files]
    drawn = {f"{split}_share": SHARES[0] for split in missing}
    pairs = list(_source(found, UNKNOWN, drawn).read_files("train"))
    full = [pair for pair in pairs if all(pair)]
    if len(full) < LEAST:
        raise UserError(
            f"--data {data} has {counted(len(full), 'sentence pair', 'sentence pairs')} to train "
            f"on; expected {LEAST} or more"
        )
    languages, advice = _languages(found.sides, full, options)
    places = [hash_position(source.encode()) for source, _ in full]
    shares = held_out(places, missing, usual=0.02, least=20)
    source = _source(found, languages, {name: share.value for name, share in shares.items()})
    facts = [f"direction: from {found.sides[0]} to {found.sides[1]}"]
    facts += _facts(found.sides, languages, pairs, full)
    if splits := [split for split in source.files if split != "train"]:
        facts.append(f"splits with pairs of their own: {', '.join(splits)}")
    facts += left_out(found.left_out)
    return Description(
        template="own-text",
        unit="sentence pairs",
        amount=len(full),
        items=sum(max(len(a), len(b)) / CHARACTERS_PER_TOKEN + 1 for a, b in full),
        settings={"data.source": Setting(to_plain(source))},
        facts=facts,
        advice=advice,
    )


def _source(found: FoundText, languages: tuple[str, str], shares: dict[str, float]) -> ParallelText:
    """Return the source of data; shares: of the held-out splits that the files lack."""
    settings: dict[str, Any] = {"files": found.files, **(found.columns or {}), **shares}
    kind = ParallelText if found.columns is None else TabSeparated
    return kind(*languages, directory=str(found.directory), **settings)


def _languages(
    sides: tuple[str, str], pairs: list[Pair], options: TranslationNewRunOptions
) -> tuple[tuple[str, str], list[str]]:
    """Return the language codes of both sides, and advice about them.

    Raises UserError for a language of the options that the names contradict.
    """
    advice: list[str] = []
    codes: list[str] = []
    given = (options.source_language, options.target_language)
    for side, (name, asked) in enumerate(zip(sides, given, strict=True)):
        named = LANGUAGES.get(name.lower()) or language_code(name)
        if asked is not None and named is None and is_side(name, asked):
            asked = None  # it chose the side, whose language it does not say
        if asked is not None and named is not None and not is_side(name, asked):
            option = ("source_language", "target_language")[side]
            raise UserError(f"--{option} is {asked}, but the names say {' and '.join(sides)}")
        script = scripts(pair[side] for pair in pairs[:LOOKED_AT]).most_common(1)
        guess = LANGUAGE_OF_SCRIPT.get(script[0][0]) if script else None
        codes.append(asked or named or guess or UNKNOWN[side])
        if codes[-1] in UNKNOWN:
            advice.append(
                f"the language of {name} is not known and is written {codes[-1]}: put its code "
                "there, which the scores use"
            )
    advice.append(
        f"this translates {sides[0]} into {sides[1]}; for the other direction swap both sides"
        if UNKNOWN[1] in codes or UNKNOWN[0] in codes
        else f"for the other direction: --source_language {codes[1]}"
    )
    return (codes[0], codes[1]), advice


def _facts(
    sides: tuple[str, str], languages: tuple[str, str], pairs: list[Pair], full: list[Pair]
) -> list[str]:
    """Return sentences about numbers, lengths and scripts."""
    empty = len(pairs) - len(full)
    left_out = f", {empty:,} with an empty side, which are left out" if empty else ""
    lines = [f"{len(pairs):,} sentence pairs to train on or to hold out{left_out}"]
    for side, (name, code) in enumerate(zip(sides, languages, strict=True)):
        texts = [pair[side] for pair in full]
        named = name if name == code else f"{name} ({code})"
        lines.append(
            f"{named}: {span([len(text.split()) for text in texts], ' words')} a line, "
            f"median {statistics.median(map(len, texts)):.0f} characters; letters: "
            f"{letters(texts[:LOOKED_AT])}"
        )
    return lines
