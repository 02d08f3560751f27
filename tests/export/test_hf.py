"""Layouts of transformers: the weights come back, and the library computes the same logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from safetensors.torch import load_file
from tiny_models import GPT2, LEARNED, LLAMA, SINUSOIDAL, feed_forward

import triptych
from triptych.errors import UserError
from triptych.tools.export import hf
from triptych.tools.export.original import Original
from triptych.training.run.checkpoint import StoredAs, paired

MODELS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "llama": (tiny_models.language_model, LLAMA, "LlamaForCausalLM"),
    "gpt2": (tiny_models.language_model, GPT2, "GPT2LMHeadModel"),
    "gpt2, sinusoidal": (
        tiny_models.language_model,
        {"positions": SINUSOIDAL, "feed_forward": feed_forward("ReLU")},
        "GPT2LMHeadModel",
    ),
}


def made(name: str) -> Original:
    build, parts, _ = MODELS[name]
    return build(**parts)


@pytest.fixture
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import of the library takes seconds; the slow tests below compare with it."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(hf, "import_module", missing)


@pytest.mark.usefixtures("without_transformers")
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_our_loader_opens_the_folder(name: str, tmp_path: Path) -> None:
    source = made(name)
    said = hf.write(source, tmp_path)
    assert "transformers is not installed" in said.checks[-1]
    before = source.model.full_model.state_dict()
    after = triptych.load(tmp_path, device="cpu").full_model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not [key for key in load_file(tmp_path / "model.safetensors") if "qkv" in key]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_library_computes_the_same_logits(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    source = made(name)
    hf.write(source, tmp_path)
    library = getattr(transformers, MODELS[name][2]).from_pretrained(str(tmp_path)).eval()
    tokens = torch.randint(5, 40, (3, 15), generator=torch.Generator().manual_seed(1))
    model = source.model.full_model
    with torch.no_grad():
        assert hf.largest_difference(model, library, tokens) < 1e-4
        # The comparison itself can fail.
        parameter = next(p for n, p in library.named_parameters() if n.endswith("fc.weight")
                         or n.endswith("fc1.weight") or n.endswith("up_proj.weight"))  # fmt: skip
        parameter[0] += 0.5
        assert hf.largest_difference(model, library, tokens) > 1e-3


@pytest.mark.slow
def test_pairs_of_rotary_features_must_be_reordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(hf, "halved", lambda rows, heads: rows)
    monkeypatch.setattr("triptych.training.run.checkpoint.paired", lambda rows, heads: rows)
    with pytest.raises(RuntimeError, match="LlamaForCausalLM gives other logits"):
        hf.write(made("llama"), tmp_path)


@pytest.mark.parametrize(
    ("build", "settings", "says"),
    [
        (tiny_models.translator, {}, "computes the EncoderDecoder of the domain translation"),
        (tiny_models.language_model, {"output_bias": True}, "bias of the output layer"),
        (
            tiny_models.language_model,
            {**LLAMA, "positions": LEARNED},
            "positions Learned; expected Rotary",
        ),
        (tiny_models.image_model, {}, "no architecture of transformers computes the ImageTrans"),
    ],
)
def test_what_no_architecture_computes(
    build: Any, settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=says):
        hf.write(build(**settings), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "how",
    [
        StoredAs(("q", "k", "v")),
        StoredAs(("q", "k", "v"), heads=2),
        StoredAs(("whole",), transposed=True),
    ],
)
def test_stored_tensors_are_read_as_they_were(how: StoredAs) -> None:
    tensor = torch.randn(24, 8)
    parts = hf.parts_of(tensor, how)
    assert set(parts) == set(how.names)
    assert torch.equal(how.read(parts), tensor)


def test_features_of_a_head_by_halves() -> None:
    rows = torch.arange(8)  # two heads of four features
    assert hf.halved(rows, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert paired(hf.halved(rows, 2), 2).tolist() == rows.tolist()
