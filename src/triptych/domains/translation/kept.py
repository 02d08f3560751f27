"""Pieces of a line that no translation may change: tags, placeholders, addresses and numbers.

Tags are taken out of the source, and put back where the cross-attention of the translation says.
Every other piece is a digit in the source, which the model copies: the search must write it, and
the piece takes its place. Where a digit does not come back exactly once, the text between the
pieces is translated by itself. So every piece is in the translation exactly once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from triptych.domains.translation import render
from triptych.domains.translation.lines import SENTENCE_END, one_line
from triptych.errors import UserError
from triptych.text.tokenizer import in_usual_case

if TYPE_CHECKING:
    from triptych.decoding.beams import Hypothesis
    from triptych.domains.translation.inference import TranslationModel

EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"
TAG = r"</?[A-Za-z][^<>]*>"
PIECES = re.compile(
    rf"""(?P<tag>{TAG}|(?P<emoji>[{EMOJI}][{EMOJI}\u200d\ufe0f]*))
    | (?:https?://|www\.)[^\s<>"]*[^\s<>".,;:!?)'\]]          # addresses
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    | \$?\{{\{{?[^{{}}]*\}}?\}}                                # {{name}}, {{{{name}}}}, ${{name}}
    | %(?:\(\w+\)|\d+\$)?[-+#0]*(?:\d+|\*)?(?:\.\d+)?[sdifuxXeEgGc@](?![A-Za-z])
    | &(?:\#?\w+);
    | (?<![\w.])[-+]?\d+(?:[.,:/-]\d+)*(?!\w)                  # numbers
    """,
    re.VERBOSE,
)
STAND_INS = "42356789"
"""Digits that stand for pieces, the first one first: small ones are in the training of most models,
and 1 is an article in many languages."""
IDEOGRAM = "\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(rf"[{IDEOGRAM}]|[^\W{IDEOGRAM}]+|[^\w\s]")


class Aligned(NamedTuple):
    """A word of a translation, and where in the source the word is that it reads most."""

    start: int
    end: int
    source: int


class Edit(NamedTuple):
    """Part of a text and what takes its place; at one place ends of tags come first."""

    start: int
    end: int
    rank: int
    text: str


@dataclass(frozen=True)
class Masked:
    """A line without the pieces that are kept."""

    text: str
    """The line without tags, with a digit for each other piece."""
    digits: dict[str, str]
    """Piece of each digit."""
    tags: list[tuple[int, str]]
    """Tags, with their places in `text`."""

    @classmethod
    def of(cls, line: str, readable: Callable[[str], str]) -> Masked | None:
        """Mask a line, with `readable` text between the pieces; None for too few free digits."""
        free = iter([digit for digit in STAND_INS if digit not in PIECES.sub("", line)])
        text, last = "", 0
        digits: dict[str, str] = {}
        tags: list[tuple[int, str]] = []
        for found in PIECES.finditer(line):
            text, last = text + readable(line[last : found.start()]), found.end()
            if found["tag"]:
                after = line[last : last + 1] == " "
                tag = f"{found[0]} " if after and found["emoji"] else found[0]
                if found["emoji"] and last == len(line) and text[-1:] == " ":
                    tag = f" {tag}"
                tags.append((len(text), tag))
                if text[-1:] in ("", " ") and after:
                    last += 1  # one space, not two, where a tag was between spaces
                continue
            if (digit := next(free, None)) is None:
                return None
            digits[digit] = found[0]
            text += digit
        return cls(text + readable(line[last:]), digits, tags)

    def restored(self, translation: str, words: Callable[[], Sequence[Aligned]]) -> str | None:
        """Return the translation of `text` with all pieces; None where it has no place for one."""
        edits = []
        for digit, piece in self.digits.items():
            places = [found.span() for found in re.finditer(rf"(?<!\d){digit}(?!\d)", translation)]
            if len(places) != 1:
                return None
            edits.append(Edit(*places[0], 0, piece))
        if self.tags:
            if not (aligned := words()):
                return None
            edits += self._placed(aligned)
        for edit in sorted(edits, key=lambda edit: edit[:3])[::-1]:
            translation = translation[: edit.start] + edit.text + translation[edit.end :]
        return translation

    def _placed(self, words: Sequence[Aligned]) -> list[Edit]:
        """Return the tags at their places: a pair around the words that read its content."""
        placed: list[tuple[int, int, str]] = []
        opened: list[tuple[str, int]] = []
        for index, (place, tag) in enumerate(self.tags):
            name = next(iter(re.findall(r"\w+", tag)), "")
            if not tag.startswith("</"):
                opened.append((name, index))
                continue
            start = next((i for n, i in reversed(opened) if n == name), None)
            if start is None:
                opened.append(("", index))  # an end without a beginning stands alone
                continue
            opened.remove((name, start))
            begin, first = self.tags[start]
            inside = [word for word in words if begin <= word.source < place]
            if inside:
                placed.append((min(word.start for word in inside), 1000 + start, first))
                placed.append((max(word.end for word in inside), index, tag))
            else:
                placed.append((_before(words, begin), 1000 + start, first + tag))
        for _, index in opened:
            place, tag = self.tags[index]
            placed.append((_before(words, place), 1000 + index, tag))
        return [Edit(place, place, rank, text) for place, rank, text in placed]


def _before(words: Sequence[Aligned], place: int) -> int:
    """Return where the translation of what follows a place of the source begins."""
    following = [word for word in words if word.source >= place]
    if not following:
        return max(word.end for word in words)
    return min(following, key=lambda word: (word.source, word.start)).start


def translate_kept(model: TranslationModel, lines: Sequence[str], **options: Any) -> list[str]:
    """Return one translation of each line with all its `PIECES`; options: of `search`."""
    source = model.vocabulary.source
    translations = ["" for _ in lines]
    groups: dict[tuple[str, ...], list[tuple[int, Masked]]] = defaultdict(list)
    for number, line in enumerate(lines):
        masked = Masked.of(line, source.readable)
        if masked is None or len(source.encode(masked.text)) >= model.settings.max_length:
            translations[number] = _in_parts(model, line, options)
        else:
            groups[tuple(masked.digits)].append((number, masked))
    model.name_unread([masked.text for members in groups.values() for _, masked in members])
    for digits, members in groups.items():
        texts = [masked.text for _, masked in members]
        usual = [in_usual_case(text, source.count) for text in texts]
        # Tags have places in the text as it is.
        texts = [
            new if new and len(new) == len(text) else text
            for new, text in zip(usual, texts, strict=True)
        ]
        try:
            found = model.search(texts, **{**options, "require": digits or None})
        except UserError:  # the vocabulary has no such digit
            found = [[] for _ in texts]
        for (number, masked), text, best in zip(members, texts, found, strict=True):
            line, whole = lines[number], None
            score = best[0].score if best else None
            if model.is_guess(masked.text, score, options.get("min_score")):
                whole = line
            elif best:
                translation = one_line(model.vocabulary.target.decode(best[0].tokens))
                if text != masked.text and len(upper := translation.upper()) == len(translation):
                    translation = upper
                words = partial(_aligned, model, text, best[0])
                whole = masked.restored(translation, words)
            translations[number] = _in_parts(model, line, options) if whole is None else whole
    return translations


def _in_parts(model: TranslationModel, line: str, options: dict[str, Any]) -> str:
    """Translate the sentences of a line, or the text between its pieces, each by itself."""
    sentences = [each for each in SENTENCE_END.split(line) if each.strip()]
    if len(sentences) > 1:
        return " ".join(translate_kept(model, sentences, **options))
    joined, last = "", 0
    for start, end in [*(found.span() for found in PIECES.finditer(line)), (len(line), len(line))]:
        text = line[last:start]
        if (words := re.search(r"\w.*\w|\w", text)) and any(map(str.isalpha, words[0])):
            (translation,) = model.translate([words[0]], **options)
            text = f"{text[: words.start()]}{str(translation).rstrip('.')}{text[words.end() :]}"
        joined, last = joined + text + line[start:end], end
    return joined


def _aligned(model: TranslationModel, text: str, best: Hypothesis) -> list[Aligned]:
    """Return the words of a translation with the places of the source words that they read most."""
    attended = render.sentence_attention(model.full_model, model.vocabulary, text, best)
    sources = _words(text, attended.source_pieces)
    words = []
    for (start, end), rows in _words(attended.translation, attended.target_pieces):
        weights = [sum(attended.cross[row][k] for row in rows for k in keys) for _, keys in sources]
        if weights:
            words.append(Aligned(start, end, sources[weights.index(max(weights))][0][0]))
    return words


def _words(text: str, pieces: Sequence[str]) -> list[tuple[tuple[int, int], list[int]]]:
    """Return the place of each word of a text, and the numbers of its pieces."""
    ends = list(accumulate(map(len, pieces)))
    words = []
    for found in WORD.finditer(text):
        start, stop = found.span()
        within = [
            number
            for number, (piece, end) in enumerate(zip(pieces, ends, strict=True))
            if start < end <= len(text) and end - len(piece) < stop
        ]
        words.append(((start, stop), within))
    return words
