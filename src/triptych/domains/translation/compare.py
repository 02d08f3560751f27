"""What other weights change: how much faster, how many lines read otherwise, at what likelihood."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.decoding.hypotheses import Hypothesis
from triptych.domains.translation.data import pad_rows
from triptych.domains.translation.decode import NEVER
from triptych.domains.translation.lines import BLANKS
from triptych.domains.translation.tokenizer import END, PAD, START, Tokenizers
from triptych.training.metric_sums import in_double

SAMPLE = 64
"""Lines that a comparison takes at most: 0.2 to 20 seconds of searching on two cores."""

Search = Callable[[Sequence[str]], list[list[Hypothesis]]]


@dataclass(frozen=True)
class Comparison:
    """Translations with some weights beside those of the same lines in float32."""

    weights: str
    """bf16 or int8."""
    lines: int
    """Lines compared."""
    gain: float
    """Time of the search in float32 over that with these weights."""
    identical: float
    """Share of lines whose translation is the same, 0 to 1."""
    log_p: float
    """Log-likelihood per token of these translations under the float32 model, in nats."""
    log_p_fp32: float
    """The same of float32's own translations."""

    def sentence(self) -> str:
        """The comparison for a person."""
        return (
            f"{self.weights} against fp32 on the first {self.lines} lines: {self.gain:.2f} x as "
            f"fast, {self.identical:.1%} of the translations identical, their log-likelihood "
            f"{self.log_p:.4f} nats/token under the fp32 model, its own {self.log_p_fp32:.4f} "
            f"({self.log_p - self.log_p_fp32:+.4f})"
        )


def compare(
    weights: str,
    search: Search,
    search_fp32: Search,
    model: EncoderDecoder,
    tokenizers: Tokenizers,
    lines: Sequence[str],
) -> Comparison | None:
    """Compare two searches of the first lines that are not blank; None where there are none.

    model: the float32 model, which judges both.
    """
    chosen = [line.strip(BLANKS) for line in lines]
    chosen = [line for line in chosen if line and not line.isspace()][:SAMPLE]
    if not chosen:
        return None
    seconds, found = {}, {}
    for name, run in (("fp32", search_fp32), (weights, search)):
        run(chosen[:4])  # the first search prepares the weights
        started = time.perf_counter()
        found[name] = [best[0] for best in run(chosen)]
        seconds[name] = time.perf_counter() - started
    same = sum(
        one.tokens == other.tokens for one, other in zip(found["fp32"], found[weights], strict=True)
    )
    log_p = {
        name: log_p_per_token(model, tokenizers, chosen, hypotheses)
        for name, hypotheses in found.items()
    }
    return Comparison(
        weights,
        len(chosen),
        seconds["fp32"] / seconds[weights],
        same / len(chosen),
        log_p[weights],
        log_p["fp32"],
    )


@torch.no_grad()
def log_p_per_token(
    model: EncoderDecoder,
    tokenizers: Tokenizers,
    lines: Sequence[str],
    hypotheses: Sequence[Hypothesis],
) -> float:
    """Log-likelihood of the hypotheses given their lines, over their tokens (ends included)."""
    device = next(model.parameters()).device
    sources = [[*ids, END] for ids in tokenizers.source.encode_batch(list(lines))]
    targets = [[*one.tokens, END] if one.finished else one.tokens for one in hypotheses]
    total = 0.0
    for source_ids, target_ids in zip(sources, targets, strict=True):
        source, target = pad_rows([source_ids]).to(device), pad_rows([target_ids]).to(device)
        entered = torch.cat([target.new_full((1, 1), START), target[:, :-1]], dim=1)  # [1, T]
        logits = model(source, source == PAD, entered)  # [1, T, V]
        logits[..., list(NEVER)] = -torch.inf  # as in the search
        log_p = in_double(logits).log_softmax(-1)  # [1, T, V]
        chosen = log_p.gather(-1, target.unsqueeze(-1).to(log_p.device))  # [1, T, 1]
        total += float(chosen.sum())
    return total / sum(map(len, targets))
