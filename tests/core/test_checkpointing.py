"""Blocks computed again in the backward pass: the same gradients for less memory."""

from __future__ import annotations

from typing import Any

import decoders
import pytest
import torch
from gpu.attention_cases import CAUSAL, Example, length_of, name
from saved import saved_bytes
from torch import Tensor

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.state import ForwardContext, Memory
from triptych.core.transformer import Stack, TransformerConfig
from triptych.core.universal import Halting, Universal


def config(*, recompute: bool, **more: Any) -> TransformerConfig:
    return decoders.config(n_layers=3, dropout=0.3, activation_checkpointing=recompute, **more)


def gradients(
    stack: torch.nn.Module, x: Tensor, memory: Tensor | None = None, token_ids: Tensor | None = None
) -> list[Tensor]:
    """Output and gradients of one step, and the state of the random numbers after it."""
    torch.manual_seed(5)
    leaves = [leaf.clone().requires_grad_() for leaf in (x, memory) if leaf is not None]
    read = None if memory is None else Memory(leaves[1])
    output = stack(leaves[0], ForwardContext(memory=read, token_ids=token_ids))
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * weights).sum().backward()
    found = [leaf.grad for leaf in (*leaves, *stack.parameters())]
    assert all(gradient is not None for gradient in found)
    return [output, *found, torch.get_rng_state()]  # type: ignore[list-item]


def assert_the_same(
    plain: torch.nn.Module, again: torch.nn.Module, *inputs: Tensor, **more: Any
) -> None:
    again.load_state_dict(plain.state_dict())
    for one, other in zip(
        gradients(plain.double().train(), *inputs, **more),
        gradients(again.double().train(), *inputs, **more),
        strict=True,
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("example", CAUSAL, ids=name)
def test_gradients_of_a_decoder_do_not_change(example: Example) -> None:
    both = [
        config(recompute=recompute, attention=example.config).decoder(example.shape)
        for recompute in (False, True)
    ]
    x = torch.randn(2, length_of(example), 12, dtype=torch.float64)
    assert_the_same(both[0], both[1], x, token_ids=torch.randint(-1, 8, x.shape[:2]))


@pytest.mark.parametrize("more", [{}, {"depth": Universal(Halting())}], ids=["", "universal"])
def test_gradients_of_encoder_and_memory_do_not_change(more: dict[str, Any]) -> None:
    configs = [config(recompute=recompute, **more) for recompute in (False, True)]
    encoders = [each.encoder((9,)) for each in configs]
    assert_the_same(*encoders, torch.randn(2, 9, 12, dtype=torch.float64))
    both = [each.decoder((9,), cross=True) for each in configs]
    x, memory = (torch.randn(2, length, 12, dtype=torch.float64) for length in (9, 5))
    assert_the_same(*both, x, memory)


def calls_per_step(decoder: Stack) -> int:
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    # The first thing in a block: the second time ends where nothing more is needed.
    handle = decoder.blocks[0].register_forward_pre_hook(count)
    decoder(torch.randn(1, 4, 12, requires_grad=True)).sum().backward()
    handle.remove()
    return calls


def test_it_keeps_less_and_only_in_training() -> None:
    plain, again = (config(recompute=recompute).decoder((64,)) for recompute in (False, True))
    x = torch.randn(2, 64, 12)
    assert saved_bytes(lambda: again.train()(x)) < 0.2 * saved_bytes(lambda: plain.train()(x))
    assert [calls_per_step(decoder.train()) for decoder in (plain, again)] == [1, 2]
    assert [calls_per_step(decoder.eval()) for decoder in (plain, again)] == [1, 1]
    with torch.no_grad():
        assert again.train()(x).shape == x.shape


def test_gradients_with_blocks_and_losses_computed_again_do_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shared matrix gets gradients from each chunk of the loss and from both embeddings."""
    sizes = {"source_vocabulary": 30, "target_vocabulary": 30}
    both = [EncoderDecoder(config(recompute=again), **sizes) for again in (False, True)]
    both[1].load_state_dict(both[0].state_dict())
    source, target = torch.randint(30, (2, 9)), torch.randint(30, (2, 7))
    found = []
    for model in both:
        model.double().train()
        torch.manual_seed(5)
        nats = model.head.losses(model.features(source, source == 0, target), target)
        nats.sum().backward()
        found.append([nats, *(parameter.grad for parameter in model.parameters())])
        monkeypatch.setattr("triptych.core.heads.MAX_PARAMETER_BYTES", 8 * 30 * 4)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)
