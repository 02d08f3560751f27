"""Training from packed data is training from their source, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import noisy_sources  # noqa: F401  # named by the settings below
import pytest
import torch
from torch import Tensor

from triptych.config.schema import from_plain
from triptych.domains import find_domain
from triptych.errors import UserError
from triptych.training.loading.packed import DESCRIPTION, PackWriter

SMALL = {"transformer": {"n_layers": 1, "d_model": 8, "n_heads": 1}}
DATA: dict[str, dict[str, Any]] = {
    "image": {
        "source": {"class_path": "noisy_sources.CopiedRows", "init_args": {}},
    },
    "music": {
        "source": {
            "class_path": "noisy_sources.CopiedMotifs",
            "init_args": {},
        },
    },
}


def config_of(name: str) -> Any:
    return from_plain(find_domain(name).config_class(), {"data": DATA[name], "model": SMALL})


def tensors(batch: Any) -> list[Tensor]:
    return [tensor for tensor in batch if tensor is not None]


@pytest.mark.parametrize("name", DATA)
def test_packed_data_give_the_same_batches(name: str, tmp_path: Path) -> None:
    config, domain = config_of(name), find_domain(name)
    domain.pack(config, str(tmp_path / "pack"))
    packed = replace(config, data=replace(config.data, packed=str(tmp_path / "pack")))
    task, *loaders = domain.prepare(config)
    packed_task, *packed_loaders = domain.prepare(packed)
    assert packed_task.metadata["vocabulary"] == task.metadata["vocabulary"]
    for loader, other in zip(loaders, packed_loaders, strict=True):
        assert len(loader) == len(other)
        for one, two in zip(loader, other, strict=True):
            assert all(map(torch.equal, tensors(one), tensors(two)))
    with pytest.raises(UserError, match="already holds"):
        domain.pack(config, str(tmp_path / "pack"))
    assert (tmp_path / "pack" / DESCRIPTION).exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_a_pack_that_fails_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its files nor its folder; a folder that was there before stays."""

    def fail(self: PackWriter, about: dict[str, Any]) -> None:
        assert len(list(self.folder.iterdir()))
        raise UserError("the last step fails")

    monkeypatch.setattr(PackWriter, "finish", fail)
    (tmp_path / "old").mkdir()
    for folder in ("old", "new"):
        with pytest.raises(UserError, match="the last step"):
            find_domain(name).pack(config_of(name), str(tmp_path / folder))
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]
