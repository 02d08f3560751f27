"""The Universal Transformer: against a loop over the block, and a slow loop of the halting."""

from __future__ import annotations

import copy
from typing import Any

import decoders
import pytest
import torch
from decoders import D
from random_head import with_random_head
from torch import Tensor

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.positions import SinusoidalEmbedding
from triptych.core.state import ForwardContext, Memory
from triptych.core.transformer import Stack, TransformerConfig, take_auxiliary_loss
from triptych.core.universal import (
    AdaptiveDepth,
    Halting,
    Universal,
    capture_halting,
    steps_of,
)

T = 4
EXACT = {"rtol": 0.0, "atol": 1e-12}
HALTING = Halting(threshold=0.9, ponder_cost=0.1)
both_depths = pytest.mark.parametrize("halting", [None, HALTING], ids=["fixed", "halting"])


def config(halting: Halting | None = None, **more: Any) -> TransformerConfig:
    settings = {"n_layers": T, "norm_position": "post", "depth": Universal(halting)}
    return decoders.config(**(settings | more))


def spread_halting(stack: Any) -> Any:
    """The same stack with halting units whose positions halt at different steps."""
    for part in stack.modules():
        if isinstance(part, AdaptiveDepth):
            torch.nn.init.normal_(part.unit.weight, std=0.5)
            torch.nn.init.constant_(part.unit.bias, 0.0)
    return stack


def build(halting: Halting | None = None, *, cross: bool = False, **more: Any) -> Stack:
    return spread_halting(config(halting, **more).decoder((9,), cross=cross)).double()


def signals(t: int, length: int) -> Tensor:
    """P^t of equation 6, for t = 1..T: [L, D]."""
    sinusoids = SinusoidalEmbedding(D)
    return sinusoids(torch.arange(length)) + sinusoids(torch.tensor(t))


# Against loops -----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_fixed_depth_is_a_loop_over_the_block_with_the_signals(norm: str, n_steps: int) -> None:
    stack = build(n_layers=n_steps, norm_position=norm)
    x = torch.randn(2, 7, D).double()
    y = x
    for t in range(1, n_steps + 1):
        y = stack.blocks[0](y + signals(t, 7))
    torch.testing.assert_close(stack(x), stack.final_norm(y), **EXACT)
    assert len(stack.blocks) == 1


def slow_halting(stack: Stack, x: Tensor) -> tuple[Tensor, Tensor, list[list[float]]]:
    """Output, ponder cost and weights from the equations of ACT, position by position.

    All states of a step exist before the next one, as other positions read them.
    """
    length, threshold = x.shape[1], stack.depth.halting.threshold
    outputs, costs, weights = [], [], []
    for row in x:
        states = list(row)
        probabilities: list[list[Tensor]] = [[] for _ in states]
        reached: list[list[Tensor]] = [[] for _ in states]
        done = [False] * length
        for t in range(1, stack.n_layers + 1):
            new = stack.blocks[0]((torch.stack(states) + signals(t, length)).unsqueeze(0))[0]
            for i in range(length):
                if done[i]:
                    continue
                states[i] = new[i]
                reached[i].append(new[i])
                h = torch.sigmoid(stack.depth.halting.unit(new[i]))[0]
                probabilities[i].append(h)
                done[i] = float(sum(probabilities[i]).detach()) >= threshold
        found = []
        for i in range(length):
            remainder = 1 - sum(probabilities[i][:-1])
            p = [*probabilities[i][:-1], remainder]
            found.append(sum(weight * s for weight, s in zip(p, reached[i], strict=True)))
            costs.append(len(p) + remainder)
            weights.append([float(weight.detach()) for weight in map(torch.as_tensor, p)])
        outputs.append(torch.stack(found))
    return stack.final_norm(torch.stack(outputs)), sum(costs), weights


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_halting_is_that_of_the_equations_in_values_and_gradients(norm: str) -> None:
    stack = build(HALTING, norm_position=norm).train()
    inputs = 4 * torch.randn(3, 7, D).double()
    results = []
    for slow in (False, True):
        stack.zero_grad()
        x = inputs.clone().requires_grad_()
        if slow:
            y, ponder, expected = slow_halting(stack, x)
            loss = ponder * stack.depth.ponder_cost
        else:
            with capture_halting(stack) as (captured):
                y = stack(x)
            loss = take_auxiliary_loss(stack)
        (y.sin().sum() + loss).backward()
        gradients = [parameter.grad.clone() for parameter in stack.parameters()]
        results.append([y, loss, x.grad, *gradients])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    (weights,) = captured  # [B, L, T]
    steps = steps_of(weights)
    assert steps.flatten().tolist() == [len(row) for row in expected]
    assert len(steps.unique()) >= 3, "the case must have positions that halt at different steps"
    for found, row in zip(weights.flatten(0, 1), expected, strict=True):
        torch.testing.assert_close(
            found[: len(row)], torch.tensor(row, dtype=torch.float64), **EXACT
        )


def test_halting_weights_add_up_to_one_at_every_position() -> None:
    for bias in (-20.0, -1.0, 0.0, 1.0, 20.0):
        stack = build(HALTING).float()
        torch.nn.init.constant_(stack.depth.halting.unit.bias, bias)
        with capture_halting(stack) as captured:
            stack(torch.randn(4, 9, D))
        (weights,) = captured
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(4, 9), rtol=0.0, atol=1e-6)
        steps = steps_of(weights)
        if abs(bias) == 20:  # all at the first step, or all at the last
            assert (steps == (1 if bias > 0 else T)).all()


def test_a_position_that_halts_at_once_has_the_output_of_one_step() -> None:
    stack, one = build(HALTING), build(n_layers=1)
    torch.nn.init.constant_(stack.depth.halting.unit.bias, 50.0)
    one.load_state_dict({k: v for k, v in stack.state_dict().items() if "halting" not in k})
    x = torch.randn(2, 9, D).double()
    torch.testing.assert_close(stack(x), one(x), **EXACT)


def test_a_halted_position_is_read_with_the_state_that_it_halted_with() -> None:
    """Position 0 halts at once: what position 1 reads of it changes with the signals alone."""
    stack = build(HALTING)
    read: list[Tensor] = []
    stack.blocks[0].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    with capture_halting(stack) as captured:
        stack(4 * torch.randn(5, 9, D).double())
    steps = steps_of(captured[0])
    states = [inputs - signals(t, 9) for t, inputs in enumerate(read, start=1)]
    for t in range(1, T - 1):
        same = (states[t] == states[t + 1]) | ((states[t] - states[t + 1]).abs() < 1e-12)
        assert (same.all(-1) == (steps <= t)).all()


# Decoding ----------------------------------------------------------------------------------------


def test_a_halted_position_is_read_by_later_steps_of_the_same_depths() -> None:
    """The cache of each depth holds the keys of the state that a position has at this depth."""
    decoder = build(HALTING)
    x = 4 * torch.randn(2, 9, D).double()
    read: list[Tensor] = []
    decoder.blocks[0].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    state = decoder.init_state(2, 9)
    decoder(x, state=state)
    attention = decoder.blocks[0].attention
    for layer, inputs in zip(state.layers, read, strict=True):
        keys = attention.qkv_proj(inputs)[..., D : 2 * D]  # [B, L, D], post-norm
        torch.testing.assert_close(layer["key"].transpose(1, 2).flatten(2), keys, **EXACT)
    assert len(state.layers) == T


def test_the_steps_share_the_projected_memory() -> None:
    decoder = build(cross=True)
    state = decoder.init_state(2, 9, ForwardContext(memory=Memory(torch.randn(2, 5, D).double())))
    (memory,) = state.memory
    assert memory.keys.shape[:1] == memory.values.shape[:1] == (2,)
    assert len({layer["key"].data_ptr() for layer in state.layers}) == T


@both_depths
def test_padding_changes_no_real_position_and_costs_nothing(halting: Halting | None) -> None:
    encoder = spread_halting(config(halting).encoder((9,))).double().train()
    x = 4 * torch.randn(2, 9, D).double()
    real = torch.arange(9).expand(2, -1) < torch.tensor([9, 5]).unsqueeze(1)
    longer, cost = encoder(x, ForwardContext(real=real)), take_auxiliary_loss(encoder)
    torch.testing.assert_close(longer[1, :5], encoder(x[1:, :5])[0], **EXACT)
    alone = take_auxiliary_loss(encoder)
    torch.testing.assert_close(longer[0], encoder(x[:1])[0], **EXACT)
    alone = alone + take_auxiliary_loss(encoder)
    torch.testing.assert_close(torch.as_tensor(cost), torch.as_tensor(alone), **EXACT)
    assert (float(cost) > 0) == (halting is not None)


# Models ------------------------------------------------------------------------------------------


def translator(halting: Halting | None = HALTING, **more: Any) -> EncoderDecoder:
    settings = config(halting, **more)
    model = EncoderDecoder(settings, source_vocabulary=9, target_vocabulary=9, n_decoder_layers=3)
    return spread_halting(with_random_head(model)).double()


@both_depths
def test_encoder_and_decoder_have_a_depth_each(halting: Halting | None) -> None:
    model = translator(halting)
    assert (model.encoder.n_layers, model.decoder.n_layers) == (T, 3)
    assert not model.positions(torch.arange(4)).any(), "the stacks add the positions"


# Training ----------------------------------------------------------------------------------------


def step_gradients(model: EncoderDecoder, source: Tensor, target: Tensor) -> list[Tensor]:
    """Loss with ponder cost, and gradients, of one step of training."""
    model.train().zero_grad()
    real = target != 0
    nats = model.head.losses(model.features(source, source == 0, target), target) * real
    loss = nats.sum() + take_auxiliary_loss(model, real)
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return [loss.detach(), *gradients]


def pairs() -> tuple[Tensor, Tensor]:
    source, target = torch.randint(1, 9, (4, 7)), torch.randint(1, 9, (4, 6))
    source[1:, 4:], target[2:, 3:] = 0, 0
    return source, target


def test_gradients_of_a_batch_are_the_sum_of_those_of_its_rows() -> None:
    """Also of the ponder cost: processes and accumulation may divide a batch as they like."""
    model, (source, target) = translator(), pairs()
    together = step_gradients(model, source, target)
    rows = [
        step_gradients(model, source[row : row + 1, :n], target[row : row + 1, :m])
        for row, (n, m) in enumerate([(7, 6), (4, 6), (4, 3), (4, 3)])
    ]
    for whole, *parts in zip(together, *rows, strict=True):
        torch.testing.assert_close(whole, torch.stack(parts).sum(0), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_a_step_with_its_ponder_cost_compiles_to_one_graph() -> None:
    model, (source, target) = translator(n_layers=2), pairs()
    expected = step_gradients(model, source, target)
    model.zero_grad()

    def loss() -> Tensor:
        real = target != 0
        nats = model.head.losses(model.features(source, source == 0, target), target) * real
        return nats.sum() + take_auxiliary_loss(model, real)

    torch.compiler.reset()
    found = torch.compile(loss, backend="aot_eager", fullgraph=True)()
    found.backward()
    torch.testing.assert_close(found.detach(), expected[0])
    for parameter, gradient in zip(model.parameters(), expected[1:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-10)


def test_nothing_of_a_step_stays_on_the_model() -> None:
    model = translator()
    step_gradients(model, *pairs())
    assert take_auxiliary_loss(model) == 0.0
    copy.deepcopy(model)  # of a tensor with a history it would raise
    model.eval()(*pairs()[:1], None, pairs()[1])
    assert take_auxiliary_loss(model) == 0.0


def test_half_precision_keeps_the_sum_of_the_weights() -> None:
    stack = build(HALTING).bfloat16()
    with capture_halting(stack) as captured:
        assert stack(torch.randn(2, 9, D).bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(captured[0].sum(-1), torch.ones(2, 9), rtol=0.0, atol=1e-6)


def test_impossible_halting_is_refused() -> None:
    for wrong in ({"threshold": 0.0}, {"threshold": 1.0}, {"ponder_cost": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Halting(**wrong)
    with pytest.raises(ValueError, match="n_layers"):
        config(HALTING, n_layers=1).encoder((9,))


@both_depths
def test_positions_of_a_training_pass_start_at_one_number_for_both_sequences(
    halting: Halting | None,
) -> None:
    settings = config(halting)
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    plain, model = (EncoderDecoder(settings, **sizes, max_offset=most) for most in (0, 5))
    seen: set[int] = set()
    for part in (model, model.encoder.depth, model.decoder.depth):
        part.positions.register_forward_pre_hook(lambda _, args: seen.add(int(args[0][0])))
    source, target = torch.randint(9, (2, 4)), torch.randint(9, (2, 3))
    firsts = []
    for _ in range(40):
        seen.clear()
        model.train()(source, None, target)
        firsts.append(frozenset(seen))
    assert set(firsts) == {frozenset([first]) for first in range(6)}
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model.eval()(source, None, target), plain.eval()(source, None, target))
