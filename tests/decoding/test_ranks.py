"""Work that two processes share gives what one process gives, in both of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from decoders import D, pixel_model, related_notes_model, sub_pixel_model, tokens_model
from torch import distributed, multiprocessing

from triptych.core.models.base import Condition
from triptych.decoding import ranks
from triptych.decoding.generate import generate
from triptych.decoding.given import particle_filter, resample
from triptych.decoding.sampling import Draft, Given, SampleRequest

BATCH = 7


def request(length: int, **options: Any) -> SampleRequest:
    values, known = torch.randint(5, (BATCH, length)), torch.rand(BATCH, length) < 0.4
    return SampleRequest(BATCH, length, seed=5, **{"given": Given(values, known), **options})


def of_rows() -> torch.Tensor:
    """Rows of very different lengths, so that finished ones are dropped at different steps."""
    model, free = tokens_model(), request(11, given=None)
    condition = Condition(vectors=torch.randn(BATCH, 1, D).double() * 3)
    prefix = torch.arange(BATCH * 2).view(BATCH, 2) % 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triptych.decoding.generate.CHECK_INTERVAL", 2)
        return generate(model, replace(free, condition=condition, prefix=prefix, end=3))


def drawn_in_turn() -> torch.Tensor:
    """Two parts from one generator: the second depends on how much the first has drawn."""
    model = tokens_model()
    generator = torch.Generator().manual_seed(3)
    free = request(11, given=None, generator=generator, end=3)
    return torch.stack([generate(model, free), generate(model, free)])


def forbidden_after(values: torch.Tensor) -> torch.Tensor:
    forbidden = torch.zeros(len(values), 7, dtype=torch.bool)
    return forbidden.scatter(1, values[:, -1:], True) if values.shape[1] else forbidden


CASES: dict[str, Callable[[], Any]] = {
    "rows that end": of_rows,
    "drawn in turn": drawn_in_turn,
    "known values": lambda: generate(sub_pixel_model(), request(36)),
    "pixels": lambda: generate(pixel_model(), request(12, given=None)),
    "constraint": lambda: generate(
        related_notes_model(), request(11, given=None, constraint=forbidden_after)
    ),
    "draft": lambda: generate(related_notes_model(), request(11, given=None, draft=Draft(3, 2))),
    "particles": lambda: particle_filter(related_notes_model(), request(11), particles=5),
    "resampled": lambda: resample(related_notes_model(), request(11), passes=2, block=4),
    "one row": lambda: generate(tokens_model(), SampleRequest(1, 11, seed=2)),
    "parts": lambda: sorted(
        item for part in ranks.gathered(ranks.shared_out(dict.fromkeys("abcde"))) for item in part
    ),
    "lines": lambda: [*ranks.same_on_all(iter([["a", "b"], ["c"]]))],
    "sum": lambda: ranks.added(torch.ones(2) * (3 if ranks.share()[1] == 1 else 1.5)),
}


def all_cases() -> dict[str, Any]:
    found = {}
    for name, case in CASES.items():
        torch.manual_seed(1)
        found[name] = case()
    return found


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    with ranks.sharing():
        torch.save(all_cases(), f"{folder}/{rank}.pt")
    assert ranks.share() == (0, 1)  # as in the training of several processes
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(process, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return all_cases()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_what_one_gives(
    name: str, results: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for result in results:
        if isinstance(alone[name], torch.Tensor | tuple):
            torch.testing.assert_close(result[name], alone[name], rtol=1e-9, atol=0)
        else:
            assert result[name] == alone[name]
