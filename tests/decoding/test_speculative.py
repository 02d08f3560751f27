"""Guesses read at once give the same values as one step after another."""

from __future__ import annotations

import pytest
import torch
from decoders import decoder_only

from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import LearnedEmbedding
from triptych.decoding.generate import generate
from triptych.decoding.sampling import Draft, SampleRequest


def stubborn(attention: AttentionConfig, shape: tuple[int, ...], end: int = 5) -> DecoderOnly:
    """A model that mostly repeats what stood three positions before, so that guesses hold."""
    positions = LearnedEmbedding(60, 12)
    model = decoder_only(6, shape, positions=positions, attention=attention).double()
    with torch.no_grad():  # at each position a few values are likely, the same ones every third
        model.positions.table.weight.copy_(torch.randn(3, 12).repeat(20, 1) * 4)
        model.embedding.table.weight.mul_(0.2)
        model.head.logits.weight.mul_(3)
        model.head.logits.bias[end] -= 4
    return model.eval()


def step_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows and positions of each step of a decoder-only model, filled as steps are taken."""
    shapes: list[tuple[int, int]] = []
    step = DecoderOnly.step

    def counted(model: DecoderOnly, values: torch.Tensor, *rest: object) -> torch.Tensor:
        shapes.append((values.shape[0], values.shape[1]))
        return step(model, values, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(DecoderOnly, "step", counted)
    return shapes


@pytest.mark.parametrize(("count", "end"), [(1, 5), (4, None), (7, 5)])
@pytest.mark.parametrize(
    ("attention", "shape"),
    [
        (Full(), (60,)),
        (Relative(4, window=5), (60,)),
        (Local1D(4, 3), (60,)),
        (PitchTime(max_distance=5, n_voices=3, max_time=4, n_pitches=4), (60,)),
        (Local2D(2, 2, 1, 1), (10, 6, 1)),
        (Local2D(2, 2, 1, 1, "blocks"), (5, 4, 3)),
    ],
    ids=str,
)
def test_a_draft_changes_no_value(
    attention: AttentionConfig,
    shape: tuple[int, ...],
    end: int | None,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every value is drawn from its own distribution, with the same random numbers as without."""
    model = stubborn(attention, shape)
    shapes = step_shapes(monkeypatch)
    prefix = torch.randint(5, (3, 2))
    for batch in (1, 3):
        results, n_passes = [], []
        for draft in (None, Draft(lag=3, count=count)):
            shapes.clear()
            seeded = torch.Generator().manual_seed(4)
            request = SampleRequest(
                batch, 60, prefix=prefix[:batch], end=end, generator=seeded, draft=draft
            )
            results.append(generate(model, request))
            n_passes.append(len(shapes))
        assert torch.equal(*results)
        assert n_passes[1] < n_passes[0]  # some guesses did hold
        assert max(length for _, length in shapes) == count + 1


def test_finished_rows_leave_the_batch_and_reject_no_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all rows finish early; then as many values are accepted as for one row."""
    model = stubborn(Full(), (60,))
    with torch.no_grad():
        model.head.logits.bias[5] += 3
    shapes = step_shapes(monkeypatch)
    results = []
    for draft in (None, Draft(lag=3, count=4)):
        shapes.clear()
        generator = torch.Generator().manual_seed(4)
        options = {"count": 12, "length": 60, "end": 5, "generator": generator}
        results.append(generate(model, SampleRequest(draft=draft, **options)))
    assert torch.equal(*results)
    assert shapes[-1][0] < 12
