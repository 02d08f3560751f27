"""Alternating training of several networks, each with its own loss and optimiser, as in a GAN."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from triptych.errors import UserError
from triptych.files.reading import rank_and_world
from triptych.training.engine.module import TrainingModule
from triptych.training.lightning_fixes import step_uncounted


class Player(NamedTuple):
    """Network with its own loss."""

    name: str
    """Name for `player_loss` and for the logged loss."""
    network: nn.Module
    """Network whose parameters this loss updates; the other players' stay fixed meanwhile."""
    rate: float
    """Learning rate of this network as a multiple of the run's."""


class AlternatingModule(TrainingModule):
    """Training module that updates several networks, one after the other, on each batch.

    This is manual optimisation in Lightning's terms. A step of the run is one batch, with an update
    of every player. The gradients of each player are clipped separately. Raises UserError for
    several processes, for accumulated batches and for fp16, whose loss scaling is not supported.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.automatic_optimization = False
        self._clipping: tuple[float | None, str | None] = (None, None)
        self._losses: dict[str, Tensor] = {}

    @abstractmethod
    def players(self) -> list[Player]:
        """Return the players in the order of their updates."""

    @abstractmethod
    def player_loss(self, player: str, batch: Any) -> tuple[Tensor, int]:
        """Return the loss of a player, by its name, a mean over the items, and their number."""

    def training_loss(self, batch: Any) -> tuple[Tensor, int]:
        return self.player_loss(self.players()[-1].name, batch)

    def trainer_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Keep the arguments of gradient clipping, which Lightning refuses in this mode."""
        if arguments.get("accumulate_grad_batches", 1) != 1:
            raise UserError(
                "trainer.accumulate_grad_batches must be 1 where networks are trained in turn; "
                "raise data.batch_size"
            )
        if str(arguments.get("precision")).startswith("16"):
            raise UserError(
                "trainer.precision 16 is not supported where networks are trained in turn; use "
                "bf16-mixed or 32-true"
            )
        kept = dict(arguments)
        self._clipping = tuple(
            kept.pop(f"gradient_clip_{name}", None) for name in ("val", "algorithm")
        )
        return kept

    def setup(self, stage: str) -> None:
        if rank_and_world()[1] > 1:
            raise UserError("networks are trained in turn by one process only; set devices to 1")

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return an optimiser per player, whose groups have the player's factor as "rate"."""
        optimizers = []
        for player in self.players():
            optimizer = self.optim.optimizer.build(player.network, self.optim.learning_rate)
            for group in optimizer.param_groups:
                group["rate"] = player.rate
            optimizers.append(optimizer)
        return optimizers

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rate of a player's update and clip its gradients."""
        super().on_before_optimizer_step(optimizer)
        for group in optimizer.param_groups:
            group["lr"] *= group["rate"]
        value, algorithm = self._clipping
        self.clip_gradients(optimizer, value, algorithm)

    def width(self) -> int | None:
        return None

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        """Update one player after the other; only the last update counts as a step.

        Returns None: the losses are in the logs, see `further_values`. "train/loss" is their sum.
        """
        players = self.players()
        losses, count = {}, 0
        wrapped = self.optimizers()
        assert isinstance(wrapped, list), "several players have several optimisers"
        for index, player in enumerate(players):
            optimizer = self.trainer.optimizers[index]
            self.toggle_optimizer(optimizer)
            loss, count = self.player_loss(player.name, batch)
            self.manual_backward(loss)
            losses[player.name] = loss.detach()
            if player is players[-1]:
                wrapped[index].step()  # counted, with `on_before_optimizer_step`
            else:
                step_uncounted(self, optimizer)
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)
        self._losses = losses
        targets = torch.tensor(count, dtype=torch.float64)
        total = torch.stack(list(losses.values())).sum().to("cpu", torch.float64)
        sums = self._sum_over_ranks(torch.stack([targets, total * targets]))
        self.throughput.add(targets=sums[0], loss_sum=sums[1])
        self.check_finite()

    def device_use(self) -> dict[str, float]:
        """Return peak memory only: `flops_per_target` does not count the passes of the players."""
        return {name: x for name, x in super().device_use().items() if name != "time/mfu"}

    def further_values(self) -> dict[str, float]:
        """Return the latest loss of each player."""
        return {f"train/{name}_loss": float(loss) for name, loss in self._losses.items()}
