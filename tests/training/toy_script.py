"""A run as a process of its own.

`toy_script.py FOLDER TRAINER_JSON [--resume] [--slow] [--average] [--histograms]`
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from torch.nn.parallel import DistributedDataParallel
from toy_task import Batch, ToyTask, toy_run, validation_loader

from triptych.errors import TrainingStopped, UserError
from triptych.training.run.settings import LogConfig, OptimConfig


class Told(ToyTask):
    """Says how DDP is set."""

    def on_train_start(self) -> None:
        super().on_train_start()
        wrapped = self.trainer.strategy.model
        if isinstance(wrapped, DistributedDataParallel):
            settings = f"{wrapped.broadcast_buffers} {wrapped.gradient_as_bucket_view}"
            sys.stdout.write(f"DDP {settings}\n")  # one write, which another process cannot split
            sys.stdout.flush()


class Slow(Told):
    """Takes its time, so that a signal comes between the steps."""

    def training_loss(self, batch: Batch) -> Any:
        time.sleep(0.05)
        return super().training_loss(batch)


def main() -> int:
    folder, trainer, *flags = sys.argv[1:]
    averaged = OptimConfig(learning_rate=0.01, ema_decay=0.9)
    kind = Slow if "--slow" in flags else Told
    task = kind(averaged if "--average" in flags else None)
    settings = json.loads(trainer)
    if "--histograms" in flags:
        settings["run"] = {"wandb": "offline", "log": LogConfig(histograms=2)}
    resume = "--resume" in flags
    try:
        toy_run(Path(folder), task, resume=resume, validation=validation_loader(2), **settings)
    except TrainingStopped as stop:
        print(stop, flush=True)
        return stop.exit_code
    except UserError as error:
        print(error, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
