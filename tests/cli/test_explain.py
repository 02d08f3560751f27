"""`triptych explain`: figures from tiny checkpoints; mistakes end in a sentence."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from PIL import Image
from tiny_models import image_model

import triptych
from triptych.tools.explain.figure import descriptions, find_figure

images, translator = (
    import_module(f"triptych.lectures.{name}") for name in ("images", "translator")
)
SENTENCE = "zwölf"


@pytest.fixture
def few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "FRAMES", 3)


def test_list_has_every_figure_and_its_sentence(cli) -> None:
    answer = cli("explain")
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()] == list(descriptions())


def test_a_figure_without_a_model(cli, tmp_path: Path) -> None:
    assert cli("explain", "mask", "--out", "a/b", "--seed", 2).code == 0
    with Image.open(tmp_path / "a/b/mask.png") as picture:
        assert picture.format == "PNG"
    again = cli("explain", "mask", "--out", "a/b")
    assert (again.code, "already holds mask.png" in again.err) == (2, True)
    assert cli("explain", "mask", "--out", "a/b", "--overwrite").code == 0


@pytest.mark.slow
def test_all_figures_with_a_checkpoint_of_translation(
    cli, tmp_path: Path, english_checkpoint: Path, few_frames: None
) -> None:
    command = ["explain", "all", "--checkpoint", english_checkpoint, "--sentence", SENTENCE]
    answer = cli(*command, "--out", "figures")
    assert answer.code == 0, answer.err
    files = {find_figure(name).file for name in descriptions()}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == files
    for path in (tmp_path / "figures").iterdir():
        if path.suffix != ".txt":
            with Image.open(path) as picture:
                assert min(picture.size) > 100


def test_a_sentence_is_walked_through_its_greedy_translation(cli, english_checkpoint: Path) -> None:
    answer = cli("explain", "sentence", "--checkpoint", english_checkpoint, "--sentence", SENTENCE)
    assert answer.code == 0, answer.err
    model = triptych.load(english_checkpoint)
    (line,) = model.translate([SENTENCE], beam=1)
    assert f"The pieces joined:         {line}\n" in answer.out
    ids = [*model.vocabulary.source.encode(SENTENCE), 2]
    assert f"Tokens: {len(ids)}" in answer.out
    assert " ".join(map(str, ids)) in answer.out
    assert f"Memory: [1, {len(ids)}, 32]" in answer.out
    # In greedy search every token that is written is the best candidate of its step.
    steps = re.findall(r"softmax:\n +(\S*) +([\d.]+)(  <- written)?", answer.out)
    assert len(steps) == len(model.search([SENTENCE], beam=1)[0][0].tokens) + 1
    assert all(written for _, _, written in steps)


def test_steps_have_the_probabilities_of_one_pass(english_checkpoint: Path) -> None:
    import torch

    model = triptych.load(english_checkpoint)
    sentence = translator.translated(model, SENTENCE)
    attended, steps = translator.frames(model, SENTENCE, None)
    with torch.no_grad():
        logits = model.full_model(
            torch.tensor([sentence.source]), None, torch.tensor([[1, *sentence.target[:-1]]])
        )[0]  # [L, V]
    logits[:, [0, 1]] = -torch.inf
    expected = logits.softmax(-1)
    assert len(steps) == len(attended.target_pieces)
    position = 0
    for step in steps:  # of the first token of each piece
        position = sentence.target.index(step.written, position)
        for token, probability in step.candidates:
            assert probability == pytest.approx(float(expected[position, token]), abs=1e-5)


def test_attention_rows_add_up_and_the_decoder_reads_nothing_later(
    english_checkpoint: Path,
) -> None:
    import numpy as np

    model = triptych.load(english_checkpoint)
    found = translator.attention_of(model, translator.translated(model, SENTENCE), None)
    decoder = np.array(found.decoder)
    assert decoder.shape == (len(found.target_pieces), len(found.decoder_pieces))
    assert found.decoder_pieces == ["<start>", *found.target_pieces][: decoder.shape[1]]
    assert np.triu(decoder, 1).max() == 0
    for weights in (decoder, found.cross, found.encoder):
        assert np.array(weights).sum(1) == pytest.approx(1, abs=1e-6)


def test_layers_of_the_animation_are_those_of_the_model(english_checkpoint: Path) -> None:
    import numpy as np

    model = triptych.load(english_checkpoint)
    sentence = translator.translated(model, "acht")  # a piece for each id
    layers = translator.weights_of_layers(model, sentence)
    assert len(layers.decoder) == len(layers.cross) == len(model.full_model.decoder.blocks)
    for number, (encoder, decoder, cross) in enumerate(zip(*layers, strict=False), start=1):
        assert decoder.triu(1).max() == 0
        of_layer = translator.attention_of(model, sentence, number)
        np.testing.assert_allclose(of_layer.encoder, encoder, atol=1e-6)
        np.testing.assert_allclose(of_layer.cross, cross, atol=1e-6)


def test_frames_of_an_image_follow_its_order(image_checkpoint: Path) -> None:
    model = triptych.load(image_checkpoint)
    image, frames = images.frames(model, 4, 0)
    assert image.shape == (8, 8, 1)
    assert [int(frame.known.sum()) for frame in frames] == sorted(
        8 * frame.pixel[0] + frame.pixel[1] for frame in frames
    )
    for frame in frames:
        assert frame.probabilities.sum() == pytest.approx(1)


def test_completions_keep_the_given_half_and_have_their_classes() -> None:
    model = image_model(class_conditional=True).model
    found = images.completed(model, 1, 2)
    assert list(found.by_class) == [1, 0]
    assert found.image.tolist() == model.sample(1, seed=2, label=1)[0].tolist()
    assert found.filled.sum(1).tolist() == [0, 0, 4, 4]
    given = found.image[None].repeat(2, axis=0)
    again = model.complete(given, found.filled, images.COUNT, labels=[1, 0], seed=2)
    assert again.shape == (2, images.COUNT, 4, 4, 3)
    for label, completions in zip((1, 0), again, strict=True):
        assert (found.by_class[label] == completions).all()
        assert (completions[:, :2] == found.image[:2]).all()


def test_a_model_without_classes_completes_its_image() -> None:
    found = images.completed(image_model().model, None, 0)
    assert list(found.by_class) == [None]
    assert found.by_class[None].shape == (images.COUNT, 4, 4, 3)
    assert (found.by_class[None][:, :2] == found.image[:2]).all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "a"], ["required: name"]),
        (["masks", "--out", "a"], ["no figure 'masks'", "did you mean mask?"]),
        (["mask"], ["explain mask needs a folder", "--out DIR"]),
        (["mask", "--out", ""], ["--out is empty"]),
        (["mask", "--out", "a", "--sentence", "x"], ["mask has no option --sentence"]),
        (["heads", "--out", "a", "--sentence", " "], ["sentence is empty"]),
        (["heads", "--out", "a", "--seeds", 0], ["--seeds"]),
    ],
)
def test_explain_refuses(refused, arguments: list[object], says: list[str]) -> None:
    refused("explain", *arguments, says=says)


def test_explain_refuses_models_of_another_kind(
    refused, image_checkpoint: Path, translation_checkpoint: Path, music_run
) -> None:
    of = ["--out", "a", "--checkpoint"]
    refused("explain", "heads", *of, image_checkpoint, says=["domain image", "translation"])
    refused("explain", "all", *of, music_run.checkpoint, says=["domain music", "image and"])
    refused(
        "explain", "digit", *of, image_checkpoint, "--label", 10, says=["label is 10", "10 classes"]
    )
    refused("explain", "completion", *of, image_checkpoint, "--label", 10, says=["label is 10"])
    layers = ["--sentence", "one", "--layer", 5]
    refused("explain", "heads", *of, translation_checkpoint, *layers, says=["from 1 to 1, got 5"])
    languages = ["explain", "sentence", "--checkpoint", translation_checkpoint]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translator, "EXAMPLES", {})
        refused(*languages, says=["no example sentence in", "--sentence"])
