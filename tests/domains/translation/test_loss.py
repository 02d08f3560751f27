"""The training objective agrees with its definition and ignores padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from triptych.core import heads
from triptych.core.universal import Halting, Universal, capture_halting, steps_of
from triptych.domains.translation.data import Batch, EncodedPairs
from triptych.domains.translation.task import TranslationTrainingModule, smoothed_cross_entropy
from triptych.text.tokenizer import PAD

EXPECTED = torch.tensor([[5, 6, 2, PAD], [3, 2, PAD, PAD], [9, 8, 7, 2]])


def definition(logits: torch.Tensor, expected: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Cross-entropy with the smoothed distribution, written out token by token: [B, L]."""
    types = logits.shape[-1]
    nats = torch.zeros(expected.shape)
    for row, targets in enumerate(expected.tolist()):
        for column, target in enumerate(targets):
            if target == PAD:
                continue
            wanted = torch.full((types,), smoothing / (types - 1))
            wanted[PAD] = 0.0
            wanted[target] += 1 - smoothing
            assert wanted.sum() == pytest.approx(1.0, abs=1e-6)
            nats[row, column] = -(wanted * logits[row, column].log_softmax(-1)).sum()
    return nats


@pytest.mark.parametrize("chunk", [None, 5])
def test_the_loss_of_a_step_is_the_mean_over_its_targets(
    taught: TranslationTrainingModule, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [("one", "eins"), ("seven hundred and two", "siebenhundertzweiundzwanzig")]
    batch = EncodedPairs.of(pairs, taught.tokenizers).batch([0, 1])
    logits = taught.model(batch.source, batch.source_padding, batch.target_input)
    smoothing = taught.config.model.label_smoothing
    assert (batch.expected == PAD).any()
    assert smoothing > 0
    if chunk is not None:
        monkeypatch.setattr(heads, "MAX_PARAMETER_BYTES", 4 * logits.shape[-1] * chunk)
    loss, count = taught.training_loss(batch)
    assert int(count) == int((batch.expected != PAD).sum())
    torch.testing.assert_close(loss, definition(logits, batch.expected, smoothing).sum() / count)


def test_a_batch_of_padding_has_loss_and_gradient_zero(taught: TranslationTrainingModule) -> None:
    ids = torch.full((2, 3), PAD)
    loss, count = taught.training_loss(Batch(ids, ids))
    gradients = torch.autograd.grad(loss, list(taught.parameters()), allow_unused=True)
    assert (loss.item(), int(count)) == (0.0, 0)
    assert not any(gradient.any() for gradient in gradients if gradient is not None)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_its_definition(smoothing: float) -> None:
    logits = torch.randn(3, 4, 11)
    torch.testing.assert_close(
        smoothed_cross_entropy(logits, EXPECTED, smoothing), definition(logits, EXPECTED, smoothing)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 4, 11).to(dtype).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    value, wanted = (smoothed_cross_entropy(x, EXPECTED, 0.1).mean() for x in (logits, exact))
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


@pytest.mark.parametrize("logits", [(4, 4, 11), (3, 5, 11), (6, 4, 11), (12, 11)])
def test_logits_of_other_positions_are_refused(logits: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        smoothed_cross_entropy(torch.zeros(logits), EXPECTED, 0.1)


def test_the_ponder_cost_is_part_of_the_objective_and_of_no_score(
    taught: TranslationTrainingModule,
) -> None:
    """Steps N plus remainder R of every real position, over the number of targets."""
    model = taught.config.model
    halting = Universal(Halting(ponder_cost=0.5))
    transformer = replace(model.transformer, n_layers=3, depth=halting, dropout=0.0)
    config = replace(
        taught.config, model=replace(model, transformer=transformer, label_smoothing=0.0)
    )
    module = TranslationTrainingModule(config, taught.tokenizers).train()
    batch = EncodedPairs.of([("one", "eins"), ("two hundred and three", "zwei")], taught.tokenizers)
    loss, count = module.training_loss(batch.batch(range(2)))
    with capture_halting(module.model) as weights:
        sums = module.score(batch.batch(range(2)))
    real = [~batch.batch(range(2)).source_padding, batch.batch(range(2)).expected != PAD]
    ponder = 0.0
    for of_steps, positions in zip(weights, real, strict=True):
        n = steps_of(of_steps)
        remainder = of_steps.gather(-1, n.unsqueeze(-1) - 1).squeeze(-1)
        ponder += float(((n + remainder) * positions).sum())
    expected = (float(sums["nats"]) + 0.5 * ponder) / int(count)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
