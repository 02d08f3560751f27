"""Laws of CUDA for each domain's model, as its configuration builds it, on fake tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from gpu.estimate import STEPS, Step
from gpu.fake_cuda import fake_cuda
from torch import Tensor

from triptych.decoding.constraints import ByPriority
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest
from triptych.domains.music.conditions import ConstraintOptions
from triptych.types import Sampling

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
BOUNDS = {
    "image/mnist": (14, 14),
    "image/cifar10-logistics": (14, 14),
    "image/cifar10": (14, 14),
    "image/mnist-super-resolution": (21, 18),
    "music/maestro": (16, 17),
    "music/maestro-local": (16, 17),
    "music/maestro-melody": (24, 20),
    "music/chorales-melody": (24, 20),
    "music/jsb-pitch-time": (17, 24),
    "music/jsb-modern": (20, 20),
    "translation/multi30k-en-de": (36, 19),
}
"""Most launches of one more layer in a training pass (for translation of an encoder layer and a
decoder layer) and in a decoding step: attention, feed-forward layer, norms and residuals."""
QUICK = ("image/cifar10", "music/jsb-pitch-time", "translation/multi30k-en-de")
"""Configurations that also run among the fast tests."""


def step_of(config: str, n_layers: int) -> Step:
    """A shipped configuration with another number of layers."""
    settings = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text(encoding="utf-8"))
    settings.pop("trainer")
    settings["model"]["transformer"]["n_layers"] = n_layers
    return STEPS[config.split("/")[0]](settings)


def training_launches(step: Step) -> Counter[str]:
    task = step.task.train()
    with fake_cuda(task) as launches, torch.no_grad():
        batch = step.make_batch()
        task.training_loss(batch)  # makes what is cached
        launches.by_name.clear()
        loss, count = task.training_loss(batch)
        assert loss.device.type == "cuda"
        assert not isinstance(count, Tensor) or count.device.type == "cuda"
        return launches.by_name.copy()


def decoding_launches(step: Step, length: int, **options: Any) -> Counter[str]:
    """Launches of sampling two rows of `length` positions."""
    task = step.task.eval()
    with fake_cuda(task) as launches, torch.no_grad():
        batch = step.make_batch()
        model = getattr(task.model, "core", task.model)
        if hasattr(model, "target_embedding"):
            start = torch.zeros(2, dtype=torch.int64, device="cuda")
            options |= {"condition": model.encode(batch.source[:2]), "previous": start}
        elif model is not task.model and task.model.factor is not None:
            small = task.model.small(batch.pixels[:2])
            options |= {"condition": task.model.condition(None, small)}
        if getattr(batch, "melody", None) is not None:
            options["condition"] = model.condition(batch.melody[:2])
        launches.by_name.clear()
        made = generate(model, SampleRequest(count=2, length=length, **options))
        assert made.device.type == "cuda"
        return launches.by_name.copy()


def per_step(step: Callable[[], Step], **options: Any) -> Counter[str]:
    """Launches of 16 decoding steps, with sampling and with what 16 steps share."""
    first, second = (decoding_launches(step(), length, **options) for length in (1, 17))
    second.subtract(first)
    return second


QUICK_AND_SLOW = [
    config if config in QUICK else pytest.param(config, marks=pytest.mark.slow) for config in BOUNDS
]


@pytest.mark.parametrize("config", QUICK_AND_SLOW)
def test_a_training_pass_never_waits_and_a_layer_launches_few_kernels(config: str) -> None:
    one, two = (training_launches(step_of(config, n_layers)) for n_layers in (1, 2))
    two.subtract(one)
    assert two.total() <= BOUNDS[config][0], two


@pytest.mark.slow
@pytest.mark.parametrize("config", QUICK_AND_SLOW)
def test_a_decoding_step_never_waits_and_a_layer_launches_few_kernels(config: str) -> None:
    one, two = (per_step(lambda n=n: step_of(config, n)) for n in (1, 2))  # type: ignore[misc]
    two.subtract(one)
    assert two.total() <= 16 * BOUNDS[config][1], two


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ("music/maestro", {}),
        ("music/quartets", {"instruments": "violin,cello"}),
        ("music/jsb", {"no_parallels": True}),  # with intervals of voices
        ("music/jsb-modern", {"ranges": "textbook", "scale": "C:major", "no_parallels": True}),
        pytest.param(
            "music/maestro", {"ranges": "48-72", "scale": "C:major"}, marks=pytest.mark.slow
        ),
    ],
)
def test_sampling_under_rules_never_waits(config: str, options: dict[str, Any]) -> None:
    """The grammar of the tokens, constraints, and in quartets two of the instruments."""
    task = step_of(config, 1).task.eval()
    tokenizer = task.settings.tokenizer
    with fake_cuda(task):
        grammar = tokenizer.grammar(2, seconds=9.0, n_prompt=0)
        rules = tokenizer.constraints(ConstraintOptions(**options))
        rules = rules if grammar is None else [grammar, *rules]
        sampling = Sampling(temperature=0.9, top_p=0.95)
        constraint = ByPriority(rules)
        made = generate(
            task.model, SampleRequest(count=2, length=19, constraint=constraint, sampling=sampling)
        )
        assert made.device.type == "cuda"
