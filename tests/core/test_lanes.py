"""Parts side by side: threads of their own, the same results, what goes wrong in them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from triptych.core.attention.kernels import lanes
from triptych.core.attention.kernels.grid import Blocks, hidden_keys
from triptych.core.attention.kernels.grid_fused import attend_in_fused_blocks
from triptych.core.attention.kernels.grid_tiles import attend_in_blocks
from triptych.core.attention.kernels.lanes import n_lanes, parts_of, side_by_side
from triptych.core.attention.relative import Relative


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lanes, "FEWEST_WEIGHTS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_parts_run_in_threads_of_their_own_with_a_share_of_torchs() -> None:
    met = threading.Barrier(2, timeout=60)

    def work(part: int) -> tuple[int, str, int]:
        met.wait()  # passes only where two parts run at the same time
        return part, threading.current_thread().name, torch.get_num_threads()

    results = side_by_side(work, range(4), 2)
    assert [part for part, _, _ in results] == [0, 1, 2, 3]
    assert len({name for _, name, _ in results}) == 2
    assert {threads for _, _, threads in results} == {2}
    assert torch.get_num_threads() == 4
    begun: list[int] = []
    later = threading.Thread(target=lambda: begun.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert begun == [4]


@pytest.mark.parametrize("inference", [True, False])
def test_lanes_follow_no_gradients_and_know_inference(inference: bool) -> None:
    def work(_: int) -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with torch.inference_mode(inference):
        assert side_by_side(work, range(2), 2) == [(False, inference)] * 2


def test_an_error_is_raised_when_all_parts_have_ended() -> None:
    ended = []

    def work(part: int) -> None:
        if part == 0:
            raise ValueError("part 0 failed")
        threading.Event().wait(0.2)
        ended.append(part)

    with pytest.raises(ValueError, match="part 0 failed"):
        side_by_side(work, range(4), 2)
    assert sorted(ended) == [1, 2, 3]


def test_one_lane_and_one_part_stay_in_this_thread() -> None:
    here = threading.current_thread()
    assert side_by_side(lambda _: threading.current_thread(), range(3), 1) == [here] * 3
    assert side_by_side(lambda _: threading.current_thread(), range(1), 2) == [here]


def test_a_forked_process_begins_lanes_of_its_own() -> None:
    """As PyTorch's data loaders are: of its parent's threads it has none."""
    side_by_side(int, range(2), 2)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for lost threads would wait for ever
        os._exit(side_by_side(int, [3, 4], 2) != [3, 4])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_lanes_divide_the_heads_and_the_threads() -> None:
    x = torch.zeros(1)
    found = {heads: n_lanes(x, heads, 1) for heads in (1, 2, 3, 4, 6, 8)}
    assert found == {1: 1, 2: 2, 3: 1, 4: 4, 6: 2, 8: 4}
    torch.set_num_threads(3)
    assert {heads: n_lanes(x, heads, 1) for heads in (3, 6, 8)} == {3: 3, 6: 3, 8: 1}
    torch.set_num_threads(1)
    assert n_lanes(x, 8, 1) == 1


def test_little_work_and_other_devices_have_no_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert n_lanes(torch.zeros(1, device="meta"), 4, 100) == 1
    monkeypatch.setattr(lanes, "FEWEST_WEIGHTS", 100)
    assert n_lanes(torch.zeros(1), 4, 99) == 1
    assert n_lanes(torch.zeros(1), 4, 100) == 4


@pytest.mark.parametrize("most", [0, 1, 2, 5, 100])
@pytest.mark.parametrize(("batch", "heads", "n"), [(1, 8, 2), (3, 6, 3), (2, 6, 2), (5, 3, 1)])
def test_parts_cover_all_once_and_give_each_lane_as_much(
    batch: int, heads: int, n: int, most: int
) -> None:
    seen = torch.zeros(batch, heads, dtype=torch.int64)
    parts = parts_of(batch, heads, most, n)
    for part in parts:
        seen[part] += 1
        assert seen[part].numel() <= max(1, most)
    assert bool((seen == 1).all())
    for sentences in {part[0].start for part in parts}:
        widths = [part[1].stop - part[1].start for part in parts if part[0].start == sentences]
        assert len(widths) % n == 0
    assert parts_of(0, heads, most, n) == []


BLOCKS = Blocks(5, 4, 1, block_height=2, block_width=2, up=1, side=1)


def paths(dtype: torch.dtype) -> dict[str, object]:
    hidden = hidden_keys(BLOCKS, torch.arange(20).view(5, 4, 1))
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -1e9)
    torch.manual_seed(0)
    relative = Relative(max_distance=32).build(32, 8, (20,), causal=True).pattern.to(dtype)
    return {
        "relative": lambda q, k, v: relative.attend(q, k, v, None),
        "blocks": lambda q, k, v: attend_in_blocks(q, k, v, BLOCKS, mask),
        "fused": lambda q, k, v: attend_in_fused_blocks(q, k, v, BLOCKS, mask),
    }


@pytest.mark.parametrize("name", ["relative", "blocks", "fused"])
def test_lanes_change_no_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = paths(torch.float64)[name]
    inputs = [torch.randn(2, 8, 20, 4).double().requires_grad_() for _ in range(3)]
    in_lanes: list[str] = []
    submit = lanes.ThreadPoolExecutor.submit

    def noted(pool: object, *arguments: object) -> object:
        if arguments[0] is not int:  # which only wakes a new lane
            in_lanes.append("a part")
        return submit(pool, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lanes.ThreadPoolExecutor, "submit", noted)

    def results() -> list[Tensor]:
        y = attend(*inputs)  # type: ignore[operator]
        return [y, *torch.autograd.grad((y * y).sum(), inputs)]

    seen = results()
    assert len(in_lanes) == 8  # four lanes, forward and backward
    again = results()
    torch.set_num_threads(1)
    for one, other, wanted in zip(seen, again, results(), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, wanted)
    assert len(in_lanes) == 16


def test_whoever_counts_operations_sees_them_all() -> None:
    """A counter hears of its own thread alone."""
    attend = paths(torch.float32)["relative"]
    inputs = [torch.randn(1, 8, 20, 4) for _ in range(3)]
    with FlopCounterMode(display=False) as counter:
        attend(*inputs)  # type: ignore[operator]
    products = 2 * 8 * 20 * 20 * 4  # one tile
    assert counter.get_total_flops() == 3 * products
