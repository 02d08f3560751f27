"""Trained translation model in use: translate, evaluate, attention. Needs no Lightning."""

import copy
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from itertools import islice
from typing import Any

from triptych.core.models.encoder_decoder import SequenceToSequence
from triptych.decoding.beams import Hypothesis, LengthPenalty
from triptych.decoding.ranks import gathered, share, shared_out
from triptych.domains.base import AlignedText, TrainedModel, Translation
from triptych.domains.options import check_layer_and_head, counted
from triptych.domains.translation import metrics, render
from triptych.domains.translation.data import EncodedPairs
from triptych.domains.translation.domain import (
    NUMBERS,
    SearchOptions,
    TranslationAttentionOptions,
    TranslationRequest,
    TranslationScoreRequest,
)
from triptych.domains.translation.kept import Translator
from triptych.domains.translation.lines import NO_SPACES, one_line, primary_subtag, split_long
from triptych.domains.translation.model import (
    END,
    SPECIALS,
    START,
    Tokenizers,
    TranslationSettings,
)
from triptych.domains.translation.quality import N_USUAL, table
from triptych.domains.translation.search import TokenConstraints, sample_sources, search_sources
from triptych.errors import UserError
from triptych.files.lines import read_input_lines
from triptych.files.results import OutputFolder, json_bytes
from triptych.files.splits import source_to_score
from triptych.text.batches import evaluation_batches
from triptych.text.tables import SPACES
from triptych.text.tokenizer import PAD, TextFormat, in_usual_case
from triptych.training.engine.devices import device_of
from triptych.training.engine.evaluate import Evaluation, sum_scores
from triptych.types import Progress

LOG = logging.getLogger(__name__)
MOST_UNKNOWN = 0.5
"""Share of the characters of a line, spaces left out, that a vocabulary need not have."""
SAFE_MARGIN = 3e-5
"""Margin in nats per token from which a search in single precision agrees with one in double
precision. The log p of a translation differs between the two by at most about 2e-6 per token, and a
margin by at most about 1e-5."""
MAX_SCORING_TOKENS = 4_096
"""Maximum number of tokens to score at a time: a training batch for a large GPU may not fit."""
SAMPLE, SAMPLE_ROWS = ("source", "reference", "translation"), 20
"""Texts and number of the lines of a split in the details of an evaluation."""


class TranslationModel(metrics.LikelihoodScores, TrainedModel):
    """Trained translation model."""

    score_request = TranslationScoreRequest
    settings_class = TranslationSettings
    read_vocabulary = staticmethod(Tokenizers.from_plain)

    full_model: SequenceToSequence
    settings: TranslationSettings
    vocabulary: Tokenizers
    repeats_near_ties = True
    """Search lines with a near-tie of two hypotheses again in double precision: rounding depends on
    the shape of a batch, so that such a line would be translated differently in another one. It
    applies to fp32, and not on MPS, which has no double precision."""

    def text_format(self) -> TextFormat:
        tokenizers = self.vocabulary
        return TextFormat(
            SPECIALS,
            forbidden=(PAD, START),
            max_length=self.settings.max_length,
            source=tokenizers.source.to_tokenizer_json(),
            target=None if tokenizers.shared else tokenizers.target.to_tokenizer_json(),
            translates=True,
        )

    @cached_property
    def double_model(self) -> SequenceToSequence:
        return copy.deepcopy(self.full_model).double()

    def translate(
        self, lines: Sequence[str], *, progress: Progress | None = None, **options: Any
    ) -> list[str] | list[list[str]] | list[list[Translation]] | list[AlignedText]:
        """Return one translation per line; for n_best above 1 a list of n_best, best first.

        options, progress: see `search`; with scores a list of `Translation` for each line, with
        alignments an `AlignedText`. A blank line has an empty translation. A line with more tokens
        than any training pair is translated in parts, see `split_long`: its n-th translation joins
        the n-th ones, and its scores are sums. Documents to summarise and `of_whole_lines` are not.
        """
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines, not one string")
        for number, line in enumerate(lines, start=1):
            if not isinstance(line, str):
                raise TypeError(f"line {number} is {line!r}; expected text")
        request = TranslationRequest(**options)
        if request.by_words:
            return Translator.of(self, request).lines(lines)
        self.name_unread(lines)
        limit = self.settings.max_length - 1  # its end counts
        source = self.vocabulary.source
        usual = [in_usual_case(line, source.count) for line in lines]
        read = [line if case is None else case for line, case in zip(lines, usual, strict=True)]
        whole = request.of_whole_lines or self.settings.summaries
        parts = [[line] if whole else split_long(line, source, limit) for line in read]
        every = [part for line in parts for part in line]
        found = self.search(every, progress=progress, **options)
        of_parts = (
            [
                Translation(text, one.score, one.log_probability)
                for text, one in zip(texts, best, strict=False)  # none of a blank line
            ]
            or [Translation("", 0.0, 0.0)] * request.n_best
            for texts, best in zip(self.texts(found), found, strict=True)
        )
        translated = [self._joined([next(of_parts) for _ in line]) for line in parts]
        for number, (line, best) in enumerate(zip(lines, translated, strict=True)):
            if usual[number] is not None:
                best = [one._replace(text=one.text.upper()) for one in best]
            score = best[0].score / len(parts[number]) if best else None
            if self.is_guess(line, score, request.min_score):
                best = [one._replace(text=line) for one in best]
            translated[number] = best
        if request.scores:
            return translated
        texts = [[one.text for one in best] for best in translated]
        return [best[0] for best in texts] if request.n_best == 1 else texts

    def is_guess(self, line: str, score: float | None, min_score: float | None) -> bool:
        """Return whether a line is to be written in place of its translation of this score."""
        if min_score is None:
            return False
        if self.vocabulary.source.unread_share(line) > MOST_UNKNOWN:
            return True
        return score is not None and score < min_score

    def name_unread(self, lines: Sequence[str]) -> None:
        """Tell of lines with characters that the model cannot read, where one of these is new."""
        unread = {line: found for line in lines if (found := self.vocabulary.source.unread(line))}
        new = dict.fromkeys("".join(unread.values()))
        if new.keys() <= self._named:
            return
        self._named.update(new)
        LOG.warning(
            "%s with characters that are not in the vocabulary of the model (%s), the first one "
            "%r: they are left out or guessed (min_score keeps a line that has little else)",
            counted(len(unread), "line", "lines"),
            " ".join([*list(new)[:10], *["..."] * (len(new) > 10)]),
            next(iter(unread))[:60],
        )

    @cached_property
    def _named(self) -> set[str]:
        return set()

    def _joined(self, parts: list[list[Translation]]) -> list[Translation]:
        """Return the n best translations of a line from those of its parts, best first."""
        if len(parts) == 1:
            return parts[0]
        joined, between = [], "" if self._language in NO_SPACES else " "
        for rank in range(max(map(len, parts))):
            same_rank = [best[min(rank, len(best) - 1)] for best in parts]
            texts, scores, log_p = zip(*same_rank, strict=True)
            joined.append(Translation(between.join(texts), sum(scores), sum(log_p)))
        return joined

    def search(
        self, lines: Sequence[str], *, progress: Progress | None = None, **options: Any
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each line, best first; none for a blank line.

        options: fields of `TranslationRequest`; with `sample` one hypothesis without scores. A
        hypothesis keeps the model's log p whatever is demanded of it. progress: called with (lines
        done, lines in all). Raises UserError for options that no translation meets.
        """
        request = TranslationRequest(**options)
        constraints = TokenConstraints(request, self.vocabulary.target, language=self._language)
        LengthPenalty.parse(request.length_penalty)  # refused without a line, too
        read = [self.vocabulary.source.readable(line).strip(SPACES) for line in lines]
        filled = {number: line for number, line in enumerate(read) if line.strip()}
        ids = self.vocabulary.source.encode_batch(list(filled.values()))
        sources = {number: [*row, END] for number, row in zip(filled, ids, strict=True)}
        blank, found = len(lines) - len(sources), dict[int, list[Hypothesis]]()
        if request.sample:  # the rows of a batch are shared out, not the lines
            world, results = 1, sample_sources(self.model, sources, request, constraints)
        else:
            world, mine = share()[1], shared_out(sources)
            results = self._searched(mine, request, constraints)
        for number, best in results:
            found[number] = best
            if progress is not None:
                progress(min(len(lines), blank + world * len(found)), len(lines))
        every = {number: best for part in gathered(found) for number, best in part.items()}
        return [every.get(number, []) for number in range(len(lines))]

    @property
    def _language(self) -> str:
        return primary_subtag(self.settings.target_language)

    def _searched(
        self,
        sources: Mapping[int, Sequence[int]],
        request: TranslationRequest,
        constraints: TokenConstraints,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the hypotheses of `search_sources`, those of near-ties in double precision."""
        has_double = device_of(self.full_model).type != "mps"
        exact = self.repeats_near_ties and self.dtype == "fp32" and has_double
        doubtful = {}
        for number, result in search_sources(self.model, sources, request, constraints):
            if exact and result.margin < SAFE_MARGIN:
                doubtful[number] = sources[number]
            else:
                yield number, result.best
        if doubtful:
            again = search_sources(self.double_model, doubtful, request, constraints)
            yield from ((number, result.best) for number, result in again)

    def texts(self, found: Sequence[Sequence[Hypothesis]]) -> list[list[str]]:
        """Return each hypothesis of `search` as one line; an empty one for a blank line."""
        rows = [hypothesis.tokens for best in found for hypothesis in best]
        decoded = iter(self.vocabulary.target.decode_batch(rows))
        return [[one_line(next(decoded)) for _ in best] or [""] for best in found]

    def attention(
        self,
        lines: Sequence[str],
        *,
        beam: int = SearchOptions.beam,
        layer: int | None = None,
        head: int | None = None,
    ) -> Iterator[render.SentenceAttention]:
        """Translate each line and yield its attention weights; blank lines are left out.

        layer: from 1, one that encoder and decoder both have; None for the last of each. head: from
        1, None for the mean of all heads. Raises UserError for a layer or head that does not exist.
        """
        self.needs_one_model("attention weights")
        model = self.full_model
        check_layer_and_head(
            layer, head, n_layers=model.n_layers, n_heads=self.settings.model.transformer.n_heads
        )
        for line, best in zip(lines, self.search(lines, beam=beam), strict=True):
            if best:
                read = self.vocabulary.source.readable(line).strip(SPACES)
                yield render.sentence_attention(
                    model, self.vocabulary, read, best[0], layer=layer, head=head
                )

    def write_attention(self, options: TranslationAttentionOptions, out: OutputFolder) -> str:
        lines = read_input_lines(options.input)
        stems = [f"sentence-{n:03d}" for n, line in enumerate(lines, start=1) if line.strip()]
        if not stems:
            name = options.input or "standard input"
            raise UserError(f"{name} has no sentence; expected at least one line with text")
        out.check_free([NUMBERS, *(f"{stem}.png" for stem in stems)])
        found = list(self.attention(lines, **options.arguments_of(self.attention)))
        numbers = []
        for stem, attended in zip(stems, found, strict=True):
            out.write(f"{stem}.png", render.draw(attended))
            numbers.append({"drawing": f"{stem}.png", **asdict(attended)})
        out.write(NUMBERS, json_bytes(numbers))
        return f"{counted(len(numbers), 'sentence', 'sentences')} (.png, {NUMBERS}) in {out}"

    def score_split(
        self, request: TranslationScoreRequest, progress: Progress | None = None
    ) -> Evaluation:
        """Return nats per token and the scores of `score_translations` of a whole split.

        The details have all translations.
        """
        split, trained_on = request.split, self.data_settings
        corpus = source_to_score(trained_on.source, split, request.data)
        pairs = corpus.items(split)[: request.limit]
        leak = trained_on.source.leak(split, pairs)
        others = read_input_lines(request.compare) if request.compare else []
        if request.compare and len(others) != len(pairs):
            raise UserError(
                f"--compare {request.compare} has {len(others):,} lines; expected one for each of "
                f"the {len(pairs):,} of {split}"
            )
        max_tokens = min(MAX_SCORING_TOKENS, trained_on.max_tokens)
        words = self.vocabulary
        batches = evaluation_batches(EncodedPairs.of(pairs, words), max_tokens)
        totals = sum_scores(self.model, self.score, batches)
        sources, references = zip(*pairs, strict=True)
        search = {each.name: getattr(request, each.name) for each in fields(SearchOptions)}
        size = request.batch_size or TranslationRequest.batch_size
        started = time.perf_counter()
        found = self.search(sources, progress=progress, batch_size=size, **search)
        seconds = time.perf_counter() - started
        translations = [best[0] for best in self.texts(found)]
        scores, about_scores = metrics.score_translations(
            translations,
            references,
            tokenizer=corpus.bleu_tokenizer(),
            papers_language=corpus.target_language,
            targets=corpus.targets,
        )
        rows = zip(sources, references, translations, strict=True)
        sides = translations, references, corpus.bleu_tokenizer()
        details: dict[str, Any] = {
            **about_scores,
            "interval": metrics.intervals(*sides),
            **({"compared": metrics.compared(translations, others, *sides[1:])} if others else {}),
            "search": search | {"length_penalty": str(LengthPenalty.parse(request.length_penalty))},
            "dtype": self.dtype,
            "sentences_per_second": len(pairs) / seconds,
            "vocabulary": {"source": len(words.source), "target": len(words.target)},
            "tokens": int(totals["tokens"]),
            **(leak.details() if leak else {}),
            "samples": [dict(zip(SAMPLE, row, strict=True)) for row in islice(rows, SAMPLE_ROWS)],
            "hypotheses": translations,
            **({"looks": looks} if len(looks := table({split: pairs})) > N_USUAL else {}),
        }
        scores = self.metrics(totals) | scores
        return Evaluation(self.domain, split, scores, int(totals["pairs"]), details)


restore = TranslationModel.restore
