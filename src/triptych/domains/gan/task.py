"""Training of a GAN: alternating losses, validation by the Fréchet distance, sample grids."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from triptych.domains.gan.config import Config
from triptych.domains.gan.metrics import FrechetScore
from triptych.domains.gan.model import SelfAttentionGan, discriminator_loss, generator_loss
from triptych.domains.pictures import config as pictures
from triptych.domains.pictures.data import Batch, ImageDataset, labels_of
from triptych.domains.pictures.render import write_grid
from triptych.errors import UserError
from triptych.files.reading import rank_and_world
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.module import TrainingModule
from triptych.training.run.sharding import ShardedStrategy


class GanTrainingModule(TrainingModule):
    """Training of a GAN: on each batch an update of the discriminator, then of the generator.

    The two have different learning rates (two-timescale update rule, Heusel et al. 2017; Zhang et
    al. 2018, section 4.2). Each update draws new noise; generated images have the classes of the
    batch's real images.

    This is manual optimisation in Lightning's terms. A step of the run is one batch. The gradients
    of each network are clipped separately. Of several processes each has noise and batch norm
    statistics of its own, and the gradients are those of all of their images. Not for accumulated
    batches and fp16.
    """

    domain = "gan"
    monitor = "fid"
    config: Config
    model: SelfAttentionGan

    def __init__(self, config: Config, train: ImageDataset, validation: ImageDataset) -> None:
        vocabulary = train.vocabulary()
        super().__init__(config.build_model(vocabulary), config, vocabulary)
        self.automatic_optimization = False
        self._largest_gradient: float | None = None
        self._losses: dict[str, Tensor] = {}
        self.fid = FrechetScore(train)
        self.validation = validation
        assert validation.labels is not None
        print(
            f"{len(train):,} training and {len(validation):,} validation images; Fréchet distance "
            "to the training images, on features of a classifier of these data, of the validation "
            f"images {self.fid.distance(validation.pixels):.3f}",
            file=sys.stderr,
        )

    def adapt(self, trainer: pl.Trainer) -> None:
        """Take over the clipping of gradients, which Lightning refuses in this mode."""
        if isinstance(trainer.strategy, ShardedStrategy):
            raise UserError("the weights of a GAN are not shared; use trainer.strategy ddp")
        if trainer.accumulate_grad_batches != 1:
            raise UserError(
                "trainer.accumulate_grad_batches must be 1 for a GAN; raise data.batch_size"
            )
        if trainer.precision.startswith("16"):
            raise UserError("trainer.precision 16 does not train a GAN; use bf16-mixed or 32-true")
        self._largest_gradient, trainer.gradient_clip_val = trainer.gradient_clip_val, None

    def networks(self) -> dict[str, nn.Module]:
        """Return the networks by name, in the order of their updates."""
        model = self.model
        return {"discriminator": model.discriminator, "generator": model.generator}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        build, rate = self.optim.optimizer.build, self.optim.learning_rate
        return [build(network, rate) for network in self.networks().values()]

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rate of a network's update and clip its gradients."""
        super().on_before_optimizer_step(optimizer)
        if optimizer is self.trainer.optimizers[0]:
            for group in optimizer.param_groups:
                group["lr"] *= self.config.discriminator_rate
        self.clip_gradients(optimizer, self._largest_gradient)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        if isinstance(wrapper := self.trainer.model, DistributedDataParallel):
            # It averages the gradients of all weights in one backward pass. Lightning resets this.
            wrapper.require_backward_grad_sync = False

    def average_gradients(self, network: nn.Module, count: int) -> None:
        """Make the gradients of a network's mean loss over `count` images those over all ranks."""
        if rank_and_world()[1] == 1:
            return
        gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
        flat = parameters_to_vector(gradients)  # [P]
        message = torch.cat([flat * count, flat.new_tensor([count])])  # [P + 1]
        distributed.all_reduce(message)
        vector_to_parameters(message[:-1] / message[-1], gradients)

    def width(self) -> None:
        return None

    def training_step(self, batch: Batch, batch_idx: int) -> None:  # type: ignore[override]
        """Update one network after the other; only the generator's update counts as a step.

        Returns None: the losses are in the logs, see `further_values`. "train/loss" is their sum.
        """
        wrapped = self.optimizers()
        assert isinstance(wrapped, list), "two networks have two optimisers"
        for name, counted, optimizer in zip(
            self.networks(), wrapped, self.trainer.optimizers, strict=True
        ):
            self.toggle_optimizer(optimizer)
            loss = self.network_loss(name, batch)
            self.manual_backward(loss)
            self.average_gradients(self.networks()[name], len(batch.pixels))
            self._losses[name] = loss.detach()
            if counted is wrapped[-1]:
                counted.step()  # with `on_before_optimizer_step`
            else:  # Lightning counts every step of its wrapped optimisers as a step of the run
                self.on_before_optimizer_step(optimizer)
                optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)
        count = len(batch.pixels)
        targets = torch.tensor(count, dtype=torch.float64)
        total = torch.stack(list(self._losses.values())).sum().to("cpu", torch.float64)
        sums = self._sum_over_ranks(torch.stack([targets, total * targets]))
        self.throughput.add(targets=sums[0], loss_sum=sums[1])
        self.check_finite()

    def device_use(self) -> dict[str, float]:
        """Return peak memory only: `flops_per_target` does not count the passes of both."""
        return {name: x for name, x in super().device_use().items() if name != "time/mfu"}

    def further_values(self) -> dict[str, float]:
        return {f"train/{name}_loss": float(loss) for name, loss in self._losses.items()}

    def network_loss(self, name: str, batch: Batch) -> Tensor:
        """Return the loss of a network of `networks`, a mean over the images."""
        model = self.model
        labels = model.classes_of(batch.labels)
        with torch.set_grad_enabled(name == "generator"):
            generated = model.generator(model.noise(len(batch.pixels)), labels)  # [B, C, H, W]
        if name == "generator":
            return generator_loss(model.discriminator(generated, labels))
        both = torch.cat([model.to_reals(batch.pixels), generated])  # [2 B, C, H, W]
        twice = None if labels is None else torch.cat([labels, labels])
        real, false = model.discriminator(both, twice).chunk(2)  # [B] each
        return discriminator_loss(real, false)

    def training_loss(self, batch: Batch) -> tuple[Tensor, int]:
        return self.network_loss("generator", batch), len(batch.pixels)

    def score(self, batch: Batch) -> dict[str, Tensor]:
        labels = self.model.classes_of(batch.labels)
        logits = self.model.discriminator(self.model.to_reals(batch.pixels), labels)
        return {
            "logits": in_double(logits).sum(),
            "images": torch.tensor(len(batch.pixels), dtype=torch.float64),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        return {"discriminator_logit": totals["logits"] / totals["images"]}

    def generation_metrics(self) -> dict[str, float]:
        """Return the Fréchet distance of as many samples as validation images, of their classes."""
        self.model.update_statistics()
        samples = self._sample(len(self.validation), self.model.classes_of(self.validation.labels))
        return {"fid": self.fid.distance(samples)}

    def log_samples(self, folder: Path) -> None:
        """Write a grid of samples, from the same noise each time; after `generation_metrics`."""
        if count := self.config.data.samples:
            samples = self._sample(count, labels_of(count, None, self.model.n_classes))
            write_grid(folder / "samples.png", samples, self.model.levels, self.model.n_classes)

    def _sample(self, count: int, labels: Tensor | None) -> Tensor:
        generator = torch.Generator().manual_seed(self.config.run.seed)
        return self.model.sample(count, labels=labels, generator=generator).cpu()

    def same_vocabulary(self, other: dict[str, Any]) -> bool:
        return True  # `prepare` has compared them


prepare = partial(pictures.prepare, GanTrainingModule)
