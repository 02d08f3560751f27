from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from decoders import decoder_only
from random_head import with_random_head
from test_speculative import step_shapes

from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.heads import MixtureOfLogisticsHead
from triptych.core.layers import GELU
from triptych.core.models.base import AutoregressiveModel, Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder, SequenceToSequence
from triptych.core.models.recurrent import RecurrentEncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.decoding import execution
from triptych.decoding import generate as generation
from triptych.decoding.execution import CompiledSteps
from triptych.decoding.generate import StepRunner, generate
from triptych.decoding.sampling import Draft, SampleRequest, sample_value
from triptych.types import Sampling


def sampled(model: AutoregressiveModel, count: int, length: int, **more: Any) -> torch.Tensor:
    return generate(model, SampleRequest(count=count, length=length, **more))


@pytest.fixture
def model() -> DecoderOnly:
    torch.manual_seed(0)
    return decoder_only(6, (20,), attention=Relative(4, window=5), dropout=0.5).double()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The front end of torch.compile alone: its back end needs a C++ compiler and 10 s."""
    whole, steps = functools.partial(torch.compile, backend="eager", fullgraph=True), []

    def eager(step: object, *, dynamic: bool, mode: str | None) -> object:
        assert not dynamic
        steps.append(step)
        return whole(step, dynamic=False)

    monkeypatch.setattr(generation.torch, "compile", eager)
    return steps


def test_no_step_keeps_a_graph_and_the_result_can_be_trained_on(model: DecoderOnly) -> None:
    """A step that autograd follows holds all steps before it in memory."""
    seen = []
    values = sampled(model, 2, 6, progress=lambda *_: seen.append(torch.is_grad_enabled()))
    assert seen == [False] * 6
    assert not values.is_inference()
    model(values).sum().backward()


def test_greedy_sampling_is_the_argmax_of_the_training_pass(model: DecoderOnly) -> None:
    """Every position, the last included, is drawn from its own distribution."""
    prefix = torch.randint(6, (64, 10))
    values = sampled(model, 64, 20, sampling=Sampling(temperature=0.0), prefix=prefix)
    assert model.training  # it was put back
    assert torch.equal(values[:, :10], prefix)
    assert torch.equal(model.eval()(values).argmax(-1)[:, 10:], values[:, 10:])
    assert torch.equal(sampled(model, 64, 10, prefix=prefix), prefix)
    assert (values[:, -1] != values[:, -2]).any()  # else the last two would be mixed up unseen


def test_a_batch_that_has_ended_does_no_more_work(model: DecoderOnly) -> None:
    seen: list[int] = []
    with torch.no_grad():
        model.head.logits.bias[5] += 1000
    sampled(model, 2, 20, end=5, progress=lambda done, of: seen.append(done))
    assert seen == [1]


def test_a_constraint_needs_a_categorical_head(model: DecoderOnly) -> None:
    model.head = MixtureOfLogisticsHead(12, levels=6, channels=1, components=2)  # 6 parameters
    forbidden = torch.zeros(2, 6, dtype=torch.bool)
    with pytest.raises(ValueError, match="categories"):
        sampled(model, 2, 3, constraint=lambda values: forbidden)


def slow_generate(
    model: DecoderOnly, batch: int, length: int, seed: int, end: int | None = None
) -> torch.Tensor:
    """The definition: the whole training pass again for every value, one row's end its own."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.zeros(batch, length, dtype=torch.int64)
    done = torch.zeros(batch, dtype=torch.bool)
    for t in range(length):
        parameters = model(values)[:, t]
        value = sample_value(model.head, parameters, Sampling(), generator)
        values[:, t] = value if end is None else torch.where(done, end, value)
        done |= values[:, t] == end
    return values


def tiny(attention: AttentionConfig) -> DecoderOnly:
    return decoder_only(19, (70,), attention=attention)


@pytest.mark.parametrize(("end", "room"), [(None, 16), (5, 16), (5, 3)])
@pytest.mark.parametrize(
    "attention",
    [
        Full(),
        Relative(4, window=5),
        Local1D(6, 4),
        PitchTime(max_distance=9, n_voices=4, max_time=5, n_pitches=12),
    ],
    ids=str,
)
@torch.no_grad()
def test_a_seed_gives_what_the_plain_slow_loop_gives(
    attention: AttentionConfig, end: int | None, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across views that grow, by 16 and by 3, and with rows that leave the batch at their end."""
    monkeypatch.setattr(generation, "CAPACITY_STEP", room)
    monkeypatch.setattr(generation, "CHECK_INTERVAL", room)
    model = tiny(attention).double().eval()
    generator = torch.Generator().manual_seed(3)
    values = sampled(model, 9, 40, generator=generator, end=end)
    assert torch.equal(values, slow_generate(model, 9, 40, 3, end))
    assert end is None or len(set((values == end).sum(1).tolist())) > 3, "each row its own end"


def test_rows_that_have_ended_leave_the_batch(
    model: DecoderOnly, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = step_shapes(monkeypatch)
    condition = Condition(torch.randn(40, 1, 12, dtype=torch.float64))
    generator = torch.Generator().manual_seed(2)
    sampled(model, 40, 20, generator=generator, end=5, condition=condition)
    rows = [rows for rows, _ in shapes]
    assert rows[:15] == [40] * 15
    assert 0 < rows[15] < 30


@pytest.mark.parametrize("lookahead", [0, 7])
def test_a_step_reads_the_filled_part_of_the_cache(lookahead: int) -> None:
    runner = StepRunner(
        tiny(Full()).eval(), SampleRequest(2, 70, draft=Draft(1, lookahead) if lookahead else None)
    )
    values = torch.zeros(2, 70, dtype=torch.int64)
    runner.prefill(values[:, :0], None)
    for t in (1, 2, 15, 16, 40):
        runner.step(values, t)
        (capacity,) = {layer["key"].shape[2] for layer in runner.views.layers}
        assert t + 1 + lookahead <= capacity < t + 1 + lookahead + 16


def test_no_step_waits_for_the_device(model: DecoderOnly) -> None:
    """A meta tensor raises where its values are read on the host."""
    model = model.to("meta")
    condition = Condition(torch.empty(3, 1, 12, device="meta", dtype=torch.float64))
    assert sampled(model, 3, 15, end=5, condition=condition).shape == (3, 15)
    with pytest.raises(RuntimeError, match="meta"):  # a look for finished rows, every 16 positions
        sampled(model, 3, 20, end=5, condition=condition)


@torch.no_grad()
def test_a_step_can_be_taken_again() -> None:
    model = tiny(Full()).double().eval()
    values = torch.randint(19, (1, 40))
    runner = StepRunner(model, SampleRequest(1, 40))
    runner.prefill(values[:, :0], None)
    first = [runner.step(values, t) for t in range(1, 40)]
    expected = model(values)  # [1, 40, 19]
    for t in (20, 3, 17):
        torch.testing.assert_close(runner.step(values, t), first[t - 1])
        torch.testing.assert_close(first[t - 1][:, 0], expected[:, t])


def test_a_compiled_step_samples_the_same_and_is_compiled_once(
    model: DecoderOnly, compiler: list[object]
) -> None:
    seen = []
    reused = CompiledSteps(model)
    look = lambda *_: seen.append(torch.is_grad_enabled())  # noqa: E731
    plain, compiled, again = (
        sampled(model, 2, 20, compiled=steps, end=5, seed=1, progress=look)
        for steps in (None, reused, reused)
    )
    assert torch.equal(plain, compiled)
    assert torch.equal(plain, again)
    assert not any(seen)
    assert not compiled.is_inference()
    (step,) = compiler
    # CUDA graphs take the cache for fixed storage where it is a buffer of the compiled module.
    assert len(list(step.buffers())) >= 4


@pytest.mark.slow
def test_a_kept_cache_takes_the_condition_of_each_batch(
    model: DecoderOnly, compiler: list[object]
) -> None:
    steps = CompiledSteps(model)
    for vectors in torch.randn(2, 3, 1, 12, dtype=torch.float64):
        plain, compiled = (
            sampled(model, 3, 12, condition=Condition(vectors), compiled=which, seed=1)
            for which in (None, steps)
        )
        assert torch.equal(plain, compiled)
    assert len(compiler) == 1


@torch.no_grad()
@pytest.mark.parametrize("kind", [EncoderDecoder, RecurrentEncoderDecoder])
def test_an_encoder_decoder_is_sampled_with_the_memory_of_each_row(
    kind: type[SequenceToSequence],
) -> None:
    """Also after finished rows have left the batch."""
    config = TransformerConfig(n_layers=2, d_model=12, n_heads=3, feed_forward=GELU(16))
    sizes = {"config": config} if kind is EncoderDecoder else {"d_model": 12, "n_layers": 2}
    model = kind(source_vocabulary=9, target_vocabulary=9, **sizes)
    model = with_random_head(model).double().eval()
    source, start = torch.randint(9, (30, 5)), torch.ones(30, dtype=torch.int64)
    condition = model.encode(source)
    values = sampled(model, 30, 40, condition=condition, previous=start, end=5, seed=3)
    generator, expected = torch.Generator().manual_seed(3), torch.zeros_like(values)
    for t in range(40):
        logits = model(source, None, torch.cat([start.unsqueeze(1), expected[:, :t]], 1))
        value = sample_value(model.head, logits[:, t], Sampling(), generator)
        ended = (expected[:, :t] == 5).any(1)
        expected[:, t] = torch.where(ended, 5, value)
    assert 10 < (values[:, :16] == 5).any(1).sum() < 30  # some leave, others go on
    assert torch.equal(values, expected)


@pytest.mark.parametrize("small", [True, False])
def test_small_steps_run_in_one_thread(
    model: DecoderOnly, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """The prefill uses all threads, and so do the steps of a larger model or batch."""
    n_products = 5 * sum(parameter.numel() for parameter in model.parameters())
    monkeypatch.setattr(execution, "SMALL_STEP", n_products if small else n_products - 1)
    threads_of: list[tuple[int, int]] = []  # positions and threads of each pass
    model.decoder.blocks[0].feed_forward.register_forward_pre_hook(
        lambda module, inputs: threads_of.append((inputs[0].shape[1], torch.get_num_threads()))
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        sampled(model, 5, 6, prefix=torch.zeros(5, 3, dtype=torch.int64))
        assert threads_of == [(4, 2), (1, 1 if small else 2), (1, 1 if small else 2)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_request_of_nothing_is_one_empty_row(model: DecoderOnly) -> None:
    assert generate(model, SampleRequest()).shape == (1, 0)
