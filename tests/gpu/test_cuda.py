"""The contract of attention, and steps that never wait, on a real GPU; skipped without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from gpu.attention_cases import CAUSAL, EXAMPLES, Example, context, layer_of, length_of, name, step
from test_fake_domains import BOUNDS, step_of
from torch import Tensor

from triptych.core.attention.multihead import MultiHeadAttention
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
DEVICE = "cuda"
WIDTH, HEADS = 64, 2
"""Heads of 32 features; FlexAttention needs 16."""
NUMBERS = {
    torch.float32: {"rtol": 1e-3, "atol": 1e-3},
    torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2},
}
every_dtype = pytest.mark.parametrize("dtype", NUMBERS)


def layer_and_inputs(example: Example, dtype: torch.dtype) -> tuple[MultiHeadAttention, Tensor]:
    torch.manual_seed(0)
    layer = layer_of(example.config, WIDTH, HEADS, example.shape, example.causal)
    x = torch.randn(2, length_of(example), WIDTH)
    return layer.to(DEVICE, dtype), x.to(DEVICE, dtype)


def judged(layer: MultiHeadAttention, x: Tensor, padding: Tensor) -> list[Tensor]:
    """Values and gradients of the reference in float64."""
    return results(layer.double(), layer.double().reference, x.double(), padding)


def results(
    layer: MultiHeadAttention, path: Callable[..., Tensor], x: Tensor, padding: Tensor
) -> list[Tensor]:
    x = x.detach().requires_grad_()
    y = path(x, context(x, padding))
    return [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]


@every_dtype
@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_values_and_gradients_are_those_of_the_reference(
    example: Example, dtype: torch.dtype
) -> None:
    """The second row is padding alone: its queries have no visible key."""
    layer, x = layer_and_inputs(example, dtype)
    padding = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    padding[1] = True
    fast = results(layer, layer.forward, x, padding)
    bias = layer.out_proj.bias.expand_as(fast[0][1])
    torch.testing.assert_close(fast[0][1], bias)
    for found, expected in zip(fast, judged(layer, x, padding), strict=True):
        scale = expected.abs().max().clamp(min=1)  # sums over many positions
        torch.testing.assert_close(found.double() / scale, expected / scale, **NUMBERS[dtype])


@every_dtype
@pytest.mark.parametrize("example", CAUSAL, ids=name)
@torch.no_grad()
def test_prefill_and_steps_are_the_forward_pass(example: Example, dtype: torch.dtype) -> None:
    layer, x = layer_and_inputs(example, dtype)
    cache = layer.init_cache(2, length_of(example))
    found = [layer(x[:, :3], context(x[:, :3]), cache)]
    for t in range(3, x.shape[1]):
        found.append(step(layer, x[:, t : t + 1], torch.tensor([t], device=x.device), cache))
    expected = layer(x, context(x))
    torch.testing.assert_close(torch.cat(found, dim=1), expected, **NUMBERS[dtype])


@contextmanager
def no_wait() -> Iterator[None]:
    """Inside, an operation that waits for the device raises RuntimeError."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("config", BOUNDS)
def test_a_training_step_never_waits(config: str) -> None:
    small = step_of(config, 1)
    task = small.task.to(DEVICE).train()
    optimizer = task.optim.optimizer.build(task, task.optim.learning_rate)
    batch = small.make_batch()

    def update() -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss, _ = task.training_loss(batch)
        loss.backward()
        optimizer.step()
        return loss

    update()  # compiles, and makes what is cached
    with no_wait():
        loss = update()
    assert loss.isfinite()


@pytest.mark.parametrize("config", BOUNDS)
@torch.no_grad()
def test_20_decoding_steps_never_wait(config: str) -> None:
    small = step_of(config, 1)
    task = small.task.to(DEVICE).eval()
    model, options = getattr(task.model, "core", task.model), {}
    if hasattr(model, "target_embedding"):
        start = torch.zeros(2, dtype=torch.int64, device=DEVICE)
        options = {"condition": model.encode(small.make_batch().source[:2]), "previous": start}
    generate(model, SampleRequest(count=2, length=21, **options))
    with no_wait():
        generate(model, SampleRequest(count=2, length=21, **options))


def test_a_planted_wait_is_found() -> None:
    with no_wait(), pytest.raises(RuntimeError, match="synchroniz"):
        torch.zeros(1, device=DEVICE).item()
