"""Domain of translation: the options of its commands."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from triptych.domains import options
from triptych.domains.base import Domain
from triptych.errors import UserError
from triptych.types import Checked, Dtype, NonNegativeInt, PositiveInt

NUMBERS = "attention.json"
BY_WORDS = ("document", "keep", "glossary", "terms", "alignments")
"""Options of `TranslationRequest` that find words of a line in its translation."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Checked):
    """How translations are searched."""

    beam: PositiveInt = 4
    """Number of hypotheses in beam search, 1 for greedy search."""
    length_penalty: str = "gnmt:0.6"
    """Divisor of a hypothesis's log-probability: 0 (none), 1 (average: its length in tokens) or
    gnmt:ALPHA, ((5 + length) / 6)^ALPHA."""
    no_repeat_ngram: PositiveInt | None = None
    """Length of the runs of tokens that occur at most once in a translation; null for no limit."""


@dataclass(frozen=True, kw_only=True)
class TranslationRequest(options.SamplingOptions, SearchOptions):
    """How lines are translated, and what every translation must fulfil.

    Raises UserError for options that do not fit together.
    """

    prefix: str | None = None
    """Text that every translation begins with; it may end inside a word."""
    require: tuple[str, ...] | str | None = None
    """Phrase that every translation contains, or a list of phrases, such as '["a dog", "grass"]'.
    The search takes as many times longer as the phrases have tokens."""
    min_length: NonNegativeInt = 0
    """Minimum length of a translation in tokens."""
    max_length: PositiveInt | None = None
    """Maximum length of a translation in tokens, which is searched among those that end within it;
    null for 50 more than the source has."""
    n_best: PositiveInt = 1
    """Translations written for each line, best first, one a line; at most beam."""
    batch_size: PositiveInt = 64
    """Lines translated at a time; with fp32 the text does not depend on it."""
    scores: bool = False
    """Write lines of five columns, separated by tabs: number of the input line and rank of the
    translation (both from 1), score, log-probability in nats, text."""
    keep: bool = False
    """Keep tags, placeholders ({name}, %s), addresses and numbers as they are: every one of a line
    is in its translation once."""
    min_score: float | None = None
    """Score of a translation below which the line itself is written, and for a line of which most
    characters are not in the vocabulary; null for none."""
    glossary: str | None = None
    """Table of terms and their translations, two columns separated by a tab: where a line has a
    term, its translation has the term's."""
    terms: bool = False
    """Read terms beside a line too: line ||| term=translation; term=translation."""
    alignments: bool = False
    """Write a second column, separated by a tab: pairs i-j of words, from 0, that say which word i
    of the line the word j of the translation reads most."""
    sample: bool = False
    """Sample translations, by seed, temperature, top_k and top_p, instead of a beam search."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prefix == "":
            raise UserError("prefix is empty; expected the beginning of a translation")
        if any(not phrase.strip() for phrase in self.phrases):
            raise UserError("require has an empty phrase; expected text that must appear")
        if self.max_length is not None and self.min_length > self.max_length:
            raise UserError(
                f"min_length ({self.min_length}) must not be larger than max_length "
                f"({self.max_length})"
            )
        if self.n_best > self.beam:
            raise UserError(f"n_best ({self.n_best}) must not be larger than beam ({self.beam})")
        unused, why = ["temperature", "top_k", "top_p", "seed"], "sampling; expected sample true"
        if self.sample:
            unused = ["n_best", "scores", "require", "length_penalty", "min_score", *BY_WORDS]
            why = "beam search; expected it without sample"
        for name in unused:
            if getattr(self, name, None) != getattr(TranslationRequest, name, None):
                raise UserError(f"{name} belongs to {why}")
        if self.by_words and (self.of_whole_lines or self.n_best > 1 or self.scores):
            name = next(name for name in BY_WORDS if getattr(self, name, None))
            raise UserError(
                f"{name} writes one translation of each line; expected it without n_best, scores, "
                "prefix, require, min_length and max_length"
            )
        if self.keep and self.alignments:
            raise UserError("alignments number the words of a line; expected them without keep")

    @property
    def phrases(self) -> tuple[str, ...]:
        return (self.require,) if isinstance(self.require, str) else tuple(self.require or ())

    @property
    def by_words(self) -> bool:
        """Whether words of a line have places in its translation, see `kept`."""
        return any(getattr(self, name, None) for name in BY_WORDS)

    @property
    def of_whole_lines(self) -> bool:
        """Whether it concerns a line as a whole, which must then not be translated in parts."""
        return bool(self.prefix or self.phrases or self.min_length or self.max_length)


@dataclass(frozen=True, kw_only=True)
class TranslationScoreRequest(SearchOptions, options.ScoreRequest):
    """What to score of a translation model, and how it searches."""

    compare: str | None = None
    """File with other translations of the split, one a line as --hypotheses writes them: reports
    their scores, and how probable such a difference is by chance; null for none."""


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluateOptions(TranslationScoreRequest, options.EvaluateOptions):
    """Score a translation model on a split of its data."""

    hypotheses: str | None = None
    """File for the translations, one a line in the order of the split, as `sacrebleu REF -i FILE`
    reads them; an existing file is kept unless --overwrite is given."""
    overwrite: bool = False

    kept_files: ClassVar[tuple[str, ...]] = ("hypotheses",)
    parser_arguments = options.OVERWRITE

    def input_files(self) -> dict[str, str]:
        return {"compare": "a file of translations, one a line"}

    def report(self, result: dict[str, Any]) -> list[str]:
        details = result["details"]
        widths = ", ".join(f"{name} +- {width:.2f}" for name, width in details["interval"].items())
        lines = [f"95 % intervals over resampled lines: {widths}"] if widths else []
        for name in {"bleu", "chrf"} - details["interval"].keys():
            lines.append(f"no interval of {name}: some resamples have a score of 0")
        for name, of in details.get("compared", {}).items():
            lines.append(
                f"{self.compare}: {name} {of['other']:.4f}, p of the difference {of['p']:.4f}"
            )
        looks: list[str] = details.get("looks", [])
        return [*lines, "what the data look like:", *looks] if looks else lines

    def result_files(self, result: dict[str, Any]) -> dict[str, bytes]:
        lines = result["details"].pop("hypotheses")
        return {"hypotheses": "".join(f"{line}\n" for line in lines).encode()}


@dataclass(frozen=True, kw_only=True)
class TranslationTranslateOptions(TranslationRequest, options.AverageOptions):
    """Translate lines (UTF-8) from standard input to standard output, in order, or a document.

    A line is translated as soon as the input pauses.
    """

    document: str | None = None
    """File to translate in place of standard input: .html, .md or .docx. Its layout, code, images
    and addresses stay; --keep is true. Markdown needs triptych[documents]."""
    out: str | None = None
    """File for the translated document; an existing one is kept unless --overwrite is given."""
    overwrite: bool = False

    dtype: Dtype = "fp32"
    """Number format of the weights; bf16 and int8 are faster and may change some translations."""

    parser_arguments = options.OVERWRITE

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.document is None) != (self.out is None):
            raise UserError("document and out belong together; expected both file names")
        if self.document and (self.terms or self.alignments):
            raise UserError("terms and alignments are of lines; expected a document without them")

    def input_files(self) -> dict[str, str]:
        return {"document": "a document", "glossary": "a table of terms and translations"}

    def arguments(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(TranslationRequest)}


@dataclass(frozen=True, kw_only=True)
class TranslationAttentionOptions(options.AttentionOptions):
    """Translate lines and draw the attention weights between source and translation of each."""

    out: str
    """Folder for one .png per sentence and for attention.json; created if missing."""
    input: str | None = None
    """Text file (UTF-8), one sentence a line; null for standard input."""
    beam: PositiveInt = SearchOptions.beam
    """Number of hypotheses in beam search, 1 for greedy search."""

    def input_files(self) -> dict[str, str]:
        return {"input": "a text file with one sentence a line"}

    def output_names(self) -> list[str]:
        return [NUMBERS]


@dataclass(frozen=True, kw_only=True)
class TranslationNewRunOptions(options.NewRunOptions):
    """Look at your sentences and write a settings file for them, with comments."""

    data: str
    """Folder or zip archive of two text files whose lines belong together, such as train.fr and
    train.en, also with files for validation and test; or a table such as a .tsv file, or a folder
    of tables."""
    source_language: str | None = None
    """Code of the language to translate from, such as fr, or name of its column; null for the one
    that the names of files or columns and the script of the text suggest."""
    target_language: str | None = None
    """Code of the language to translate into, or name of its column; null as for
    source_language."""


class TranslationDomain(Domain):
    """Sentences in one language and their translations into another."""

    name = "translation"
    evaluate_options = TranslationEvaluateOptions
    translate_options = TranslationTranslateOptions
    attention_options = TranslationAttentionOptions
    new_run_options = TranslationNewRunOptions
    description = "triptych.tools.new_run.translation"
    page = "triptych.tools.play.translation"
    service = "triptych.tools.serve.services:translation"
    limits = (
        "Sentences unlike those of its data: other subjects, longer texts, other languages. It can "
        "omit or invert parts of a sentence without a warning; check a translation that matters."
    )


DOMAIN = TranslationDomain()
