"""Likelihood, and scores of translations: BLEU, chrF and exact match; of summaries: ROUGE.

BLEU and chrF are sacrebleu's (Post 2018, arXiv 1804.08771) on raw text in true case. Each comes
with its signature: scores with different signatures cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from triptych.domains.translation.lines import primary_subtag
from triptych.errors import UserError
from triptych.text.tokenizer import PAD
from triptych.training.engine.evaluate import in_double

if TYPE_CHECKING:
    from triptych.domains.translation.data import Batch

LABELS = {
    "bleu": "BLEU of raw text, true case, by sacrebleu",
    "chrf": "chrF2 of raw text, true case, by sacrebleu",
    "bleu_papers": "BLEU-4 of lowercased, punctuation-normalised, Moses-tokenised text, as papers "
    "on Multi30k report it; mostly above bleu and not to be compared with it",
}
"""Descriptions of the scores for printing."""
ROUGE = ("rouge1", "rouge2", "rougeL")
"""Overlap of words, of pairs of words, and longest common subsequence (Lin 2004)."""


class LikelihoodScores:
    """Sums over a batch and their ratio, for the training module and the trained model."""

    domain: ClassVar[str] = "translation"
    monitor: str = "nats_per_token"
    model: Any  # SequenceToSequence

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Return the sums of a batch: nats without smoothing, tokens with ends, and pairs."""
        x = self.model.features(batch.source, batch.source_padding, batch.target_input)  # [B, L, D]
        nats = self.model.head.losses(x, batch.expected)  # [B, L]
        return {
            "nats": in_double(nats.masked_fill(batch.expected == PAD, 0.0)).sum(),
            "tokens": in_double((batch.expected != PAD).sum()),
            "pairs": torch.tensor(len(batch.source), dtype=torch.float64),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return nats per target token from the sums over a split."""
        return {"nats_per_token": totals["nats"] / totals["tokens"]}


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenizer: str,
    papers_language: str | None = None,
    targets: str = "translations",
) -> tuple[dict[str, float], dict[str, dict[str, str]]]:
    """Return the scores of translations against one reference each, and details of the scores.

    BLEU and chrF2 are 0 to 100, exact_match is the share of lines equal to their reference.
    Details: labels and signatures by score, and not_scored, the reason why a score is missing.
    tokenizer: see `Corpus.bleu_tokenizer`. papers_language: code of the target, for `papers_bleu`
    too; None to skip it. targets: see `ParallelText`, whose summaries have ROUGE too.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    exact = [h == r for h, r in zip(hypotheses, references, strict=True)]
    # No effective_order: it is for single sentences and not for a corpus.
    bleu, chrf = BLEU(tokenize=tokenizer), CHRF()
    metrics = {"bleu": float(bleu.corpus_score(hypotheses, [references]).score)}
    signatures = {"bleu": str(bleu.get_signature())}
    details = {"signatures": signatures}
    if papers_language is not None:
        try:
            metrics["bleu_papers"], signatures["bleu_papers"] = papers_bleu(
                hypotheses, references, papers_language, tokenizer
            )
        except UserError as reason:
            details["not_scored"] = {"bleu_papers": str(reason)}
    metrics["chrf"] = float(chrf.corpus_score(hypotheses, [references]).score)
    signatures["chrf"] = str(chrf.get_signature())
    metrics["exact_match"] = sum(exact) / len(exact)
    if targets == "summaries":
        metrics |= rouge(hypotheses, references)
    elif targets == "symbols":
        metrics["character_accuracy"] = character_accuracy(hypotheses, references)
    details["labels"] = {name: LABELS[name] for name in signatures}
    return metrics, details


N_RESAMPLES = 1_000
"""Bootstrap resamples of the lines of a split."""


def intervals(
    hypotheses: Sequence[str], references: Sequence[str], tokenizer: str
) -> dict[str, float]:
    """Return half the width of the 95 % interval of BLEU and chrF2, each 0 to 100.

    Over resamples of the lines, as many as there are (Koehn 2004, section 3).
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    found = {}
    for name, metric in {"bleu": BLEU(tokenize=tokenizer), "chrf": CHRF()}.items():
        # sacrebleu cannot take the mean where some resamples have BLEU 0: a poor model has none.
        with suppress(TypeError):
            score: Any = metric.corpus_score(hypotheses, [references], n_bootstrap=N_RESAMPLES)
            found[name] = float(score._ci)  # has no public name; str(score) shows it
    return found


def compared(
    hypotheses: Sequence[str], others: Sequence[str], references: Sequence[str], tokenizer: str
) -> dict[str, dict[str, float]]:
    """Return for BLEU and chrF2 the score of other translations and the p-value of the difference.

    By paired bootstrap resampling: both systems are scored on the same resamples of the lines
    (Koehn 2004, section 4).
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.significance import PairedTest

    systems: list[tuple[str, Sequence[str]]] = [("other", others), ("model", hypotheses)]
    kinds: dict[str, Any] = {"bleu": BLEU(tokenize=tokenizer, references=[references])}
    kinds |= {"chrf": CHRF(references=[references])}
    test = PairedTest(systems, kinds, None, test_type="bs", n_samples=N_RESAMPLES)
    found: Any = [row for name, row in test()[1].items() if name != "System"]
    return {
        name: {"other": float(other.score), "p": float(model.p_value)}
        for name, (other, model) in zip(kinds, found, strict=True)
    }


def papers_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, tokenizer: str = "13a"
) -> tuple[float, str]:
    """Return BLEU-4 of raw text as papers on Multi30k compute it, 0 to 100, and its signature.

    Both sides are processed by `moses_tokenize`; n-grams are counted without smoothing, as by
    multi-bleu.perl. Raises UserError where BLEU counts characters (its tokenizer is "char") and
    where Moses has no words: it silently treats an unknown language as English, and does not split
    Chinese or Cantonese.
    """
    from sacrebleu.metrics.bleu import BLEU

    code = primary_subtag(language)
    if tokenizer == "char":
        raise UserError("these translations are scored by character, which is not how papers count")
    try:
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError:
        raise UserError("sacremoses is not installed; it comes with the extra `moses`") from None
    if code not in set(NonbreakingPrefixes().available_langs.values()) - {"yue", "zh"}:
        raise UserError(f"Moses has no tokenisation into words for the language {language}")
    bleu = BLEU(tokenize="none", lowercase=True, smooth_method="none", force=True)
    sides = [moses_tokenize(lines, language) for lines in (hypotheses, references)]
    score = bleu.corpus_score(sides[0], [sides[1]]).score
    signature = (
        f"lowercase:python|normalise:sacremoses[{code},perl_parity]|"
        f"tokenise:sacremoses[{code},escape]|sacremoses:{version('sacremoses')}|"
        f"count:sacrebleu[{bleu.get_signature()}]"
    )
    return float(score), signature


def moses_tokenize(lines: Sequence[str], language: str) -> list[str]:
    """Return lowercased lines with normalised punctuation, as tokens separated by spaces.

    The Moses scripts lowercase.perl, normalize-punctuation.perl and tokenizer.perl in this order
    (multi30k/dataset, scripts/task1-tokenize.sh).
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    code = primary_subtag(language)
    normalizer = MosesPunctNormalizer(lang=code, perl_parity=True)
    tokenizer = MosesTokenizer(lang=code)
    plain = (normalizer.normalize(line.lower()) for line in lines)
    return [tokenizer.tokenize(line, escape=True, return_str=True) for line in plain]


def character_accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of the references' characters that stand in their place."""
    pairs = zip(hypotheses, references, strict=True)
    equal = sum(h == r for one, other in pairs for h, r in zip(one, other, strict=False))
    return equal / sum(map(len, references))


def rouge(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the mean F1 of each kind of ROUGE, 0 to 100, by torchmetrics, without stemming."""
    from torchmetrics.functional.text.rouge import rouge_score

    scores = rouge_score(list(hypotheses), list(references), rouge_keys=ROUGE)
    return {name: 100 * float(scores[f"{name}_fmeasure"]) for name in ROUGE}
