"""Parts side by side: threads of their own, the same results, what goes wrong in them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from triptych.core.attention.backends import lanes
from triptych.core.attention.backends.grid import Blocks, hidden_keys
from triptych.core.attention.backends.grid_fused import attend_in_fused_blocks
from triptych.core.attention.backends.grid_tiles import attend_in_blocks
from triptych.core.attention.backends.lanes import n_lanes, parts_of, side_by_side
from triptych.core.attention.backends.spans import Reach, tiles_over
from triptych.core.attention.backends.tile_rows import TileRows
from triptych.core.attention.backends.tiled import attend_in_tiles
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
        failed = True
        try:
            failed = side_by_side(int, [3, 4], 2) != [3, 4]
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_fewer_threads_than_lanes_are_enough() -> None:
    """Their number may change between a forward pass, which chose the lanes, and its backward."""
    torch.set_num_threads(2)
    assert side_by_side(lambda part: torch.get_num_threads(), range(4), 4) == [1] * 4
    torch.set_num_threads(1)
    here = threading.current_thread()
    assert side_by_side(lambda _: threading.current_thread(), range(4), 4) == [here] * 4


def test_a_pool_that_cannot_be_made_leaves_no_thread_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lanes, "_pools", {})
    monkeypatch.setattr(lanes.ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side_by_side(int, range(2), 2)
    assert lanes._pools == {}
    assert torch.get_num_threads() == 4


def test_parts_that_nobody_waits_for_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side(int, range(2), 2)  # the lanes are there
    begun, go_on = [], threading.Event()

    def work(part: int) -> None:
        begun.append(part)
        go_on.wait(60)

    def interrupted(futures: list[Future[None]]) -> None:
        while len(begun) < 2:
            time.sleep(0.001)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lanes, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            side_by_side(work, range(6), 2)
    go_on.set()
    side_by_side(int, range(2), 2)  # behind what had begun
    assert sorted(begun) == [0, 1]


def test_several_threads_may_ask_at_once() -> None:
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        torch.set_num_threads(4)
        found[number] = side_by_side(lambda part: part + number, range(20), 2)

    threads = [threading.Thread(target=ask, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: list(range(n, n + 20)) for n in (0, 100, 200, 300)}


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


class Other(Tensor):
    """As those are by which others follow what is done to a tensor."""


def test_what_is_followed_stays_in_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(1)
    assert n_lanes(x.as_subclass(Other), 4, 1) == 1
    with FlopCounterMode(display=False):
        assert n_lanes(x, 4, 1) == 1
    with torch.device("cpu"):  # a mode that sees every function
        assert n_lanes(x, 4, 1) == 1
    with torch.profiler.profile():
        assert n_lanes(x, 4, 1) == 1
    assert n_lanes(x, 4, 1) == 4
    monkeypatch.setattr(torch.backends.openmp, "is_available", lambda: False)
    assert n_lanes(x, 4, 1) == 1


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


@pytest.mark.parametrize("path", ["tiles", "blocks"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lanes_drop_what_one_lane_drops(path: str, dtype: torch.dtype) -> None:
    hidden = hidden_keys(BLOCKS, torch.arange(20).view(5, 4, 1))
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -1e9)
    # Of several pictures in parts each drops others, as many and independently.
    padding = torch.arange(20) >= torch.tensor([[13], [20], [0]])[: 3 if path == "tiles" else 1]
    size = (len(padding), 4, 20, 4)
    inputs = [torch.randn(size, dtype=dtype, requires_grad=True) for _ in range(3)]

    def results() -> list[Tensor]:
        torch.manual_seed(1)
        given = {"padding": padding, "dropout": 0.5}
        if path == "tiles":
            y = attend_in_tiles(*inputs, tiles_over(Reach(), 20, 8, inputs[0].device), **given)
        else:
            y = attend_in_blocks(*inputs, BLOCKS, mask, **given)
        return [y, *torch.autograd.grad((y * y).sum(), inputs)]

    seen = results()
    torch.set_num_threads(1)
    for one, wanted in zip(seen, results(), strict=True):
        torch.testing.assert_close(one, wanted)


def test_a_backward_pass_may_have_fewer_threads_and_its_errors_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attend = paths(torch.float64)["relative"]
    inputs = [torch.randn(1, 8, 20, 4).double().requires_grad_() for _ in range(3)]
    y = attend(*inputs)  # type: ignore[operator]
    wanted = torch.autograd.grad(y.sum(), inputs, retain_graph=True)
    torch.set_num_threads(1)
    for one, other in zip(
        wanted, torch.autograd.grad(y.sum(), inputs, retain_graph=True), strict=True
    ):
        torch.testing.assert_close(one, other)
    torch.set_num_threads(4)

    def broken(*_: object) -> None:
        raise MemoryError("no room for a tile")

    monkeypatch.setattr(TileRows, "backward", broken)
    with pytest.raises(MemoryError, match="no room for a tile"):
        torch.autograd.grad(y.sum(), inputs)


def test_whoever_counts_operations_sees_them_all() -> None:
    """A counter hears of its own thread alone."""
    attend = paths(torch.float32)["relative"]
    inputs = [torch.randn(1, 8, 20, 4, requires_grad=True) for _ in range(3)]
    products = 2 * 8 * 20 * 20 * 4  # one tile
    with FlopCounterMode(display=False) as counter:
        attend(*inputs)  # type: ignore[operator]
    assert counter.get_total_flops() == 3 * products
    y = attend(*inputs)  # type: ignore[operator]
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(y.sum(), inputs)
    assert counter.get_total_flops() == 3 * products  # it knows none that add to a sum in place
