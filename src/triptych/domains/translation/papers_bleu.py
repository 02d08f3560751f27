"""BLEU as papers on Multi30k report it, which is not the BLEU that sacrebleu gives for raw text.

Their text went through three Moses scripts in this order, on both sides alike: lowercase.perl,
normalize-punctuation.perl and tokenizer.perl (multi30k/dataset, scripts/task1-tokenize.sh); the
n-grams of the tokens were counted by multi-bleu.perl or its like, without smoothing. sacremoses is
those scripts in Python; its `perl_parity` keeps them to the letter. The tokeniser writes
apostrophes and quotes as &apos; and &quot;, as the script does by default: each is one token before
and after, so the score is the same either way.

Wu et al. (ACL 2021) print 12,103 tokens for the German side of test2016, and so many this gives.
The figure is mostly above the cased one and must never stand beside it unnamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec


def why_not(language: str) -> str | None:
    """Why there is no such score for a target language code like de or pt-BR; None where there is.

    Moses's tokeniser takes a language that it does not know for English, without a word, and does
    not cut Chinese or Cantonese into words.
    """
    if find_spec("sacremoses") is None:
        return "sacremoses is not installed; it comes with the extra `moses`"
    from sacremoses.corpus import NonbreakingPrefixes

    known = set(NonbreakingPrefixes().available_langs.values()) - {"yue", "zh"}
    if main_language(language) not in known:
        return f"Moses has no tokenisation into words for the language {language}"
    return None


def main_language(language: str) -> str:
    """The language of a code without country or script: pt of pt-BR, zh of zh_Hant."""
    return language.lower().replace("_", "-").split("-")[0]


def as_papers_have_it(lines: Sequence[str], language: str) -> list[str]:
    """Lines lowercased, with normalised punctuation, as tokens with blanks between them."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    code = main_language(language)
    normaliser = MosesPunctNormalizer(lang=code, perl_parity=True)
    tokeniser = MosesTokenizer(lang=code)
    return [
        tokeniser.tokenize(normaliser.normalize(line.lower()), escape=True, return_str=True)
        for line in lines
    ]


def papers_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> tuple[float, str]:
    """BLEU-4 of raw text in the papers' convention, 0 to 100, and its signature stage by stage.

    Needs sacremoses and a language that Moses knows: see `why_not`.
    """
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize="none", lowercase=True, smooth_method="none", force=True)
    sides = (as_papers_have_it(lines, language) for lines in (hypotheses, references))
    hypothesis_tokens, reference_tokens = sides
    score = bleu.corpus_score(hypothesis_tokens, [reference_tokens]).score
    code = main_language(language)
    signature = (
        f"lowercase:python|normalise:sacremoses[{code},perl_parity]|"
        f"tokenise:sacremoses[{code},escape]|sacremoses:{version('sacremoses')}|"
        f"count:sacrebleu[{bleu.get_signature()}]"
    )
    return float(score), signature
