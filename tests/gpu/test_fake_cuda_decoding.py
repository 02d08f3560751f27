"""Laws of decoding on fake CUDA tensors: the steps between two checks never wait for the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu.fake_cuda import fake_cuda
from torch._subclasses.fake_tensor import DataDependentOutputException

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.decoding.beam_search import beam_search
from triptych.decoding.beams import Beams
from triptych.decoding.constraints import (
    AnyForbids,
    ForcedText,
    Lengths,
    NoRepeatedNgrams,
    RequiredPhrases,
)
from triptych.decoding.generate import CHECK_INTERVAL

LAUNCHES_OF_A_DECISION = 75
"""Most launches of a step of beam search besides the model."""


def search(model: EncoderDecoder, longest: int, beam: int, **options: Any) -> None:
    source = torch.zeros(3, 9, dtype=torch.int64, device="cuda")
    padding = source == 1
    state = model.init_state(3, longest, condition=model.encode(source, padding))
    lengths = [longest, 3, longest]
    beam_search(
        model, state, beam=beam, start=1, end=2, max_lengths=lengths, n_best=beam,
        forbidden=(0, 1), **options,
    )  # fmt: skip


@pytest.fixture
def model() -> EncoderDecoder:
    config = TransformerConfig(2, 64, 2)
    return EncoderDecoder(config, source_vocabulary=50, target_vocabulary=50).eval()


@pytest.mark.slow
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 4])
@torch.no_grad()
def test_the_steps_of_beam_search_do_not_wait(
    model: EncoderDecoder, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def results(self: Beams, settings: Any) -> dict[int, Any]:
        read.append(len(self.row))
        return dict.fromkeys(range(3))

    with fake_cuda(model) as launches, monkeypatch.context() as patches:
        with pytest.raises(DataDependentOutputException):  # the results are read on the host
            search(model, CHECK_INTERVAL - 1, beam)
        patches.setattr(Beams, "results", results)
        counts = []
        for longest in (9, 10):
            launches.by_name.clear()
            search(model, longest, beam)
            counts.append(launches.count)
        assert read == [3, 3]
        with pytest.raises(DataDependentOutputException):  # the first check for stopped rows
            search(model, CHECK_INTERVAL + 1, beam)
    with fake_cuda(model) as launches:
        source = torch.zeros(3, 9, dtype=torch.int64, device="cuda")
        condition = model.encode(source.repeat(beam, 1))
        state = model.init_state(3 * beam, 9, condition=condition)
        launches.by_name.clear()
        model.step(torch.zeros(3 * beam, 1, dtype=torch.int64, device="cuda"), source[0, 8:], state)
    assert counts[1] - counts[0] - launches.count <= LAUNCHES_OF_A_DECISION


@torch.no_grad()
def test_constraints_do_not_wait(model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def results(self: Beams, settings: Any) -> dict[int, Any]:
        read.append(self.log_p.shape[1])
        return dict.fromkeys(range(3))

    monkeypatch.setattr(Beams, "results", results)
    device = torch.device("cuda")
    with fake_cuda(model):
        required = RequiredPhrases([[[7, 8], [9]], [[5, 5, 6]]], device)
        constraint = AnyForbids(
            [
                Lengths(3, None, 2, 50, device),
                NoRepeatedNgrams(2, 50),
                ForcedText([4], b"ab", [b"", b"", b"", *[b"a"] * 47], device),
            ]
        )
        search(model, CHECK_INTERVAL - 1, 2, constraint=constraint, required=required)
    assert read == [2 * (1 + 1 + 3)]
