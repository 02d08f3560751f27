"""Rows of different lengths and packed arrays come back; damaged folders are refused."""

from __future__ import annotations

import json
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
import torch

from triptych.errors import UserError
from triptych.training.loading import batches as plans
from triptych.training.loading.batches import Items, Ragged, parts, plan_parts, shuffled
from triptych.training.loading.loader import ResumableLoader
from triptych.training.loading.packed import DESCRIPTION, Pack, PackWriter

ROWS = [[5, 6], [], [7], list(range(100)), []]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = PackWriter(tmp_path)
    for start in (0, 2):
        writer.append_ragged("rows", Ragged.of(ROWS, np.uint16).part(range(start, start + 2)))
        writer.append("pixels", np.full((2, 3, 4), start, dtype=np.uint8))
    writer.append_ragged("rows", Ragged.of(ROWS[4:], np.uint16))
    writer.append_ragged("empty", Ragged.of([[], []], np.uint16))
    writer.finish({"domain": "toy"})
    return tmp_path


def test_arrays_come_back(folder: Path) -> None:
    pack = Pack(folder, "toy")
    assert [row.tolist() for row in pack.ragged("rows")] == ROWS
    assert [row.tolist() for row in pack.ragged("empty")] == [[], []]
    pixels = pack.array("pixels")
    assert pixels.shape == (4, 3, 4)
    assert pixels.sum() == 2 * 2 * 12
    assert "rows.values" in pack
    assert "labels" not in pack


def test_damaged_folders_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="domain toy"):
        Pack(folder, "music")
    with (folder / "pixels").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match="49 bytes; expected 48"):
        Pack(folder, "toy").array("pixels")
    for content in ("{", json.dumps({"about": {}})):
        (folder / DESCRIPTION).write_text(content)
        with pytest.raises(UserError, match="no finished pack"):
            Pack(folder, "toy")


def items_of(items: Items, generator: torch.Generator | None) -> list[int]:
    return [int(item) for item in items]


def in_parts(n_items: int) -> ResumableLoader:
    def plan(part: range, generator: torch.Generator) -> Ragged:
        return shuffled(part, generator, 3)

    n_parts = len(parts(n_items))
    plans = plan_parts(n_items, plan, seed=1)
    return ResumableLoader(n_items, plans, items_of, seed=1, n_parts=n_parts)


def test_an_epoch_in_parts_holds_every_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "PART", 7)
    loader = in_parts(30)
    assert len(loader) == 4 * 3 + 1
    first, second = list(loader), list(loader)
    for epoch in (first, second):
        assert sorted(item for batch in epoch for item in batch) == list(range(30))
        together = [{item // 7 for item in batch} for batch in epoch]
        assert all(len(part) == 1 for part in together), "a batch is of one part"
    assert first != second
    assert len({batch[0] // 7 for batch in (first[0], second[0], *in_parts(30))}) > 1
    for taken_before in range(0, 26, 5):
        begun = in_parts(30)
        taken = list(islice(chain(begun, begun), taken_before))
        resumed = in_parts(30)
        resumed.load_state_dict(begun.state_dict())
        rest = [batch for _ in range(3) for batch in resumed]
        assert (taken + rest)[:26] == first + second


def test_rows_come_back() -> None:
    flat = Ragged.of(ROWS, np.uint16)
    assert [row.tolist() for row in flat] == ROWS
    assert flat.lengths.tolist() == [2, 0, 1, 100, 0]
    assert flat[3].base is not None, "a row is a view"
    for outside in (-1, 5):
        with pytest.raises(IndexError, match="of 5"):
            flat[outside]
    assert list(Ragged.of([])) == []


@pytest.mark.parametrize("items", [[0], [3, 0, 2], [1, 4], [2, 2], range(5)])
def test_padding_is_behind_the_rows(items: list[int]) -> None:
    longest = max(len(ROWS[item]) for item in items)
    by_hand = [ROWS[item] + [-1] * (longest - len(ROWS[item])) for item in items]
    padded = Ragged.of(ROWS, np.uint16).padded(items, -1)
    assert padded.dtype == np.int64
    assert padded.tolist() == by_hand
