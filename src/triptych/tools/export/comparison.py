"""Translations and speed of a CTranslate2 folder beside those of Triptych."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from triptych.errors import UserError
from triptych.tools.export.ctranslate2 import NAME, log_probabilities
from triptych.tools.export.original import Original
from triptych.tools.export.parts import translator_of

BATCH = 64
"""Sentences that both translate at a time."""
MOST_TOKENS = 256
"""Longest translation of CTranslate2, in tokens."""

EXPLANATION = f"""\
Both search with the sum of log p over the number of tokens, in float32, {BATCH} sentences at a
time. With a beam of 1 they differ where rounding decides between two tokens. With wider beams they
also stop at different times: CTranslate2 when as many hypotheses as the beam have ended, Triptych
when no open hypothesis can become better than the best that ended; and Triptych searches near-ties
again in double precision, which is part of its time. Seconds are those of the processor."""


@dataclass(frozen=True)
class Comparison:
    """Translations of the same lines with one beam."""

    beam: int
    lines: int
    equal: int
    """Lines with the same tokens."""
    better: int
    """Other lines where the score of Triptych's translation is the higher one."""
    worse: int
    """Other lines where the score of CTranslate2's translation is the higher one."""
    speed: tuple[float, float]
    """Lines per second of processor time of CTranslate2 and of Triptych, one thread."""


def compare(original: Original, folder: Path, lines: Sequence[str], beam: int) -> Comparison:
    """Translate lines with both libraries. Blank lines are left out.

    Raises UserError where no line has text.
    """
    from ctranslate2 import Translator

    model: Any = original.model  # a translator, as CTranslate2 has written it
    network, text = translator_of(original, NAME), model.text_format()
    filled = [line.strip() for line in lines if line.strip()]
    if not filled:
        raise UserError("--compare has no sentence; expected at least one line with text")
    translator = Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
    names = text.names()
    ids = {name: index for index, name in enumerate(text.names(target=True))}
    with one_thread():
        start = time.process_time()
        sources = model.vocabulary.source.encode_batch(filled)
        results = translator.translate_batch(
            [[names[token] for token in row] for row in sources],
            beam_size=beam,
            length_penalty=1,
            max_batch_size=BATCH,
            max_decoding_length=MOST_TOKENS,
            suppress_sequences=[[text.specials[token]] for token in text.forbidden],
        )
        middle = time.process_time()
        own = model.search(filled, beam=beam, batch_size=BATCH, length_penalty="average")
        end = time.process_time()
    equal = better = worse = 0
    for row, result, (best,) in zip(sources, results, own, strict=True):
        theirs = [ids[name] for name in result.hypotheses[0]]
        if theirs == best.tokens:
            equal += 1
            continue
        ours_score, their_score = (
            float(log_probabilities(network, torch.tensor(row), torch.tensor(tokens)).mean())
            for tokens in (best.tokens, theirs)
        )
        better += ours_score > their_score
        worse += ours_score < their_score
    speed = len(filled) / (middle - start), len(filled) / (end - middle)
    return Comparison(beam, len(filled), equal, better, worse, speed)


def as_markdown(rows: Sequence[Comparison]) -> str:
    """Return a section of the card with comparisons, one row each."""
    table = [
        f"| beam | lines | equal | better: Triptych / {NAME} | lines/s {NAME} | Triptych | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        theirs, ours = row.speed
        table.append(
            f"| {row.beam} | {row.lines:,} | {row.equal / row.lines:.1%} | {row.better} / "
            f"{row.worse} | {theirs:.1f} | {ours:.1f} | {theirs / ours:.2f} |"
        )
    return "\n".join([f"## {NAME} beside Triptych, one thread", "", *table, "", EXPLANATION])


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
