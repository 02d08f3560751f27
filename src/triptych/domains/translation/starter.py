"""Starter config for parallel text: pairs, lengths and scripts, and what they suggest."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from triptych.config.schema import to_plain
from triptych.config.template import Setting
from triptych.domains.starter import (
    HELD_OUT,
    SHARES,
    Size,
    Starter,
    held_out_share,
    letters,
    scripts,
    size_for,
    span,
    steps,
)
from triptych.domains.translation.domain import TranslationNewRunOptions
from triptych.domains.translation.parallel_files import (
    LANGUAGE_OF_SCRIPT,
    LOOKED_AT,
    UNKNOWN,
    ParallelFiles,
    Table,
    find_text,
    language_code,
)
from triptych.domains.translation.sources import FileCorpus, Pair, ParallelText, TabSeparated
from triptych.errors import UserError
from triptych.files.splits import hash_position

LEAST = 100
"""Fewest pairs of which a vocabulary and a model can be learnt."""
CHARACTERS_PER_TOKEN = 3.5
"""Rough length of a token of byte-pair encoding."""
SIZES = (
    Size(3, 128, 4, 256, 0.3, batch=2048, epochs=40, below=5000, vocabulary=1000),
    Size(4, 160, 4, 320, 0.3, batch=4096, epochs=30, below=50_000, vocabulary=4000),
    Size(6, 256, 8, 1024, 0.2, batch=8192, epochs=10, below=500_000, vocabulary=8000),
    Size(6, 512, 8, 2048, 0.1, batch=16_384, epochs=5, vocabulary=16_000),
)
"""By the number of pairs."""


def look(options: TranslationNewRunOptions) -> Starter:
    """Look at parallel text; return the settings of a first run.

    Raises UserError as `find_text` does, for files with unequal numbers of lines, for text that is
    not UTF-8, and for too few pairs.
    """
    data = Path(options.data).expanduser()
    found = find_text(data)
    if options.source_language == found.sides[1] or options.target_language == found.sides[0]:
        found = found.swapped()
    everything = dict.fromkeys(_missing(found), SHARES[0])
    pairs = list(_source(found, UNKNOWN, everything).read_files("train"))
    full = [pair for pair in pairs if all(pair)]
    if len(full) < LEAST:
        raise UserError(
            f"--data {data} has {len(full)} sentence pairs to train on; expected {LEAST} or more"
        )
    languages, advice = _languages(found, full, options)
    source = _source(found, languages, _shares(found, full))
    settings = {"data.source": Setting(to_plain(source)), **_model(full)}
    splits = [split for split in source.file_splits() if split != "train"]
    sentences = _sentences(found.sides, languages, pairs, full)
    if splits:
        sentences.append(f"splits with pairs of their own: {', '.join(splits)}")
    return Starter("own-text", sentences, settings, advice)


def _source(
    found: ParallelFiles | Table, languages: tuple[str, str], shares: dict[str, float]
) -> FileCorpus:
    """Return the source of data.

    shares: of the held-out splits that the files do not have.
    """
    arguments: dict[str, Any] = {
        "directory": str(found.directory),
        "source_language": languages[0],
        "target_language": languages[1],
    }
    if isinstance(found, ParallelFiles):
        kind: type[FileCorpus] = ParallelText
        files = found.files.items()
        arguments["files"] = {split: [" | ".join(names)] for split, names in files}
    else:
        kind = TabSeparated
        source, target = found.sides
        arguments |= {"files": [found.name], "source_column": source, "target_column": target}
        arguments["split_column"] = found.split_column
        if found.split_column is not None:
            arguments["split_names"] = found.split_names
    arguments |= {f"{split}_share": share for split, share in shares.items()}
    return kind(**arguments)


def _languages(
    found: ParallelFiles | Table, pairs: list[Pair], options: TranslationNewRunOptions
) -> tuple[tuple[str, str], list[str]]:
    """Return the language codes of both sides, and advice about them.

    Raises UserError for a language of the options that the names contradict.
    """
    advice: list[str] = []
    codes: list[str] = []
    given = (options.source_language, options.target_language)
    for side, (name, asked) in enumerate(zip(found.sides, given, strict=True)):
        named = language_code(name)
        if asked is not None and named is not None and asked != named:
            option = ("source_language", "target_language")[side]
            raise UserError(f"--{option} is {asked}, but the names say {' and '.join(found.sides)}")
        script = scripts(pair[side] for pair in pairs[:LOOKED_AT]).most_common(1)
        guess = LANGUAGE_OF_SCRIPT.get(script[0][0]) if script else None
        codes.append(asked or named or guess or UNKNOWN[side])
        if codes[-1] in UNKNOWN:
            advice.append(
                f"the language of {name} is not known and is written {codes[-1]}: put its code "
                "there, which the scores use"
            )
    advice.append(
        f"this translates {found.sides[0]} into {found.sides[1]}; for the other direction swap "
        "both sides"
        if UNKNOWN[1] in codes or UNKNOWN[0] in codes
        else f"for the other direction: --source_language {codes[1]}"
    )
    return (codes[0], codes[1]), advice


def _missing(found: ParallelFiles | Table) -> list[str]:
    """Return the held-out splits without files or rows of their own."""
    own = found.files if isinstance(found, ParallelFiles) else found.split_names
    return [split for split in HELD_OUT if split not in own]


def _shares(found: ParallelFiles | Table, pairs: list[Pair]) -> dict[str, float]:
    """Return the shares of the missing splits."""
    missing = _missing(found)
    if not missing:
        return {}
    places = [hash_position(source.encode()) for source, _ in pairs]
    share, _ = held_out_share(places, missing, usual=0.02, least=20)
    return dict.fromkeys(missing, share)


def _model(pairs: list[Pair]) -> dict[str, Setting]:
    """Return vocabulary, batch, size and length for a number of pairs."""
    why, size = f"for {len(pairs):,} pairs", size_for(len(pairs), SIZES)
    tokens = sum(max(len(a), len(b)) / CHARACTERS_PER_TOKEN + 1 for a, b in pairs)
    characters = f"{why}; scripts with many characters need more"
    return {
        "data.vocabulary_size": Setting(size.vocabulary, characters),
        "data.max_tokens": Setting(size.batch, "tokens of a batch"),
        **size.settings(why),
        **steps(batches=tokens / size.batch, epochs=size.epochs, least=300, most=30_000),
    }


def _sentences(
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
