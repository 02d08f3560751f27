"""Self-Attention GAN: losses, spectral norm, attention, training, inference."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from dataclass_rules import changeable_dataclasses, names_of_many_defaults, positional_options
from pytorch_lightning import Callback
from pytorch_lightning.strategies import DDPStrategy
from torch import multiprocessing, nn

from triptych.config.schema import from_plain
from triptych.domains.gan import metrics
from triptych.domains.gan import model as networks
from triptych.domains.gan.config import Config
from triptych.domains.gan.inference import GanModel, restore
from triptych.domains.gan.metrics import FrechetScore, Gaussian, frechet_distance
from triptych.domains.gan.model import (
    FeatureMapAttention,
    ModelConfig,
    SelfAttentionGan,
    SpectralNorm,
    add_spectral_norm,
    discriminator_loss,
    generator_loss,
)
from triptych.domains.gan.task import prepare
from triptych.domains.pictures.config import DataConfig
from triptych.domains.pictures.sources import Digits
from triptych.errors import UserError
from triptych.training.engine.module import TrainingModule
from triptych.training.engine.muon import Muon
from triptych.training.engine.optim import Adam, Constant, Noam, OptimizerConfig
from triptych.training.loading.batches import derive_seed
from triptych.training.run.checkpoint import read_checkpoint
from triptych.training.run.settings import OptimConfig, RunConfig
from triptych.training.run.trainer import train

CONFIGS = Path(__file__).resolve().parents[3] / "configs" / "gan"
STEPS = 6
SIZES: dict[str, Any] = {"latent": 4, "channels": 8, "n_blocks": 1}


@pytest.fixture(autouse=True)
def short_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "STEPS", 5)


def network(attention_side: int | None = 8, n_classes: int = 10) -> SelfAttentionGan:
    torch.manual_seed(0)
    config = ModelConfig(attention_side=attention_side, **SIZES)
    return SelfAttentionGan(config, (8, 8, 1), levels=17, n_classes=n_classes)


def settings(folder: Path, name: str = "gan") -> Config:
    return Config(
        data=DataConfig(source=Digits(), batch_size=16, samples=4, validation_limit=20),
        model=ModelConfig(attention_side=8, **SIZES),
        optim=OptimConfig(Adam((0.0, 0.9)), 2e-3, Constant(warmup_steps=2), ema_decay=0.9),
        run=RunConfig(name=name, directory=str(folder), wandb="off", seed=3),
    )  # fmt: skip


def go(
    config: Config, steps: int = STEPS, *, resume: bool = False, **trainer: Any
) -> dict[str, Any]:
    """Content of last.ckpt after the training."""
    arguments = {
        "max_steps": steps, "val_check_interval": 3, "check_val_every_n_epoch": None,
        "accelerator": "cpu", "precision": "32-true", "enable_progress_bar": False,
        "log_every_n_steps": 1, "num_sanity_val_steps": 0, "gradient_clip_val": 1.0,
    }  # fmt: skip
    folder = train("gan", config, prepare, arguments | trainer, resume=resume)
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")


def test_the_hinge_losses_are_those_of_the_paper() -> None:
    real, false = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([-3.0, 0.0, 0.25])
    expected = sum(max(0.0, 1 - x) for x in real.tolist()) / 3
    expected += sum(max(0.0, 1 + x) for x in false.tolist()) / 3
    assert float(discriminator_loss(real, false)) == pytest.approx(expected)
    assert float(generator_loss(false)) == pytest.approx(2.75 / 3)


def attention(channels: int, *, height: int) -> FeatureMapAttention:
    """A layer as the networks have it, with normalised maps."""
    torch.manual_seed(1)
    layer = FeatureMapAttention(channels, height)
    add_spectral_norm(layer)
    return layer


def test_attention_over_a_feature_map_is_the_definition_of_the_paper() -> None:
    layer = attention(16, height=3).double()
    nn.init.constant_(layer.gate, 0.7)
    x = torch.randn(2, 16, 3, 4, dtype=torch.float64)
    f, g, h, v = (part.weight.flatten(1) for part in (layer.f, layer.g, layer.h, layer.v))
    assert [len(matrix) for matrix in (f, g, h, v)] == [2, 2, 2, 16]
    expected, weights = x.clone(), torch.zeros(2, 12, 12, dtype=torch.float64)
    for image in range(2):
        positions = x[image].flatten(1).T.unbind()  # 12 vectors [16]
        for j, query in enumerate(positions):
            logits = [(f @ key) @ (g @ query) for key in positions]
            total = sum(logit.exp() for logit in logits)
            for i, logit in enumerate(logits):
                weights[image, j, i] = logit.exp() / total
            pairs = zip(weights[image, j], positions, strict=True)
            mixed = sum(weight * (h @ value) for weight, value in pairs)
            expected[image, :, j // 4, j % 4] += 0.7 * (v @ mixed)
    torch.testing.assert_close(layer.weights(x), weights)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("channels", [16, 32])
def test_new_attention_can_select_positions(channels: int) -> None:
    """Features that are far apart get weights far from uniform.

    With one spectral norm for all maps and logits divided by the square root of the width the
    weights of these features are between 0.4 and 2.3 times the uniform weight.
    """
    layer = attention(channels, height=8)
    relative = 64 * layer.weights(torch.randn(4, channels, 8, 8))  # 1: uniform
    assert relative.min() < 0.01
    assert relative.max() > 20


def test_each_map_of_the_attention_has_a_norm_of_its_own() -> None:
    layer = attention(32, height=8)
    with torch.no_grad():
        layer.f.parametrizations["weight"].original.mul_(100)  # type: ignore[union-attr, operator, index]
    norms = spectral_norms(layer)
    assert norms == pytest.approx(dict.fromkeys("fghv", 1), abs=1e-5)


def test_a_gate_of_zero_is_the_network_without_attention() -> None:
    full, plain = network().eval(), network(None).eval()
    weights = {k: v for k, v in full.state_dict().items() if ".attention." not in k}
    plain.load_state_dict(weights)
    noise, labels = full.noise(5), torch.arange(5)
    images = full.generator(noise, labels)
    assert images.equal(plain.generator(noise, labels))
    assert full.discriminator(images, labels).equal(plain.discriminator(images, labels))
    nn.init.ones_(full.generator.attention.gate)  # type: ignore[union-attr, arg-type]
    assert not images.equal(full.generator(noise, labels))


def test_the_class_changes_images_and_logits() -> None:
    gan = network().eval()
    nn.init.normal_(gan.generator.blocks[0].norm1.affine.weight)  # type: ignore[union-attr, arg-type]
    noise = gan.noise(1)
    one, two = (gan.generator(noise, torch.tensor([label])) for label in (1, 2))
    assert not one.equal(two)
    logits = [gan.discriminator(one, torch.tensor([label])) for label in (1, 2)]
    assert not logits[0].equal(logits[1])


def test_integers_survive_the_way_to_reals_and_back() -> None:
    pixels = torch.arange(17, dtype=torch.uint8).view(1, 1, 17, 1)
    assert network().to_levels(network().to_reals(pixels)).equal(pixels)


def spectral_norms(gan: nn.Module) -> dict[str, float]:
    """Largest singular value of the weight of each linear map; embeddings of norms are gains."""
    found = {}
    for name, module in gan.named_modules():
        is_map = isinstance(module, nn.Conv2d | nn.Linear)
        if is_map or (isinstance(module, nn.Embedding) and "affine" not in name):
            matrix = module.weight.detach().flatten(1)
            found[name] = float(torch.linalg.svdvals(matrix)[0])
    return found


class SpectralNorms(Callback):
    """Largest spectral norm of a layer after each training step, and in each validation."""

    def __init__(self) -> None:
        self.training: list[float] = []
        self.average: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        self.training.append(max(spectral_norms(module.model).values()))

    def on_validation_epoch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        self.average.append(max(spectral_norms(module.model).values()))


def test_every_layer_has_spectral_norm_one_after_every_step(tmp_path: Path) -> None:
    """In training, in the moving average that validations use, and in a restored checkpoint."""
    norms = SpectralNorms()
    last = go(settings(tmp_path), 12, callbacks=[norms])
    assert len(norms.training) == 12
    assert len(norms.average) == 4
    assert norms.training + norms.average == pytest.approx([1] * 16, abs=1e-4)
    restored = spectral_norms(restore(last).full_model)
    assert len(restored) == 22
    assert list(restored.values()) == pytest.approx([1] * 22, abs=1e-4)


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (9, 4), (1, 7)])
def test_spectral_norm_is_that_of_the_singular_values(shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    target = torch.randn(shape, dtype=torch.float64)
    expected = weight / torch.linalg.svdvals(weight.flatten(1))[0]
    torch.testing.assert_close(SpectralNorm()(weight), expected)
    gradients = [torch.autograd.grad((w * target).sum(), weight)[0]
                 for w in (SpectralNorm()(weight), expected)]  # fmt: skip
    torch.testing.assert_close(*gradients)


def test_samples_use_the_batch_statistics_of_the_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one batch, evaluation gives the images of training mode with the averaged weights."""
    monkeypatch.setattr(networks, "STATISTICS_BATCHES", 1)
    gan = restore(go(settings(tmp_path), 5)).full_model
    noise, labels = gan.noise(256, torch.Generator().manual_seed(0)), torch.arange(256) % 10
    with torch.no_grad():
        in_evaluation = gan.generator(noise, labels)
        in_training = gan.generator.train()(noise, labels)
    torch.testing.assert_close(in_evaluation, in_training, rtol=0, atol=1e-3)


def test_the_distance_of_gaussians_is_that_of_the_matrix_square_root() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    torch.manual_seed(0)
    a, b = (torch.randn(40, 6, dtype=torch.float64) @ torch.randn(6, 6).double() for _ in range(2))
    one, two = Gaussian(a.mean(0), a.T.cov()), Gaussian(b.mean(0) + 1, b.T.cov())
    root = linalg.sqrtm((one.covariance @ two.covariance).numpy()).real
    expected = ((one.mean - two.mean) ** 2).sum() + (one.covariance + two.covariance).trace()
    assert frechet_distance(one, two) == pytest.approx(float(expected) - 2 * np.trace(root))
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-9)


def test_the_score_depends_on_its_seed_alone() -> None:
    images = Digits().load("train")
    state = torch.get_rng_state()
    first = FrechetScore(images).distance(images.pixels[:50])
    assert torch.get_rng_state().equal(state)
    torch.manual_seed(7)
    assert FrechetScore(images).distance(images.pixels[:50]) == first


class Record(Callback):
    """Learning rates and gradients of both optimisers at the end of each batch."""

    rates: list[list[float]]

    def on_train_start(self, *_: Any) -> None:
        self.rates = []

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.rates.append([o.param_groups[0]["lr"] for o in trainer.optimizers])


def test_a_step_updates_both_networks_at_their_own_rates(tmp_path: Path) -> None:
    record = Record()
    last = go(settings(tmp_path), callbacks=[record])
    assert last["global_step"] == last["triptych"]["step"] == STEPS
    for critic, generator in record.rates:
        assert critic == pytest.approx(4 * generator)
    assert [generator for _, generator in record.rates[:3]] == pytest.approx([1e-3, 2e-3, 2e-3])
    for state in last["optimizer_states"]:
        assert {float(s["step"]) for s in state["state"].values()} == {STEPS}


@dataclass(frozen=True)
class Descent(OptimizerConfig):
    """Plain gradient descent."""

    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), learning_rate)


def by_definition(config: Config, steps: int, ranks: int = 1, clip: float | None = None) -> Any:
    """The networks after updates on the batches of all ranks, with the noise of each."""
    task, loader, _ = prepare(config)
    gan, batches = task.model, chain.from_iterable(repeat(loader))
    for step in range(1, steps + 1):
        drawn = []  # batch, and the noise of both updates, of each rank
        for rank in range(ranks):
            torch.manual_seed(derive_seed(config.run.seed, rank, step * ranks, 2))
            batch = next(batches)
            drawn.append((batch, [gan.noise(len(batch.pixels)) for _ in range(2)]))
        for number, (net, factor) in enumerate([(gan.discriminator, 4), (gan.generator, 1)]):
            total, count = torch.tensor(0.0), 0
            for batch, noise in drawn:
                false = gan.discriminator(gan.generator(noise[number], batch.labels), batch.labels)
                real = gan.discriminator(gan.to_reals(batch.pixels), batch.labels)
                loss = generator_loss(false) if factor == 1 else discriminator_loss(real, false)
                total, count = total + loss * len(batch.pixels), count + len(batch.pixels)
            gan.zero_grad()
            (total / count).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            torch.optim.SGD(net.parameters(), factor * 0.02 * min(1, step / 2)).step()
    return gan


def descending(config: Config) -> Config:
    return replace(config, optim=OptimConfig(Descent(), 0.02, Constant(warmup_steps=2)))


def assert_trained(trained: dict[str, torch.Tensor], expected: nn.Module) -> None:
    for name, weight in expected.named_parameters():
        torch.testing.assert_close(weight, trained[f"model.{name}"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_each_network_descends_its_own_loss_in_turn(tmp_path: Path, clip: float | None) -> None:
    config = descending(settings(tmp_path))
    trained = go(config, 3, gradient_clip_val=clip)["state_dict"]
    assert_trained(trained, by_definition(config, 3, clip=clip))


def of_two(folder: str | Path) -> Config:
    """Settings with an order of batches of 700 and 37 images, which differ between processes."""
    config = descending(settings(Path(folder)))
    return replace(config, data=replace(config.data, batch_size=700))


def process(rank: int, folder: str) -> None:
    """One of two that train together, as Lightning's launcher starts them."""
    metrics.STEPS = 5
    torch.set_num_threads(1)
    os.environ |= {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": "2"}
    strategy = DDPStrategy(process_group_backend="gloo")
    go(of_two(folder), 3, devices=2, strategy=strategy, gradient_clip_val=0.05)


@pytest.mark.slow
def test_two_processes_descend_the_losses_of_all_of_their_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(found.getsockname()[1]))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    multiprocessing.spawn(process, (str(tmp_path),), nprocs=2)
    trained = read_checkpoint(tmp_path / "gan/checkpoints/last.ckpt")["state_dict"]
    assert_trained(trained, by_definition(of_two(tmp_path), 3, ranks=2, clip=0.05))


def test_fp16_is_refused(tmp_path: Path) -> None:
    task, _, _ = prepare(settings(tmp_path))
    half = SimpleNamespace(precision="16-mixed", accumulate_grad_batches=1, strategy=None)
    with pytest.raises(UserError, match="precision 16"):
        task.adapt(half)  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_resumed_run_is_bit_exact(tmp_path: Path, cut: int) -> None:
    whole = go(settings(tmp_path, "whole"))
    go(settings(tmp_path, "cut"), cut)
    torch.manual_seed(99)  # another state of random numbers than the uncut run's
    resumed = go(settings(tmp_path, "cut"), resume=True)
    assert whole["state_dict"].keys() == resumed["state_dict"].keys()
    for name, weight in whole["state_dict"].items():
        assert weight.equal(resumed["state_dict"][name]), name
    for name, weight in whole["average"]["weights"].items():
        assert weight.equal(resumed["average"]["weights"][name]), name
    assert whole["triptych"]["metrics"] == resumed["triptych"]["metrics"]


def test_memory_is_reported_without_a_share_of_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    use = {"time/peak_memory_gib": 1.0, "time/mfu": 0.5}
    monkeypatch.setattr(TrainingModule, "device_use", lambda _: use)
    module, _, _ = prepare(settings(Path()))
    assert module.device_use() == {"time/peak_memory_gib": 1.0}


def test_a_checkpoint_samples_scores_and_shows_attention(tmp_path: Path) -> None:
    last = go(settings(tmp_path))
    model = restore(last)
    one, two = (model.sample(3, seed=1, labels=torch.arange(3)) for _ in range(2))
    assert one.shape == (3, 8, 8, 1)
    assert one.max() < 17
    assert (one == two).all()
    score = model.evaluate("validation", limit=20)
    assert score.metrics["fid"] == pytest.approx(last["triptych"]["metrics"]["fid"], rel=1e-4)
    assert set(score.metrics) == {"fid", "real_images_fid", "noise_fid"}
    image, maps = model.attention([(1, 2), (7, 7)], label=4)
    assert image.shape == (8, 8, 1)
    np.testing.assert_allclose(maps.sum((1, 2)), 1, rtol=1e-5)


def test_a_smaller_map_shares_its_weights_among_the_pixels() -> None:
    model = GanModel(None, network(attention_side=4))
    layer: Any = model.full_model.generator.attention
    seen: list[torch.Tensor] = []
    layer.register_forward_pre_hook(lambda _, arguments: seen.extend(arguments))
    image, maps = model.attention([(5, 2)], label=4)
    (x,) = seen
    assert x.shape == (1, 8, 4, 4)  # of one image
    with torch.no_grad():
        weights = layer.weights(x)[0, 2 * 4 + 1].view(4, 4)  # of the position of row 5, column 2
    assert maps[0] == pytest.approx(np.kron(weights, np.full((2, 2), 1 / 4)), rel=1e-6)
    assert (image == model.sample(1, labels=torch.tensor([4]))[0]).all()


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    config = settings(tmp_path)
    for optim in (OptimConfig(Muon()), OptimConfig(schedule=Noam())):
        with pytest.raises(ValueError, match=r"Muon and optim\.schedule Noam"):
            replace(config, optim=optim)
    with pytest.raises(ValueError, match="channels is 4; self-attention"):
        ModelConfig(channels=4)
    assert ModelConfig(channels=4, attention_side=None).channels == 4
    with pytest.raises(UserError, match="attention_side"):
        prepare(replace(config, model=ModelConfig(attention_side=5, **SIZES)))
    with pytest.raises(UserError, match="accumulate_grad_batches"):
        go(config, accumulate_grad_batches=2)


@pytest.mark.parametrize(
    ("path", "shape"), [("digits", (8, 8, 1)), ("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))]
)
def test_a_shipped_config_builds_and_generates(path: str, shape: tuple[int, int, int]) -> None:
    content = yaml.safe_load((CONFIGS / f"{path}-gan.yaml").read_text(encoding="utf-8"))
    content.pop("trainer")
    config = from_plain(Config, content)
    assert config.run.name == f"gan/{path}-gan"
    names = [str(number) for number in range(10)]
    gan = config.build_model({"shape": list(shape), "levels": 256, "class_names": names})
    images = gan.sample(2, labels=torch.tensor([0, 3]), generator=torch.Generator())
    assert images.shape == (2, *shape)


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.domains.gan")
    assert not positional_options("triptych.domains.gan")
    assert not names_of_many_defaults("triptych.domains.gan")
