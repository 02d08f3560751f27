"""The recurrent encoder-decoder against a loop of the equations of Luong et al. 2015."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from triptych.core.models.recurrent import Recurrence, RecurrentEncoderDecoder
from triptych.core.state import Memory
from triptych.decoding.beam_search import beam_search
from triptych.decoding.penalty import LengthPenalty

EXACT = {"rtol": 0.0, "atol": 1e-12}
PAD, START, END, V, D = 0, 1, 2, 11, 6

KINDS = [
    {"cell": "lstm", "score": "general"},
    {"cell": "lstm", "score": "dot", "bidirectional": True},
    {"cell": "lstm", "score": "dot", "input_feeding": False, "share_embeddings": "target"},
    {"cell": "gru", "score": "general", "bidirectional": True, "share_embeddings": "none"},
    {"cell": "gru", "score": "dot"},
]
every_kind = pytest.mark.parametrize(
    "settings", KINDS, ids=lambda s: "-".join(map(str, s.values()))
)


def model(n_layers: int = 2, **settings: object) -> RecurrentEncoderDecoder:
    torch.manual_seed(0)
    sizes = {"source_vocabulary": V, "target_vocabulary": V, "d_model": D, "n_layers": n_layers}
    made = RecurrentEncoderDecoder(**sizes, **settings).double().eval()
    torch.nn.init.normal_(made.head.logits.weight)
    return made


def batch() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.randint(3, V, (3, 7))
    target = torch.randint(3, V, (3, 5))
    target[:, 0] = START
    source[1, 4:], source[2, 1:] = PAD, PAD
    return source, source == PAD, target


def lstm_cell(weights: dict[str, Tensor], layer: int, x: Tensor, h: Tensor, c: Tensor) -> tuple:
    """One step of an LSTM layer for one row, from its equations (torch.nn.LSTM)."""
    both = weights[f"weight_ih_l{layer}"] @ x + weights[f"bias_ih_l{layer}"]
    both = both + weights[f"weight_hh_l{layer}"] @ h + weights[f"bias_hh_l{layer}"]
    i, f, g, o = both.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@pytest.mark.parametrize("score", ["dot", "general"])
@torch.no_grad()
def test_the_equations_one_number_at_a_time(score: str) -> None:
    """Scores, weights (equation 7), context, attentional vector (5) and input feeding."""
    each = model(score=score)
    source, target = torch.randint(3, V, (1, 6)), torch.randint(3, V, (1, 5))
    vectors = each.source_embedding.table.weight * math.sqrt(D)
    encoder = dict(each.encoder.layers.named_parameters())
    decoder = dict(each.decoder.layers.named_parameters())
    named = dict(each.decoder.attention.named_parameters())

    states = [(torch.zeros(D).double(), torch.zeros(D).double()) for _ in range(2)]
    memory = []
    for token in source[0]:
        x = vectors[token]
        for layer in range(2):
            states[layer] = lstm_cell(encoder, layer, x, *states[layer])
            x = states[layer][0]
        memory.append(x)

    fed = torch.zeros(D).double()
    expected, alignments = [], []
    for token in target[0]:
        x = torch.cat([vectors[token], fed])
        for layer in range(2):
            states[layer] = lstm_cell(decoder, layer, x, *states[layer])
            x = states[layer][0]
        scores = []
        for h_s in memory:
            key = h_s if score == "dot" else named["memory_proj.weight"] @ h_s
            scores.append(sum(float(x[i]) * float(key[i]) for i in range(D)))
        total = sum(math.exp(s) for s in scores)
        weights = [math.exp(s) / total for s in scores]
        context = sum(a * h_s for a, h_s in zip(weights, memory, strict=True))
        fed = (named["out_proj.weight"] @ torch.cat([context, x])).tanh()
        expected.append(fed)
        alignments.append(weights)

    torch.testing.assert_close(
        each.features(source, None, target)[0], torch.stack(expected), **EXACT
    )
    found, own, _ = each.attention(source, target)
    assert own is None
    torch.testing.assert_close(found[0, 0], torch.tensor(alignments, dtype=torch.float64), **EXACT)


@every_kind
def test_steps_and_prefill_are_the_pass_over_the_whole_target(settings: dict[str, object]) -> None:
    each, (source, padding, target) = model(**settings), batch()
    whole = each(source, padding, target)
    for start in range(5):
        state = each.init_state(3, 5, condition=each.encode(source, padding))
        first = each.prefill(target[:, 1 : start + 1], state, target[:, 0])
        torch.testing.assert_close(first, whole[:, start], **EXACT)
        for t in range(start + 1, 5):
            logits = each.step(target[:, t : t + 1], torch.tensor([t]), state)
            torch.testing.assert_close(logits[:, 0], whole[:, t], **EXACT)


@every_kind
def test_a_row_in_its_batch_is_the_row_alone(settings: dict[str, object]) -> None:
    each, (source, padding, target) = model(**settings), batch()
    together = each(source, padding, target)
    for row, length in enumerate((~padding).sum(1).tolist()):
        alone = each(source[row : row + 1, :length], None, target[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, **EXACT)


def test_the_target_reads_its_past_and_the_source_alone() -> None:
    each, (source, padding, target) = model(), batch()
    before = each.features(source, padding, target)
    other = target.clone()
    other[:, 3:] = 9
    after = each.features(source, padding, other)
    torch.testing.assert_close(after[:, :3], before[:, :3], **EXACT)
    assert not torch.allclose(after[:, 3:], before[:, 3:])
    source[0, 0] = 3 if int(source[0, 0]) != 3 else 4
    assert not torch.allclose(each.features(source, padding, target)[0, 0], before[0, 0])


def best_of_all(each: RecurrentEncoderDecoder, source: Tensor, length: int) -> float:
    """Log p of the best target of at most so many tokens with its end, by enumeration."""
    best = -math.inf
    waiting: list[tuple[list[int], float]] = [([START], 0.0)]
    while waiting:
        tokens, log_p = waiting.pop()
        next_log_p = each(source, None, torch.tensor([tokens]))[0, -1]
        next_log_p[[PAD, START]] = -math.inf
        next_log_p = next_log_p.log_softmax(-1)
        best = max(best, log_p + float(next_log_p[END]))
        if len(tokens) < length:
            waiting += [([*tokens, t], log_p + float(next_log_p[t])) for t in range(3, V)]
    return best


@torch.no_grad()
def test_a_wide_beam_finds_the_best_target_and_a_beam_of_1_is_greedy() -> None:
    each, (source, padding, _) = model(), batch()
    options = {"start": START, "end": END, "forbidden": (PAD, START)}
    condition = each.encode(source, padding)
    state = each.init_state(3, 3, condition=condition)
    none = LengthPenalty.parse("none")
    found = beam_search(each, state, beam=90, max_lengths=[3] * 3, penalty=none, **options)
    for row, length in enumerate((~padding).sum(1).tolist()):
        expected = best_of_all(each, source[row : row + 1, :length], 3)
        assert found[row].best[0].log_probability == pytest.approx(expected, abs=1e-9)

    state = each.init_state(3, 9, condition=condition)
    greedy = beam_search(each, state, beam=1, max_lengths=[9] * 3, **options)
    for row in range(3):
        tokens = [START]
        while len(tokens) < 10 and tokens[-1] != END:
            logits = each(source[row : row + 1], padding[row : row + 1], torch.tensor([tokens]))
            logits[..., [PAD, START]] = -math.inf
            tokens.append(int(logits[0, -1].argmax()))
        hypothesis = greedy[row].best[0]
        assert [*hypothesis.tokens, *([END] if hypothesis.finished else [])] == tokens[1:]


def test_a_recurrent_state_cannot_go_back() -> None:
    each, (source, padding, _) = model(), batch()
    with pytest.raises(ValueError, match="lookahead"):
        each.init_state(3, 5, lookahead=1, condition=each.encode(source, padding))
    with pytest.raises(ValueError, match="condition"):
        each.init_state(3, 5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_autocast_rounds_no_state(cell: str, bidirectional: bool) -> None:
    """A translator in bf16 learned its training set to 77 % where that in float32 had all of it."""
    each = model(cell=cell, score="dot", bidirectional=bidirectional, input_feeding=False).float()
    source, padding, _ = batch()
    embedded = each.source_embedding.table.weight[source].detach()  # [B, K, D]

    def states(*, autocast: bool) -> list[Tensor]:
        x = embedded.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            memory, last = each.encoder(x, ~padding)
            projected = each.decoder.attention.project_memory(Memory(memory, ~padding))
            before = Recurrence(last, fed=torch.zeros_like(last[:, 0]))
            _, after = each.decoder(x, before, projected)
        (gradient,) = torch.autograd.grad(after.states.sum() + memory.sum(), x)
        return [memory, last, after.states, gradient]

    for rounded, exact in zip(states(autocast=True), states(autocast=False), strict=True):
        torch.testing.assert_close(rounded, exact)  # also of one dtype


def test_a_condition_can_be_used_again() -> None:
    """Steps write into the state, not into the condition that it was made of."""
    each, (source, padding, target) = model(cell="gru"), batch()
    assert each.decodes_padded_sources
    assert not each.source_has_attention
    assert each.bytes_per_position() == 2 * D * 8  # a key and a value of a source position
    condition = each.encode(source, padding)
    for _ in range(2):
        state = each.init_state(3, 5, condition=condition)
        found = each.step(target[:, :1], torch.tensor([0]), state)
    again = each.step(target[:, :1], torch.tensor([0]), each.init_state(3, 5, condition=condition))
    torch.testing.assert_close(found, again, rtol=0, atol=0)
