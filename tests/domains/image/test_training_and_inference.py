"""Bits per dim, training, checkpoints, inference: the whole way on tiny images."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from random_head import with_random_head
from torch import nn

from triptych.core.attention.local2d import Local2D
from triptych.core.heads import Categorical, HeadConfig, MixtureOfLogistics
from triptych.core.layers import GELU
from triptych.core.positions import Axial
from triptych.core.transformer import TransformerConfig
from triptych.decoding.sampling import SampleRequest
from triptych.domains.image.config import Config
from triptych.domains.image.domain import DOMAIN
from triptych.domains.image.inference import ImageModel, restore
from triptych.domains.image.model import ModelConfig
from triptych.domains.image.task import ImageTrainingModule, prepare
from triptych.domains.pictures.config import DataConfig
from triptych.domains.pictures.image_folder import ImageFolder
from triptych.errors import UserError
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.objective import DistillationConfig, ObjectiveConfig
from triptych.training.engine.optim import Constant
from triptych.training.run.checkpoint import header, read_checkpoint
from triptych.training.run.settings import OptimConfig, RunConfig
from triptych.training.run.trainer import train

HEIGHT, WIDTH = 3, 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 RGB images in two classes: bright left sides and bright right sides."""
    generator = np.random.default_rng(0)
    for name, bright in (("left", slice(0, 2)), ("right", slice(2, 4))):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(30):
            pixels = generator.integers(0, 100, (HEIGHT, WIDTH, 3))
            pixels[:, bright] += 150
            Image.fromarray(pixels.astype(np.uint8)).save(
                tmp_path / "images" / name / f"{index}.png"
            )
    return tmp_path / "images"


def prepared(config: Config) -> tuple[ImageTrainingModule, Any, Any]:
    """`prepare`, with a random head: one that is zero predicts nothing of what it reads."""
    task, loader, batches = prepare(config)
    return with_random_head(task), loader, batches


def settings(
    folder: Path,
    *,
    head: HeadConfig | None = None,
    class_conditional: bool = True,
    dropout: float = 0.0,
    **data: Any,
) -> Config:
    source = ImageFolder(
        directory=str(folder), height=HEIGHT, width=WIDTH, validation_share=0.2, test_share=0.2
    )
    options: dict[str, Any] = {"bits": 3, "batch_size": 16, "samples": 4} | data
    return Config(
        data=DataConfig(source=source, **options),
        model=ModelConfig(
            TransformerConfig(
                n_layers=1,
                d_model=32,
                n_heads=2,
                feed_forward=GELU(64),
                dropout=dropout,
                attention=Local2D(2, 2, 1, 1, "blocks"),
                positions=Axial(),
            ),
            head=head or Categorical(),
            class_conditional=class_conditional,
        ),
        optim=OptimConfig(learning_rate=5e-3, schedule=Constant(warmup_steps=5)),
        run=RunConfig(name="tiny", directory=str(folder.parent / "runs"), wandb="off"),
    )


def checkpoint_of(task: ImageTrainingModule) -> dict[str, Any]:
    return {
        "triptych": header(task.metadata, seed=0, step=1, metrics={}),
        "state_dict": task.state_dict(),
    }


def model_of(folder: Path, **options: Any) -> ImageModel:
    return restore(checkpoint_of(prepared(settings(folder, **options))[0]))


# --- bits per dim ---------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 3, 7, None])
def test_a_uniform_model_has_exactly_the_logarithm_of_the_levels(
    folder: Path, bits: int | None
) -> None:
    task, _, batches = prepared(settings(folder, bits=bits))
    for parameter in task.model.core.head.parameters():
        nn.init.zeros_(parameter)
    totals = sum_scores(task, task.score, batches)
    metrics = task.metrics(totals)
    assert metrics["bits_per_dim"] == pytest.approx(8 if bits is None else bits, abs=1e-6)
    images = task.config.data.read("validation")
    assert totals["dims"] == images.pixels.numel()  # every sub-pixel, the first one too


@pytest.mark.parametrize("head", [Categorical(), MixtureOfLogistics(components=2)])
def test_bits_per_dim_by_hand(folder: Path, head: HeadConfig) -> None:
    task, _, batches = prepared(settings(folder, head=head))
    metrics = task.metrics(sum_scores(task, task.score, batches))
    images = task.config.data.read("validation")
    assert images.labels is not None
    by_hand = 0.0
    for row, label in zip(images.pixels, images.labels, strict=True):
        with torch.no_grad():
            by_hand += task.model.eval().nll(row[None], label[None]).double().sum().item()
    by_hand /= math.log(2) * len(images) * HEIGHT * WIDTH * 3
    assert metrics["bits_per_dim"] == pytest.approx(by_hand, rel=1e-6)


def test_bits_per_dim_does_not_depend_on_the_batch_size_and_leaves_no_image_out(
    folder: Path,
) -> None:
    task, _, _ = prepared(settings(folder))
    images = task.config.data.read("train")
    assert len(images) % 5 != 0  # so that there is a smaller last batch
    results = [sum_scores(task, task.score, images.fixed_batches(size)) for size in (1, 5, 64)]
    first = task.metrics(results[0])["bits_per_dim"]
    for totals in results:
        assert totals["images"] == len(images)
        assert task.metrics(totals)["bits_per_dim"] == pytest.approx(first, rel=1e-6)


def test_dropout_is_off_when_scoring_and_on_when_training(folder: Path) -> None:
    task, loader, batches = prepared(settings(folder, dropout=0.5))
    task.train()
    scores = {task.metrics(sum_scores(task, task.score, batches))["bits_per_dim"] for _ in range(3)}
    assert len(scores) == 1
    batch = next(iter(loader))
    losses = {task.training_loss(batch)[0].item() for _ in range(3)}
    assert len(losses) == 3


def test_the_loss_is_the_mean_over_sub_pixels(folder: Path) -> None:
    task, loader, _ = prepared(settings(folder))
    batch = next(iter(loader))
    loss, count = task.training_loss(batch)
    assert count == batch.pixels.numel()
    scored = task.score(batch)
    assert loss.item() == pytest.approx((scored["nats"] / scored["dims"]).item(), rel=1e-6)
    assert batch.pixels.dtype == torch.uint8


def test_both_passes_and_the_teachers_see_the_same_transformed_images(folder: Path) -> None:
    plain = settings(folder, dropout=0.1)
    model = replace(plain.model, augmentation="mirrored")
    objective = ObjectiveConfig(r_drop=1.0, distillation=DistillationConfig(["a.ckpt"]))
    with pytest.raises(UserError, match=r"a\.ckpt cannot be read"):
        DOMAIN.prepare(replace(plain, optim=replace(plain.optim, objective=objective)))
    task, loader, _ = prepared(
        replace(plain, model=model, optim=replace(plain.optim, objective=objective))
    )
    task.eval()  # without dropout both passes are equal
    batch = next(iter(loader))
    teacher = prepared(plain)[0].model.eval()  # it does not know the transformations
    task.teachers.append(teacher)
    torch.manual_seed(0)
    loss = float(task.training_loss(batch)[0].detach())
    torch.manual_seed(0)
    images, which = task.model.augmented(batch.pixels)
    assert set(which.tolist()) == {0, 1}
    with torch.no_grad():
        x, values = task.model.features(images, batch.labels, which)
        log_q = task.model.core.head(x).log_softmax(-1)  # [B, L, V]
        condition = teacher.condition(batch.labels)
        log_p = teacher.core(values, condition=condition).log_softmax(-1)  # [B, L, V]
    nats = -log_q.gather(-1, values.unsqueeze(-1)).mean()
    apart = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
    assert loss == pytest.approx(float(0.5 * nats + 0.5 * apart), rel=1e-5)


# --- preparing ------------------------------------------------------------------------------


def test_classes_are_needed_for_a_conditional_model(folder: Path) -> None:
    config = settings(folder / "left")
    with pytest.raises(UserError, match="the images have no classes"):
        prepared(config)


def test_a_validation_limit_takes_the_first(folder: Path) -> None:
    _, _, batches = prepared(settings(folder, validation_limit=3))
    assert sum(len(batch.pixels) for batch in batches) == 3


@pytest.mark.parametrize("options", [{"bits": 0}, {"bits": 8}])
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        DataConfig(**options)


def test_the_same_seed_builds_the_same_model(folder: Path) -> None:
    first, again = (prepared(settings(folder))[0] for _ in range(2))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


# --- the whole way --------------------------------------------------------------------------


@pytest.mark.slow
def test_training_learns_and_its_checkpoint_is_enough(folder: Path) -> None:
    config = settings(folder)
    task, _, batches = prepared(config)
    before = task.metrics(sum_scores(task, task.score, batches))["bits_per_dim"]
    trainer = {"max_steps": 120, "val_check_interval": 60, "check_val_every_n_epoch": None}
    run = train("image", config, prepare, trainer | {"accelerator": "cpu"})
    grids = sorted((run / "samples").rglob("samples.png"))
    assert len(grids) == 2

    for path in folder.rglob("*.png"):  # the training data is gone: a checkpoint needs none
        path.rename(path.with_suffix(".gone"))
    model = restore(read_checkpoint(run / "checkpoints" / "last.ckpt"))
    for path in folder.rglob("*.gone"):
        path.rename(path.with_suffix(".png"))
    result = model.evaluate("validation")
    assert result.metrics["bits_per_dim"] < before - 0.3
    assert result.details["uniform_bits_per_dim"] == 3
    assert result.details["histogram_bits_per_dim"] < 3
    left = model.sample(16, label=0).astype(int)
    assert left[:, :, :2].mean() > left[:, :, 2:].mean() + 2  # the class is heard


def test_a_loaded_model_scores_and_samples_as_the_trained_one(folder: Path, tmp_path: Path) -> None:
    task, _, batches = prepared(settings(folder, head=MixtureOfLogistics(components=2)))
    torch.save(checkpoint_of(task), tmp_path / "model.ckpt")
    content = read_checkpoint(tmp_path / "model.ckpt")
    model = restore(content)
    assert model.settings == task.settings
    assert model.vocabulary["class_names"] == ["left", "right"]
    score = task.metrics(sum_scores(task, task.score, batches))
    assert model.evaluate("validation").metrics == score
    trained = ImageModel.of_run(task.config, task.model, model.vocabulary)
    assert np.array_equal(trained.sample(3), model.sample(3))


def test_showing_writes_a_grid_and_attention_always_the_same(folder: Path, tmp_path: Path) -> None:
    task, _, _ = prepared(settings(folder))
    task.eval()
    images = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        task.log_samples(tmp_path / name)
        files = ("samples.png", "attention.png")
        images.append([(tmp_path / name / file).read_bytes() for file in files])
    assert images[0] == images[1]
    (tmp_path / "none").mkdir()
    prepared(settings(folder, samples=0))[0].log_samples(tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []


# --- inference ------------------------------------------------------------------------------


def test_samples_are_whole_numbers_on_the_levels(folder: Path, tmp_path: Path) -> None:
    model = model_of(folder)
    seen: list[tuple[int, int]] = []
    images = model.sample(70, seed=3, progress=lambda done, total: seen.append((done, total)))
    assert images.dtype == np.uint8
    assert images.shape == (70, HEIGHT, WIDTH, 3)
    assert images.max() <= model.full_model.levels - 1 == 7
    assert seen[-1] == (70 * 36, 70 * 36)
    assert np.array_equal(images, model.sample(70, seed=3))
    assert not np.array_equal(images, model.sample(70, seed=4))


def test_the_label_reaches_every_sample_and_dropout_is_off(folder: Path) -> None:
    model = model_of(folder, dropout=0.5)
    nn.init.normal_(
        model.full_model.conditioner.classes.weight, std=10
    )  # so that the class matters
    for label in (0, 1):
        labels = torch.full((3,), label)
        expected = model.full_model.sample(SampleRequest(3, seed=5), labels=labels)
        assert np.array_equal(model.sample(3, label=label, seed=5), expected.numpy())
    assert not np.array_equal(model.sample(3, label=0, seed=5), model.sample(3, label=1, seed=5))
    assert not any(module.training for module in model.model.modules())


def test_a_label_on_an_unconditional_model_is_told(folder: Path) -> None:
    with pytest.raises(UserError, match=r"0 classes, .*class_conditional is false"):
        model_of(folder, class_conditional=False).sample(1, label=0)


@pytest.mark.parametrize("options", [{"top_k": 3}, {"top_p": 0.5}])
def test_logistics_refuse_top_k_and_top_p(folder: Path, options: dict[str, Any]) -> None:
    model = model_of(folder, head=MixtureOfLogistics(components=2))
    with pytest.raises(UserError, match="mixture of logistics"):
        model.sample(1, **options)


def test_evaluation_counts_every_image_and_obeys_its_options(folder: Path) -> None:
    model = model_of(folder)
    whole = model.evaluate("test")
    assert (whole.domain, whole.split) == ("image", "test")
    assert whole.details["sub_pixels"] == whole.count * HEIGHT * WIDTH * 3
    one_by_one = model.evaluate("test", batch_size=1)
    assert one_by_one.metrics["bits_per_dim"] == pytest.approx(
        whole.metrics["bits_per_dim"], rel=1e-6
    )
    assert model.evaluate("test", limit=2).count == 2


def test_evaluating_other_images_than_the_models_is_told(folder: Path, tmp_path: Path) -> None:
    model = model_of(folder)
    with pytest.raises(UserError, match="does not exist"):
        model.evaluate(data=tmp_path / "nowhere")
    (folder / "left").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"class_names \['left', 'right'\], these have \['right'\]"):
        model.evaluate()
    with pytest.raises(UserError, match=r"train, validation and test, .* got 'training'"):
        model.evaluate("training")
    wide = replace(model.data_settings.source, height=WIDTH, width=HEIGHT, resize=True)
    model.data_settings = replace(model.data_settings, source=wide)
    with pytest.raises(UserError, match=r"shape \[3, 4, 3\], these have \[4, 3, 3\]"):
        model.evaluate()


def test_a_variant_that_cannot_serve_the_shape_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("blocks of 9 do not fit")

    monkeypatch.setattr(Local2D, "order_of", refuse)
    with pytest.raises(UserError, match="does not fit the data: blocks of 9"):
        prepared(settings(folder))
