"""Several processes that train one model: decisions of rank 0, data in turn.

Lightning's strategies do the rest. With one process every function here does its work directly.
"""

import contextlib
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, distributed

from triptych.decoding.ranks import sharing
from triptych.errors import UserError
from triptych.files.reading import rank_and_world
from triptych.training.engine.devices import device_named
from triptych.training.engine.module import TrainingModule
from triptych.training.lightning_fixes import quiet_lightning
from triptych.training.loading.batches import generator_for
from triptych.training.loading.loader import FixedBatches, ResumableLoader

R = TypeVar("R")

Prepared = tuple[TrainingModule, ResumableLoader, FixedBatches]
"""What `Domain.prepare` returns."""


Prepare = Callable[[Any, Any], Prepared]
"""`Domain.prepare`, of (config, vocabulary)."""


@contextlib.contextmanager
def disconnected_by_refusal() -> Iterator[None]:
    """Close the connections to the other ranks, without waiting, where a refusal ends this process.

    A connection's thread that outlives the interpreter would change the exit code.
    """
    try:
        yield
    except (UserError, SystemExit):
        if distributed.is_initialized():
            distributed.destroy_process_group()
        raise


@contextlib.contextmanager
def launched(devices: int, device: str) -> Iterator[str]:
    """Start the processes of a command, or join those of torchrun or SLURM, which share its work.

    Yields the device of this process. In all but process 0 the standard streams lead nowhere.
    devices: number on each machine. Raises UserError where the machine has fewer GPUs, for another
    number than the launcher's, and for a device by number.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    kind = device_named(device)
    if kind.index is not None or kind.type == "mps":
        raise UserError(f"device is {device} and devices is {devices}; expected auto, cpu or cuda")
    if kind.type == "cuda" and torch.cuda.device_count() < devices:
        raise UserError(f"devices is {devices}; this machine has {torch.cuda.device_count()} GPUs")
    world = int(os.environ.get("WORLD_SIZE", devices))
    if world % devices:
        raise UserError(f"devices is {devices}, but the launcher has started {world} processes")
    quiet_lightning()
    # Processes without work wait for the others, and for who types the lines of standard input.
    strategy = DDPStrategy(timeout=timedelta(days=7))
    nodes = world // devices
    fabric = Fabric(accelerator=kind.type, strategy=strategy, devices=devices, num_nodes=nodes)
    fabric.launch()
    rank, _ = rank_and_world()
    with contextlib.ExitStack() as streams:
        if rank:
            nowhere = streams.enter_context(open(os.devnull, "w", encoding="utf-8"))
            streams.enter_context(contextlib.redirect_stdout(nowhere))
            streams.enter_context(contextlib.redirect_stderr(nowhere))
        with disconnected_by_refusal(), sharing():
            yield str(fabric.device)


def decided_by_rank_0(decide: Callable[[], R]) -> R:
    """Return what `decide` returns on rank 0, whose UserError ends all ranks, others silent."""
    rank, world = rank_and_world()
    if world == 1:
        return decide()
    answer: list[Any] = [None, None]
    error: UserError | None = None
    if rank == 0:
        try:
            answer[0] = decide()
        except UserError as refusal:
            error, answer[1] = refusal, refusal.exit_code
    distributed.broadcast_object_list(answer)
    if error is not None:
        raise error
    if answer[1] is not None:
        raise SystemExit(answer[1])
    decided: R = answer[0]
    return decided


def prepare_in_turn(prepare: Prepare, config: Any, vocabulary: Any) -> Prepared:
    """Return what `prepare` returns, which rank 0 calls first, to make files and the vocabulary.

    Raises UserError where the ranks have read different data.
    """
    rank, world = rank_and_world()
    if world == 1:
        return prepare(config, vocabulary)
    prepared: list[Prepared] = []

    def first() -> Any:
        prepared.append(prepare(config, vocabulary))
        return prepared[0][0].metadata["vocabulary"]

    learnt = decided_by_rank_0(first)
    if rank > 0:
        with contextlib.redirect_stderr(io.StringIO()):  # rank 0 has said the same
            prepared.append(prepare(config, learnt))
    hashes_of: list[Any] = [None] * world
    distributed.all_gather_object(hashes_of, data_hashes(*prepared[0]))
    for other, hashes in enumerate(hashes_of):
        differing = [name for name in hashes if hashes[name] != hashes_of[0][name]]
        if differing:
            raise UserError(
                f"process {other} has read other data than process 0: the hashes of the "
                f"{' and the '.join(differing)} differ; all nodes need the same files"
            )
    return prepared[0]


HASHED_BATCHES = 32
"""Batches of each set whose content the ranks compare, spread over the whole set."""


def data_hashes(
    task: TrainingModule, training: ResumableLoader, validation: FixedBatches
) -> dict[str, int]:
    """Return a hash of the vocabulary and of each set's order and HASHED_BATCHES, by its name."""
    order, many = training.batches_of(0), len(validation.batches)
    trained = (
        training.make_batch(order[n], generator_for(training.seed, 0, n, 1))
        for n in _spread(len(order))
    )
    validated = (validation.make_batch(validation.batches[n], None) for n in _spread(many))
    return {
        "vocabulary": zlib.crc32(json.dumps(task.metadata["vocabulary"]).encode()),
        "training data": _hash((training.state_dict(), len(order)), trained),
        "validation data": _hash(many, validated),
    }


def _spread(count: int) -> list[int]:
    return sorted({int(n) for n in np.linspace(0, count - 1, HASHED_BATCHES)})


def _hash(about: Any, batches: Iterable[Any]) -> int:
    contents = [repr(about).encode()]
    for batch in batches:
        apply_to_collection(batch, Tensor, lambda each: contents.append(each.numpy().tobytes()))
    return zlib.crc32(b"".join(contents))
