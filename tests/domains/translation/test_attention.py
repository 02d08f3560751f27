"""What a translation reads: pieces that can be read, shares that add up, pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triptych.core.universal import Halting, Universal
from triptych.domains.translation import render
from triptych.domains.translation.domain import TranslationAttentionOptions
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.model import END, SPECIALS, START
from triptych.domains.translation.render import (
    SentenceAttention,
    draw,
    heat_map,
    merge_pieces,
    pieces,
)
from triptych.domains.translation.task import TranslationTrainingModule
from triptych.errors import UserError
from triptych.files import drawing
from triptych.files.results import OutputFolder
from triptych.text.byte_level import BytePairs
from triptych.text.tokenizer import TextTokenizer

LINES = ["two hundred and thirty-four", "", "저는 grüße 機器"]


@pytest.fixture(scope="module")
def translator(taught: TranslationTrainingModule) -> TranslationModel:
    return TranslationModel.of_run(taught.config, taught.model, taught.tokenizers)


@pytest.fixture(scope="module")
def bytes_only() -> TextTokenizer:
    """Every byte is a piece: each Korean or Chinese character is cut into three."""
    return BytePairs().build(["nothing"], 259, SPECIALS)


def test_a_piece_holds_whole_characters(bytes_only: TextTokenizer) -> None:
    ids = [*bytes_only.encode("저는 a機"), END]
    runs, names = pieces(bytes_only, ids)
    assert names == ["저", "는", "·", "a", "機", "<end>"]
    assert runs == [3, 3, 1, 1, 3, 1]
    assert sum(runs) == len(ids)


def test_bytes_that_make_no_text_stand_alone(bytes_only: TextTokenizer) -> None:
    whole = bytes_only.encode("저")
    runs, names = pieces(bytes_only, [whole[0], *bytes_only.encode("a"), *whole, whole[0]])
    assert names == ["\ufffd", "a", "저", "\ufffd"]
    assert runs == [1, 1, 3, 1]


def test_pieces_are_the_ids_where_these_are_text(taught: TranslationTrainingModule) -> None:
    tokenizer = taught.tokenizers.source
    ids = tokenizer.encode(LINES[0])
    runs, names = pieces(tokenizer, ids)
    assert runs == [1] * len(ids)
    assert "".join(names).replace("·", " ") == LINES[0]
    assert pieces(tokenizer, []) == ([], [])


def test_shares_of_pieces_still_add_up_to_1() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [1.0, 0.0, 0.0, 0.0]])
    found = merge_pieces(weights, [2, 1], [1, 3])
    torch.testing.assert_close(found, torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
    assert merge_pieces(weights, [1, 1, 1], [1, 1, 1, 1]).equal(weights)


def test_each_line_has_its_translation_and_its_weights(translator: TranslationModel) -> None:
    found = list(translator.attention(LINES, beam=2))
    plain = translator.translate(LINES, beam=2)
    assert [one.source for one in found] == [LINES[0], LINES[2]], "blank lines are left out"
    for line, text, one in zip(LINES[::2], plain[::2], found, strict=True):
        assert (one.source, one.translation) == (line, text)
        assert one.source_pieces[-1] == "<end>"
        assert (one.layer, one.head) == (1, None)
        cross, encoder = np.array(one.cross), np.array(one.encoder)
        assert cross.shape == (len(one.target_pieces), len(one.source_pieces))
        assert encoder.shape == (len(one.source_pieces),) * 2
        for weights in (cross, encoder):
            assert (weights >= 0).all()
            assert weights.sum(1) == pytest.approx(1, abs=1e-6)
        alone = next(iter(translator.attention([line], beam=2)))
        assert np.array(alone.cross) == pytest.approx(cross, abs=1e-5)


def test_the_weights_are_those_of_the_model_by_hand(translator: TranslationModel) -> None:
    """The first layer's cross-attention, head by head, from the parts of the model."""
    line = LINES[0]
    one = next(iter(translator.attention([line], beam=1, head=2)))
    task, model = translator, translator.full_model
    source = torch.tensor([[*task.vocabulary.source.encode(line), END]])
    target = translator.search([line], beam=1)[0][0].tokens
    block = model.decoder.blocks[0]
    with torch.no_grad():
        memory = model.encode(source).memory.features
        x = model._embed(model.target_embedding, torch.tensor([[START, *target]]))
        x = block.attention_residual(x, block.attention)
        q = block.cross.q_proj(block.cross_residual.norm(x))[0]  # [T, D]
        k, _ = block.cross.kv_proj(memory)[0].chunk(2, -1)  # [S, D]
        width = q.shape[1] // 2
        logits = q[:, width:] @ k[:, width:].T / width**0.5
        encoder = model.encoder.blocks[0]
        entered = model._embed(model.source_embedding, source)
        self_weights = encoder.attention.weights(encoder.attention_residual.norm(entered))
    rows, _ = pieces(task.vocabulary.target, [*target, END])
    by_hand = merge_pieces(logits.softmax(-1), rows, [1] * source.shape[1])
    assert np.array(one.cross) == pytest.approx(by_hand.numpy(), abs=1e-6)
    assert np.array(one.encoder) == pytest.approx(self_weights[0, 1].numpy(), abs=1e-6)
    mean, first = (next(iter(translator.attention([line], beam=1, head=h))) for h in (None, 1))
    both = (np.array(one.cross) + np.array(first.cross)) / 2
    assert np.array(mean.cross) == pytest.approx(both, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layer": 2}, "layer must be from 1 to 1"),
        ({"layer": 0}, "layer must be from 1 to 1"),
        ({"head": 3}, "head must be from 1 to 2, got 3"),
    ],
)
def test_a_layer_or_head_that_is_not_there(
    translator: TranslationModel, options: dict[str, int], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        list(translator.attention(["one"], **options))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn."""
    drawn: list[Any] = []

    def png(figure: Any) -> bytes:
        drawn.append(figure)
        return b"%d" % len(drawn)

    monkeypatch.setattr(render, "png", png)
    return drawn


def names(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


HALTED = SentenceAttention(
    "one two", "ein zwei drei", 2, 1, ["one", "two"], ["ein", "zwei", "d", "rei"],
    cross=[[0.1, 0.5], [0.2, 0.4], [0.3, 0.3], [0.0, 0.7]], encoder=[[0.6, 0.4], [0.9, 0.1]],
    source_steps=[1.0, 2.5], target_steps=[3.0, 1.0, 2.0, 2.0],
)  # fmt: skip


def test_drawings_show_weights_by_piece(figures: list[Any]) -> None:
    assert draw(HALTED) == b"1"
    axes = figures[0].axes[0]
    (image,) = axes.images
    assert image.get_array().tolist() == HALTED.cross
    assert image.get_clim() == (0, max(map(max, HALTED.cross)))
    assert (names(axes.xaxis), names(axes.yaxis)) == (HALTED.source_pieces, HALTED.target_pieces)
    wide = heat_map(np.full((2, 60), 1 / 60).tolist(), ["x"] * 2, ["long"] * 60)
    assert wide == b"2"
    assert figures[0].get_size_inches().tolist() == pytest.approx([4.5, 3.0])
    assert figures[1].get_size_inches().tolist() == pytest.approx([60 * 0.34 + 2.2, 3.0])
    tall = heat_map(np.full((200, 1), 1.0).tolist(), ["x"] * 200, ["y"])
    assert tall == b"3"
    assert figures[2].get_size_inches().tolist() == pytest.approx([4.5, 31.6]), "scaled down"
    slants = [
        label.get_rotation() for n in (0, 1) for label in figures[n].axes[0].get_xticklabels()
    ]
    assert slants == [45] * 62
    heat_map([[1.0]], ["x"], ["to"])
    assert figures[3].axes[0].get_xticklabels()[0].get_rotation() == 0


def test_each_sentence_has_its_drawing_in_the_folder(
    translator: TranslationModel,
    figures: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Numbered as the lines are, blank ones too."""
    found = [replace(HALTED, source=line) for line in ("a", "b")]
    (tmp_path / "lines.txt").write_text("a\n\nb\n", encoding="utf-8")
    options = TranslationAttentionOptions(
        checkpoint="x", out="y", input=str(tmp_path / "lines.txt")
    )
    folder = OutputFolder(str(tmp_path / "out"), overwrite=False)
    monkeypatch.setattr(
        translator, "attention", lambda lines, layer=None, head=None, beam=0: iter(found)
    )
    translator.write_attention(options, folder)
    drawings = {f"sentence-00{n}.png" for n in (1, 3)}
    numbers = json.loads((tmp_path / "out/attention.json").read_text())
    assert [(one["drawing"], one["source"]) for one in numbers] == [
        ("sentence-001.png", "a"), ("sentence-003.png", "b")
    ]  # fmt: skip
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert files.keys() == {"attention.json", *drawings}
    assert [files[f"sentence-00{n}.png"] for n in (1, 3)] == [b"1", b"2"]
    with pytest.raises(UserError, match="already holds"):
        translator.write_attention(options, folder)


def drawn(piece: str) -> bytes:
    return draw(SentenceAttention("", "", 1, None, [piece], ["a"], cross=[[1.0]], encoder=[[1.0]]))


def test_letters_that_no_font_has_are_told_and_drawn_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert drawn("zwölf·<end>")
    assert capsys.readouterr().err == ""
    assert drawn("b\U0010fffd")
    assert "no installed font has a letter for \U0010fffd:" in capsys.readouterr().err


def test_dollars_in_a_piece_are_no_formula() -> None:
    assert heat_map([[1.0]], ["$_$"], ["$$"])


def test_korean_and_chinese_find_their_font_where_there_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fonts = drawn("저機")
    if capsys.readouterr().err:
        pytest.skip("no font with Korean and Chinese is installed here")
    monkeypatch.setattr(drawing, "installed_fonts", lambda: [drawing.DEFAULT_FONT])
    assert with_fonts != drawn("저機"), "boxes"


def test_a_model_that_halts_shows_the_steps_of_each_piece(
    taught: TranslationTrainingModule,
) -> None:
    settings = taught.config.model.transformer
    settings = replace(settings, n_layers=3, depth=Universal(Halting()))
    config = replace(taught.config, model=replace(taught.config.model, transformer=settings))
    model = config.build_model(taught.tokenizers).eval()
    torch.nn.init.constant_(model.encoder.depth.halting.unit.bias, 20.0)
    torch.nn.init.constant_(model.decoder.depth.halting.unit.bias, -20.0)
    translator = TranslationModel.of_run(config, model, taught.tokenizers)
    (one,) = translator.attention([LINES[0]], beam=1, layer=2)
    assert one.source_steps == [1.0] * len(one.source_pieces)
    assert one.target_steps == [3.0] * len(one.target_pieces)
    last = next(iter(translator.attention([LINES[0]], beam=1)))
    assert one.layer == 2
    assert last.layer == 3
    assert one.cross != last.cross


def test_a_model_without_halting_has_no_steps(translator: TranslationModel) -> None:
    (one,) = translator.attention([LINES[0]], beam=1)
    assert one.source_steps is None
    assert one.target_steps is None
