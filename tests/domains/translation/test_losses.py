"""What a translator minimises: its definition, and the tiles that compute it with its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from triptych.domains.translation import losses, tiled_loss
from triptych.domains.translation.losses import loss_as_written, training_loss
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
        training_loss(logits, expected, smoothing),
        definition(logits, expected, smoothing),
    )


def test_disagreement_is_its_definition() -> None:
    logits = torch.randn(4, 3, 7, dtype=torch.float64)
    expected = torch.tensor([[5, 2, PAD], [4, 6, 2]])
    p, q = logits.softmax(-1).chunk(2)
    total = 0.0
    for row, step in (expected != PAD).nonzero().tolist():
        for one, other in ((p, q), (q, p)):
            total += float((one * (one / other).log())[row, step].sum()) / 2
    seen = losses.disagreement(logits.log_softmax(-1), expected)
    assert float(seen) == pytest.approx(total / 5)
    assert float(losses.disagreement(torch.cat([p, p]).log(), expected)) == pytest.approx(
        0.0, abs=1e-12
    )


def test_without_smoothing_it_is_torch_cross_entropy_over_real_targets() -> None:
    logits = torch.randn(2, 3, 7)
    expected = torch.tensor([[5, 2, PAD], [4, 6, 2]])
    wanted = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), expected.flatten(), ignore_index=PAD
    )
    torch.testing.assert_close(training_loss(logits, expected, 0.0), wanted)


def test_padding_gets_no_mass_and_no_weight() -> None:
    logits = torch.randn(2, 3, 7, requires_grad=True)
    expected = torch.tensor([[5, 2, PAD], [4, 6, 2]])
    # The optimum gives padding nothing: its logit is only ever pushed down.
    training_loss(logits, expected, 0.3).backward()
    assert logits.grad is not None
    assert (logits.grad[..., PAD] >= 0).all()
    assert (logits.grad[0, 2] == 0).all()
    # Lowering it for good costs nothing, where torch's own smoothing would run to infinity.
    lowered = logits.detach().clone()
    lowered[..., PAD] = -1e4
    before, after = (training_loss(x, expected, 0.3) for x in (logits.detach(), lowered))
    assert after < before


def test_the_loss_is_a_mean_over_targets_and_not_over_rows() -> None:
    logits = torch.zeros(2, 3, 4)
    logits[0, :, 3] = 5.0
    expected = torch.tensor([[3, 3, 3], [3, PAD, PAD]])
    right = math.log(1 + 3 * math.exp(-5.0))
    assert float(training_loss(logits, expected, 0.0)) == pytest.approx(
        (3 * right + math.log(4)) / 4, rel=1e-5
    )


# In tiles ----------------------------------------------------------------------------------------


def with_gradient(loss: Callable[..., Tensor], logits: Tensor, *given: object) -> list[Tensor]:
    logits = logits.detach().clone().requires_grad_()
    value = loss(logits, *given)
    value.backward()
    assert logits.grad is not None
    return [value.detach(), logits.grad]


EXPECTED = torch.tensor([[5, 6, 2, PAD], [3, 2, PAD, PAD], [9, 8, 7, 2]])


@pytest.mark.parametrize("room", [1, 50, 2**19])
@pytest.mark.parametrize(("passes", "consistency"), [(1, 0.0), (2, 0.0), (2, 1.5)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_tiles_give_the_loss_and_the_gradient_of_the_equations(
    smoothing: float,
    passes: int,
    consistency: float,
    room: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiled_loss, "ROOM", room)
    logits = 3 * torch.randn(3 * passes, 4, 11, dtype=torch.float64)
    given = (EXPECTED, smoothing, consistency)
    torch.testing.assert_close(
        with_gradient(training_loss, logits, *given),
        with_gradient(loss_as_written, logits, *given),
        rtol=1e-12,
        atol=1e-14,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_compute_in_float32_and_give_the_gradient_as_the_logits_are(
    dtype: torch.dtype,
) -> None:
    logits = torch.randn(6, 4, 11).to(dtype)
    value, gradient = with_gradient(training_loss, logits, EXPECTED, 0.1, 1.5)
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
    wanted, d_wanted = with_gradient(loss_as_written, logits.double(), EXPECTED, 0.1, 1.5)
    torch.testing.assert_close(value.double(), wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        gradient.double(), d_wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-8
    )


def test_tiles_scale_their_gradient_each_time_it_is_asked_for() -> None:
    logits = torch.randn(3, 4, 11, requires_grad=True)
    loss = training_loss(logits, EXPECTED, 0.1)
    (once,) = torch.autograd.grad(loss, logits, retain_graph=True)
    once = once.clone()
    (half,) = torch.autograd.grad(loss / 2, logits, retain_graph=True)
    torch.testing.assert_close(half, once / 2)
    (again,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(again, once, rtol=0, atol=0)


def test_without_gradients_it_is_the_same_and_leaves_the_logits_alone() -> None:
    logits = torch.randn(3, 4, 11, requires_grad=True)
    before = logits.detach().clone()
    with torch.no_grad():
        loss = training_loss(logits, EXPECTED, 0.1)
    assert loss.grad_fn is None
    torch.testing.assert_close(loss, loss_as_written(logits, EXPECTED, 0.1).detach())
    torch.testing.assert_close(logits.detach(), before, rtol=0, atol=0)  # nor written over


def test_small_slopes_in_float16_outlive_a_scaler() -> None:
    logits = (5 * torch.randn(3, 4, 11)).half().requires_grad_()
    scaled, wanted = (
        torch.autograd.grad(loss(logits, EXPECTED, 0.0) * 2**16, logits)[0]
        for loss in (training_loss, loss_as_written)
    )
    assert scaled.dtype == torch.float16
    torch.testing.assert_close(scaled, wanted)
    assert (scaled != 0)[EXPECTED != PAD].all()


@pytest.mark.parametrize("loss", [training_loss, loss_as_written])
def test_what_stands_on_padding_counts_for_nothing(loss: Callable[..., Tensor]) -> None:
    logits = torch.randn(3, 4, 11)
    wanted = loss(logits, EXPECTED, 0.1)
    logits[0, 3, 5] = torch.inf
    torch.testing.assert_close(loss(logits, EXPECTED, 0.1), wanted)


@pytest.mark.parametrize("loss", [training_loss, loss_as_written])
def test_nothing_but_padding_moves_nothing(loss: Callable[..., Tensor]) -> None:
    for consistency in (0.0, 1.5):
        passes = 2 if consistency else 1
        logits = torch.randn(2 * passes, 3, 7)
        nothing = torch.full((2, 3), PAD)
        value, gradient = with_gradient(loss, logits, nothing, 0.1, consistency)
        assert float(value) == 0.0
        assert not gradient.any()


@pytest.mark.parametrize(
    ("logits", "expected", "consistency"),
    [((4, 4, 11), (3, 4), 0.0), ((3, 5, 11), (3, 4), 0.0), ((9, 4, 11), (3, 4), 0.0),
     ((3, 4, 11), (3, 4), 1.5), ((0, 4, 11), (0, 4), 0.0)],
)  # fmt: skip
def test_logits_of_other_positions_are_refused(
    logits: tuple[int, ...], expected: tuple[int, ...], consistency: float
) -> None:
    targets = torch.ones(expected, dtype=torch.long)
    with pytest.raises(ValueError, match="one row of logits a target and pass"):
        training_loss(torch.zeros(logits), targets, 0.1, consistency)


def test_a_compiler_sees_the_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("tiles are for the eye of no compiler")

    logits, expected = torch.randn(3, 4, 11), EXPECTED
    wanted = training_loss(logits, expected, 0.1)
    monkeypatch.setattr(losses, "loss_in_tiles", refuse)
    compiled = torch.compile(training_loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, expected, 0.1), wanted)
