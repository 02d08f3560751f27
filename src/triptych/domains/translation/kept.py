"""Lines translated with their tags, placeholders and numbers, with terms, and with alignments.

The text of a line is translated without its tags. Every other piece is a digit in the source, which
the model copies: the search must write it, and the piece takes its place. Where a digit does not
come back exactly once, the text between the pieces is translated by itself. The translation of a
term takes the place of the words that read the term.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from triptych.domains.base import AlignedText
from triptych.domains.options import counted
from triptych.domains.translation.alignment import WORD, Attended, Span, word_pairs
from triptych.domains.translation.domain import SearchOptions, TranslationRequest
from triptych.domains.translation.lines import NO_SPACES, SENTENCE_END, primary_subtag
from triptych.domains.translation.markup import HIDDEN_RUN, Marked, Pair, Tag, Word
from triptych.domains.translation.terms import (
    Terms,
    check_terms,
    count_words,
    read_glossary,
    split_terms,
)
from triptych.errors import UserError
from triptych.text.tables import SPACES
from triptych.text.tokenizer import in_usual_case

if TYPE_CHECKING:
    from triptych.decoding.beams import Hypothesis
    from triptych.domains.translation.inference import TranslationModel
    from triptych.types import Progress

LOG = logging.getLogger(__name__)
EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"
TAG = r"</?[A-Za-z][^<>]*>"
PIECES = re.compile(
    rf"""(?P<tag>{TAG}|(?P<emoji>[{EMOJI}][{EMOJI}\u200d\ufe0f]*))
    | (?:https?://|www\.)[^\s<>"]*[^\s<>".,;:!?)'\]]          # addresses
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    | \$?\{{\{{?[^{{}}]*\}}?\}}                                # {{name}}, {{{{name}}}}, ${{name}}
    | %(?:\(\w+\)|\d+\$)?[-+#0]*(?:\d+|\*)?(?:\.\d+)?[sdifuxXeEgGc@](?![A-Za-z])
    | &(?:\#?\w+);
    | {HIDDEN_RUN}
    | (?<![\w.])[-+]?\d+(?:[.,:/-]\d+)*(?!\w)                  # numbers
    """,
    re.VERBOSE,
)
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")
"""Tags of HTML that no other tag closes."""
STAND_INS = "42356789"
"""Digits that stand for pieces, the first one first: small ones are in the training of most models,
and 1 is an article in many languages."""


@dataclass(frozen=True)
class Masked:
    """A text as the model reads it, with a digit for each piece."""

    text: str
    digits: dict[str, str]
    """Piece of each digit."""
    places: list[tuple[int, int]]
    """Places in `text` and in the text as it is, of its words and pieces."""

    @classmethod
    def of(cls, line: str, readable: Callable[[str], str], free: str | None) -> Masked | None:
        """Mask a text; None for too few digits. readable: of text between pieces.

        free: digits that may stand for pieces; None to leave the pieces in the text.
        """
        pieces = [] if free is None else [each.span() for each in PIECES.finditer(line)]
        others = PIECES.sub("", line)
        unused = iter([digit for digit in free or "" if digit not in others])
        text, last, places = "", 0, list[tuple[int, int]]()
        digits: dict[str, str] = {}
        for start, end in [*pieces, (len(line), len(line))]:
            part = line[last:start]
            read = readable(part)
            places.append((len(text), last))
            words = [[word.start() for word in re.finditer(r"\S+", each)] for each in (read, part)]
            if len(words[0]) == len(words[1]):
                both = zip(*words, strict=True)
                places += [(len(text) + in_text, last + in_line) for in_text, in_line in both]
            text, last = text + read, end
            if start < end:
                if (digit := next(unused, None)) is None:
                    return None
                digits[digit] = line[start:end]
                places.append((len(text), start))
                text += digit
        return cls(text, digits, places)

    def restored(self, pair: Pair, line: str) -> Pair | None:
        """Return the translation of the line as it is from that of `text`, with all pieces.

        None where the translation of `text` has not exactly one place for each.
        """
        places = []
        for digit, piece in self.digits.items():
            found = [one.span() for one in re.finditer(rf"(?<!\d){digit}(?!\d)", pair.text)]
            if len(found) != 1:
                return None
            places.append((*found[0], piece))
        for start, end, piece in sorted(places, reverse=True):
            pair = pair.spliced(start, end, piece)
        words = [word._replace(source=self._place(word.source)) for word in pair.words]
        return Pair(line, pair.text, words)

    def _place(self, at: int) -> int:
        begin, origin = self.places[bisect_right(self.places, at, key=lambda one: one[0]) - 1]
        return origin + at - begin


def marked_line(line: str, *, in_markup: bool = True) -> Marked:
    """Return a line without its emoji and, where `in_markup`, its tags."""
    text, last = "", 0
    every: list[Tag] = []
    for found in PIECES.finditer(line):
        if not found["tag" if in_markup else "emoji"]:
            continue
        text, last = text + line[last : found.start()], found.end()
        after = line[last : last + 1] == " "
        tag, name = found[0], next(iter(re.findall(r"[\w:.-]+", found[0])), "")
        if found["emoji"]:
            tag = f"{tag} " if after else tag
            tag = f" {tag}" if last == len(line) and text[-1:] == " " else tag
        side = -1 if tag.startswith("</") else 1
        alone = found["emoji"] or tag.endswith("/>") or (side > 0 and name.lower() in VOID)
        every.append(Tag(len(text), tag, name, 0 if alone else side))
        if text[-1:] in ("", " ") and after:
            last += 1  # one space, not two, where a tag was between spaces
    return Marked(text + line[last:], every)


@dataclass(frozen=True)
class Translator:
    """Translates texts by a model, with what they keep, terms and alignments."""

    model: TranslationModel
    request: TranslationRequest
    glossary: Terms
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        model: TranslationModel,
        request: TranslationRequest,
        progress: Progress | None = None,
    ) -> Translator:
        """Return the translator of a request; UserError for its glossary."""
        terms = {} if request.glossary is None else read_glossary(request.glossary)
        check_terms(terms.items(), model.vocabulary.target)
        return cls(model, request, Terms(terms), progress)

    def lines(self, lines: Sequence[str]) -> list[str] | list[AlignedText]:
        """Return one translation of each line, with `alignments` and the pairs of its words."""
        read = [split_terms(line) if self.request.terms else (line, {}) for line in lines]
        every = [each for _, terms in read for each in terms.items()]
        check_terms(every, self.model.vocabulary.target)
        keep = self.request.keep
        texts = [marked_line(text) if keep else Marked(text.strip(SPACES)) for text, _ in read]
        pairs = self.marked(texts, [terms for _, terms in read])
        if self.request.alignments:
            return [AlignedText(pair.text, word_pairs(pair)) for pair in pairs]
        return [str(text.of(pair)) for text, pair in zip(texts, pairs, strict=True)]

    def marked(
        self,
        texts: Sequence[Marked],
        more: Sequence[dict[str, str]] = (),
        *,
        sentences: bool = False,
    ) -> list[Pair]:
        """Return the translations of texts without their tags; more: terms of each text alone.

        sentences: whether each sentence is translated by itself, as in documents.
        """
        more = more or [{}] * len(texts)
        terms = [self.glossary.with_line(each) if each else self.glossary for each in more]
        self.model.name_unread([PIECES.sub("", each.text) for each in texts])
        cuts = [each.cuts() for each in texts]
        spans = [
            [span for part in _between(one.text, at) for span in _sentences(one.text, *part)]
            if sentences
            else _between(one.text, at)
            for one, at in zip(texts, cuts, strict=True)
        ]
        found = iter(
            self._parts(
                [
                    one.text[a:b]
                    for one, of_text in zip(texts, spans, strict=True)
                    for a, b in of_text
                ],
                [of_text for of_text, each in zip(terms, spans, strict=True) for _ in each],
            )
        )
        if sentences:  # a model of sentences ends a title as one
            found = iter([
                one.spliced(len(one.text.rstrip(".")), len(one.text), "")
                if one.source[-1:].isalnum() else one
                for one in found
            ])  # fmt: skip
        pairs = [
            self._joined(one.text, [(a, next(found)) for a, _ in of_text], at)
            for one, of_text, at in zip(texts, spans, cuts, strict=True)
        ]
        self._name_unused(pairs, terms, more)
        return pairs

    def _name_unused(
        self, pairs: Sequence[Pair], terms: Sequence[Terms], more: Sequence[dict[str, str]]
    ) -> None:
        """Tell of terms that a translation has not, and of those of a line that it has not."""
        unused = []
        for pair, of_text, own in zip(pairs, terms, more, strict=True):
            found, text = of_text.found(pair.source), pair.text.lower()
            counts = Counter(one.translation for one in found)
            absent = {*own.values()} - {*counts}
            failed = (one for one, n in counts.items() if count_words(one.lower(), text) < n)
            unused += [(each, pair.source) for each in [*absent, *failed]]
        if unused:
            LOG.warning(
                "%s not applied, because the line or the translation does not have it; the first "
                "one is %r, of the line %r",
                counted(len(unused), "term was", "terms were"),
                unused[0][0],
                unused[0][1][:60],
            )

    def _parts(self, texts: Sequence[str], terms: Sequence[Terms]) -> list[Pair]:
        """Return the translations of texts, each as a whole where that is possible."""
        model, request = self.model, self.request
        source, pairs = model.vocabulary.source, dict[int, Pair]()
        groups: dict[tuple[str, ...], list[tuple[int, Masked, str]]] = defaultdict(list)
        for number, text in enumerate(texts):
            # A digit that a term writes stands for nothing else.
            written = "".join(one.translation for one in terms[number].found(text))
            free = "".join(digit for digit in STAND_INS if digit not in written)
            masked = Masked.of(text, source.readable, free if request.keep else None)
            if masked is None or self._is_long(masked.text):
                pairs[number] = self._divided(text, terms[number])
                continue
            usual = in_usual_case(masked.text, source.count)
            same = usual is not None and len(usual) == len(masked.text)
            read = usual if usual is not None and same else masked.text
            groups[tuple(masked.digits)].append((number, masked, read))
        for digits, members in groups.items():
            try:
                found = self._search([read for _, _, read in members], digits)
            except UserError:  # the vocabulary has no such digit
                found = [[] for _ in members]
            for (number, masked, read), best in zip(members, found, strict=True):
                text, whole = texts[number], None
                score = best[0].score if best else None
                if model.is_guess(masked.text, score, request.min_score) or not text.strip():
                    whole = Pair(
                        text, text, [Word(*w.span(), w.start()) for w in WORD.finditer(text)]
                    )
                elif best:
                    attended = Attended.of(model, read, best[0])
                    pair = attended.with_terms(terms[number].found(read)).pair(read)
                    if read != masked.text and len(upper := pair.text.upper()) == len(pair.text):
                        pair = replace(pair, text=upper)
                    whole = masked.restored(pair, text)
                pairs[number] = whole or self._divided(text, terms[number])
        return [pairs[number] for number in range(len(texts))]

    def _search(self, texts: Sequence[str], digits: tuple[str, ...]) -> list[list[Hypothesis]]:
        asked = {each.name: getattr(self.request, each.name) for each in fields(SearchOptions)}
        asked |= {"batch_size": self.request.batch_size, "require": digits or None}
        return self.model.search(texts, progress=self.progress, **asked)

    def _is_long(self, text: str) -> bool:
        settings, source = self.model.settings, self.model.vocabulary.source
        return not settings.summaries and source.count(text) >= settings.max_length

    def _divided(self, text: str, terms: Terms) -> Pair:
        """Translate the sentences of a text, or what is between its pieces, or its halves."""
        spans, full_stop = _sentences(text, 0, len(text)), "."
        if len(spans) < 2 and self.request.keep and PIECES.search(text):
            spans, full_stop = _between_pieces(text), ""
        if len(spans) == 1 and spans[0] == (0, len(text)):
            middle = len(text) // 2
            spans = _between(text, [text.rfind(" ", 1, middle) + 1 or middle])
        found = self._parts([text[a:b] for a, b in spans], [terms] * len(spans))
        if not full_stop:  # a model of sentences ends each of the parts as one
            found = [one.spliced(len(one.text.rstrip(".")), len(one.text), "") for one in found]
        return self._joined(text, [(a, one) for (a, _), one in zip(spans, found, strict=True)])

    def _joined(
        self, text: str, parts: Sequence[tuple[int, Pair]], cuts: Sequence[int] = ()
    ) -> Pair:
        """Return the translation of a text from those of its parts, and what is between them."""
        spaces = primary_subtag(self.model.settings.target_language) not in NO_SPACES
        joined, last, words = "", 0, list[Word]()
        gaps: list[tuple[int, int, int, int]] = []
        for start, pair in [*parts, (len(text), Pair("", "", []))]:
            gap = text[last:start]
            words += [
                Word(len(joined) + w.start(), len(joined) + w.end(), last + w.start())
                for w in WORD.finditer(gap)
            ]
            if last > 0 and start < len(text) and not gap.strip():
                gap = (gap or " " * (last not in cuts)) if spaces else ""
            gaps.append((last, start, len(joined), len(joined) + len(gap)))
            joined += gap
            words += [
                Word(w.start + len(joined), w.end + len(joined), w.source + start)
                for w in pair.words
            ]
            joined, last = joined + pair.text, start + len(pair.source)
        return Pair(text, joined, words, gaps)


def _between(text: str, cuts: Sequence[int]) -> list[Span]:
    """Return the places of the parts between cuts, without the spaces around them."""
    return _stripped(text, zip([0, *cuts], [*cuts, len(text)], strict=True))


def _sentences(text: str, start: int, end: int) -> list[Span]:
    """Return the places of the sentences of a part of a text; none begins with a small letter."""
    ends = [found.span() for found in SENTENCE_END.finditer(text[start:end])]
    ends = [(start + a, start + b) for a, b in ends if not text[start + b : end][:1].islower()]
    return _stripped(
        text, zip([start, *(b for _, b in ends)], [*(a for a, _ in ends), end], strict=True)
    )


def _between_pieces(text: str) -> list[Span]:
    """Return the places of what is to be translated between pieces: from word to word."""
    edges = [0, *(place for each in PIECES.finditer(text) for place in each.span()), len(text)]
    parts = (
        (words.start() + a, words.end() + a)
        for a, b in zip(edges[::2], edges[1::2], strict=True)
        if (words := re.search(r"\w.*\w|\w", text[a:b])) and any(map(str.isalpha, words[0]))
    )
    return list(parts)


def _stripped(text: str, spans: Iterable[Span]) -> list[Span]:
    every = []
    for start, end in spans:
        part = text[start:end]
        if part.strip():
            every.append((end - len(part.lstrip()), start + len(part.rstrip())))
    return every
