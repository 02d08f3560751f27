"""Starter config for text in one language: its files, amount and lengths, and their meaning."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from triptych.config.template import Setting
from triptych.domains.language.domain import LanguageNewRunOptions
from triptych.domains.language.sources.text_files import TextFiles
from triptych.domains.language.user_text import TextData, measure
from triptych.domains.options import counted
from triptych.domains.starter import (
    HELD_OUT,
    Size,
    Starter,
    held_out_settings,
    size_for,
    span,
    steps,
)
from triptych.domains.user_files import data_files, split_in_name, visible
from triptych.errors import UserError
from triptych.files.results import read_lines
from triptych.files.splits import hash_position

TEXTS = (".txt", ".txt.gz")
TABLES = (".tsv", ".tsv.gz")
LEAST = 100
"""Fewest lines, and fewest documents, of which a vocabulary and a model can be learnt."""
LONG_LINE = 5000
"""Characters above which a line is no sentence."""
SIZES = (
    Size(2, 128, 4, 512, 0.3, batch=2048, epochs=30, below=200_000),
    Size(4, 128, 4, 512, 0.1, batch=2048, epochs=5, below=2_000_000),
    Size(6, 256, 8, 1024, 0.1, batch=4096, epochs=3, below=20_000_000, learning_rate=1e-3),
    Size(8, 512, 8, 2048, 0.1, batch=8192, epochs=1, learning_rate=5e-4),
)
"""By the number of tokens."""
MASKED_EPOCHS = 2
"""Passes of a masked-token model for each of a next-token model, as it predicts fewer tokens."""


def look(options: LanguageNewRunOptions) -> Starter:
    """Look at text, or at lines with labels; return the settings of a first run.

    Raises UserError as `data_files` and `look_at_labels` do, for text that is not UTF-8, and for
    too little of it.
    """
    data = Path(options.data).expanduser()
    task = options.task or ("classification" if _is_table(data) else "next_token")
    text = _find(data, options, labelled=task == "classification")
    if task == "classification":
        from triptych.domains.language.labelled_starter import look_at_labels

        return look_at_labels(text)
    return _look_at_text(text, masked=task == "masked")


def _is_table(data: Path) -> bool:
    """Return whether a path is a .tsv file, or a folder of them; UserError for .txt files too."""
    files = [data] if data.is_file() else list(visible(data))
    texts, tables = (any(file.name.endswith(ends) for file in files) for ends in (TEXTS, TABLES))
    if texts and tables:
        raise UserError(
            f"--data {data} holds .txt files and .tsv files; choose some with --task: next_token "
            "or masked for text, classification for lines with labels"
        )
    return tables


def _find(data: Path, options: LanguageNewRunOptions, *, labelled: bool) -> TextData:
    """Return the files of a path; UserError where there are none of this kind."""
    given = f"--data {options.data}"
    if data.is_file():
        if data.suffix == ".csv" or (not labelled and data.name.endswith(TABLES)):
            raise UserError(
                f"{given} is a table; expected plain text with a sentence a line, or for --task "
                "classification a .tsv file: text, tab, label"
            )
        return TextData(given, str(Path(options.data).parent), {"train": [data.name]})
    if not data.exists():
        raise UserError(f"{given} does not exist; expected a text file or a folder of text files")
    suffixes, kind = (TABLES, "tables of text and label") if labelled else (TEXTS, "text files")
    names: dict[str, list[str]] = {split: [] for split in ("train", *HELD_OUT)}
    for path in data_files(data, suffixes, kind):
        name = path.relative_to(data).as_posix()
        names[split_in_name(name)].append(name)
    if not names["train"]:
        names = {"train": sorted(chain.from_iterable(names.values()))}
    return TextData(given, options.data, {split: found for split, found in names.items() if found})


def _look_at_text(data: TextData, *, masked: bool) -> Starter:
    """Return the settings of a first run on plain text."""
    source = TextFiles(data.directory, data.names)
    every = {split: source.read(split) for split in data.names}
    counts = {split: sum(map(len, documents)) for split, documents in every.items()}
    data.check_filled(counts)
    documents = every["train"]
    lines = list(chain.from_iterable(documents))
    longest = max(map(len, lines))
    _check_text(data, source, lines)
    one_per_line = len(documents) < LEAST
    if one_per_line:
        documents = [[line] for line in lines]
    texts = measure(documents, n_specials=2 if masked else 1)
    places = [hash_position(source.key(document).encode()) for document in documents]
    kind = "lines" if one_per_line else "documents"
    shares = held_out_settings(places, data.missing(), kind, usual=0.05, least=10)
    n_tokens = texts.n_tokens * (1 - sum(share.value for share in shares.values()))
    size = size_for(n_tokens, SIZES)
    epochs = size.epochs * (MASKED_EPOCHS if masked else 1)
    why = "each line by itself" if one_per_line else "blank lines separate documents"
    settings = {
        "data.source.directory": Setting(data.directory),
        "data.source.files": Setting(data.names),
        "data.source.one_per_line": Setting(one_per_line, why),
        **{f"data.source.{split}_share": Setting(0.0, "has files") for split in HELD_OUT},
        **shares,
        **texts.settings,
        "data.max_tokens": Setting(size.batch, "tokens of a batch"),
        **size.settings(f"a size for about {n_tokens:,.0f} tokens"),
        **steps(batches=n_tokens / size.batch, epochs=epochs, least=200, most=20_000),
    }
    sentences = [data.sentence(counts, "lines of text"), texts.sentence]
    advice = [
        "for a model that continues text: --task next_token"
        if masked
        else "for a model that fills gaps (BERT): --task masked"
    ]
    if one_per_line:
        advice.append(
            "each line is read by itself; if lines belong together, put blank lines between the "
            f"documents, {LEAST} or more, and write this file again"
        )
    else:
        size_of = span([len(document) for document in documents], " lines")
        sentences.insert(1, f"{len(documents):,} documents between blank lines: {size_of}")
    if longest > LONG_LINE:
        sentences.append(f"the longest line has {longest:,} characters; expected a sentence a line")
    if n_tokens < SIZES[0].below:
        sentences.append("little text: the model will repeat it, or write sentences without sense")
    prompt = f" --prompt {shlex.quote(_with_mask(lines))}" if masked else ""
    template = "bert-multi30k" if masked else "lm-multi30k"
    return Starter(template, sentences, settings, advice, sample=prompt)


def _check_text(data: TextData, source: TextFiles, lines: list[str]) -> None:
    """Raise UserError for too few lines and for text that is no text."""
    for name in chain.from_iterable(data.names.values()):
        if any("\0" in line for line in read_lines(source.path(name))):
            raise UserError(
                f"{source.path(name)} has NUL characters, as UTF-16 and binary files have; "
                "expected text in UTF-8"
            )
    if len(lines) < LEAST:
        raise UserError(
            f"{data.given} has {counted(len(lines), 'line', 'lines')} of text to train on, the "
            f"longest of {max(map(len, lines)):,} characters; expected {LEAST} or more, a sentence "
            "each"
        )


def _with_mask(lines: Sequence[str]) -> str:
    """Return the first words of a line of usual length, one of them masked."""
    words = sorted(lines, key=len)[len(lines) // 2].split()[:8]
    words[len(words) // 2] = "[MASK]"
    return " ".join(words)
