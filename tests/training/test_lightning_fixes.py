"""Each work-around is needed by the installed Lightning, and mends what it is for.

That it is applied in a run is tested where the run is: `test_run`, `test_resume`, `test_average`,
`test_observability`, `test_processes`.
"""

from __future__ import annotations

import copy
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.callbacks import Callback, EarlyStopping
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.plugins.precision import MixedPrecision
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader

from triptych.training import lightning_fixes as fixes


class Plain(pl.LightningModule):
    """A module as Lightning's users write it; an epoch has four batches."""

    def __init__(self, *, automatic: bool = True) -> None:
        super().__init__()
        self.automatic_optimization = automatic
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor | None:
        loss = self.layer(batch).square().mean()
        if self.automatic_optimization:
            return loss
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
        return None

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log("single", 0.1)

    def configure_optimizers(self) -> Any:
        first, second = (torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2))
        return first if self.automatic_optimization else [first, second]


def fit(
    *callbacks: Callback, module: Plain | None = None, resume: Path | None = None, **arguments: Any
) -> pl.Trainer:
    own = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    own |= {"accelerator": "cpu", "enable_model_summary": False, "num_sanity_val_steps": 0}
    trainer = pl.Trainer(**{**own, "max_epochs": 1, **arguments}, callbacks=[*callbacks])
    batches = DataLoader(torch.ones(4, 1))
    trainer.fit(module or Plain(), batches, batches, ckpt_path=resume)
    return trainer


class At(Callback):
    """Do something in a hook."""

    def __init__(self, hook: str, do: Callable[[pl.Trainer], Any]) -> None:
        setattr(self, hook, lambda trainer, *_: do(trainer))


def test_lightning_warns_of_what_no_user_can_act_on(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(logger=CSVLogger(tmp_path), log_every_n_steps=50)
        assert any("smaller than the logging interval" in str(w.message) for w in caught)
        del caught[:]
        fixes.quiet_lightning()
        fit(logger=CSVLogger(tmp_path), log_every_n_steps=50)
        assert not any("smaller than the logging interval" in str(w.message) for w in caught)


def test_lightning_refuses_to_clip_beside_a_fused_optimiser() -> None:
    layer = nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    precision = MixedPrecision("bf16-mixed", "cpu")
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping"):
        precision.clip_gradients(optimizer, 1.0)
    fixes.unscale_before_clipping(optimizer)
    layer(torch.full((1, 1), 100.0)).sum().backward()
    precision.clip_gradients(optimizer, 1.0)
    assert float(nn.utils.get_total_norm([p.grad for p in layer.parameters()])) <= 1.001


def test_lightning_keeps_numbers_for_callbacks_in_single_precision() -> None:
    module = Plain()
    log = At("on_validation_epoch_end", lambda _: fixes.log_for_callbacks(module, {"double": 0.1}))
    metrics = fit(log, module=module).callback_metrics
    assert float(metrics["single"]) != 0.1
    assert float(metrics["double"]) == 0.1


def test_numbers_for_callbacks_are_on_the_device_of_the_run() -> None:
    """NCCL sends no tensors of the CPU."""
    logged: dict[str, Tensor] = {}
    module: Any = SimpleNamespace(
        device=torch.device("meta"), log_dict=lambda values, **_: logged.update(values)
    )
    fixes.log_for_callbacks(module, {"loss": 0.1})
    assert logged["loss"].device.type == "meta"


def test_lightning_counts_every_update_as_a_step() -> None:
    assert fit(module=Plain(automatic=False)).global_step == 8, "of four batches"

    class One(Plain):
        def training_step(self, batch: Tensor, batch_idx: int) -> None:
            first, _ = self.trainer.optimizers
            first.step()
            self.optimizers()[1].step()

    assert fit(module=One(automatic=False)).global_step == 4


def test_should_stop_adds_a_validation() -> None:
    validated: list[int] = []
    record = At("on_validation_start", lambda trainer: validated.append(trainer.global_step))
    stop = At("on_train_batch_end", lambda trainer: setattr(trainer, "should_stop", True))
    fit(stop, record, max_epochs=-1, max_steps=4, val_check_interval=3)
    assert validated == [1]
    validated.clear()
    leave = At("on_train_batch_end", lambda trainer: fixes.end_after_batch(trainer, True))
    with pytest.raises(pl.utilities.exceptions.SIGTERMException):
        fit(leave, record)
    assert validated == []


def test_lightning_puts_its_handler_of_sigterm_around_ours() -> None:
    def ours(*_: Any) -> None:
        raise AssertionError

    found = []

    def look(_: pl.Trainer) -> None:
        found.append(signal.getsignal(signal.SIGTERM))
        fixes.take_signals_back([signal.SIGTERM], ours)
        found.append(signal.getsignal(signal.SIGTERM))

    former = signal.signal(signal.SIGTERM, ours)
    try:
        fit(At("on_train_start", look))
    finally:
        signal.signal(signal.SIGTERM, former)
    assert found[0] is not ours
    assert found[1] is ours


def test_lightning_saves_another_count_than_a_resume_needs(tmp_path: Path) -> None:
    trainer = fit(limit_val_batches=0, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    loops = torch.load(tmp_path / "a.ckpt", weights_only=True)["loops"]["fit_loop"]
    before = copy.deepcopy(loops)
    fixes.settle_epoch(loops)
    assert loops != before, "Lightning saves what a resume needs: settle_epoch can go"
    assert loops["epoch_loop.batch_progress"]["current"]["ready"] == 0


def test_a_checkpoint_before_a_due_validation_skips_it(tmp_path: Path) -> None:
    path, due, validated = tmp_path / "a.ckpt", [], []

    def save(trainer: pl.Trainer) -> None:
        due.append(fixes.validation_may_follow(trainer))
        if trainer.global_step == 2 and not path.exists():
            trainer.save_checkpoint(path)

    record = At("on_validation_start", lambda trainer: validated.append(trainer.global_step))
    fit(At("on_train_batch_end", save), record, val_check_interval=2)
    assert validated == [2, 4]
    assert due == [False, True, False, True]
    validated.clear()
    fit(record, val_check_interval=2, resume=path)
    assert validated == [4]


def test_lightning_writes_checkpoints_through_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Path] = []
    move = shutil.move

    def record(source: Any, target: Any, *rest: Any, **more: Any) -> Any:
        moved.append(Path(source).parent)
        return move(source, target, *rest, **more)

    monkeypatch.setattr(shutil, "move", record)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    TorchCheckpointIO().save_checkpoint({"x": torch.ones(1)}, tmp_path / "a.ckpt")
    assert moved == [tmp_path / "elsewhere"]
    fixes.AtomicCheckpointIO().save_checkpoint({"x": torch.ones(1)}, tmp_path / "b.ckpt")
    assert len(moved) == 1


def test_early_stopping_waits_for_the_epoch_and_takes_the_saved_patience() -> None:
    usual = SimpleNamespace(val_check_interval=1.0, check_val_every_n_epoch=1)
    for kind, late, patience in (
        (EarlyStopping("x", patience=1), True, 7),
        (fixes.Patience("x", mode="min", patience=1), False, 1),
    ):
        kind.setup(usual, None, "fit")
        kind.load_state_dict({**kind.state_dict(), "patience": 7})
        assert (kind._check_on_train_epoch_end, kind.patience) == (late, patience)


@pytest.mark.parametrize("name", ["simple", "advanced", "pytorch"])
def test_a_profiler_by_name_has_no_file(name: str, tmp_path: Path) -> None:
    assert pl.Trainer(accelerator="cpu", logger=False, profiler=name).profiler.filename is None
    assert fixes.profiler_of(name, tmp_path).filename == "profile"


def test_ddp_copies_gradients_and_starts_within_fit() -> None:
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False)
    assert not {*fixes.DDP_DEFAULTS} & {*trainer.strategy._ddp_kwargs}
    assert not distributed.is_initialized()


@pytest.mark.parametrize(
    ("strategy", "copies"),
    [("ddp", False), ("ddp_fork", True), (lambda: DDPStrategy(start_method="spawn"), True)],
)
def test_strategies_that_copy_the_process_are_recognised(strategy: Any, copies: bool) -> None:
    chosen = strategy() if callable(strategy) else strategy
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy=chosen, logger=False)
    assert fixes.copies_this_process(trainer) is copies


@pytest.mark.parametrize("every", [None, float("inf")])
def test_no_validation_follows_a_batch_where_none_is_due_by_batches(every: float | None) -> None:
    trainer: Any = SimpleNamespace(
        check_val_every_n_epoch=1,
        enable_validation=True,
        current_epoch=0,
        is_last_batch=False,
        val_check_batch=every,
    )
    assert not fixes.validation_may_follow(trainer)
    trainer.is_last_batch = True
    assert fixes.validation_may_follow(trainer)
