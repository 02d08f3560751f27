from __future__ import annotations

import functools

import pytest
import torch

from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import Sinusoid
from triptych.core.transformer import TransformerConfig
from triptych.decoding import generate as session
from triptych.decoding.generate import Reader, sample
from triptych.decoding.sampling import Sampling, draw
from triptych.decoding.speculative import Draft

GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def model() -> DecoderOnly:
    torch.manual_seed(0)
    config = TransformerConfig(
        n_layers=2, d_model=12, n_heads=3, d_ff=16, dropout=0.5, attention=Relative(4, window=5)
    )
    return DecoderOnly(
        TokenEmbedding(6, 12), Sinusoid(12), config.decoder((20,)), CategoricalHead(12, 6),
        d_model=12, dropout=0.5,
    ).double()  # fmt: skip


@pytest.mark.parametrize("compile", [False, True])
def test_no_step_keeps_a_graph_and_the_result_can_be_trained_on(
    model: DecoderOnly, monkeypatch: pytest.MonkeyPatch, compile: bool
) -> None:
    """A step that autograd follows holds all steps before it in memory."""
    seen = []
    monkeypatch.setattr(session, "_compiled", lambda model: model.step)
    drawn = sample(
        model,
        batch=2,
        length=6,
        compile=compile,
        progress=lambda done, total: seen.append(torch.is_grad_enabled()),
    )
    assert seen == [False] * 6
    assert not drawn.is_inference()
    model(drawn).sum().backward()


def test_greedy_sampling_is_the_argmax_of_the_training_pass(model: DecoderOnly) -> None:
    """Every position, the last included, is drawn from its own distribution."""
    prefix = torch.randint(6, (64, 10))
    values = sample(model, batch=64, length=20, sampling=GREEDY, prefix=prefix)
    assert model.training  # it was put back
    assert torch.equal(model.eval()(values).argmax(-1)[:, 10:], values[:, 10:])
    assert (values[:, -1] != values[:, -2]).any()  # else the last two would be mixed up unseen


def test_a_prefix_is_kept_and_continued(model: DecoderOnly) -> None:
    prefix = torch.randint(6, (2, 7))
    values = sample(model, batch=2, length=15, sampling=GREEDY, prefix=prefix)
    assert torch.equal(values[:, :7], prefix)
    assert torch.equal(model.eval()(values).argmax(-1)[:, 7:], values[:, 7:])
    assert torch.equal(sample(model, batch=2, length=7, prefix=prefix), prefix)
    with pytest.raises(ValueError, match="does not fit"):
        sample(model, batch=2, length=6, prefix=prefix)


def test_the_first_value_follows_its_distribution(model: DecoderOnly) -> None:
    generator = torch.Generator().manual_seed(2)
    values = sample(model, batch=20_000, length=2, generator=generator)
    expected = model.eval()(values[:1]).softmax(-1)[0, 0]
    share = values[:, 0].bincount(minlength=6) / len(values)
    torch.testing.assert_close(share.double(), expected, rtol=0.0, atol=0.015)


def test_each_row_stops_at_its_own_end(model: DecoderOnly) -> None:
    generator = torch.Generator().manual_seed(2)
    values = sample(model, batch=50, length=20, generator=generator, end=5)
    lengths = set()
    for row in values.tolist():
        first = row.index(5) if 5 in row else 20
        assert all(value == 5 for value in row[first:])
        lengths.add(first)
    assert len(lengths) > 3
    free = sample(model, batch=50, length=20, generator=torch.Generator().manual_seed(2))
    started = (values == 5).cumsum(1) == 0
    assert torch.equal(values[started], free[started])  # an ended row disturbs nobody


def test_a_batch_that_has_ended_does_no_more_work(model: DecoderOnly) -> None:
    seen: list[int] = []
    with torch.no_grad():
        model.head.logits.bias[5] += 1000
    sample(model, batch=2, length=20, end=5, progress=lambda done, of: seen.append(done))
    assert seen == [1]


def test_forbidden_values_never_come(model: DecoderOnly) -> None:
    def no_repeats(so_far: torch.Tensor) -> torch.Tensor:
        forbidden = torch.zeros(so_far.shape[0], 6, dtype=torch.bool)
        if so_far.shape[1]:
            forbidden.scatter_(1, so_far[:, -1:], True)
        return forbidden

    values = sample(model, batch=30, length=20, forbid=no_repeats)
    assert (values[:, 1:] != values[:, :-1]).all()


def test_a_seed_gives_the_same_again(model: DecoderOnly) -> None:
    one, other, third = (
        sample(model, batch=2, length=20, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


def slow_sample(
    model: DecoderOnly, batch: int, length: int, seed: int, end: int | None = None
) -> torch.Tensor:
    """The definition: the whole training pass again for every value, one row's end its own."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.zeros(batch, length, dtype=torch.int64)
    done = torch.zeros(batch, dtype=torch.bool)
    for t in range(length):
        parameters = model(values)[:, t]
        value = draw(model.head, parameters, Sampling(), generator)
        values[:, t] = value if end is None else torch.where(done, end, value)
        done |= values[:, t] == end
    return values


def tiny(attention: AttentionConfig) -> DecoderOnly:
    config = TransformerConfig(n_layers=2, d_model=12, n_heads=3, d_ff=16, attention=attention)
    return DecoderOnly(
        TokenEmbedding(19, 12), Sinusoid(12), config.decoder((70,)), CategoricalHead(12, 19),
        d_model=12,
    )  # fmt: skip


@pytest.mark.parametrize("room", [16, 3])
@pytest.mark.parametrize("end", [None, 5])
@pytest.mark.parametrize(
    "attention",
    [
        Full(),
        Relative(4, window=5),
        Local1D(6, 4),
        PitchTime(max_distance=9, step=4, max_time=5, scale=12),
    ],
    ids=str,
)
@torch.no_grad()
def test_a_seed_gives_what_the_plain_slow_loop_gives(
    attention: AttentionConfig, end: int | None, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across views that grow, by 16 and by 3, and with rows that leave the batch at their end."""
    monkeypatch.setattr(session, "ROOM", room)
    model = tiny(attention).double().eval()
    generator = torch.Generator().manual_seed(3)
    values = sample(model, batch=9, length=70, generator=generator, end=end)
    assert torch.equal(values, slow_sample(model, 9, 70, 3, end))


def test_rows_that_have_ended_leave_the_batch(
    model: DecoderOnly, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    step = DecoderOnly.step

    def counted(model: DecoderOnly, value: torch.Tensor, *rest: object) -> torch.Tensor:
        sizes.append(len(value))
        return step(model, value, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(DecoderOnly, "step", counted)
    condition = torch.randn(40, 12, dtype=torch.float64)
    generator = torch.Generator().manual_seed(2)
    sample(model, batch=40, length=20, generator=generator, end=5, condition=condition)
    assert sizes[:15] == [40] * 15
    assert 0 < sizes[15] < 30


@pytest.mark.parametrize(("batch", "room"), [(1, 16), (400, 8), (6400, 2)])
@pytest.mark.parametrize("ahead", [0, 1])
def test_the_more_rows_the_fewer_empty_slots_a_draft_reads(
    batch: int, room: int, ahead: int
) -> None:
    """A position takes 96 bytes a row and layer: keys and values of 12 numbers.

    A step that takes one position reads none that is empty, so its views have all the room.
    """
    reader = Reader(tiny(Full()).eval(), batch, 40, None, ahead=ahead)
    reader.start(torch.zeros(batch, 0, dtype=torch.int64), None)
    reader.step(torch.zeros(batch, 40, dtype=torch.int64), 1)
    assert reader.room == (-(-3 // room) * room if ahead else 16)
    assert {layer["key"].shape[2] for layer in reader.views} == {reader.room}


@torch.no_grad()
def test_a_step_can_be_taken_again() -> None:
    model = tiny(Full()).double().eval()
    values = torch.randint(19, (1, 40))
    reader = Reader(model, 1, 40, None)
    reader.start(values[:, :0], None)
    first = [reader.step(values, t) for t in range(1, 40)]
    expected = model(values)  # [1, 40, 19]
    for t in (20, 3, 17):
        torch.testing.assert_close(reader.step(values, t), first[t - 1])
        torch.testing.assert_close(first[t - 1][:, 0], expected[:, t])


def test_a_ring_that_does_not_grow_is_looked_at_rarely() -> None:
    reader = Reader(tiny(Relative(4, window=1)).eval(), 6400, 40, None)
    reader.start(torch.zeros(6400, 0, dtype=torch.int64), None)
    reader.step(torch.zeros(6400, 40, dtype=torch.int64), 1)
    assert reader.room == 16
    assert len(reader.places) == 15  # the steps 1 to 15


def test_a_compiled_step_draws_the_same(
    model: DecoderOnly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the compiler's front end alone: its back end needs a C++ compiler and 10 s."""
    whole = functools.partial(torch.compile, backend="eager", fullgraph=True)

    def eager(step: object, *, dynamic: bool, mode: str | None) -> object:
        assert not dynamic
        return whole(step, dynamic=False)

    monkeypatch.setattr(session.torch, "compile", eager)
    monkeypatch.setattr(session, "COMPILED_ROOM", 4)
    plain, compiled = (
        sample(
            model, batch=2, length=20, compile=compile,
            generator=torch.Generator().manual_seed(1),
        )
        for compile in (False, True)
    )  # fmt: skip
    assert torch.equal(plain, compiled)


# Drafts ------------------------------------------------------------------------------------------


def test_drafts_that_cannot_be_are_refused(model: DecoderOnly) -> None:
    with pytest.raises(ValueError, match="lag must be at least 1"):
        Draft(lag=0)
    with pytest.raises(ValueError, match="count must be at least 1"):
        Draft(lag=1, count=0)
    with pytest.raises(ValueError, match="either compiled or reads a draft"):
        sample(model, batch=1, length=3, compile=True, draft=Draft(1))
