"""More pairs from the same sentences: models of both directions translate the training side.

Data diversification (Nguyen et al., NeurIPS 2020, arXiv 1911.01986, algorithm 1, one round): to the
pairs (s, t) come (s, f(s)) of every forward model f and (b(t), t) of every backward model b. No
sentence is added from elsewhere, and no model gets larger.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Protocol

import yaml

from triptych.config.schema import to_plain
from triptych.domains.translation.corpora import Corpus, Pair, ParallelText
from triptych.domains.translation.lines import BLANKS
from triptych.errors import UserError
from triptych.training.evaluate import Progress
from triptych.training.files import write_whole

SETTINGS = "source.yaml"
"""The file of the folder that `triptych train translation` takes as a second --config."""
ADDED = "diversified.{language}.gz"
"""Where the new pairs stand."""


class Translate(Protocol):
    """A model in use, its search chosen."""

    def __call__(self, lines: Sequence[str], *, progress: Progress | None) -> list[str]:
        """One translation for each line; progress is called with (lines done, lines in all)."""


def check_directions(
    forward: Sequence[tuple[str, Corpus]], backward: Sequence[tuple[str, Corpus]]
) -> None:
    """Raise UserError unless all translate between the first one's languages, as they should.

    forward, backward: name of each model, and the corpus that it was trained on.
    """
    first, corpus = forward[0]
    source, target = corpus.source_language, corpus.target_language
    if source == target:
        raise UserError(
            f"both sides of {first} are {source}; expected two languages, whose files can be told "
            "apart"
        )
    expected = [(source, target)] * len(forward) + [(target, source)] * len(backward)
    for (name, corpus), (one, other) in zip([*forward, *backward], expected, strict=True):
        if (corpus.source_language, corpus.target_language) != (one, other):
            raise UserError(
                f"{name} translates {corpus.source_language} to {corpus.target_language}; expected "
                f"{one} to {other}, as {first} translates {source} to {target}"
            )


def learnt_what_is_held_out(
    forward: Sequence[tuple[str, Corpus]], backward: Sequence[tuple[str, Corpus]]
) -> str:
    """A sentence where a backward model may know what the forward models hold out, else empty.

    Shares are held out by their source sentences, and the backward model's are the other side's.
    """
    for name, corpus in backward:
        if any(getattr(one, "shares", None) for _, one in (*forward, (name, corpus))):
            return (
                f"{name} may have been trained on pairs that are held out here: shares are held "
                "out by the hash of the source sentence, which is the other side's there. What is "
                "then scored on them is too good; expected files of their own for validation and "
                "test (data.source.files)"
            )
    return ""


def file_names(corpus: Corpus) -> dict[str, str]:
    """Split -> the name of its files in the new folder, with {language} for the language.

    The corpus's own name where the split is one file with a plain one, so that a model which was
    trained on the new folder is scored on the old one too; else a name after the split.
    """
    names: dict[str, str] = {}
    for split in corpus.splits():
        own = corpus.files.get(split, []) if isinstance(corpus, ParallelText) else []
        wanted = [*(own if len(own) == 1 else []), f"{split}.{{language}}.gz"]
        names[split] = next(
            name
            for name in chain(wanted, (f"split-{n}.{{language}}.gz" for n in count(1)))
            if "{language}" in name and not {"/", "|"} & set(name)
            if name not in (ADDED, *names.values())
        )
    return names


def new_pairs(
    pairs: Sequence[Pair],
    forward: Sequence[Translate],
    backward: Sequence[Translate],
    progress: Progress | None = None,
) -> Iterator[Pair]:
    """(s, f(s)) of every forward and (b(t), t) of every backward model, one model after the other.

    Pairs with an empty side are left out. progress: called with (lines done, lines in all models).
    """
    total = len(pairs) * (len(forward) + len(backward))
    for number, translate in enumerate([*forward, *backward]):

        def show(lines: int, _: int, before: int = number * len(pairs)) -> None:
            if progress is not None:
                progress(before + lines, total)

        given = 0 if number < len(forward) else 1
        sentences = [pair[given] for pair in pairs]
        found = translate(sentences, progress=show)
        for sentence, text in zip(sentences, found, strict=True):
            if sentence and text.strip(BLANKS):
                yield (sentence, text) if given == 0 else (text, sentence)


def write_folder(
    corpus: Corpus, splits: Mapping[str, Sequence[Pair]], added: Sequence[Pair], folder: Path
) -> dict[str, Any]:
    """Write the pairs of every split and the added ones into a folder, and SETTINGS.

    splits: all of the corpus. Returns the settings. They are written last, so a folder without them
    is unfinished. Raises UserError where nothing can be written.
    """
    names = file_names(corpus)
    for split, pairs in splits.items():
        write_pairs(folder / names[split], corpus, pairs)
    write_pairs(folder / ADDED, corpus, added)
    source = ParallelText(
        source_language=corpus.source_language,
        target_language=corpus.target_language,
        directory=str(folder),
        files={split: [names[split], *([ADDED] * (split == "train"))] for split in splits},
    )
    settings = {"data": {"source": to_plain(source)}}
    write_whole(folder / SETTINGS, yaml.safe_dump(settings, sort_keys=False).encode())
    return settings


def write_pairs(path: Path, corpus: Corpus, pairs: Sequence[Pair]) -> None:
    """Write both sides, a sentence a line, with the languages in place of {language}.

    Gzip without a time where the name ends in .gz, so that the same pairs give the same file.
    """
    for side, language in enumerate((corpus.source_language, corpus.target_language)):
        file = path.with_name(path.name.replace("{language}", language))
        content = "".join(pair[side] + "\n" for pair in pairs).encode()
        write_whole(file, gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)
