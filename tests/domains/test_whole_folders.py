"""`evaluate --split all`: a folder that is nothing but a test set is scored whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pretty_midi
import pytest
from noisy_sources import CopiedMotifs
from pretty import pretty, write_midi
from random_head import with_random_head
from starter_data import write_images
from tiny_music import tiny_model
from torch import Tensor

from triptych.core.attention.full import Full
from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.image.config import Config as ImageConfig
from triptych.domains.image.inference import ImageModel
from triptych.domains.image.model import ModelConfig as ImageModelConfig
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.pictures.config import DataConfig as ImageData
from triptych.domains.pictures.data import ImageDataset, concatenate
from triptych.domains.pictures.image_folder import ImageFolder
from triptych.domains.pictures.sources import ImageSource
from triptych.errors import UserError

SIZES = TransformerConfig(n_layers=1, d_model=8, n_heads=1, feed_forward=GELU(8), attention=Full())


def images(folder: Path, count: int) -> None:
    write_images(folder, count, (2, 3), seed=sum(folder.name.encode()))


def image_model(folder: Path) -> ImageModel:
    source = ImageFolder(directory=str(folder), height=2, width=3, channels=1)
    sizes = ImageModelConfig(SIZES)
    config = ImageConfig(data=ImageData(source=source), model=sizes)
    vocabulary = config.data.read("train").vocabulary()
    return ImageModel.of_run(config, with_random_head(config.build_model(vocabulary)), vocabulary)


@pytest.mark.parametrize("count", [1, 7])
def test_an_image_folder_however_small_is_scored_whole(tmp_path: Path, count: int) -> None:
    images(tmp_path / "own", 30)
    images(tmp_path / "other", count)
    model = image_model(tmp_path / "own")
    scored = model.evaluate("all", data=tmp_path / "other")
    assert (scored.split, scored.count) == ("all", count)
    assert scored.details["histogram_bits_per_dim"] is None  # its images would be the scored ones


def test_classes_stay_with_their_images(tmp_path: Path) -> None:
    images(tmp_path / "cats", 9)
    images(tmp_path / "dogs", 9)
    source = ImageFolder(directory=str(tmp_path), height=2, width=3, channels=1)
    of_split = [source.load(split) for split in ("train", "validation", "test")]
    for whole in (source.load("all"), concatenate([*ImageSource.stream(source, "all")])):
        assert whole.class_names == ("cats", "dogs")
        assert whole.labels is not None
        assert whole.labels.bincount().tolist() == [9, 9]
        found = {pixels.numpy().tobytes(): int(c) for pixels, c in zip(*of(whole), strict=True)}
        assert len(found) == len(whole) == 18
        for part in of_split:
            for pixels, label in zip(*of(part), strict=True):
                assert found[pixels.numpy().tobytes()] == int(label)


def of(images: ImageDataset) -> tuple[Tensor, Tensor]:
    assert images.labels is not None
    return images.pixels, images.labels


def test_folders_of_splits_are_scored_whole_too(tmp_path: Path) -> None:
    for split, count in (("train", 5), ("val", 4), ("test", 3)):
        images(tmp_path / split, count)
    source = ImageFolder(directory=str(tmp_path), height=2, width=3, channels=1)
    assert len(source.load("all")) == 12


def test_images_that_are_all_broken_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    source = ImageFolder(directory=str(tmp_path), height=2, width=3, channels=1)
    with pytest.raises(UserError, match=r"of 1 files 1 cannot be read"):
        source.load("all")


def music_model(source: PieceSource) -> MusicModel:
    tokenizer = EventTokenizer() if isinstance(source, MidiFolder) else ChoraleTokenizer()
    return tiny_model(source, length=128, overlap=64, tokenizer=tokenizer)


def performances(folder: Path, count: int) -> Path:
    """So many MIDI files of eight notes each, all different."""
    folder.mkdir()
    for pitch in range(40, 40 + count):
        midi = pretty_midi.PrettyMIDI()
        piano = pretty_midi.Instrument(0)
        for index in range(8):
            piano.notes.append(pretty_midi.Note(60, pitch, index / 4, index / 4 + 0.2))
        midi.instruments.append(piano)
        midi.write(str(folder / f"{pitch}.mid"))
    return folder


@pytest.mark.parametrize("count", [1, 6])
def test_a_folder_of_performances_however_small_is_scored_whole(tmp_path: Path, count: int) -> None:
    model = music_model(MidiFolder(directory="elsewhere"))
    folder = performances(tmp_path / "other", count)
    scored = model.evaluate("all", data=folder)
    assert (scored.split, scored.count) == ("all", count)
    assert scored.details["notes"] == 8 * count


def test_a_model_of_chorales_scores_a_folder_of_midi_files(tmp_path: Path) -> None:
    """The file of its own data is read where the folder has one."""
    tokenizer = ChoraleTokenizer()
    grids = [piece.content for piece in Scales().load("test", tokenizer)]
    for number, grid in enumerate(grids):
        write_midi(pretty(tokenizer.to_score(tokenizer.encode(grid))), tmp_path / f"{number}.mid")
    for own in (JSBChorales(directory="elsewhere"), CopiedMotifs()):
        scored = music_model(own).evaluate("all", data=tmp_path)
        assert scored.count == len(grids)
        assert scored.details["tokens"] == 80 * len(grids)
    (tmp_path / "Jsb16thSeparated.json").write_text(json.dumps({"test": grids[0][:2].tolist()}))
    with pytest.raises(UserError, match="is not the JSB file"):
        music_model(JSBChorales(directory="elsewhere")).evaluate("test", data=tmp_path)
    with pytest.raises(UserError, match="nowhere does not exist"):
        music_model(JSBChorales(directory="elsewhere")).evaluate("all", data="nowhere")


def test_chorales_have_no_count_models_beside_all_of_them() -> None:
    """They would have counted the very pieces that are scored."""
    model = music_model(Scales())
    assert set(model.evaluate("test").details["nats_per_token_of"]) > {"uniform"}
    scored = model.evaluate("all", data="any")
    assert scored.count == 3
    assert set(scored.details["nats_per_token_of"]) == {"uniform"}


@dataclass(frozen=True)
class Scales(PieceSource):
    """One piece of chords a split."""

    content = ChoraleTokenizer.content
    directory: str = ""

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        return [Piece(split, np.random.default_rng(len(split)).integers(40, 80, (20, 4)))]


def test_neither_a_limit_nor_a_csv_leaves_a_piece_out(tmp_path: Path) -> None:
    folder = performances(tmp_path / "midi", 6)
    (folder / "split.csv").write_text("midi_filename,split\n40.mid,test\n41.mid,train\n")
    source = MidiFolder(directory=str(folder), limit=1)
    whole, test = (
        source.load("all", EventTokenizer()),
        source.load("test", EventTokenizer()),
    )
    assert [piece.name for piece in whole] == [f"{pitch}.mid" for pitch in range(40, 46)]
    assert [piece.name for piece in test] == ["40.mid"]


def test_the_data_of_the_model_itself_are_not_scored_whole(tmp_path: Path) -> None:
    images(tmp_path, 30)
    with pytest.raises(UserError, match="expected their folder as --data, got none"):
        image_model(tmp_path).evaluate("all")
    with pytest.raises(UserError, match=r"was not trained on: .* got /.*x"):
        image_model(tmp_path).evaluate("all", data=tmp_path / "x" / "..")
    model = music_model(Scales())
    with pytest.raises(UserError, match="expected their folder as --data, got none"):
        model.evaluate("all")


def test_a_folder_without_anything_to_use_is_told(tmp_path: Path) -> None:
    source = MidiFolder(directory=str(tmp_path))
    with pytest.raises(UserError, match="none of the 0 MIDI files"):
        source.load("all", EventTokenizer())
    (tmp_path / "broken.mid").write_bytes(b"MThd")
    with pytest.raises(UserError, match=r"1 MIDI files cannot be used; broken\.mid"):
        source.load("all", EventTokenizer())


def test_a_split_that_holds_nothing_says_how_it_is_filled(tmp_path: Path) -> None:
    folder = performances(tmp_path / "midi", 2)
    source = MidiFolder(directory=str(folder), validation_share=0.01, test_share=0.01)
    with pytest.raises(UserError, match=r"hash .* none of the 2 MIDI files into it"):
        source.load("test", EventTokenizer())
    (folder / "split.csv").write_text("midi_filename,split\n40.mid,train\n41.mid,train\n")
    with pytest.raises(UserError, match="the csv puts none of the 2 MIDI files into it"):
        source.load("test", EventTokenizer())
