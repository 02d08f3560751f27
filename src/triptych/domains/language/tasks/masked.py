"""Masked tokens and, if wanted, the next sentence: the pretraining of BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from triptych.core.models.encoder_only import MaskedTokenModel
from triptych.decoding.sampling import SampleRequest, sample_value
from triptych.domains.language.data import (
    MaskedBatch,
    MaskedExamples,
    MaskRates,
    encode_documents,
    join_sentences,
)
from triptych.domains.language.metrics import Ids, MaskedCounts, pseudo_scores
from triptych.domains.language.model import (
    CLS,
    MASK,
    SEP,
    SPECIALS,
    ModelConfig,
    Scored,
    SimpleModels,
    Task,
    Vocabulary,
)
from triptych.domains.language.sources import Source
from triptych.errors import UserError
from triptych.text.batches import evaluation_batches
from triptych.text.tokenizer import TextTokenizer
from triptych.training.engine.devices import device_of, scoring, to_device
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.objective import Predictions
from triptych.training.loading.batches import Ragged
from triptych.types import Progress

SHOWN = 8
"""Examples whose predictions are shown after a validation."""


@dataclass(frozen=True)
class MaskedTokens(MaskRates, Task):
    """Predict masked tokens from the tokens on both sides (Devlin et al. 2018, section 3.1)."""

    next_sentence: bool = False
    """Also predict whether the second of two segments follows the first one in its document."""

    monitor: ClassVar[str] = "nats_per_masked_token"

    def build_model(
        self, model: ModelConfig, vocabulary: Vocabulary, max_length: int
    ) -> MaskedTokenModel:
        return MaskedTokenModel(
            model.transformer,
            vocabulary=len(vocabulary),
            max_length=max_length,
            next_sentence=self.next_sentence,
        )

    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> MaskedExamples:
        documents = source.items(split)
        most = (max_length - 3) // 2 if self.next_sentence else max_length - 2
        rows, document = [], []
        for number, sentences in enumerate(encode_documents(documents, vocabulary.tokenizer)):
            for row in join_sentences(sentences, most):
                rows.append([CLS, *row, SEP])
                document.append(number)
        examples = MaskedExamples(
            Ragged.of(rows, np.int32),
            np.array(document, dtype=np.int64),
            self,
            vocabulary.known,
            next_sentence=self.next_sentence,
        )
        if self.next_sentence and (not len(examples) or len(set(document)) < 2):
            raise UserError(
                f"next_sentence is true, but the {split} split has no document of two segments of "
                f"{most} tokens, or one document alone; expected several longer documents"
            )
        return examples

    def predictions(self, model: MaskedTokenModel, batch: MaskedBatch) -> Predictions:
        features = model.encoder(batch.tokens, batch.segments, batch.padding)  # [B, L, D]
        further = model.order_nll(features, batch.follows).mean() if self.next_sentence else 0.0
        chosen = model.transform(features.flatten(0, 1)[batch.where])  # [M, D]
        return Predictions(chosen, model.head, batch.expected, further=further)

    def score(self, model: MaskedTokenModel, batch: MaskedBatch) -> dict[str, Tensor]:
        features = model.encoder(batch.tokens, batch.segments, batch.padding)  # [B, L, D]
        logits = model.logits(features.flatten(0, 1)[batch.where])  # [M, V]
        sums = {
            "nats": in_double(model.head.nll(logits, batch.expected)).sum(),
            "correct": in_double(logits.argmax(-1) == batch.expected).sum(),
            "tokens": torch.tensor(float(len(batch.where))),
        }
        if model.pooler is not None and model.next_sentence is not None:
            order = model.next_sentence(model.pooler(features))  # [B, 2]
            sums["ordered"] = in_double(order.argmax(-1) == batch.follows).sum()
            sums["pairs"] = torch.tensor(float(len(batch.follows)))
        return sums

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        tokens = max(totals["tokens"], 1.0)
        values = {
            "nats_per_masked_token": totals["nats"] / tokens,
            "masked_accuracy": totals["correct"] / tokens,
        }
        if self.next_sentence:
            values["next_sentence_accuracy"] = totals["ordered"] / totals["pairs"]
        return values

    def table(
        self, model: MaskedTokenModel, examples: MaskedExamples, vocabulary: Vocabulary, seed: int
    ) -> list[dict[str, str]]:
        symbols, device, rows = vocabulary.tokenizer.symbols, device_of(model), []
        for item in range(min(SHOWN, len(examples))):
            batch = to_device(examples.batch([item], None), device)
            features = model.encoder(batch.tokens, batch.segments)[0]  # [L, D]
            best = model.logits(features[batch.where]).argmax(-1)  # [M]
            columns = {"read": batch.tokens[0], "predicted": best, "right": batch.expected}
            rows.append(
                {name: " ".join(symbols[t] for t in ids.tolist()) for name, ids in columns.items()}
            )
        return rows

    def write(
        self,
        model: MaskedTokenModel,
        vocabulary: Vocabulary,
        prompt: str,
        request: SampleRequest,
        most: int,
    ) -> list[list[int]]:
        """Return copies of the prompt with a token in place of each "[MASK]"."""
        tokens = encode_masked(vocabulary.tokenizer, prompt)
        if MASK not in tokens or len(tokens) > most:
            raise UserError(
                f"the prompt has {tokens.count(MASK)} [MASK] and {len(tokens)} tokens; a "
                f"masked-token model fills masks: expected one or more, and at most {most} "
                "tokens (data.max_length)"
            )
        return fill_masks(model, tokens, request, vocabulary)

    def further_scores(
        self, model: MaskedTokenModel, scored: Scored[MaskedExamples], progress: Progress | None
    ) -> tuple[dict[str, float], dict[str, int]]:
        chosen = spread_rows(scored)
        if not len(chosen):
            return {}, {}
        rows, most = scored.examples.rows, scored.max_tokens
        metrics = pseudo_scores(model, rows, chosen, max_tokens=most, progress=progress)
        return metrics, {"pseudo_examples": len(chosen)}

    def simple_models(
        self, training: MaskedExamples, scored: Scored[MaskedExamples]
    ) -> SimpleModels:
        examples = scored.examples
        counted = MaskedCounts(training.rows, training.known.stop)
        batches = evaluation_batches(examples, scored.max_tokens, limit=scored.request.limit)
        parts = zip(*(neighbours(batch) for batch in batches), strict=True)
        nats, accuracy = counted.scores(*(np.concatenate(part) for part in parts))
        scores = {"nats_per_masked_token": nats, "masked_accuracy": accuracy}
        chosen = spread_rows(scored)
        if len(chosen):
            texts = [examples.rows[int(row)].astype(np.int64) for row in chosen]
            sides = [[row[:-2] for row in texts], [row[2:] for row in texts]]
            inner = [row[1:-1] for row in texts]
            places = map(np.concatenate, [*sides, inner])
            nats, scores["one_mask_accuracy"] = counted.scores(*places)
            perplexity = {name: float(np.exp(value)) for name, value in nats.items()}
            scores["pseudo_perplexity"] = perplexity
        return scores


def spread_rows(scored: Scored[MaskedExamples]) -> Ids:
    """Return the rows of `pseudo_examples`, spread over the split, which is in document order."""
    rows = scored.examples.first[: scored.request.limit]
    count = min(scored.request.pseudo_examples, len(rows))
    spread: Ids = rows[np.arange(count) * len(rows) // max(count, 1)]
    return spread


def encode_masked(tokenizer: TextTokenizer, text: str) -> list[int]:
    """Return [CLS], the ids of a text in which "[MASK]" stands for a token, and [SEP]."""
    parts = tokenizer.encode_batch(text.split(SPECIALS[MASK]))
    tokens = [CLS, *parts[0]]
    for part in parts[1:]:
        tokens += [MASK, *part]
    return [*tokens, SEP]


def fill_masks(
    model: MaskedTokenModel, tokens: Sequence[int], request: SampleRequest, vocabulary: Vocabulary
) -> list[list[int]]:
    """Return `count` copies of a text with a sampled token in place of each [MASK].

    From left to right; each depends on all others. tokens: of `encode_masked`.
    """
    device = device_of(model)
    generator = request.generator_on(device)
    rows = torch.tensor(tokens, device=device).repeat(request.count, 1)  # [B, L]
    forbidden = torch.zeros(model.head.n_parameters, dtype=torch.bool, device=device)
    forbidden[: vocabulary.known.start] = True
    with scoring(model):
        for position in (rows[0] == MASK).nonzero().squeeze(1).tolist():
            logits: Tensor = model.logits(model.encoder(rows)[:, position])  # [B, V]
            logits = logits.masked_fill(forbidden, -torch.inf)
            rows[:, position] = sample_value(model.head, logits, request.sampling, generator)
    filled: list[list[int]] = rows.tolist()
    return filled


def neighbours(batch: MaskedBatch) -> tuple[Ids, Ids, Ids]:
    """Return the tokens left and right of the predicted ones as read, and these, [M] each."""
    tokens = batch.tokens.flatten()
    sides = (tokens[batch.where - 1], tokens[batch.where + 1], batch.expected)
    return tuple(side.numpy() for side in sides)  # type: ignore[return-value]
