"""Sections 2, 3 and 7: training steps of the domains, with waits refused, timed, and to a score."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from gpu.setting import Row, Setting

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SYNTHETIC = {
    "image": "image/copied-rows.yaml",
    "music": "music/copied-motifs.yaml",
    "translation": "translation/reversed.yaml",
}
"""A configuration of each domain whose data are computed."""
DATA = {"image": "rows", "music": "motifs", "translation": "reversed"}
"""Recipe of these data."""


@dataclass
class Loop:
    """A training task on the device, without Lightning's trainer."""

    setting: Setting
    task: Any
    loader: Any

    @classmethod
    def of(cls, setting: Setting, config: str) -> Loop:
        import yaml

        from triptych.config.schema import from_plain
        from triptych.domains import find_domain
        from triptych.tools import recipes
        from triptych.training.engine.devices import without_cudnn_attention

        without_cudnn_attention()  # as in a run
        settings = yaml.safe_load((CONFIGS / config).read_text(encoding="utf-8"))
        settings.pop("trainer", None)
        domain = find_domain(config.partition("/")[0])
        with TemporaryDirectory() as folder:
            if config in SYNTHETIC.values():
                recipes.make(DATA[domain.name], ["--out", f"{folder}/data"])
                settings["data"]["source"]["init_args"]["directory"] = f"{folder}/data"
            task, loader, _ = domain.prepare(from_plain(domain.config_class(), settings))
        return cls(setting, task.to(setting.device).train(), loader)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.task.parameters(), lr=1e-3)
        self.loader.pin_memory = self.setting.on_cuda

    def batches(self) -> Iterator[Any]:
        """Endless batches of the loader on the device."""
        from lightning_fabric.utilities import move_data_to_device

        for _ in itertools.count():
            for batch in self.loader:
                yield move_data_to_device(batch, self.setting.device)

    def step(self, batch: Any) -> tuple[torch.Tensor, Any]:
        """One update; returns the loss and the number of targets, on the device."""
        with self.setting.autocast():
            loss, targets = self.task.training_loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach(), targets


def steps_without_waits(setting: Setting) -> Iterator[Row]:
    """Section 2: training steps of each domain; on CUDA a wait raises."""
    for domain, config in SYNTHETIC.items():
        loop = Loop.of(setting, config)
        batches = list(itertools.islice(loop.batches(), 3 if setting.tiny else 22))
        for batch in batches[:2]:  # what is made once, such as compiled kernels
            loop.step(batch)
        with setting.no_waits():
            losses = [loop.step(batch)[0] for batch in batches[2:]]
        yield {"case": f"training {domain}", "steps": len(losses), "loss": float(losses[-1])}


def starvation(setting: Setting) -> Iterator[Row]:
    """Section 3: targets per second with the real loader and with one batch again and again."""
    count = 3 if setting.tiny else 50
    for domain, config in SYNTHETIC.items():
        loop = Loop.of(setting, config)
        batches = loop.batches()
        first = next(batches)
        rates = []
        for source in (batches, itertools.repeat(first)):
            loop.step(first)
            setting.synchronize()
            started = time.perf_counter()
            targets = [loop.step(batch)[1] for batch in itertools.islice(source, count)]
            setting.synchronize()
            rates.append(sum(int(n) for n in targets) / (time.perf_counter() - started))
        row = {"case": domain, "loader targets/s": rates[0], "one batch targets/s": rates[1]}
        yield row | {"share of full speed": rates[0] / rates[1]}


def last_minute(setting: Setting) -> Iterator[Row]:
    """Section 7: a minute of training on MNIST, or on synthetic images where tiny."""
    config = SYNTHETIC["image"] if setting.tiny else "image/mnist.yaml"
    loop = Loop.of(setting, config)
    started, losses = time.perf_counter(), []
    for batch in loop.batches():
        losses.append(loop.step(batch)[0])
        if time.perf_counter() - started > (0.1 if setting.tiny else 60):
            break
    found = torch.stack(losses).tolist()
    last = found[-max(1, len(found) // 10) :]
    mean = sum(last) / len(last)
    row = {"case": config, "steps": len(found), "first loss": found[0]}
    yield row | {"mean of the last tenth": mean, "passed": setting.tiny or mean < found[0]}
