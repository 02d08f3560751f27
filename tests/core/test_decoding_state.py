"""A decoding step: no wait for the device, a bounded cache, and nothing computed twice."""

from __future__ import annotations

import pytest
import torch
from decoders import MODELS, D, config
from gpu.attention_cases import layer_of
from torch import Tensor, nn

from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.core.attention.relative import Relative
from triptych.core.heads import CategoricalHead
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.state import LayerCache, Memory, StepContext
from triptych.decoding.beam_search import beam_search
from triptych.decoding.sampling import sample_value
from triptych.types import Sampling


def no_sync_device(module: nn.Module) -> torch.device:
    """Move a module where every look at a value is an error, as tensors there have none.

    What would be a wait for the device on a GPU (`.item()`, indexing with a 0-d tensor, a Python
    branch on a tensor) raises here.
    """
    device = torch.device("meta")
    module.to(device)
    return device


@pytest.mark.parametrize("kind", MODELS)
def test_a_step_of_a_model_and_its_draw_never_wait_for_the_device(kind: str) -> None:
    build, shape = MODELS[kind]
    model = build().eval()
    device = no_sync_device(model)
    value = torch.zeros(2, 1, *model.embedding.value_shape, dtype=torch.int64, device=device)
    state = model.init_state(2, shape[0])
    parameters = model.step(value, torch.tensor([3], device=device), state)
    filters = {"top_k": 3, "top_p": 0.5} if isinstance(model.head, CategoricalHead) else {}
    for sampling in (Sampling(), Sampling(temperature=0.0), Sampling(temperature=0.5, **filters)):
        assert sample_value(model.head, parameters, sampling).shape == value.shape


def test_a_step_of_a_translator_never_waits_for_the_device() -> None:
    model = EncoderDecoder(config(), source_vocabulary=9, target_vocabulary=9).eval()
    device = no_sync_device(model)
    source = torch.zeros(2, 5, dtype=torch.int64, device=device)
    state = model.init_state(2, 8, condition=model.encode(source, source == 0))
    assert model.step(source[:, :1], torch.tensor([3], device=device), state).shape == (2, 1, 9)


# A bounded cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "shape", "slots"),
    [
        (Relative(max_distance=9, window=5), (1000,), 5),
        (Relative(max_distance=9), (100,), 100),
        (Local1D(block=6, memory=4), (1000,), 10),
        (Local2D(4, 4, 2, 1), (40, 16, 3), 6 * 16 * 3),
        (Local2D(4, 4, 2, 1, "blocks"), (40, 16, 3), 6 * 16 * 3),
    ],
    ids=str,
)
def test_the_capacity_of_the_cache_is_what_the_pattern_reads(
    config: AttentionConfig, shape: tuple[int, ...], slots: int
) -> None:
    layer = layer_of(config, 8, 2, shape)
    length = torch.Size(shape).numel()
    cache = layer.init_cache(1, length)
    assert cache["key"].shape[2] == cache["value"].shape[2] == slots
    assert layer.step_context(torch.tensor([length - 1]), cache).mask.shape == (1, slots)


def test_keys_are_kept_in_the_precision_that_a_step_reads_fastest() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        layer = layer_of(Relative(4), 8, 2, (9,)).to(dtype)
        cache = layer.init_cache(1, 9)
        kept = torch.float32 if dtype == torch.bfloat16 else dtype
        assert {tensor.dtype for tensor in cache.values()} == {kept}
        context = layer.step_context(torch.tensor([0]), cache)
        assert layer.step(torch.randn(1, 1, 8).to(dtype), cache, context).dtype == dtype


@pytest.mark.parametrize(
    ("config", "used"),
    [(Full(), 9), (Relative(4), 9), (Relative(4, window=5), 5), (Local1D(4, 2), 6)],
    ids=str,
)
def test_a_step_reads_no_more_slots_than_positions_so_far(
    config: AttentionConfig, used: int
) -> None:
    layer = layer_of(config, 8, 2, (1000,))
    state = layer.init_cache(1, 1000)
    views = layer.cache_view(state, 9)
    assert views["key"].shape[2] == views["value"].shape[2] == used
    assert views["key"].data_ptr() == state["key"].data_ptr()  # a view: what is written stays


# Nothing twice -----------------------------------------------------------------------------------


def test_the_memory_is_projected_once_a_sentence_and_no_prefix_is_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = EncoderDecoder(config(n_layers=3), source_vocabulary=9, target_vocabulary=9).eval()
    projected: list[int] = []
    project_memory = CrossAttention.project_memory

    def counted(layer: CrossAttention, memory: Memory) -> object:
        projected.append(len(memory.features))
        return project_memory(layer, memory)

    def whole(*_: object, **__: object) -> Tensor:
        raise AssertionError("the whole prefix is run again")

    monkeypatch.setattr(CrossAttention, "project_memory", counted)
    monkeypatch.setattr(model.decoder, "forward", whole)
    source = torch.randint(3, 9, (2, 5))
    with torch.no_grad():
        state = model.init_state(len(source), 7, condition=model.encode(source))
        beam_search(model, state, beam=3, start=1, end=2, max_lengths=[7, 7])
    assert projected == [2, 2, 2]  # once a layer, for both sentences, before the beams


def test_the_blocks_of_a_stack_share_their_pattern_and_step_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = config(attention=Local2D(2, 2, 1, 1)).decoder((4, 2, 3)).eval()
    assert len({id(block.attention.mask_pattern) for block in decoder.blocks}) == 1
    made: list[int] = []
    original = MultiHeadAttention.step_context

    def counted(layer: MultiHeadAttention, positions: Tensor, cache: LayerCache) -> StepContext:
        made.append(len(positions))
        return original(layer, positions, cache)

    monkeypatch.setattr(MultiHeadAttention, "step_context", counted)
    state = decoder.init_state(2, 24)
    decoder.step(torch.randn(2, 1, D), state, decoder.step_context(torch.tensor([0]), state))
    assert made == [1]
