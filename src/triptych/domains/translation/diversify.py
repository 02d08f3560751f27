"""More pairs from the same sentences: models of both directions translate the training side.

Data diversification (Nguyen et al., NeurIPS 2020, arXiv 1911.01986, algorithm 1, one round): to the
pairs (s, t) come (s, f(s)) of every forward model f and (b(t), t) of every backward model b. No
sentence is added from elsewhere, and no model gets larger.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from triptych.domains.translation.corpora import Corpus, Pair, ParallelText
from triptych.errors import UserError
from triptych.training.settings import to_plain

SETTINGS = "source.yaml"
"""The file of the folder that `triptych train translation` takes as a second --config."""
ADDED = "diversified.{language}.gz"
"""Where the new pairs stand."""
Progress = Callable[[int, int], None]


class Translates(Protocol):
    """What is asked of a model: a line for each line."""

    def translate(self, lines: Sequence[str], *, progress: Progress | None) -> list[str]:
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


def file_name(corpus: Corpus, split: str) -> str:
    """The name of a split's files in the new folder: the corpus's own, where it is one plain name.

    So a model that was trained on the new folder is scored on the old one too.
    """
    names = (
        corpus.files[split] if isinstance(corpus, ParallelText) and split in corpus.files else []
    )
    plain = [name for name in names if "{language}" in name and not {"/", "|"} & set(name)]
    return plain[0] if len(names) == len(plain) == 1 else f"{split}.{{language}}.gz"


def new_pairs(
    pairs: Sequence[Pair],
    forward: Sequence[Translates],
    backward: Sequence[Translates],
    progress: Progress | None = None,
) -> Iterator[Pair]:
    """(s, f(s)) of every forward and (b(t), t) of every backward model, one model after the other.

    Pairs with an empty side are left out. progress: called with (lines done, lines in all models).
    """
    total = len(pairs) * (len(forward) + len(backward))
    for number, model in enumerate([*forward, *backward]):
        done = number * len(pairs)

        def show(lines: int, _: int, before: int = done) -> None:
            if progress is not None:
                progress(before + lines, total)

        given = 0 if number < len(forward) else 1
        sentences = [pair[given] for pair in pairs]
        found = model.translate(sentences, progress=show)
        for sentence, text in zip(sentences, found, strict=True):
            if sentence and text:
                yield (sentence, text) if given == 0 else (text, sentence)


def write_folder(corpus: Corpus, added: Sequence[Pair], folder: Path) -> dict[str, Any]:
    """Write every split of the corpus and the added pairs into a folder, and SETTINGS.

    Returns the settings. They are written last, so a folder without them is unfinished.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for split in corpus.splits():
        name = file_name(corpus, split)
        write_pairs(folder / name, corpus, corpus.pairs(split))
        files[split] = [name]
    write_pairs(folder / ADDED, corpus, added)
    files["train"].append(ADDED)
    source = ParallelText(
        source_language=corpus.source_language,
        target_language=corpus.target_language,
        directory=str(folder),
        files=files,
    )
    settings = {"data": {"source": to_plain(source)}}
    unfinished = folder / f".{SETTINGS}.unfinished"
    unfinished.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    os.replace(unfinished, folder / SETTINGS)
    return settings


def write_pairs(path: Path, corpus: Corpus, pairs: Sequence[Pair]) -> None:
    """Write both sides, a sentence a line, with the languages in place of {language}.

    Gzip without a time where the name ends in .gz, so that the same pairs give the same file.
    """
    languages = (corpus.source_language, corpus.target_language)
    for side, language in enumerate(languages):
        file = path.with_name(path.name.replace("{language}", language))
        content = "".join(pair[side] + "\n" for pair in pairs).encode("utf-8")
        file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)
