"""Training of a model of text: the loss and the scores of its task."""

import csv
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.domains.language.config import Config
from triptych.domains.language.model import SPECIALS, Vocabulary
from triptych.domains.language.sources import in_memory
from triptych.text.batches import Examples, evaluation_batches, training_batches
from triptych.training.engine.module import TrainingModule
from triptych.training.engine.objective import Predictions
from triptych.training.finetune.parts import InitialWeights
from triptych.training.finetune.rows import RowMap, WordRows, same_symbols
from triptych.training.loading.loader import FixedBatches, ResumableLoader

TOKEN_WEIGHTS = ("embedding.table.weight", "head.logits.weight", "head.logits.bias")
"""Ends of the names of weights with a row for each token."""


class LanguageTrainingModule(TrainingModule):
    """Training of a model of text; the task of the settings has its loss and scores."""

    domain = "language"
    config: Config

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config.build_model(vocabulary), config, vocabulary.to_plain())
        self.monitor = config.task.monitor
        self.vocabulary = vocabulary
        self.shown: Examples | None = None
        """Examples of the validation split for `log_samples`."""

    def same_vocabulary(self, other: dict[str, Any]) -> bool:
        """Return whether the tokens are the same; labels belong to the task."""
        return bool(other["tokenizer"] == self.metadata["vocabulary"]["tokenizer"])

    def initial_weights(self, header: dict[str, Any], weights: dict[str, Tensor]) -> InitialWeights:
        own, labels = self.state_dict(), self.vocabulary.labels
        return self.config.task.initial_weights(header, labels, weights, own)

    def row_maps(self, other: dict[str, Any]) -> list[RowMap]:
        before = Vocabulary.from_plain(other).tokenizer.symbols
        now = self.vocabulary.tokenizer.symbols
        names = tuple(name for name in self.state_dict() if name.endswith(TOKEN_WEIGHTS))
        return [same_symbols("tokens", before, now, names)]

    def word_rows(self) -> WordRows:
        parameters = self.model.named_parameters()
        table = next(weight for name, weight in parameters if name.endswith(TOKEN_WEIGHTS[0]))
        return WordRows(table, self.vocabulary.tokenizer.words)

    def log_samples(self, folder: Path) -> None:
        if self.shown is None:
            return
        seed = self.config.run.seed
        rows = self.config.task.table(self.model, self.shown, self.vocabulary, seed)
        if rows:
            with (folder / "texts.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)

    def predictions(self, model: Any, batch: Any) -> Predictions:
        return self.config.task.predictions(model, batch)

    def score(self, batch: Any) -> dict[str, Tensor]:
        return self.config.task.score(self.model, batch)

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        return self.config.task.metrics(totals)


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[LanguageTrainingModule, ResumableLoader, FixedBatches]:
    """Return the training module and both loaders; of a vocabulary given the tokenizer is used."""
    data, task = config.data, config.task
    source = in_memory(data.source, data.source.read_to_train())
    if vocabulary is None:
        tokenizer = data.tokenizer.build(task.texts(source), data.vocabulary_size, SPECIALS)
    else:
        tokenizer = Vocabulary.from_plain(vocabulary).tokenizer
    words = Vocabulary(tokenizer, task.labels(source))
    train, validation = (
        task.encode(source, split, words, data.max_length) for split in ("train", "validation")
    )
    torch.manual_seed(config.run.seed)
    module = LanguageTrainingModule(config, words)
    module.shown = validation
    held_out = source.items("validation")
    lines = chain.from_iterable(map(source.compared, held_out))
    print(
        f"{len(train):,} training examples ({int(train.lengths.sum()):,} tokens) and "
        f"{len(validation):,} for validation{tokenizer.unknown_sentence(lines)}; a vocabulary of "
        f"{len(words):,} tokens",
        file=sys.stderr,
    )
    loader = training_batches(train, data.max_tokens, seed=config.run.seed)
    return module, loader, evaluation_batches(validation, data.max_tokens)
