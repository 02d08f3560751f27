"""What a user's text in one language holds, or lines with labels: amount, lengths and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from triptych.config.schema import to_plain
from triptych.domains.language.domain import LanguageNewRunOptions
from triptych.domains.language.model import SPECIALS
from triptych.domains.language.sources import Document, Labelled, TabSeparated, TextFiles
from triptych.domains.language.tasks.labelled import Classification, Entailment, LabelledTask
from triptych.domains.options import counted
from triptych.errors import UserError
from triptych.files import lines
from triptych.files.folders import named, visible_files
from triptych.files.lines import read_lines
from triptych.files.splits import hash_position
from triptych.text import tables
from triptych.text.word_piece import WordPiece
from triptych.tools.new_run.columns import Table, columns_of_labels, is_table
from triptych.tools.new_run.data import (
    HELD_OUT,
    Description,
    Setting,
    by_split,
    data_files,
    held_out,
    is_about,
    left_out,
    letters,
    span,
)

TEXTS = tuple(f".txt{end}" for end in ("", *lines.SUFFIXES))
TABLES = tuple(f"{kind}{end}" for kind in tables.SUFFIXES for end in ("", *lines.SUFFIXES))
LEAST = 100
"""Fewest lines, and fewest documents, of which a vocabulary and a model can be learnt."""
LITTLE = 200_000
"""Tokens below which a model repeats its text."""
TASKS: dict[int, type[LabelledTask]] = {1: Classification, 2: Entailment}
"""Task by the number of texts of an example."""
REPEATED = 3
"""Mean number of lines of a label, below which the last column holds no labels."""
FEW = 5000
"""Lines below which weights of a model of plain text help."""
MASKED_PASSES = 2
"""Passes of a masked-token model for each of a next-token model, as it predicts fewer tokens."""


def describe(options: LanguageNewRunOptions) -> Description:
    """Look at text, or at lines with labels.

    Raises UserError as `data_files` does, for text that is not UTF-8, for too little of it, and for
    labels that cannot be learnt.
    """
    data = Path(options.data).expanduser()
    files = [data]
    if data.is_dir():
        files = [file for file in visible_files(data) if not is_about(file.name)]
        if len(files) == 1 and not files[0].name.endswith((*TEXTS, *TABLES)):
            data, options = files[0], replace(options, data=str(files[0]))
    task = options.task or ("classification" if _is_table(data, files) else "next_token")
    if task == "classification":
        return _describe_labels(_find(data, options, labelled=True))
    return _describe_text(_find(data, options, labelled=False), masked=task == "masked")


def _is_table(data: Path, files: list[Path]) -> bool:
    """Return whether a path is a table, or a folder of these; UserError for .txt files too."""
    if data.is_file():
        return is_table(data)
    texts, tables = (any(file.name.endswith(ends) for file in files) for ends in (TEXTS, TABLES))
    if texts and tables:
        raise UserError(
            f"--data {data} holds .txt files and tables; choose some with --task: next_token "
            "or masked for text, classification for lines with labels"
        )
    return tables


def _find(data: Path, options: LanguageNewRunOptions, *, labelled: bool) -> TextData:
    """Return the files of a path; UserError where there are none of this kind."""
    given = f"--data {options.data}"
    if data.is_file():
        if not labelled and data.name.endswith(TABLES):
            raise UserError(
                f"{given} is a table; expected plain text with a sentence a line, or for --task "
                "classification a table with a text and a label a row"
            )
        return TextData(given, str(Path(options.data).parent), {"train": [data.name]}, [])
    if not data.exists():
        raise UserError(f"{given} does not exist; expected a text file or a folder of text files")
    suffixes, kind = (TABLES, "tables of text and label") if labelled else (TEXTS, "text files")
    files, others = data_files(data, suffixes, kind)
    chosen = [path for path in files if not is_about(path.name)] or files
    names = [path.relative_to(data).as_posix() for path in chosen]
    splits = by_split({name: name for name in names})
    unread = [path.relative_to(data).as_posix() for path in (*others, *files) if path not in chosen]
    splits = splits if "train" in splits else {"train": names}
    return TextData(given, options.data, splits, unread)


def _describe_text(data: TextData, *, masked: bool) -> Description:
    """Return what plain text holds, for a model that fills gaps or continues."""
    source = TextFiles(data.directory, data.names)
    every = {split: list(source.read(split)) for split in data.names}
    counts = {split: sum(map(len, documents)) for split, documents in every.items()}
    data.check_filled(counts)
    documents = every["train"]
    lines = list(chain.from_iterable(documents))
    _check_text(data, source, lines)
    one_per_line = len(documents) < LEAST
    if one_per_line:
        documents = [[line] for line in lines]
    lengths, n_all, sentence = measure(documents, n_specials=2 if masked else 1)
    places = [hash_position(source.key(document).encode()) for document in documents]
    kind = "lines" if one_per_line else "documents"
    shares = held_out(places, data.missing(), usual=0.05, least=10, what=kind)
    n_tokens = n_all * (1 - sum(share.value for share in shares.values()))
    why = "each line by itself" if one_per_line else "blank lines separate documents"
    facts = [*data.facts(counts, "lines of text"), sentence]
    other = "next_token" if masked else "masked"
    does = "continues text" if masked else "fills gaps (BERT)"
    advice = [f"for a model that {does}: --task {other}"]
    if one_per_line:
        advice.append(
            "each line is read by itself; if lines belong together, put blank lines between the "
            f"documents, {LEAST} or more, and write this file again"
        )
    else:
        size_of = span([len(document) for document in documents], " lines")
        facts.insert(1, f"{len(documents):,} documents between blank lines: {size_of}")
    if n_tokens < LITTLE:
        facts.append("little text: the model will repeat it, or write sentences without sense")
    return Description(
        template="bert-multi30k" if masked else "lm-multi30k",
        unit="tokens",
        amount=n_tokens,
        items=n_tokens,
        passes=MASKED_PASSES if masked else 1,
        settings={
            "data.source.directory": Setting(data.directory),
            "data.source.files": Setting(data.names),
            "data.source.one_per_line": Setting(one_per_line, why),
            **{f"data.source.{split}_share": Setting(0.0, "has files") for split in HELD_OUT},
            **{f"data.source.{name}": share for name, share in shares.items()},
            **lengths,
        },
        facts=facts,
        advice=advice,
        sample=" --prompt 'A text with a [MASK]'" if masked else "",
    )


def _check_text(data: TextData, source: TextFiles, lines: list[str]) -> None:
    """Raise UserError for too few lines and for text that is no text."""
    for path in map(source.path, chain.from_iterable(data.names.values())):
        if any("\0" in line for line in read_lines(path)):
            raise UserError(
                f"{path} has NUL characters, as UTF-16 and binary files have; expected text in "
                "UTF-8"
            )
    if len(lines) < LEAST:
        raise UserError(
            f"{data.given} has {counted(len(lines), 'line', 'lines')} of text to train on, the "
            f"longest of {max(map(len, lines)):,} characters; expected {LEAST} or more, a sentence "
            "each"
        )


def _describe_labels(data: TextData) -> Description:
    """Return what lines with labels hold.

    Raises UserError for too few lines, and for labels that cannot be learnt.
    """
    folder = Path(data.directory).expanduser()
    table = Table.of(folder / data.names["train"][0])
    columns, header = columns_of_labels(table), table.header
    for split, names in [*data.names.items()]:  # those of competitions have no labels in the test
        lacking = [name for name in names if not Table.of(folder / name).has(columns)]
        if split != "train" and lacking:
            data.left_out.extend(lacking)
            data.names[split] = [name for name in names if name not in lacking]
    data = data._replace(names={split: names for split, names in data.names.items() if names})
    source = TabSeparated(data.directory, data.names, header=header, columns=columns)
    own = {split: len(list(source.read(split))) for split in data.names}
    data.check_filled(own)
    rows = list(source.read("train"))
    _check_labels(data, rows)
    places = [hash_position(source.key(row).encode()) for row in rows]
    shares = held_out(places, data.missing(), usual=0.1, least=10)
    source = replace(source, **{name: share.value for name, share in shares.items()})
    train = source.items("train")
    _check_held_out(source, {row.label for row in train})
    n_texts = len(train[0].texts)
    lengths, n_tokens, sentence = measure([[*row.texts] for row in rows], n_specials=1 + n_texts)
    task = TASKS[n_texts]
    labels = Counter(row.label for row in rows)
    often = [f"{label} {count / len(rows):.0%}" for label, count in labels.most_common()]
    facts = [
        *data.facts(own, "lines with labels"),
        f"{len(labels)} labels: {named(often)}",
        sentence,
    ]
    if header:
        facts.append("the first line of each file names the columns; the data leave it out")
    if columns:
        *of_texts, label = columns
        facts.append(
            f"texts in {' and '.join(of_texts)}, labels in {label}; all columns: {table.kinds()}"
        )
    advice = []
    if n_texts == 2:
        advice.append("each line has two texts, whose relation the label is taken for")
    if len(train) < FEW:
        advice.append(
            "few lines: to begin with the weights of a masked-token model of more text, with the "
            "same sizes under model, set run.start.init_from to its checkpoint"
        )
    return Description(
        template="multi30k-languages",
        unit="lines with labels",
        amount=len(train),
        items=n_tokens * len(train) / len(rows),
        settings={
            "data.source": Setting(to_plain(source)),
            "task.class_path": Setting(f"{task.__module__}.{task.__qualname__}"),
            **lengths,
        },
        facts=facts,
        advice=advice,
        sample=" --lines lines.txt",
    )


def _check_labels(data: TextData, rows: list[Labelled]) -> None:
    """Raise UserError for lines that no task with labels reads."""
    labels = Counter(row.label for row in rows)
    if len(rows) < LEAST:
        raise UserError(
            f"{data.given} has {len(rows)} lines with labels to train on; expected {LEAST} or more"
        )
    first = rows[0]
    if len(first.texts) not in TASKS:
        raise UserError(
            f"{first.where} has {len(first.texts) + 1} cells; expected a text and its label, or "
            "two texts and their label, in every line"
        )
    if len(labels) < 2 or len(rows) < REPEATED * len(labels):
        raise UserError(
            f"{data.given} has {len(labels)} different values in the column of labels of "
            f"{len(rows):,} lines, such as {first.label!r}; expected two labels or more, each in "
            "several lines"
        )


def _check_held_out(source: TabSeparated, known: set[str]) -> None:
    """Raise UserError for an empty split, and for labels that no training line has."""
    for split in source.splits():
        for row in source.items(split):
            if row.label not in known:
                raise UserError(
                    f"{row.where} has the label {row.label!r}, which is in no line that is left to "
                    "train on; expected each label in more lines"
                )


LOOKED_AT = 5000
"""Sentences whose tokens are counted; of more, evenly spaced documents."""
VOCABULARIES = (1000, 2000, 4000, 8000, 16_000, 32_000)
"""Sizes to choose from."""
CHARACTERS_PER_SYMBOL = 500
"""Characters of text for each symbol of the vocabulary."""
FOREIGN = 0.01
"""Share of letters outside of a to z above which capital letters and accents are kept."""
LENGTHS = (32, 64, 96, 128, 192, 256)
"""Lengths of an example in tokens to choose from."""
FITTING = 0.95
"""Share of the documents that fit into the length."""


class TextData(NamedTuple):
    """Files of a user's text."""

    given: str
    """Option that names them, for errors."""
    directory: str
    """Folder as the user writes it."""
    names: dict[str, list[str]]
    """Names in the folder by split; train is there."""
    left_out: list[str]
    """Names of other files."""

    def missing(self) -> list[str]:
        """Return the splits that are held out of the training files."""
        return [split for split in HELD_OUT if split not in self.names]

    def check_filled(self, counts: dict[str, int]) -> None:
        """Raise UserError for a split without text; counts: of items by split."""
        for split, names in self.names.items():
            if not counts[split]:
                raise UserError(f"{self.given}: no text in {named(names)}")

    def facts(self, counts: dict[str, int], what: str) -> list[str]:
        """Return sentences about the files of each split; counts: number of `what` by split."""
        files = (
            f"{split}: {counts[split]:,} {what} of {named(names)}"
            for split, names in self.names.items()
        )
        return [*files, *left_out(self.left_out)]


def measure(
    documents: Sequence[Document], *, n_specials: int
) -> tuple[dict[str, Setting], float, str]:
    """Return settings of vocabulary and length, the tokens of all documents, and a sentence.

    n_specials: special ids of an example.
    """
    n_sentences = sum(map(len, documents))
    n_characters = sum(len(sentence) for document in documents for sentence in document)
    some = documents[:: -(-n_sentences // LOOKED_AT)]
    lines = [sentence for document in some for sentence in document]
    written = [character for line in lines for character in line if character.isalpha()]
    foreign = sum(not letter.isascii() for letter in written) / max(1, len(written))
    # A symbol for each letter at the beginning of a word, and one inside.
    wanted = max(n_characters / CHARACTERS_PER_SYMBOL, 2 * len(set(written)))
    size = next((size for size in VOCABULARIES if size >= wanted), VOCABULARIES[-1])
    lowercase = foreign <= FOREIGN
    tokenizer = WordPiece(lowercase).build(lines, size, SPECIALS)
    sizes = map(len, tokenizer.encode_batch(lines))
    lengths = [n_specials + sum(next(sizes) for _ in document) for document in some]
    needed = sorted(lengths)[int(FITTING * (len(lengths) - 1))]
    most = next((length for length in LENGTHS if length >= needed), LENGTHS[-1])
    fitting = sum(length <= most for length in lengths) / len(lengths)
    n_tokens = sum(lengths) / len(lengths) * len(documents)
    kept = "removed, in samples too" if lowercase else "kept"
    settings = {
        "data.tokenizer.lowercase": Setting(lowercase, f"capital letters and accents are {kept}"),
        "data.vocabulary_size": Setting(size, f"at most, for {n_characters:,} characters"),
        "data.max_length": Setting(most, f"tokens; about {fitting:.0%} of the texts fit"),
    }
    sentence = (
        f"about {float(f'{n_tokens:.3g}'):,.0f} tokens in the training files, "
        f"{span(lengths, ' tokens')} a text; letters: {letters(lines)}"
        f"{tokenizer.unknown_sentence(lines)}"
    )
    return settings, n_tokens, sentence
