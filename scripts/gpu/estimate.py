"""Memory, operations and time of a training step on a GPU, computed on fake CUDA tensors.

Nothing here is measured. The loss of a configuration file runs once on tensors without data
(`scripts/gpu/fake_cuda.py`), with the backends that CUDA uses, which gives:

operations: those of matrix products and of attention over the pairs that its rule shows; the
    backward pass takes twice those of the forward pass (MFU as in Chowdhery et al. 2022, appendix
    B, where recomputation does not count).
memory: weights, gradients and the optimiser's averages in float32, all that the forward pass keeps
    for the backward pass, and two tensors as large as the largest one: at the beginning of the
    backward pass the gradients of the logits and of their softmax. Where the loss is computed in
    chunks, what the largest chunk keeps. With activation checkpointing the inputs of all blocks and
    what the largest block keeps. Without the allocator's fragments and the context of CUDA.
hours: all steps at `MFU` of `PEAK`, without validation and samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import yaml
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpu.fake_cuda import fake_cuda
from triptych.config.schema import from_plain
from triptych.core.transformer import Stack
from triptych.tools.complexity import KeptTensors, flop_counter
from triptych.training.engine.module import TrainingModule

PEAK = 312e12
"""Dense bf16 operations per second of an A100 with 80 GB (its data sheet)."""
MFU = 0.4
"""Assumed share of `PEAK` that a training step reaches."""
SENTENCE = 28
"""Assumed tokens of a sentence, all of one length."""
FLOAT = 4
"""Bytes of a float32 number."""


@dataclass(frozen=True)
class Estimate:
    """An update of a run, and the run."""

    config: str
    parameters: int
    targets: int
    """Predicted tokens or sub-pixels of an update."""
    flops: float
    """Floating-point operations of an update, forward and backward."""
    state_bytes: int
    """Weights, gradients, moments and average."""
    activation_bytes: int
    """What the forward pass of one batch keeps for the backward pass."""
    checkpointed_bytes: int
    """The same with activation checkpointing."""
    largest_bytes: int
    """The largest tensor of the forward pass."""
    steps: int

    def memory_bytes(self, *, checkpointed: bool = False) -> int:
        """The largest sum of all tensors at a time, with activation checkpointing or as set."""
        kept = self.checkpointed_bytes if checkpointed else self.activation_bytes
        return self.state_bytes + kept + 2 * self.largest_bytes

    @property
    def hours(self) -> float:
        """Hours of all steps at `MFU` of `PEAK`."""
        return self.steps * self.flops / (MFU * PEAK) / 3600

    def figures(self) -> dict[str, str]:
        """The figures as they are printed, by name with unit."""
        return {
            "parameters M": f"{self.parameters / 1e6:.1f}",
            "targets a step": f"{self.targets:,}",
            "TFLOP a step": f"{self.flops / 1e12:.2f}",
            "memory GiB": f"{self.memory_bytes() / 2**30:.1f}",
            "checkpointed": f"{self.memory_bytes(checkpointed=True) / 2**30:.1f}",
            "steps": f"{self.steps:,}",
            "hours": f"{self.hours:.1f}" if self.hours >= 1 else f"{self.hours:.2f}",
        }


def estimate(path: Path, *, bf16: bool = True) -> Estimate:
    """Trace one training step of a configuration file; its folder names the domain.

    bf16: trace autocast in bfloat16 (bf16-mixed); False for float32.
    """
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    trainer = settings.pop("trainer")
    step = STEPS[path.parent.name](settings)
    task = step.task.train()
    stacks = [module for module in task.modules() if isinstance(module, Stack)]
    checkpointed = any(stack.activation_checkpointing for stack in stacks)
    saved, sizes = SavedTensors(task), LargestTensor()
    numbers = autocast_on_fake_tensors() if bf16 else ExitStack()
    with fake_cuda(task, visible_share=step.visible_share) as launches, numbers:
        counter = flop_counter()
        noted = saved.in_blocks(stacks), saved.in_chunks()
        with saved.noted(), sizes, counter, noted[0] as blocks, noted[1] as chunks:
            task.training_loss(step.make_batch())
    kept = saved.n_bytes + chunks.change()
    rerun = kept + blocks.change()
    forward = counter.get_total_flops() + launches.attention_flops
    parts = trainer.get("accumulate_grad_batches", 1)
    return Estimate(
        config=path.stem,
        parameters=sum(parameter.numel() for parameter in task.parameters()),
        targets=step.targets * parts,
        flops=3 * forward * parts,
        state_bytes=state_bytes(task),
        activation_bytes=rerun if checkpointed else kept,
        checkpointed_bytes=rerun,
        largest_bytes=sizes.n_bytes,
        steps=max(trainer.get("max_steps", 0), 0),
    )


class SavedTensors(KeptTensors):
    """Kept tensors, and what recomputing chunks of the loss or blocks would change."""

    @contextmanager
    def in_chunks(self) -> Iterator[Recomputed]:
        """Note what each chunk of the loss keeps if it is not computed again."""
        found = Recomputed([], [])

        def run(function: Callable[..., Tensor], *inputs: Tensor, **options: Any) -> Tensor:
            for tensor in inputs:
                self.note(tensor)
            before = self.n_bytes
            result = function(*inputs)
            found.kept.append(self.n_bytes - before)
            return result

        with patch("triptych.core.heads.checkpoint", run):
            yield found

    @contextmanager
    def in_blocks(self, stacks: list[Stack]) -> Iterator[Recomputed]:
        """Note what each block keeps without checkpointing, which asks for a real GPU."""
        found, before = Recomputed([], []), [0]

        def enter(block: nn.Module, inputs: tuple[Any, ...]) -> None:
            before[0] = self.n_bytes
            found.inputs.append(inputs[0].untyped_storage().nbytes())

        def leave(block: nn.Module, inputs: Any, output: Any) -> None:
            found.kept.append(self.n_bytes - before[0])

        for stack in stacks:
            stack.activation_checkpointing = False
            for block in stack.blocks:
                block.register_forward_pre_hook(enter)
                block.register_forward_hook(leave)
        yield found


@dataclass(frozen=True)
class Recomputed:
    """Bytes that parts of the forward pass keep, and bytes of their inputs, one number a part."""

    kept: list[int]
    inputs: list[int]
    """Empty for chunks, whose inputs are noted with all that is kept."""

    def change(self) -> int:
        """Bytes more, usually below 0, if the parts are run again one after the other."""
        return sum(self.inputs) - sum(self.kept) + max(self.kept, default=0)


class LargestTensor(TorchDispatchMode):
    """The size of the largest tensor that an operation makes."""

    n_bytes = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.n_bytes = max(self.n_bytes, leaf.untyped_storage().nbytes())
        return result


def state_bytes(task: TrainingModule) -> int:
    """Bytes of weights, gradients, the optimiser's averages and the moving average of weights."""
    from triptych.training.engine.muon import Muon, hidden_matrices

    total = sum(p.numel() for p in task.parameters())
    one_moment = hidden_matrices(task) if isinstance(task.optim.optimizer, Muon) else []
    moments = 2 * total - sum(p.numel() for p in one_moment)
    average = total if task.optim.ema_decay else 0
    return FLOAT * (2 * total + moments + average)


@contextmanager
def autocast_on_fake_tensors() -> Iterator[None]:
    """bf16 autocast of CUDA tensors, which PyTorch offers only where a GPU is."""
    with ExitStack() as stack:
        there = patch("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
        stack.enter_context(there)
        stack.enter_context(patch("torch.cuda.is_bf16_supported", lambda *a, **k: True))
        stack.enter_context(torch.autocast("cuda", torch.bfloat16))
        yield


@dataclass(frozen=True)
class Step:
    """The training module of a configuration, and one of its batches."""

    task: TrainingModule
    make_batch: Callable[[], Any]
    """Makes a batch of the configured size on the device, of zeros."""
    targets: int
    """Predicted tokens or sub-pixels of the batch."""
    visible_share: float
    """Share of all pairs of positions that FlexAttention computes."""


def image_step(settings: dict[str, Any]) -> Step:
    from triptych.domains.image.task import Config, ImageTrainingModule
    from triptych.domains.pictures.data import Batch, ImageDataset

    config = from_plain(Config, settings)
    source = config.data.source
    shape = IMAGES.get(type(source).__name__) or (source.height, source.width, 3)
    pixels, classes = torch.zeros(1, *shape, dtype=torch.uint8), tuple(map(str, range(10)))
    images = ImageDataset(pixels, torch.zeros(1, dtype=torch.int64), 256, classes)
    task = ImageTrainingModule(config, images, images)
    size = (config.data.batch_size, *shape)
    grid = (*shape[:2], 1) if task.model.whole_pixels else shape

    def batch() -> Batch:
        labels = torch.zeros(size[0], dtype=torch.int64, device="cuda")
        return Batch(torch.zeros(size, dtype=torch.uint8, device="cuda"), labels)

    targets = torch.Size(size).numel()
    return Step(task, batch, targets, visible_share(config, grid))


IMAGES = {"Digits": (8, 8, 1), "MNIST": (28, 28, 1), "CIFAR10": (32, 32, 3)}
"""Height, width and channels of the images of sources that do not set them."""


def music_step(settings: dict[str, Any]) -> Step:
    from triptych.domains.music.data import Batch
    from triptych.domains.music.task import Config, MusicTrainingModule

    config = from_plain(Config, settings)
    size = (config.data.batch_size, config.data.sequence_length)
    melody = config.model_settings().window_melody

    def batch() -> Batch:
        zeros = partial(torch.zeros, device="cuda")
        steps = None if melody is None else melody.tokenizer.melody_steps(size[1])
        return Batch(
            values=zeros(size, dtype=torch.int64),
            previous=zeros(size[0], dtype=torch.int64),
            scored=zeros(size, dtype=torch.bool),
            onsets=zeros(size, dtype=torch.bool),
            melody=None if steps is None else zeros((size[0], steps), dtype=torch.int64),
        )

    task = MusicTrainingModule(config)
    return Step(task, batch, size[0] * size[1], visible_share(config, size[1:]))


def translation_step(settings: dict[str, Any]) -> Step:
    from triptych.domains.translation.data import Batch
    from triptych.domains.translation.task import Config, TranslationTrainingModule

    config = from_plain(Config, settings)
    ids = range(config.data.vocabulary_size)  # stands for a tokenizer of that many ids
    tokenizers: Any = SimpleNamespace(source=ids, target=ids, to_plain=dict)
    task = TranslationTrainingModule(config, tokenizers)
    rows = config.data.max_tokens // SENTENCE

    def batch() -> Batch:
        source = torch.zeros(rows, SENTENCE, dtype=torch.int64, device="cuda")
        target = torch.zeros(rows, SENTENCE + 1, dtype=torch.int64, device="cuda")
        return Batch(source, target)

    return Step(task, batch, rows * SENTENCE, 1.0)


STEPS = {"image": image_step, "music": music_step, "translation": translation_step}


def visible_share(config: Any, shape: tuple[int, ...]) -> float:
    """Share of all pairs of positions that the decoder's attention sees."""
    pattern = config.model.transformer.attention.mask_pattern(shape, True)
    position = torch.arange(torch.Size(shape).numel())
    return float(pattern.visible(position.unsqueeze(1), position).float().mean())


def table(estimates: list[Estimate]) -> str:
    """The estimates as a table in Markdown."""
    rows = [["config", *estimates[0].figures()]]
    rows += [[e.config, *e.figures().values()] for e in estimates]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---" + "|---:" * (len(rows[0]) - 1) + "|")
    return "\n".join(lines)
