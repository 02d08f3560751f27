"""The running mean of the weights is right, is what is validated, and leaves the training alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback
from test_processes import DDP, finish
from test_resume import KillAt, long_run
from torch import Tensor, nn
from toy_task import ToyTask, checkpoint, toy_run, validation_loader, weights

from triptych.training.callbacks.ema import WeightAverage, decay_at, training_weights_first
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.optim import AdamW, InverseSqrt
from triptych.training.run.checkpoint import average_weights
from triptych.training.run.settings import OptimConfig

OPTIM = OptimConfig(AdamW(weight_decay=0.1), 0.05, InverseSqrt(warmup_steps=3), ema_decay=0.6)
Named = dict[str, Tensor]


def go(
    folder: Path,
    *,
    decay: float = OPTIM.ema_decay,
    resume: bool = False,
    kind: type[ToyTask] = ToyTask,
    **trainer: Any,
) -> ToyTask:
    # Another start than the first run's: everything must come from the checkpoint.
    task = kind(replace(OPTIM, ema_decay=decay), initial=int(resume))
    return long_run(folder, task, resume=resume, **trainer)


def assert_equal(one: Named, other: Named) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def equal(one: Named, other: Named) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


class Record(Callback):
    """Keep the weights at the start and after each update."""

    def __init__(self) -> None:
        self.weights: list[Named] = []
        self._step = 0

    def on_train_start(self, trainer: Any, task: Any) -> None:
        self.weights = [weights(task)]

    def on_train_batch_end(self, trainer: Any, task: Any, *_: Any) -> None:
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self.weights.append(weights(task))


def slow_means(trajectory: list[Named], decay: float) -> list[Named]:
    """The mean after each update, in double precision."""
    means = [{name: value.double() for name, value in trajectory[0].items()}]
    for number, new in enumerate(trajectory[1:], start=1):
        kept = min(decay, (1 + number) / (10 + number))
        means.append({n: kept * old + (1 - kept) * new[n].double() for n, old in means[-1].items()})
    return means


def test_the_first_updates_are_forgotten_sooner() -> None:
    assert decay_at(0.999, 1) == 2 / 11
    assert decay_at(0.999, 90) == 0.91
    assert decay_at(0.5, 90) == decay_at(0.5, 9) == 0.5


@pytest.mark.parametrize(
    ("decay", "steps", "more"),
    [
        (0.6, 12, {}),
        (0.999, 7, {}),
        (0.6, 5, {"accumulate_grad_batches": 3, "val_check_interval": 4}),
        (0.6, 6, {"precision": "bf16-mixed"}),
    ],
)
def test_mean_is_that_of_a_slow_reference(
    decay: float, steps: int, more: dict[str, Any], tmp_path: Path
) -> None:
    record = Record()
    go(tmp_path / "a", decay=decay, max_steps=steps, callbacks=[record], **more)
    last = checkpoint(tmp_path / "a")
    assert last["average"]["updates"] == steps == len(record.weights) - 1
    slow = slow_means(record.weights, decay)[-1]
    assert last["state_dict"].keys() == slow.keys()
    for name, value in last["state_dict"].items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), slow[name], rtol=1e-5, atol=1e-6)
        assert not torch.equal(value, record.weights[-1][name])
    assert_equal(last["average"]["weights"], record.weights[-1])


class Looks(ToyTask):
    """Keeps the weights that validation, decoding and samples see."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.validated: dict[int, list[Named]] = {}

    def look(self) -> None:
        if not self.trainer.sanity_checking:
            self.validated.setdefault(self.trainer.global_step, []).append(weights(self))

    def score(self, batch: Any) -> Any:
        self.look()
        return super().score(batch)

    def generation_metrics(self) -> dict[str, float]:
        self.look()
        return super().generation_metrics()

    def log_samples(self, folder: Path) -> None:
        self.look()
        super().log_samples(folder)


def test_validation_decoding_and_samples_see_the_mean(tmp_path: Path) -> None:
    record = Record()
    task = go(tmp_path / "a", kind=Looks, callbacks=[record])
    assert isinstance(task, Looks)
    assert list(task.validated) == [4, 8, 12]
    means = slow_means(record.weights, OPTIM.ema_decay)
    for step, seen in task.validated.items():
        assert len(seen) == 3 + 1 + 1
        for looked in seen:
            for name, value in looked.items():
                torch.testing.assert_close(value.double(), means[step][name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("more", "step"),
    [({}, 12), ({"accumulate_grad_batches": 2, "max_steps": 2, "val_check_interval": 3}, 1)],
    ids=["after a step", "amid accumulated gradients"],
)
def test_evaluating_the_best_checkpoint_gives_its_metrics_exactly(
    more: dict[str, Any], step: int, tmp_path: Path
) -> None:
    go(tmp_path / "a", **more)
    best = checkpoint(tmp_path / "a", "best")
    assert best["triptych"]["step"] == step
    task = ToyTask(initial=9)
    task.load_state_dict(best["state_dict"])
    metrics = task.metrics(sum_scores(task, task.score, validation_loader()))
    assert metrics["nats_per_token"] == best["triptych"]["metrics"]["nats_per_token"]
    task.load_state_dict(best["average"]["weights"])
    metrics = task.metrics(sum_scores(task, task.score, validation_loader()))
    assert metrics["nats_per_token"] != best["triptych"]["metrics"]["nats_per_token"]


def test_training_goes_as_it_does_without(tmp_path: Path) -> None:
    without = go(tmp_path / "without", decay=0.0)
    task = go(tmp_path / "with")
    assert task.losses == without.losses
    assert task.latest != without.latest
    one, other = checkpoint(tmp_path / "with"), checkpoint(tmp_path / "without")
    assert_equal(one["average"]["weights"], other["state_dict"])
    states = (content["optimizer_states"][0]["state"] for content in (one, other))
    for first, second in zip(*(state.values() for state in states), strict=True):
        assert_equal(first, second)


def assert_same_end(folder: Path, uncut: Path) -> None:
    one, other = checkpoint(folder), checkpoint(uncut)
    assert one["triptych"]["step"] == other["triptych"]["step"]
    assert one["triptych"]["metrics"] == other["triptych"]["metrics"]
    assert one["average"]["updates"] == other["average"]["updates"]
    assert_equal(one["state_dict"], other["state_dict"])
    assert_equal(one["average"]["weights"], other["average"]["weights"])


@pytest.mark.parametrize("more", [{}, {"accumulate_grad_batches": 2, "max_steps": 6}])
@pytest.mark.parametrize("cut", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_stopped_and_resumed_run_is_bit_exact(
    more: dict[str, Any], cut: int, tmp_path: Path
) -> None:
    uncut = go(tmp_path / "uncut", **more)
    first = go(tmp_path / "cut", callbacks=[KillAt(cut)], **more)
    assert cut < len(first.seen) < len(uncut.seen)
    second = go(tmp_path / "cut", resume=True, **more)
    assert first.losses + second.losses == uncut.losses
    assert_same_end(tmp_path / "cut", tmp_path / "uncut")
    best = [checkpoint(tmp_path / name, "best")["state_dict"] for name in ("cut", "uncut")]
    assert_equal(*best)


def test_run_goes_on_from_the_best_checkpoint(tmp_path: Path) -> None:
    uncut = go(tmp_path / "uncut")
    go(tmp_path / "a", max_steps=6)
    last = tmp_path / "a" / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:2000])
    assert checkpoint(tmp_path / "a", "best")["triptych"]["step"] == 4
    task = go(tmp_path / "a", resume=True)
    assert task.losses == uncut.losses[4:]
    assert_same_end(tmp_path / "a", tmp_path / "uncut")


def test_mean_begins_where_averaging_is_turned_on(tmp_path: Path) -> None:
    go(tmp_path / "a", decay=0.0, max_steps=6)
    record = Record()
    go(tmp_path / "a", resume=True, callbacks=[record])
    last = checkpoint(tmp_path / "a")
    assert last["average"]["updates"] == 6
    slow = slow_means(record.weights, OPTIM.ema_decay)[-1]
    for name, value in last["state_dict"].items():
        torch.testing.assert_close(value.double(), slow[name], rtol=1e-5, atol=1e-6)


class Breaks(ToyTask):
    """Raises in the validation after update 8, at the batch or in decoding."""

    place = "score"

    def score(self, batch: Any) -> Any:
        self.breaks("score")
        return super().score(batch)

    def generation_metrics(self) -> dict[str, float]:
        self.breaks("decoding")
        return super().generation_metrics()

    def breaks(self, place: str) -> None:
        if self.trainer.global_step == 8 and place == self.place:
            raise RuntimeError("planted")


@pytest.mark.parametrize("place", ["score", "decoding"])
def test_broken_validation_leaves_the_training_weights(place: str, tmp_path: Path) -> None:
    record = Record()
    task = Breaks(OPTIM)
    task.place = place
    with pytest.raises(RuntimeError, match="planted"):
        long_run(tmp_path, task, callbacks=[record])
    assert len(record.weights) == 9
    assert_equal(weights(task), record.weights[8])


class Odd(nn.Module):
    """A shared matrix, a frozen layer, and a norm with buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.whole_step = True


def test_shared_frozen_and_buffers(tmp_path: Path) -> None:
    module, average = Odd(), WeightAverage(0.9)
    average.on_fit_start(SimpleNamespace(), module)
    for _ in range(2):
        for parameter in module.parameters():
            if parameter.requires_grad:
                nn.init.normal_(parameter)
        module.norm.running_mean += 1
        average.on_train_batch_end(SimpleNamespace(), module, None, None, 0)
    plain = {name: value.clone() for name, value in module.state_dict().items()}

    saved: dict[str, Any] = {"state_dict": module.state_dict()}
    average.on_save_checkpoint(SimpleNamespace(), module, saved)
    assert_equal(plain, {**saved["state_dict"], **saved["average"]["weights"]})
    names = {"one.weight", "one.bias", "two.weight", "two.bias", "norm.weight", "norm.bias"}
    assert saved["average"]["weights"].keys() == names

    average.on_validation_start(SimpleNamespace(), module)
    validated = {name: value.clone() for name, value in module.state_dict().items()}
    assert_equal(saved["state_dict"], validated)
    assert not equal(validated, plain)
    untouched = plain.keys() - names
    assert equal({name: plain[name] for name in untouched}, validated)
    # A checkpoint written during a validation is the same.
    amid: dict[str, Any] = {"state_dict": module.state_dict()}
    average.on_save_checkpoint(SimpleNamespace(), module, amid)
    assert_equal(amid["state_dict"], validated)
    assert equal(amid["average"]["weights"], plain)
    average.on_validation_end(SimpleNamespace(), module)
    assert_equal(dict(module.state_dict()), plain)
    torch.save(amid, tmp_path / "best.ckpt")
    loaded = torch.load(tmp_path / "best.ckpt", weights_only=True)
    training_weights_first(loaded)
    assert_equal(loaded["state_dict"], plain)
    assert loaded["average"]["average"].keys() == names
    assert equal(loaded["average"]["average"], validated)


def test_mean_of_half_precision_weights_is_in_single_precision() -> None:
    module, average = nn.Linear(4, 4, dtype=torch.bfloat16), WeightAverage(0.9)
    average.on_fit_start(SimpleNamespace(), module)
    module.whole_step = True
    record = [weights(module)]
    for _ in range(29):
        nn.init.normal_(module.weight, mean=1.0)
        record.append(weights(module))
        average.on_train_batch_end(SimpleNamespace(), module, None, None, 0)
    saved: dict[str, Any] = {"state_dict": module.state_dict()}
    average.on_save_checkpoint(SimpleNamespace(), module, saved)
    mean, slow = saved["state_dict"]["weight"], slow_means(record, 0.9)[-1]["weight"]
    torch.testing.assert_close(mean, slow.float(), rtol=1e-5, atol=1e-6)
    average.on_validation_start(SimpleNamespace(), module)
    assert torch.equal(module.weight, mean.bfloat16())
    average.on_validation_end(SimpleNamespace(), module)
    assert_equal(weights(module), record[-1])


@pytest.mark.slow
def test_two_processes_have_one_mean(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    toy_run(folder, ToyTask(OptimConfig(learning_rate=0.01, ema_decay=0.9)), max_steps=3)
    both = finish(folder, DDP, "--average", "--resume")
    assert both.returncode == 0, both.stdout + both.stderr
    last = checkpoint(folder)
    assert last["average"]["updates"] == last["triptych"]["step"] == 6
    task = ToyTask(initial=9)
    task.load_state_dict(last["state_dict"])
    metrics = task.metrics(sum_scores(task, task.score, validation_loader()))
    validated = last["triptych"]["metrics"]["nats_per_token"]
    assert metrics["nats_per_token"] == pytest.approx(validated, rel=1e-6)
    task.load_state_dict(last["average"]["weights"])
    metrics = task.metrics(sum_scores(task, task.score, validation_loader()))
    assert metrics["nats_per_token"] != pytest.approx(validated, rel=1e-4)


def late(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("late-*.ckpt"))


def test_the_checkpoints_of_the_last_validations_are_kept(tmp_path: Path) -> None:
    trainer: dict[str, Any] = {"val_check_interval": 2}
    toy_run(tmp_path / "run", run={"keep_late": 2}, max_steps=6, **trainer)
    assert [path.name for path in late(tmp_path / "run")] == [
        "late-00000004.ckpt", "late-00000006.ckpt"
    ]  # fmt: skip
    last = checkpoint(tmp_path / "run")
    assert_equal(last["state_dict"], checkpoint(tmp_path / "run", "late-00000006")["state_dict"])
    toy_run(tmp_path / "run", run={"keep_late": 2}, max_steps=8, resume=True, **trainer)
    assert [path.name for path in late(tmp_path / "run")] == [
        "late-00000006.ckpt", "late-00000008.ckpt"
    ]  # fmt: skip
    toy_run(tmp_path / "none", max_steps=2, **trainer)
    assert not late(tmp_path / "none")


def test_the_mean_of_weights_is_that_of_the_state_dicts(tmp_path: Path) -> None:
    toy_run(tmp_path / "run", ToyTask(OPTIM), run={"keep_late": 3}, val_check_interval=2)
    paths = late(tmp_path / "run")
    contents = [checkpoint(tmp_path / "run", path.stem) for path in paths]
    assert len(contents) == 3
    averaged = average_weights([paths[2], paths[0], paths[1]])
    for name, mean in averaged["state_dict"].items():
        values = [content["state_dict"][name].double() for content in contents]  # the averages
        assert torch.allclose(mean.double(), sum(values) / 3, atol=1e-7)
        assert mean.dtype == torch.float32
    header = averaged["triptych"]
    assert header["step"] == 6
    assert [part["step"] for part in header["averaged"]] == [6, 2, 4]
    assert header["averaged"][1]["checkpoint"] == "late-00000002.ckpt"
