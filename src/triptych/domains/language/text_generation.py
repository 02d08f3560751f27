"""Texts from a model: the continuation of a prompt, and words in place of [MASK]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import MaskedTokenModel
from triptych.decoding.constraints import Forbidden
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest, sample_value
from triptych.domains.language.vocabulary import CLS, MASK, N_SPECIALS, SEP, SPECIALS, Vocabulary
from triptych.errors import UserError
from triptych.text.tokenizer import TextTokenizer
from triptych.training.engine.evaluate import device_of, scoring


def continue_text(
    model: DecoderOnly, tokens: Sequence[int], request: SampleRequest, vocabulary: Vocabulary
) -> list[list[int]]:
    """Return texts of at most `length` tokens that begin with these, without their ends.

    Special ids but the end and the unknown token are not sampled.
    """
    device = device_of(model)
    prefix = torch.tensor(tokens, dtype=torch.int64, device=device).expand(request.count, -1)
    never = [token for token in range(vocabulary.known.start) if token != SEP]
    constraint = Forbidden(never, len(vocabulary), device)
    rows = generate(model, replace(request, prefix=prefix, end=SEP, constraint=constraint))
    return [[token for token in row if token >= N_SPECIALS] for row in rows.tolist()]


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

    The masks are filled from left to right; each token depends on all others, those filled before
    included. tokens: of `encode_masked`.
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


def check_length(n_tokens: int, length: int, most: int) -> None:
    """Raise UserError for a prompt that leaves no room, or a length beyond that of the training."""
    if not n_tokens < length <= most:
        raise UserError(
            f"the prompt has {n_tokens} tokens and length is {length}; expected a prompt shorter "
            f"than length, and a length of at most {most} (data.max_length)"
        )
