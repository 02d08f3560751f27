"""How the steps of a model run: in eval mode, compiled, on one thread, in reduced precision."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor, nn

from triptych.core.models.base import AutoregressiveModel
from triptych.core.state import DecodingState, map_tensors, tensors_of
from triptych.errors import UserError
from triptych.types import Dtype

Model = TypeVar("Model", bound=nn.Module)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch the model to eval mode; restores the mode of every submodule."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class CompiledSteps:
    """The step of a model through torch.compile, for several calls of `generate`.

    Compiling takes tens of seconds. On a GPU the step becomes a CUDA graph, which needs its tensors
    at fixed addresses: the states are kept, so that batches of one shape share one graph.
    """

    def __init__(self, model: AutoregressiveModel) -> None:
        self.model = model
        self._steps: dict[Any, tuple[DecodingState[Any], Callable[..., Tensor]]] = {}

    def load(self, state: DecodingState[Any]) -> tuple[DecodingState[Any], Callable[..., Tensor]]:
        """The kept state of this shape with the contents of a new one, and the step over it."""
        tensors = tensors_of(state)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._steps:
            mode = "reduce-overhead" if tensors[0].device.type == "cuda" else None
            step = torch.compile(StaticStep(self.model, state), dynamic=False, mode=mode)
            self._steps[shapes] = state, step
        kept, step = self._steps[shapes]
        for old, new in zip(tensors_of(kept), tensors, strict=True):
            old.copy_(new)
        return kept, step


class StaticStep(nn.Module):
    """A step with its state as buffers, without which torch.compile makes no CUDA graph of it."""

    def __init__(self, model: AutoregressiveModel, state: DecodingState[Any]) -> None:
        super().__init__()
        self.model = model
        self.count = 0

        def name_of(tensor: Tensor) -> str:
            self.count += 1
            name = f"state_{self.count}"
            self.register_buffer(name, tensor, persistent=False)
            return name

        self.names = map_tensors(state, name_of)
        """The state with the name of a buffer in place of each tensor."""

    def forward(self, values: Tensor, positions: Tensor) -> Tensor:
        """As `AutoregressiveModel.step`, without contexts."""
        state = map_tensors(self.names, lambda name: getattr(self, name))
        return self.model.step(values, positions, state)


SMALL_STEP = 2**25
"""Products of a weight and an input in a step, below which one thread is as fast as several."""


@contextmanager
def threads_of_steps(model: nn.Module, rows: int) -> Iterator[None]:
    """Use one CPU thread, until the block ends, for steps of `rows` positions that are small.

    Threads of a small step wait longer than they compute, and most where other programs run.
    """
    parameters = list(model.parameters())
    before = torch.get_num_threads()
    on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
    small = on_cpu and rows * sum(p.numel() for p in parameters) <= SMALL_STEP
    if not small or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def quantize(model: Model, dtype: Dtype) -> Model:
    """Return the model in another precision, for use without gradients.

    fp32: the model itself. bf16: a copy with all parameters in bfloat16. int8: a copy whose
    nn.Linear layers hold int8 with one scale per output and quantize their inputs at each call; it
    cannot be compiled. Heads compute likelihoods and distributions in float32 in all three. Raises
    UserError for an unknown dtype, and for int8 on a device other than a CPU or where this PyTorch
    has no dynamic quantization.
    """
    device = next(model.parameters()).device
    if dtype not in get_args(Dtype):
        raise UserError(f"dtype is {', '.join(get_args(Dtype))}, got {dtype}")
    if dtype == "int8" and device.type != "cpu":
        raise UserError(f"dtype int8 needs a CPU; this model is on {device}")
    if dtype == "fp32":
        return model
    reduced = copy.deepcopy(model).eval().requires_grad_(False)
    if dtype == "bf16":
        return reduced.to(torch.bfloat16)
    # torch.ao is deprecated in favour of torchao, whose int8 layers need torch.compile to be
    # faster than float32 on a CPU (pytorch/ao#4365).
    try:
        from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
    except ImportError as error:
        raise UserError(f"dtype int8 needs torch.ao.quantization: {error}") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.ao.quantization is deprecated.*")
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*")
        quantize_dynamic(reduced, {nn.Linear: per_channel_dynamic_qconfig}, inplace=True)
    return reduced
