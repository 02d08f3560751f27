"""Starter config for lines with labels: their number, labels and lengths."""

from __future__ import annotations

from collections import Counter

from triptych.config.schema import to_plain
from triptych.config.template import Setting
from triptych.domains.language.sources.labelled import Labelled
from triptych.domains.language.sources.tab_separated import TabSeparated
from triptych.domains.language.tasks.labelled import Classification, Entailment, LabelledTask
from triptych.domains.language.user_text import TextData, measure
from triptych.domains.starter import Size, Starter, held_out_share, steps
from triptych.errors import UserError
from triptych.files.splits import hash_position

TEMPLATE = "multi30k-languages"
LEAST = 100
"""Fewest lines of which a vocabulary and a model can be learnt."""
TASKS: dict[int, type[LabelledTask]] = {1: Classification, 2: Entailment}
"""Task by the number of texts of an example."""
REPEATED = 3
"""Mean number of lines of a label, below which the last column holds no labels."""
SHOWN = 8
"""Labels that are shown."""
SIZE = Size(2, 128, 4, 512, 0.1, batch=2048, epochs=10)
FEW = 5000
"""Lines below which weights of a model of plain text help."""


def look_at_labels(data: TextData) -> Starter:
    """Return the settings of a first run on lines with labels.

    Raises UserError for too few lines, for lines of different numbers of texts, and for labels that
    cannot be learnt.
    """
    source = TabSeparated(data.directory, data.names)
    own = {split: len(source.read(split)) for split in data.names}
    data.check_filled(own)
    rows = source.read("train")
    header = rows[0].label not in {row.label for row in rows[1:]}
    rows = rows[header:]
    _check(data, rows)
    shares: dict[str, float] = {}
    if missing := data.missing():
        places = [hash_position(source.key(row).encode()) for row in rows]
        shares = dict.fromkeys(missing, held_out_share(places, missing, usual=0.1, least=10)[0])
    source = TabSeparated(
        data.directory,
        data.names,
        header,
        validation_share=shares.get("validation", 0.0),
        test_share=shares.get("test", 0.0),
    )
    train = source.examples("train")
    _check_held_out(source, {row.label for row in train})
    n_texts = len(train[0].texts)
    texts = measure([list(row.texts) for row in rows], n_specials=1 + n_texts)
    n_tokens = texts.n_tokens * len(train) / len(rows)
    task = TASKS[n_texts]
    settings = {
        "data.source": Setting(to_plain(source)),
        "task.class_path": Setting(f"{task.__module__}.{task.__qualname__}"),
        **texts.settings,
        "data.max_tokens": Setting(SIZE.batch, "tokens of a batch"),
        **SIZE.settings(f"a size for {len(train):,} lines"),
        **steps(batches=n_tokens / SIZE.batch, epochs=SIZE.epochs, least=200, most=5000),
    }
    labels = Counter(row.label for row in rows)
    counts = {split: own[split] - header * len(names) for split, names in data.names.items()}
    sentences = [
        data.sentence(counts, "lines with labels"),
        f"{len(labels)} labels: {_shares(labels)}",
        texts.sentence,
    ]
    if header:
        sentences.append("the first line of each file names the columns; the data leave it out")
    advice = []
    if n_texts == 2:
        advice.append("each line has two texts, whose relation the label is taken for")
    if len(train) < FEW:
        advice.append(
            "few lines: to begin with the weights of a masked-token model of more text, with the "
            "same sizes under model, set run.start.init_from to its checkpoint"
        )
    return Starter(TEMPLATE, sentences, settings, advice, sample=" --lines lines.txt")


def _check(data: TextData, rows: list[Labelled]) -> None:
    """Raise UserError for lines that no task with labels reads."""
    labels = Counter(row.label for row in rows)
    if len(rows) < LEAST:
        raise UserError(
            f"{data.given} has {len(rows)} lines with labels to train on; expected {LEAST} or more"
        )
    first = rows[0]
    odd = next((row for row in rows if len(row.texts) != len(first.texts)), None)
    if odd is not None or len(first.texts) not in TASKS:
        usual = f"; {first.where} has {len(first.texts) + 1}" if odd else ""
        odd = odd or first
        raise UserError(
            f"{odd.where} has {len(odd.texts) + 1} cells{usual}; expected a text and its label, or "
            "two texts and their label, in every line"
        )
    if len(labels) < 2 or len(rows) < REPEATED * len(labels):
        raise UserError(
            f"{data.given} has {len(labels)} different values in the last column of {len(rows):,} "
            f"lines, such as {first.label!r}; expected two labels or more, each in several lines"
        )


def _check_held_out(source: TabSeparated, known: set[str]) -> None:
    """Raise UserError for an empty split, and for labels that no training line has."""
    for split in source.splits():
        for row in source.examples(split):
            if row.label not in known:
                raise UserError(
                    f"{row.where} has the label {row.label!r}, which is in no line that is left to "
                    "train on; expected each label in more lines"
                )


def _shares(labels: Counter[str]) -> str:
    """Return the most frequent labels with their shares."""
    shown = (f"{label} {count / labels.total():.0%}" for label, count in labels.most_common(SHOWN))
    return ", ".join(shown) + (", ..." if len(labels) > SHOWN else "")
