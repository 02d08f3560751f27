from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gpu.estimate import LargestTensor
from random_head import with_random_head
from torch import Tensor, nn

from triptych.core.heads import (
    CategoricalHead,
    Head,
    MixtureOfLogistics,
    MixtureOfLogisticsHead,
)
from triptych.decoding.sampling import sample_logistic
from triptych.types import Sampling


def all_pixels(levels: int, channels: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(levels), repeat=channels)))


def wild_parameters(head: MixtureOfLogisticsHead, spread: float) -> torch.Tensor:
    return torch.randn(head.parameters_of.out_features, dtype=torch.float64) * spread


@pytest.mark.parametrize(("levels", "channels"), [(256, 1), (17, 1), (5, 2), (6, 3), (2, 3)])
@pytest.mark.parametrize("spread", [0.5, 3.0, 30.0])
def test_the_masses_of_all_pixels_sum_to_one(levels: int, channels: int, spread: float) -> None:
    head = MixtureOfLogisticsHead(4, levels=levels, channels=channels, components=4).double()
    pixels = all_pixels(levels, channels)
    parameters = wild_parameters(head, spread).expand(len(pixels), -1)
    total = (-head.nll(parameters, pixels)).exp().sum().item()
    assert total == pytest.approx(1.0, abs=1e-9)


def test_the_components_of_a_new_mixture_are_spread_over_the_range() -> None:
    head = MixtureOfLogisticsHead(4, levels=256, channels=3, components=3)
    mixture, means, scales, coefficients = head(torch.zeros(4)).view(-1, 3).split([1, 3, 3, 3])
    torch.testing.assert_close(means, torch.tensor([-0.5, 0.0, 0.5]).expand(3, 3))
    assert (scales == -1).all()
    assert not mixture.any()
    assert not coefficients.any()


def test_a_mixture_in_single_precision_stays_finite_with_its_gradient() -> None:
    head = MixtureOfLogisticsHead(4, levels=256, channels=3, components=10)
    parameters = (torch.randn(4000, 100) * 20).requires_grad_()
    targets = torch.randint(256, (4000, 3))
    nats = head.nll(parameters, targets)
    exact = head.double().nll(parameters.detach().double(), targets)
    torch.testing.assert_close(nats.double(), exact, rtol=1e-3, atol=1e-3)
    nats.sum().backward()
    assert parameters.grad is not None
    assert parameters.grad.isfinite().all()


def test_the_means_of_a_mixture_are_those_of_float32_within_autocast() -> None:
    """In bfloat16 a mean just above 1 is wrong by half a grey level."""
    head = MixtureOfLogisticsHead(8, levels=256, channels=1, components=200)
    means = slice(200, 400)
    with torch.no_grad():
        head.parameters_of.bias[means] = torch.linspace(0.9, 1.1, 200)
    x = torch.randn(5, 8) * 0.01
    wanted = head(x)
    with torch.autocast("cpu", torch.bfloat16):
        plain, seen, halved = head.parameters_of(x), head(x), head(x.bfloat16())
    half_a_level = 1 / 255
    error = (plain - wanted)[:, means].abs().max().item()
    assert error > 0.9 * half_a_level, "bfloat16 would do"
    assert torch.equal(seen, wanted)
    assert halved.dtype == torch.float32
    assert (halved - wanted)[:, means].abs().max().item() < 0.01 * half_a_level


def test_a_mean_far_from_the_pixel_in_single_precision() -> None:
    """The bin's width does not depend on the mean; taken from two sums it would, in rounding."""
    head = MixtureOfLogisticsHead(4, levels=256, channels=1, components=1)
    parameters = torch.zeros(5, 3)
    parameters[:, 1] = torch.tensor([30.0, 300.0, 3e3, 3e4, 1e5])  # the mean; values are -1 to 1
    targets = torch.full((5, 1), 100)
    exact = head.double().nll(parameters.double(), targets)
    torch.testing.assert_close(
        head.float().nll(parameters, targets).double(), exact, rtol=1e-6, atol=1e-4
    )


def logistic_cdf(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


@pytest.mark.parametrize("channels", [1, 3])
def test_a_mixture_likelihood_is_the_sum_over_components_by_hand(channels: int) -> None:
    """PixelCNN++, equations 1 to 3, in Python numbers."""
    levels, components = 9, 2
    head = MixtureOfLogisticsHead(4, levels=levels, channels=channels, components=components)
    parameters = wild_parameters(head, 1.0)
    rows = parameters.view(-1, components).tolist()
    mixture, means = rows[0], rows[1 : 1 + channels]
    scales, links = rows[1 + channels : 1 + 2 * channels], rows[1 + 2 * channels :]
    total = sum(math.exp(logit) for logit in mixture)
    for pixel in all_pixels(levels, channels)[::37].tolist():
        values = [2 * level / (levels - 1) - 1 for level in pixel]
        likelihood = 0.0
        for m in range(components):
            product = math.exp(mixture[m]) / total
            for c in range(channels):
                mean = means[c][m] + sum(
                    math.tanh(links[c * (c - 1) // 2 + e][m]) * values[e] for e in range(c)
                )
                inverse, half = math.exp(-scales[c][m]), 1 / (levels - 1)
                upper, lower = values[c] + half, values[c] - half
                above = 1.0 if pixel[c] == levels - 1 else logistic_cdf((upper - mean) * inverse)
                below = 0.0 if pixel[c] == 0 else logistic_cdf((lower - mean) * inverse)
                product *= above - below
            likelihood += product
        found = head.double().nll(parameters[None], torch.tensor([pixel])).item()
        assert found == pytest.approx(-math.log(likelihood), abs=1e-9)


def test_the_means_of_a_mixture_follow_the_neighbours() -> None:
    """Weighted sums of the neighbours, of which earlier channels are differences, in loops."""
    head = MixtureOfLogisticsHead(4, levels=9, channels=3, components=2, neighbours=2).double()
    assert head.of_neighbours is not None
    features, around = torch.randn(5, 4).double(), torch.rand(5, 2, 3).double() * 2 - 1
    x = torch.cat([features, around.flatten(1)], dim=1)
    new = head(x)
    torch.testing.assert_close(new, head.parameters_of(features), rtol=0, atol=0)
    torch.nn.init.normal_(head.of_neighbours.weight)
    rows, plain = head(x).view(5, 10, 2), new.view(5, 10, 2)
    weights = head.of_neighbours(features).view(5, 2, 3, 2)
    for b in range(5):
        for m in range(2):
            sums = [sum(weights[b, n, c, m] * around[b, n, c] for n in range(2)) for c in range(3)]
            link = plain[b, 7:, m].tanh()  # green on red, blue on red, blue on green
            red, green = sums[0], sums[1] - link[0] * sums[0]
            blue = sums[2] - link[1] * sums[0] - link[2] * sums[1]
            expected = plain[b, :, m].clone()
            expected[1:4] += torch.stack([red, green, blue])
            torch.testing.assert_close(rows[b, :, m], expected)


def test_a_categorical_likelihood_is_the_softmax_and_sums_to_one() -> None:
    head, x = CategoricalHead(8, 5).double(), torch.randn(3, 8, dtype=torch.float64)
    torch.nn.init.normal_(head.logits.weight)
    torch.nn.init.normal_(head.logits.bias)
    logits = head(x)
    values = torch.arange(5)
    nll = torch.stack([head.nll(logits, value.expand(3)) for value in values], -1)  # [3, 5]
    for row, scores in zip(nll.tolist(), logits.tolist(), strict=True):
        total = math.log(sum(map(math.exp, scores)))
        assert row == pytest.approx([total - score for score in scores], abs=1e-12)
    torch.testing.assert_close(nll.neg().exp().sum(-1), torch.ones(3).double())


def test_a_new_categorical_head_is_uniform_and_a_shared_matrix_stays() -> None:
    x, values = torch.randn(3, 8), torch.randn(5, 8)
    assert not CategoricalHead(8, 5)(x).any()
    table = torch.nn.Parameter(values.clone())
    shared = CategoricalHead(8, 5, bias=False, weight=table)
    torch.testing.assert_close(shared(x), x @ values.T)
    assert shared.logits.weight is table


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_likelihoods_are_computed_in_float32(dtype: torch.dtype) -> None:
    head = MixtureOfLogisticsHead(4, levels=256, channels=3, components=10)
    parameters, targets = torch.randn(6, 100).to(dtype), torch.randint(256, (6, 3))
    nats = head.nll(parameters, targets)
    assert nats.dtype == torch.float32
    torch.testing.assert_close(nats, head.nll(parameters.float(), targets), rtol=0.0, atol=0.0)
    logits = torch.randn(2, 3, 300).to(dtype)
    assert CategoricalHead(8, 300).nll(logits, torch.randint(300, (2, 3))).dtype == torch.float32


@pytest.mark.parametrize("channels", [1, 3])
def test_samples_follow_the_likelihood(channels: int) -> None:
    """The share of each drawn pixel is its mass: same grid, same scale, same links."""
    levels, n = 4, 200_000
    head = MixtureOfLogisticsHead(4, levels=levels, channels=channels, components=3).double()
    parameters = wild_parameters(head, 1.5)
    pixels = all_pixels(levels, channels)
    expected = (-head.nll(parameters.expand(len(pixels), -1), pixels)).exp()
    generator = torch.Generator().manual_seed(3)
    drawn = head.sample(
        parameters.expand(n, -1),
        lambda logits: torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1),
        lambda like: sample_logistic(like, Sampling(), generator),
    )
    assert drawn.shape == (n, channels)
    assert drawn.min() >= 0
    assert drawn.max() < levels
    code = (drawn * levels ** torch.arange(channels - 1, -1, -1)).sum(-1)
    share = code.bincount(minlength=len(pixels)) / n
    torch.testing.assert_close(share, expected, rtol=0.0, atol=5e-3, check_dtype=False)


def test_temperature_zero_takes_the_middle_of_the_likeliest_component() -> None:
    head = MixtureOfLogisticsHead(4, levels=5, channels=1, components=2).double()
    parameters = torch.tensor([0.0, 3.0, -1.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    drawn = head.sample(parameters.expand(9, -1), lambda x: x.argmax(-1), torch.zeros_like)
    assert (drawn == 3).all()  # 0.5 on [-1, 1] is level 3 of 0..4


def test_impossible_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MixtureOfLogistics(components=0)


# Losses in chunks of positions --------------------------------------------------------------------


def categorical(d_model: int = 8, levels: int = 40) -> CategoricalHead:
    head = with_random_head(CategoricalHead(d_model, levels))
    nn.init.normal_(head.logits.bias)
    return head


def mixture() -> MixtureOfLogisticsHead:
    return MixtureOfLogisticsHead(8, levels=40, channels=3, components=2)


HEADS = {"categorical": (categorical, ()), "mixture": (mixture, (3,))}


def inputs(*target_shape: int) -> tuple[Tensor, Tensor]:
    return torch.randn(3, 7, 8), torch.randint(40, (3, 7, *target_shape))


def chunks_of(positions: int, head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let losses take so many positions at a time, as float32."""
    size = 4 * head.n_parameters * positions
    monkeypatch.setattr("triptych.core.heads.MAX_PARAMETER_BYTES", size)


def with_gradients(
    head: Head, function: Callable[[Tensor, Tensor], Tensor], x: Tensor, targets: Tensor
) -> list[Tensor]:
    """The values [B, L], and the gradients of their sum weighted by position."""
    x = x.detach().requires_grad_()
    nats = function(x, targets)
    weights = torch.linspace(-1, 1, nats.numel(), dtype=nats.dtype).view_as(nats)
    return [nats, *torch.autograd.grad((nats * weights).sum(), [x, *head.parameters()])]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("positions", [0, 1, 4, 7, 20, 21])
def test_losses_in_chunks_are_those_of_all_positions(
    name: str, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, value_shape = HEADS[name]
    head, (x, targets) = make(), inputs(*value_shape)
    wanted = with_gradients(head, lambda x, targets: head.nll(head(x), targets), x, targets)
    chunks_of(positions, head, monkeypatch)
    for found, exact in zip(with_gradients(head, head.losses, x, targets), wanted, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(head.losses(x, targets), wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_in_chunks_are_those_of_differences(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, value_shape = HEADS[name]
    head, (x, targets) = make().double(), inputs(*value_shape)
    chunks_of(4, head, monkeypatch)  # 2 positions in double precision
    names, values = zip(*head.named_parameters(), strict=True)

    def losses(x: Tensor, *weights: Tensor) -> Tensor:
        call = Losses(head)
        named = {f"head.{name}": weight for name, weight in zip(names, weights, strict=True)}
        return torch.func.functional_call(call, named, (x, targets))

    assert torch.autograd.gradcheck(losses, (x[:1, :3].double().requires_grad_(), *values))


class Losses(nn.Module):
    """The losses of a head as a module's forward pass, from 2 axes of positions."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return self.head.losses(x, targets[: x.shape[0], : x.shape[1]])


def test_no_tensor_holds_the_logits_of_more_positions_than_a_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = categorical(levels=500)
    x, targets = torch.randn(4, 50, 8), torch.randint(500, (4, 50))
    saved: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.untyped_storage().nbytes())
        return tensor

    chunks_of(10, head, monkeypatch)
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with hooks, LargestTensor() as made:
        nats = head.losses(x.requires_grad_(), targets)
        assert max(saved) <= x.numel() * 4, "the forward pass keeps logits"
        nats.sum().backward()
    assert made.n_bytes == 10 * 500 * 4


def test_half_precision_adds_the_gradients_of_chunks_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head, x, targets = categorical(), torch.randn(4, 512, 8), torch.randint(40, (4, 512))
    weight = 1  # place of its gradient, after that of x

    def error() -> float:
        with torch.autocast("cpu", torch.bfloat16):
            found = with_gradients(head, head.losses, x, targets)
        assert found[0].dtype == torch.float32
        return float((found[1 + weight] - exact).norm() / exact.norm())

    exact = with_gradients(head, head.losses, x, targets)[1 + weight]
    whole = error()
    chunks_of(16, head, monkeypatch)
    assert error() <= 1.5 * whole


@pytest.mark.slow
def test_losses_in_chunks_compile_into_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    head, (x, targets) = categorical(), inputs()
    chunks_of(8, head, monkeypatch)
    torch._dynamo.reset()
    compiled = torch.compile(head.losses, backend="aot_eager", fullgraph=True)
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            plain, found = (
                with_gradients(head, losses, x, targets) for losses in (head.losses, compiled)
            )
        for value, wanted in zip(found, plain, strict=True):
            torch.testing.assert_close(value, wanted)


def test_losses_in_chunks_train_under_ddp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, (x, targets) = categorical(), inputs()
    chunks_of(4, head, monkeypatch)
    wanted = with_gradients(head, head.losses, x, targets)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(Losses(head))
        for _ in range(2):
            model.zero_grad()
            nats = model(x, targets)
            (nats * torch.linspace(-1, 1, nats.numel()).view_as(nats)).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    for parameter, gradient in zip(head.parameters(), wanted[2:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
