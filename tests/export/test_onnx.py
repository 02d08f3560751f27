"""ONNX: the step with its cache as inputs and outputs is the model's own step."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from tiny_models import LEARNED, part

from triptych.core.models.base import Condition
from triptych.errors import UserError
from triptych.tools.export import onnx as format_module
from triptych.tools.export.onnx import DecoderStep, named_tensors

EVENTS = "triptych.domains.music.tokenizers.events.EventTokenizer"
BARS = "triptych.domains.music.tokenizers.remi.RemiTokenizer"
LOCAL = {"attention": part("attention.local1d.Local1D", block=4, memory=4)}
DECODERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "image": (tiny_models.image_model, {}),
    "image of classes": (tiny_models.image_model, {"class_conditional": True}),
    "whole pixels": (
        tiny_models.image_model,
        {"head": part("heads.MixtureOfLogistics", components=2)},
    ),
    "pixels above": (tiny_models.image_model, {"class_conditional": True, "pixels_above": True}),
    "neighbours": (
        tiny_models.image_model,
        {
            "head": part("heads.MixtureOfLogistics", components=2, neighbours=True),
            "pixels_above": True,
        },
    ),
    "local": (tiny_models.image_model, {"transformer": LOCAL}),
    "relative": (tiny_models.music_model, {}),
    "pitches and times": (
        tiny_models.music_model,
        {"attention": part("attention.pitch_time.PitchTime")},
    ),
    "voice leading": (tiny_models.music_model, {"model": {"voice_leading": True}}),
    "voice orders": (
        tiny_models.music_model,
        {"model": {"voice_orders": True, "voice_leading": True}},
    ),
    "held notes": (
        tiny_models.music_model,
        {
            "source": "midi_folder.MidiFolder",
            "model": {"held_notes": True, "tokenizer": {"class_path": EVENTS}},
        },
    ),
    "bar times": (
        tiny_models.music_model,
        {
            "source": "midi_folder.MidiFolder",
            "model": {"bar_times": True, "tokenizer": {"class_path": BARS}},
        },
    ),
    "text": (tiny_models.language_model, {"positions": LEARNED}),
}


@torch.no_grad()
def without_zeros(core: Any) -> Any:
    """The model with random numbers in place of parts that start at zero, which would not tell."""
    for parameter in core.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter)
    return core


def step_by_step(step: DecoderStep, values: torch.Tensor, label: torch.Tensor | None) -> Any:
    """Outputs of the module at all positions: [B, L, Z]."""
    model = step.model
    rows, length = values.shape[:2]
    state = model.init_state(rows, length)
    tensors = [torch.zeros_like(each) for each in named_tensors(state).values()]  # as users begin
    value, found = torch.full_like(values[:, :1], -1), []
    for position in range(length):
        before = [tensor.clone() for tensor in tensors]
        logits, *after = step(value, torch.tensor([position]), tensors, label)
        assert all(map(torch.equal, before, tensors)), "the inputs must stay as they are"
        assert len(after) == len(tensors)
        tensors, value = after, values[:, position : position + 1]
        found.append(logits)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_steps_give_the_whole_pass(name: str) -> None:
    build, settings = DECODERS[name]
    model = build(**settings).model.full_model
    core = without_zeros(getattr(model, "core", model))
    classes = getattr(core.conditioner, "classes", None)
    length, size = 16, getattr(core.head, "levels", core.head.n_parameters)
    values = torch.randint(size, (2, length, *core.value_shape))
    label = None if classes is None else torch.tensor([1, 0])
    step = DecoderStep(core, core.init_state(2, length), classes)
    found = step_by_step(step, values, label)
    condition = Condition(None if classes is None else classes(label).unsqueeze(1))
    torch.testing.assert_close(found, core(values, condition=condition), atol=1e-4, rtol=1e-4)


def test_a_model_without_a_graph(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    upscaling = {"factor": 2, "n_layers": 1}
    with pytest.raises(UserError, match="decoders without an encoder; this is ImageTransformer"):
        format_module.write(tiny_models.image_model(super_resolution=upscaling), tmp_path)
    with pytest.raises(UserError, match="this is SelfAttentionGan of the domain gan"):
        format_module.write(tiny_models.gan_model(), tmp_path)
    with pytest.raises(UserError, match=r"domain translation: expected .*ctranslate2"):
        format_module.write(tiny_models.translator(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["image of classes", "neighbours", "pitches and times", "held notes"]
)
def test_the_graph_is_compared_at_every_position(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    build, settings = DECODERS[name]
    source = copy.deepcopy(build(**settings))
    model = source.model.full_model
    core = without_zeros(getattr(model, "core", model))
    format_module.write(source, tmp_path)
    classes = getattr(core.conditioner, "classes", None)
    length = json.loads((tmp_path / "onnx.json").read_text(encoding="utf-8"))["length"]
    assert format_module.largest_difference(core, classes, tmp_path, length) < 1e-4
    assert b"/triptych/" not in (tmp_path / "step.onnx").read_bytes(), "paths of this machine"
    with torch.no_grad():  # the comparison itself can fail
        core.decoder.blocks[-1].attention.out_proj.weight[0] += 1
    assert format_module.largest_difference(core, classes, tmp_path, length) > 1e-3
