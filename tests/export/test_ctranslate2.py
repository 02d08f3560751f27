"""CTranslate2 gives every token the probability that Triptych gives it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from tiny_models import LEARNED, NO_POSITIONS, RMS_NORM, ROTARY, feed_forward, part

from triptych.errors import UserError
from triptych.tools.export import ctranslate2 as format_module

ct2 = pytest.importorskip("ctranslate2")
from tokenizers import Tokenizer  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/compare_ctranslate2"
VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm, as shipped": {},
    "post-norm": {"norm_position": "post"},
    "modern": {"norm": RMS_NORM, "positions": ROTARY, "feed_forward": feed_forward("SwiGLU")},
    "learned, GELU": {"positions": LEARNED, "feed_forward": feed_forward("GELU")},
    "unequal depth": {"positions": NO_POSITIONS, "layers": 1},
    "two vocabularies": {"shared": False, "share_embeddings": "none"},
    "shared target": {"share_embeddings": "target", "norm": RMS_NORM, "norm_position": "post"},
    "epsilon": {"norm": part("layers.LayerNorm", epsilon=0.5)},
}


FAST = ("pre-norm, as shipped", "modern")


@pytest.mark.parametrize(
    "variant",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS],
)
def test_probabilities_are_equal(variant: str, tmp_path: Path) -> None:
    source = tiny_models.translator(**VARIANTS[variant])
    format_module.write(source, tmp_path)
    difference = format_module.largest_difference(
        source.model.full_model, source.model.text_format(), tmp_path
    )
    assert difference < 1e-4


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        ("pre-norm, as shipped", lambda spec: setattr(spec.config, "layer_norm_epsilon", 0.5)),
        ("modern", lambda spec: swap_gate(spec.decoder.layer[0].ffn)),
        ("pre-norm, as shipped", lambda spec: setattr(spec.encoder, "scale_embeddings", False)),
        ("learned, GELU", lambda spec: shift(spec.decoder.position_encodings)),
    ],
)
def test_a_wrong_mapping_is_no_export(
    variant: str, fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = format_module.specification

    def wrong(*arguments: Any) -> Any:
        spec = original(*arguments)
        fault(spec)
        return spec

    monkeypatch.setattr(format_module, "specification", wrong)
    with pytest.raises(RuntimeError, match="other probabilities"):
        format_module.write(tiny_models.translator(**VARIANTS[variant]), tmp_path)


def swap_gate(ffn: Any) -> None:
    ffn.linear_0.weight, ffn.linear_0_noact.weight = (
        ffn.linear_0_noact.weight,
        ffn.linear_0.weight,
    )


def shift(encoder: Any) -> None:
    encoder.encodings = encoder.encodings.roll(1, 0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"attention": part("attention.relative.Relative"), "positions": NO_POSITIONS},
         "attention Relative; expected Full"),
        ({"depth": part("universal.Universal")}, "depth Universal; expected Layers"),
    ],
)  # fmt: skip
def test_what_it_cannot_represent(settings: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"CTranslate2 cannot represent model.transformer.{says}"):
        format_module.write(tiny_models.translator(**settings), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is ImageTransformer of the domain image"):
        format_module.write(tiny_models.image_model(), tmp_path)


def test_greedy_translations_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    compared = runpy.run_path(str(SCRIPT))
    source = tiny_models.translator()
    format_module.write(source, tmp_path)
    (best,) = source.model.search(tiny_models.LINES[:1], beam=1)[0]
    # A random model ends no sentence; both have one limit here.
    for limit, equal in ((len(best.tokens), 1), (2, 0)):
        compared["compare"].__globals__["MOST_TOKENS"] = limit
        found = compared["compare"](source, tmp_path, tiny_models.LINES[:1], beam=1)
        assert (found.lines, found.equal) == (1, equal)
        assert min(found.speed) > 0


def test_the_files_alone_translate(tmp_path: Path) -> None:
    source = tiny_models.translator()
    format_module.write(source, tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokens = tokenizer.encode(tiny_models.LINES[0], add_special_tokens=False).tokens
    (result,) = ct2.Translator(str(tmp_path)).translate_batch(
        [tokens], beam_size=1, suppress_sequences=[["<pad>"], ["<s>"]], max_decoding_length=30
    )
    ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
    (best,) = source.model.search(tiny_models.LINES[:1], beam=1)[0]
    assert ids == best.tokens[:30]
