"""The training objective agrees with its definition and ignores padding."""

from __future__ import annotations

import math

import pytest
import torch

from triptych.domains.translation.task import smoothed_cross_entropy
from triptych.domains.translation.tokenizer import PAD


def definition(logits: torch.Tensor, expected: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Cross-entropy with the smoothed distribution, written out token by token."""
    types = logits.shape[-1]
    total, count = torch.zeros(()), 0
    for row, targets in zip(logits, expected, strict=True):
        for scores, target in zip(row, targets.tolist(), strict=True):
            if target == PAD:
                continue
            wanted = torch.full((types,), smoothing / (types - 1))
            wanted[PAD] = 0.0
            wanted[target] += 1 - smoothing
            assert wanted.sum() == pytest.approx(1.0, abs=1e-6)
            total = total - (wanted * scores.log_softmax(-1)).sum()
            count += 1
    return total / count


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_its_definition(smoothing: float) -> None:
    logits = torch.randn(3, 4, 11)
    expected = torch.tensor([[5, 6, 2, PAD], [3, 2, PAD, PAD], [9, 8, 7, 2]])
    torch.testing.assert_close(
        smoothed_cross_entropy(logits, expected, smoothing),
        definition(logits, expected, smoothing),
    )


def test_without_smoothing_it_is_torch_cross_entropy_over_real_targets() -> None:
    logits = torch.randn(2, 3, 7)
    expected = torch.tensor([[5, 2, PAD], [4, 6, 2]])
    wanted = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), expected.flatten(), ignore_index=PAD
    )
    torch.testing.assert_close(smoothed_cross_entropy(logits, expected, 0.0), wanted)


def test_padding_gets_no_mass_and_no_weight() -> None:
    logits = torch.randn(2, 3, 7, requires_grad=True)
    expected = torch.tensor([[5, 2, PAD], [4, 6, 2]])
    # The optimum gives padding nothing: its logit is only ever pushed down.
    smoothed_cross_entropy(logits, expected, 0.3).backward()
    assert logits.grad is not None
    assert (logits.grad[..., PAD] >= 0).all()
    assert (logits.grad[0, 2] == 0).all()
    # Lowering it for good costs nothing, where torch's own smoothing would run to infinity.
    lowered = logits.detach().clone()
    lowered[..., PAD] = -1e4
    before, after = (smoothed_cross_entropy(x, expected, 0.3) for x in (logits.detach(), lowered))
    assert after < before


def test_the_loss_is_a_mean_over_targets_and_not_over_rows() -> None:
    logits = torch.zeros(2, 3, 4)
    logits[0, :, 3] = 5.0
    expected = torch.tensor([[3, 3, 3], [3, PAD, PAD]])
    right = math.log(1 + 3 * math.exp(-5.0))
    assert float(smoothed_cross_entropy(logits, expected, 0.0)) == pytest.approx(
        (3 * right + math.log(4)) / 4, rel=1e-5
    )


EXPECTED = torch.tensor([[5, 6, 2, PAD], [3, 2, PAD, PAD], [9, 8, 7, 2]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 4, 11).to(dtype).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    value, wanted = (smoothed_cross_entropy(x, EXPECTED, 0.1) for x in (logits, exact))
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), wanted, rtol=1e-6, atol=0)
    scale = 2.0**16  # as a gradient scaler does: small gradients must not be lost in float16
    gradient, d_wanted = (
        torch.autograd.grad(loss * scale, x)[0] / scale
        for loss, x in ((value, logits), (wanted, exact))
    )
    assert gradient.dtype == dtype
    torch.testing.assert_close(
        gradient.double(), d_wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-7
    )


def test_logits_at_padding_have_no_influence() -> None:
    logits = torch.randn(3, 4, 11)
    wanted = smoothed_cross_entropy(logits, EXPECTED, 0.1)
    logits[0, 3, 5] = torch.inf
    torch.testing.assert_close(smoothed_cross_entropy(logits, EXPECTED, 0.1), wanted)


def test_a_batch_of_padding_has_loss_and_gradient_zero() -> None:
    logits = torch.randn(2, 3, 7, requires_grad=True)
    value = smoothed_cross_entropy(logits, torch.full((2, 3), PAD), 0.1)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("logits", [(4, 4, 11), (3, 5, 11), (6, 4, 11), (12, 11)])
def test_logits_of_other_positions_are_refused(logits: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        smoothed_cross_entropy(torch.zeros(logits), EXPECTED, 0.1)
