"""Muon takes the matrices of the blocks, AdamW the rest; together they are what each is alone."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from triptych.core.attention.full import Full
from triptych.core.layers import GELU
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.training.engine import muon as own_muon
from triptych.training.engine.muon import Muon, hidden_matrices, orthogonalized

RATE = 0.01
SETTINGS = Muon(weight_decay=0.5)


def translator() -> EncoderDecoder:
    torch.manual_seed(0)
    config = TransformerConfig(
        n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(48), attention=Full()
    )
    return EncoderDecoder(
        config, source_vocabulary=11, target_vocabulary=11, share_embeddings="all", max_length=8
    )


def gradients(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def test_the_hidden_matrices_are_the_blocks_linear_weights_each_once() -> None:
    model = translator()
    chosen = hidden_matrices(model)
    names = [name for name, value in model.named_parameters() if any(value is c for c in chosen)]
    assert len(names) == len(chosen) == len(set(map(id, chosen)))
    assert any("cross" in name for name in names)
    assert all(value.ndim == 2 for value in chosen)
    left = {name for name, _ in model.named_parameters()} - set(names)
    linear = {
        f"{name}.weight"
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and ".blocks." in name
    }
    assert set(names) == linear
    assert any("embedding" in name for name in left)
    model.encoder.requires_grad_(False)
    assert len(hidden_matrices(model)) < len(chosen)


def test_a_table_of_distances_is_not_a_hidden_matrix() -> None:
    from triptych.core.attention.relative import Relative

    config = TransformerConfig(
        n_layers=1, d_model=8, n_heads=1, feed_forward=GELU(8), attention=Relative(4)
    )
    decoder = config.decoder((8,))
    assert {tuple(value.shape) for value in hidden_matrices(decoder)} == {(24, 8), (8, 8)}


def test_one_step_is_muons_on_the_blocks_and_adamws_on_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_muon, "cpu_has_bf16", lambda: True)  # PyTorch's is in bf16 everywhere
    ours, theirs = translator(), translator()
    optimizer = SETTINGS.build(ours, RATE)
    hidden = hidden_matrices(theirs)
    rest = [value for value in theirs.parameters() if not any(value is h for h in hidden)]
    muon = torch.optim.Muon(
        hidden, lr=RATE, weight_decay=0.5, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW(
        [
            {"params": [value for value in rest if value.ndim >= 2], "weight_decay": 0.5},
            {"params": [value for value in rest if value.ndim < 2], "weight_decay": 0.0},
        ],
        lr=RATE,
        betas=SETTINGS.betas,
        eps=SETTINGS.epsilon,
    )
    for seed in range(3):
        gradients(ours, seed)
        gradients(theirs, seed)
        optimizer.step()
        muon.step()
        adamw.step()
    expected = weights(theirs)
    for name, value in weights(ours).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 5, 9), (2, 9, 5)])
def test_without_bf16_hardware_the_iteration_is_exact(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_muon, "cpu_has_bf16", lambda: False)
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    a, b, c = 3.4445, -4.775, 2.0315
    found = orthogonalized(matrices, (a, b, c), 5, 1e-7)
    # The polynomial acts on the singular values alone.
    left, values, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    values = values / torch.linalg.vector_norm(values, dim=1, keepdim=True)
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    expected = left * values[:, None] @ right
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    uncut = translator()
    optimizer = SETTINGS.build(uncut, RATE)
    for seed in range(2):
        gradients(uncut, seed)
        optimizer.step()
    resumed = translator()
    resumed.load_state_dict(uncut.state_dict())
    second = SETTINGS.build(resumed, RATE)
    second.load_state_dict(deepcopy(optimizer.state_dict()))  # loading shares tensors
    for model, chosen in ((uncut, optimizer), (resumed, second)):
        for group in chosen.param_groups:
            group["lr"] = RATE / 2
        gradients(model, 2)
        chosen.step()
    expected = weights(uncut)
    assert all(torch.equal(value, expected[name]) for name, value in weights(resumed).items())


def test_the_closures_loss_comes_back_with_gradients_on() -> None:
    model = translator()

    def closure() -> Tensor:
        loss = sum(value.square().sum() for value in model.parameters())
        loss.backward()
        return loss.detach()

    before = float(closure())
    model.zero_grad()
    optimizer = SETTINGS.build(model, RATE)
    assert float(optimizer.step(closure)) == pytest.approx(before)
    assert float(closure()) < before
