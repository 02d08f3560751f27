"""Trained model of text in use: evaluate and sample. Needs no Lightning."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.sampling import SampleKeywords, SampleRequest
from triptych.domains.base import Decoder, TrainedModel
from triptych.domains.language.domain import (
    ANSWERS,
    LABELS,
    STANDARD_INPUT,
    LanguageSampleOptions,
)
from triptych.domains.language.metrics import simple_accuracies
from triptych.domains.language.model import SEP, SPECIALS, LanguageSettings, Vocabulary
from triptych.domains.language.sources import Labelled, in_memory
from triptych.domains.language.tasks.labelled import LabelledTask
from triptych.domains.language.tasks.span import SpanAnswer
from triptych.domains.options import DynamicScoreRequest, counted
from triptych.errors import UserError
from triptych.files.lines import read_input_lines, read_lines
from triptych.files.progress import display
from triptych.files.results import OutputFolder
from triptych.files.splits import source_to_score
from triptych.text.batches import evaluation_batches
from triptych.text.tables import row_of
from triptych.text.tokenizer import TextFormat
from triptych.training.engine.evaluate import Evaluation, sum_scores
from triptych.training.loading.batches import cut
from triptych.training.loading.loader import FixedBatches
from triptych.types import Progress

MAX_TOKENS = 4_096
"""Maximum number of tokens of lines to label at a time; a longer line is a batch of its own."""


class LanguageModel(TrainedModel):
    """Trained model of text."""

    domain = "language"
    score_request = DynamicScoreRequest
    settings_class = LanguageSettings
    read_vocabulary = staticmethod(Vocabulary.from_plain)

    vocabulary: Vocabulary
    model: Any

    def text_format(self) -> TextFormat:
        tokenizer = self.vocabulary.tokenizer
        return TextFormat(
            SPECIALS,
            forbidden=tuple(each for each in range(tokenizer.n_reserved) if each != SEP),
            max_length=self.settings.max_length,
            source=tokenizer.to_tokenizer_json(),
        )

    def decoder(self) -> Decoder | None:
        model = self.full_model
        return Decoder(model, self.settings.max_length) if isinstance(model, DecoderOnly) else None

    def check_evaluation(self, options: DynamicScoreRequest) -> None:
        self.check_dynamic(options)
        if options.dynamic and self.decoder() is None:
            raise UserError(
                f"dynamic evaluation is of models of the next token; this one was trained with "
                f"{type(self.settings.task).__name__}"
            )

    def score_split(
        self, request: DynamicScoreRequest, progress: Progress | None = None
    ) -> Evaluation:
        """Return scores of the task, and of simple models of labels; batch_size: of full length."""
        self.check_evaluation(request)
        settings, task = self.data_settings, self.settings.task
        split, limit, most = request.split, request.limit, self.settings.max_length
        source = in_memory(source_to_score(settings.source, split, request.data))
        trained_on = in_memory(settings.source)
        items = source.items(split)
        leak = trained_on.leak(split, items)
        lines = chain.from_iterable(map(source.compared, items))
        examples = task.encode(source, split, self.vocabulary, most)
        max_tokens = request.batch_size * most if request.batch_size else settings.max_tokens
        count = min(len(examples), limit or len(examples))
        if request.dynamic:
            batches = FixedBatches(cut(range(count), 1), examples.batch)  # in order
        else:
            batches = evaluation_batches(examples, max_tokens, limit=limit)
        rate, score = request.dynamic, partial(task.score, self.model)
        totals = sum_scores(self.model, score, batches, progress, dynamic_rate=rate)
        simple, not_scored = {}, {}
        if isinstance(task, LabelledTask):
            try:
                training = task.encode(trained_on, "train", self.vocabulary, most)
            except UserError as error:
                not_scored["simple models"] = str(error)
            else:
                simple = {"accuracy": simple_accuracies(training, examples, limit)}
        details = {
            "dtype": self.dtype,
            "task": type(task).__name__,
            "vocabulary_size": len(self.vocabulary),
            "dynamic": rate,
            "totals": totals,
            "simple_models": simple,
            "not_scored": not_scored,
            "unknown_tokens": self.vocabulary.tokenizer.unknown_share(lines),
            **(leak.details() if leak else {}),
        }
        return Evaluation(self.domain, split, task.metrics(totals), count, details)

    def sample(
        self,
        count: int = 1,
        *,
        prompt: str = "",
        length: int | None = None,
        **options: Unpack[SampleKeywords],
    ) -> list[str]:
        """Return texts: continuations of the prompt, or the prompt with each "[MASK]" filled.

        length: maximum in tokens, prompt included; None for that of the training's examples.
        Raises UserError for a prompt that is too long, and for one without a mask to fill.
        """
        most = self.settings.max_length
        request = SampleRequest.of(count, **options)
        request = replace(request, length=most if length is None else length)
        prompt = self.vocabulary.tokenizer.readable(prompt)
        rows = self.settings.task.write(self.model, self.vocabulary, prompt, request, most)
        return self.vocabulary.tokenizer.decode_batch(rows)

    def classify(self, lines: Sequence[str]) -> list[tuple[str, float]]:
        """Return the likeliest label of each line of texts between tabs, and its probability.

        Raises UserError as `probabilities`.
        """

        def examples() -> Iterator[Labelled]:
            for number, line in enumerate(lines, start=1):
                cells, where = row_of(line, f"line {number}")
                if not all(cells):
                    raise UserError(f"{where} has an empty text; expected a text, or several")
                yield Labelled(tuple(cells), where=where)

        shares = self.probabilities(examples())
        return [max(row.items(), key=lambda each: each[1]) for row in shares]

    def probabilities(self, examples: Iterable[Labelled]) -> list[dict[str, float]]:
        """Return the probability of each label for each example, whose own label is not read.

        Raises UserError for a model of a task without labels, for an example with another number of
        texts and for more candidates than labels.
        """
        task, labels = self.settings.task, self.vocabulary.labels
        if not isinstance(task, LabelledTask):
            raise UserError(
                f"a model of the task {type(task).__name__} has no labels for lines; expected a "
                "model of a task such as Classification"
            )
        read = self.vocabulary.tokenizer.readable
        known = [
            each._replace(texts=tuple(map(read, each.texts)), label=labels[0]) for each in examples
        ]
        if not known:
            return []
        rows = task.encode_examples(known, self.vocabulary, self.settings.max_length)
        shares = task.probabilities(self.model, rows, MAX_TOKENS)  # [N, C]
        if shares.shape[1] > len(labels):
            where = known[0].where or "example 1"
            raise UserError(
                f"{where} has {shares.shape[1]} candidates; expected at most {len(labels)}, as in "
                "training"
            )
        # There may be fewer candidates than labels.
        return [dict(zip(labels, row, strict=False)) for row in shares.tolist()]

    def answer(self, question: str, document: str) -> tuple[str, float]:
        """Return the likeliest answer, a part of the document as one line, and its probability.

        Raises UserError for a model of another task than SpanAnswer, and for an empty document.
        """
        task, read = self.settings.task, self.vocabulary.tokenizer.readable
        if not isinstance(task, SpanAnswer):
            raise UserError(
                f"a model of the task {type(task).__name__} answers no questions; expected one "
                "of SpanAnswer"
            )
        text, most = read(" ".join(document.split())), self.settings.max_length
        return task.answer(self.model, self.vocabulary, read(question), text, most)

    def write_samples(self, options: LanguageSampleOptions, out: OutputFolder) -> str:
        path = None if options.lines == STANDARD_INPUT else options.lines
        if options.document is not None:
            questions = [options.prompt] if options.lines is None else read_input_lines(path)
            document = "\n".join(read_lines(Path(options.document)))
            answers = [(each, *self.answer(each, document)) for each in questions]
            rows = (f"{each}\t{answer}\t{share:.4f}\n" for each, answer, share in answers)
            written = out.write(ANSWERS, "".join(rows).encode())
            shown = f"{answers[0][1]}\n" if len(answers) == 1 else ""
            return f"{shown}{counted(len(answers), 'answer', 'answers')} in {written}"
        if options.lines is not None:
            labels = self.classify(read_input_lines(path))
            rows = (f"{label}\t{probability:.4f}\n" for label, probability in labels)
            written = out.write(LABELS, "".join(rows).encode())
            return f"{counted(len(labels), 'label', 'labels')} in {written}"
        progress = display("sampled tokens", at_most=True)
        texts = self.sample(**options.arguments_of(self.sample), progress=progress)
        for name, text in zip(options.output_names(), texts, strict=True):
            out.write(name, f"{text}\n".encode())
        return f"{counted(len(texts), 'text', 'texts')} (.txt) in {out}"


restore = LanguageModel.restore
