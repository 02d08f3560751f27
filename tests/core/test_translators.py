"""Laws of every model of a target given a source: the encoder-decoder, one decoder, recurrent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from decoders import D, config
from random_head import with_random_head
from torch import Tensor

from triptych.core.attention.compressed import Compressed
from triptych.core.attention.local1d import Local1D
from triptych.core.models.encoder_decoder import EncoderDecoder, SequenceToSequence
from triptych.core.models.joint_decoder import JointDecoder
from triptych.core.models.recurrent import RecurrentEncoderDecoder
from triptych.core.positions import Rotary
from triptych.core.transformer import TransformerConfig
from triptych.core.universal import Halting, Universal
from triptych.decoding.beam_search import beam_search
from triptych.decoding.beams import LengthPenalty

EXACT = {"rtol": 0.0, "atol": 1e-12}
PAD, START, END, V = 0, 1, 2, 11
ALTERNATING = {"attention": Local1D(4, 2), "second_attention": Compressed()}
UNIVERSAL = {"depth": Universal(Halting(threshold=0.8))}


def transformer(share: str = "all", **sizes: Any) -> EncoderDecoder:
    vocabularies = {"source_vocabulary": V, "target_vocabulary": V, "share_embeddings": share}
    return with_random_head(EncoderDecoder(config(**sizes), **vocabularies)).double()


def joint(**sizes: Any) -> JointDecoder:
    model = JointDecoder(config(n_layers=3, **sizes), vocabulary=V, padding=PAD)
    return model.double().eval()


def recurrent(**settings: Any) -> RecurrentEncoderDecoder:
    sizes = {"source_vocabulary": V, "target_vocabulary": V, "d_model": D, "n_layers": 2}
    return with_random_head(RecurrentEncoderDecoder(**sizes, **settings)).double().eval()


Build = Callable[..., SequenceToSequence]
MODELS: list[tuple[Build, dict[str, Any]]] = [
    (transformer, {}),
    (transformer, {"share": "target", "norm_position": "post"}),
    (transformer, {"share": "none", **UNIVERSAL}),
    (joint, {}),
    (joint, {"positions": Rotary()}),
    (joint, ALTERNATING),
    (recurrent, {"cell": "lstm", "score": "general"}),
    (recurrent, {"cell": "lstm", "score": "dot", "bidirectional": True}),
    (recurrent, {"score": "dot", "input_feeding": False, "share_embeddings": "target"}),
    (recurrent, {"cell": "gru", "bidirectional": True, "share_embeddings": "none"}),
    (recurrent, {"cell": "gru", "score": "dot"}),
]


def shown(value: Any) -> str:
    """Name of a case: a function has no address in it."""
    return getattr(value, "__name__", str(value))


every_model = pytest.mark.parametrize(("build", "settings"), MODELS, ids=shown)


def batch(model: SequenceToSequence | None = None) -> tuple[Tensor, Tensor | None, Tensor]:
    """Source, its padding and target; of equal sources where the model decodes no others."""
    source, target = torch.randint(3, V, (3, 7)), torch.randint(3, V, (3, 5))
    target[:, 0], target[1, 3:] = START, PAD
    if model is not None and not model.decodes_padded_sources:
        return source, None, target
    source[1, 4:], source[2, 1:] = PAD, PAD
    return source, source == PAD, target


@every_model
def test_a_row_in_its_batch_is_the_row_alone(build: Build, settings: dict[str, Any]) -> None:
    each, (source, padding, target) = build(**settings), batch()
    assert padding is not None
    together = each(source, padding, target)
    for row in range(3):
        n, m = int((~padding[row]).sum()), int((target[row] != PAD).sum())
        alone = each(source[row : row + 1, :n], None, target[row : row + 1, :m])
        torch.testing.assert_close(together[row : row + 1, :m], alone, **EXACT)


@every_model
def test_the_target_reads_its_past_and_the_source_alone(
    build: Build, settings: dict[str, Any]
) -> None:
    each, (source, padding, target) = build(**settings), batch()
    before = each.features(source, padding, target)
    other = target.clone()
    other[:, 3:] = 3 + (target[:, 3:] - 2) % (V - 3)
    after = each.features(source, padding, other)
    torch.testing.assert_close(after[:, :3], before[:, :3], **EXACT)
    assert (after[:, 3:] != before[:, 3:]).any(-1).all()
    source[0, 0] = 3 if int(source[0, 0]) != 3 else 4
    changed = (each.features(source, padding, target) != before).any(-1)
    assert changed[0].all()
    assert not changed[1:].any()


@every_model
def test_a_prefill_and_steps_are_the_pass_over_the_whole_target(
    build: Build, settings: dict[str, Any]
) -> None:
    each = build(**settings)
    source, padding, target = batch(each)
    whole, condition = each(source, padding, target), each.encode(source, padding)
    for given in range(5):
        state = each.init_state(3, 5, condition=condition)
        first = each.prefill(target[:, 1 : given + 1], state, target[:, 0])
        torch.testing.assert_close(first, whole[:, given], **EXACT)
        for t in range(given + 1, 5):
            view = each.state_view(state, t + 1)
            logits = each.step(target[:, t : t + 1], torch.tensor([t]), view)
            torch.testing.assert_close(logits[:, 0], whole[:, t], **EXACT)


@pytest.mark.parametrize(
    ("build", "settings"), [one for one in MODELS if one[0] is not recurrent], ids=shown
)
def test_several_steps_at_once_overwrite_what_is_taken_back(
    build: Build, settings: dict[str, Any]
) -> None:
    each = build(**settings)
    source, padding, target = batch(each)
    whole, condition = each(source, padding, target), each.encode(source, padding)
    state = each.init_state(3, 5, condition=condition, lookahead=2)
    each.prefill(target[:, 1:2], state, target[:, 0])
    for t in (1, 2):  # the second one overwrites two positions
        found = each.step(target[:, t : t + 3], torch.arange(t, t + 3), state)
        torch.testing.assert_close(found, whole[:, t : t + 3], **EXACT)


def best_of_all(each: SequenceToSequence, source: Tensor, length: int) -> float:
    """Log p of the best target of at most so many tokens with its end, by enumeration."""
    tokens, log_p, best = torch.tensor([[START]]), torch.zeros(1).double(), -math.inf
    for _ in range(length):
        logits = each(source.expand(len(tokens), -1), None, tokens)[:, -1]
        logits[:, [PAD, START]] = -math.inf
        next_log_p = log_p.unsqueeze(1) + logits.log_softmax(-1)
        best = max(best, float(next_log_p[:, END].max()))
        following = torch.arange(3, V).repeat(len(tokens)).unsqueeze(1)
        tokens = torch.cat([tokens.repeat_interleave(V - 3, 0), following], 1)
        log_p = next_log_p[:, 3:].flatten()
    return best


@pytest.mark.parametrize(
    ("build", "settings"), [(transformer, {}), (joint, ALTERNATING), (recurrent, {})], ids=shown
)
@torch.no_grad()
def test_a_wide_beam_finds_the_best_target_and_a_beam_of_1_is_greedy(
    build: Build, settings: dict[str, Any]
) -> None:
    each = build(**settings)
    source, padding, _ = batch(each)
    options = {"start": START, "end": END, "forbidden": (PAD, START)}
    condition = each.encode(source, padding)
    state = each.init_state(3, 3, condition=condition)
    none = LengthPenalty.parse("none")
    found = beam_search(each, state, beam=90, max_lengths=[3] * 3, penalty=none, **options)
    alone = [source[row : row + 1][source[row : row + 1] != PAD].unsqueeze(0) for row in range(3)]
    for row in range(3):
        expected = best_of_all(each, alone[row], 3)
        assert found[row].best[0].log_probability == pytest.approx(expected, abs=1e-9)

    state = each.init_state(3, 9, condition=condition)
    greedy = beam_search(each, state, beam=1, max_lengths=[9] * 3, **options)
    for row in range(3):
        tokens = [START]
        while len(tokens) < 10 and tokens[-1] != END:
            logits = each(alone[row], None, torch.tensor([tokens]))
            logits[..., [PAD, START]] = -math.inf
            tokens.append(int(logits[0, -1].argmax()))
        hypothesis = greedy[row].best[0]
        assert [*hypothesis.tokens, *([END] if hypothesis.finished else [])] == tokens[1:]


def test_what_an_encoder_decoder_says_of_itself() -> None:
    model = transformer()
    assert model.decodes_padded_sources
    assert model.bytes_per_position() == 2 * model.decoder.n_layers * D * 8
    state = model.init_state(2, 8, condition=model.encode(torch.randint(9, (2, 6))))
    with pytest.raises(ValueError, match="start token"):
        model.prefill(torch.zeros(2, 0, dtype=torch.int64), state)


def test_tied_matrices_are_one_and_their_scale_is_the_published_one() -> None:
    model = transformer("all")
    assert model.source_embedding is model.target_embedding
    assert model.head.logits.weight is model.target_embedding.table.weight
    x = model.target_embedding(torch.tensor([[4]]), torch.tensor([0]))
    torch.testing.assert_close(x[0, 0], model.target_embedding.table.weight[4] * D**0.5, **EXACT)


def test_the_default_sizes_are_those_of_the_published_base_model() -> None:
    """65 million parameters with 37,000 tokens (Vaswani et al. 2017, table 3)."""
    with torch.device("meta"):
        model = EncoderDecoder(
            TransformerConfig(), source_vocabulary=37_000, target_vocabulary=37_000
        )
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(65e6, rel=0.05)
    assert (model.encoder.n_layers, model.dropout.p) == (6, 0.1)
