"""Weights, gradients and the optimiser's state shared among processes: PyTorch's fully_shard.

Each process keeps a part of every tensor (a DTensor) and has the whole weights of one block at a
time (FSDP2; Rajbhandari et al. 2020, "ZeRO", stage 3; Zhao et al. 2023). Checkpoints have whole
tensors, those of one process: they resume in any number of processes, sharded or not.
"""

import copy
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from triptych.core.transformer import Block
from triptych.training.engine.optim import sharded_like


class ShardedStrategy(DDPStrategy):
    """Processes like those of DDP, which `fully_shard` divides the module among.

    Lightning's ModelParallelStrategy writes other checkpoints, which resume in such runs alone.
    """

    def configure_ddp(self) -> None:
        """Divide the module, whose weights are initialised or loaded, in place of wrapping it."""
        module: Any = self.lightning_module
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        for block in [part for part in module.modules() if isinstance(part, Block)]:
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)  # all that is in no block
        register_fsdp_forward_method(module, "training_loss")

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        super().load_optimizer_state_dict(checkpoint)
        for optimizer in self.optimizers:
            for weight, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor) and value.shape == weight.shape:
                        state[name] = sharded_like(weight, value)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        whole = apply_to_collection(checkpoint, DTensor, self._whole)
        super().save_checkpoint(whole, filepath, storage_options)

    def _whole(self, part: DTensor) -> Tensor:
        """Return the whole tensor on the CPU of process 0, which writes it."""
        whole = part.full_tensor()  # of all processes
        return whole.cpu() if self.is_global_zero else torch.empty(0)


class WholeForValidation(Callback):
    """Gives each process a model with the whole weights in validations.

    The processes' work differs there, in samples and translations, while those of divided modules
    have to call the same blocks. It stands before the callbacks that read the weights afterwards.
    """

    def __init__(self) -> None:
        self._divided: nn.Module | None = None

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Keep a model without weights, before the module is divided."""
        empty = {
            id(weight): nn.Parameter(weight.detach().to("meta"), requires_grad=False)
            for weight in pl_module.model.parameters()
        }
        self._empty = copy.deepcopy(pl_module.model, empty)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._divided, divided = pl_module.model, pl_module.model
        whole = {weight: weight.full_tensor() for weight in divided.parameters()}
        names = dict(divided.named_parameters(remove_duplicate=False))
        pl_module.model = copy.deepcopy(self._empty).train(divided.training)
        weights = {**divided.state_dict(), **{name: whole[names[name]] for name in names}}
        pl_module.model.load_state_dict(weights, assign=True)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._divided is not None:
            pl_module.model, self._divided = self._divided, None

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        self.on_validation_end(trainer, pl_module)
