"""Settings to plain JSON types and back; places of errors; files with their lines."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Union, get_type_hints

import numpy as np
import pytest
from jsonargparse import ArgumentParser

from triptych.config.files import read_settings_file
from triptych.config.messages import class_in, is_part, subclass_paths
from triptych.config.schema import (
    from_plain,
    parse_settings,
    parser_for,
    prefer_int,
    to_plain,
)
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.relative import Relative
from triptych.core.heads import MixtureOfLogistics
from triptych.core.layers import RMSNorm, SwiGLU
from triptych.core.positions import Axial, Metrical
from triptych.core.transformer import TransformerConfig
from triptych.domains.image.config import Config as ImageConfig
from triptych.domains.music.config import Augmentation
from triptych.domains.music.config import Config as MusicConfig
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.pictures.image_folder import ImageFolder
from triptych.domains.translation.config import Config as TranslationConfig
from triptych.domains.translation.sources import ParallelText, TabSeparated
from triptych.errors import UserError
from triptych.training.engine.optim import AdamW, Noam
from triptych.training.run.settings import LogConfig

CONFIGS = [ImageConfig, MusicConfig, TranslationConfig]


def changed(config: Any, **parts: Any) -> Any:
    """The settings with fields of their groups replaced: `model={"n_layers": 2}`."""
    return replace(
        config, **{name: replace(getattr(config, name), **fields) for name, fields in parts.items()}
    )


OTHERS = {
    "image": changed(
        ImageConfig(),
        data={"source": ImageFolder("pictures", height=4, width=6, resize=True), "bits": 5},
        model={
            "transformer": TransformerConfig(
                attention=Local2D(
                    block_height=2, block_width=3, halo_up=1, halo_side=2, order="blocks"
                ),
                norm_position="post",
                feed_forward=SwiGLU(99),
                positions=Axial(),
            ),
            "head": MixtureOfLogistics(components=3),
        },
        optim={"optimizer": AdamW(betas=(0.8, 0.9)), "schedule": Noam()},
        run={"name": "그림/a", "early_stopping_patience": 3, "log": LogConfig(samples=False)},
    ),
    "music": changed(
        MusicConfig(),
        data={
            "source": MidiFolder("midi", validation_share=0.2, limit=3),
            "augmentation": Augmentation(transpose=1, stretch=(0.9, 1.0)),
        },
        model={
            "transformer": TransformerConfig(
                attention=Relative(max_distance=5, window=4),
                norm=RMSNorm(1e-6),
                positions=Metrical(((1, 4), (4, 16))),
            ),
            "meter_embedding": False,
            "tokenizer": EventTokenizer(),
        },
    ),
    "translation": changed(
        TranslationConfig(),
        data={
            "source": ParallelText(
                "ko", "en", directory="d", files={"train": ["a | b"], "odd name": ["x.{language}"]}
            )
        },
        model={
            "transformer": TransformerConfig(attention=Local1D(block=8, memory=4)),
            "share_embeddings": "none",
            "n_decoder_layers": 2,
        },
    ),
    "tab-separated": changed(
        TranslationConfig(),
        data={"source": TabSeparated(split_column="part", split_names={"validation": "dev"})},
    ),
}


def types_in(value: Any) -> set[type]:
    if type(value) is dict:
        return {dict}.union(*(types_in(item) for pair in value.items() for item in pair))
    if type(value) is list:
        return {list}.union(*map(types_in, value))
    return {type(value)}


@pytest.mark.parametrize(
    "config", [*(kind() for kind in CONFIGS), *OTHERS.values()], ids=lambda c: c.run.name
)
def test_there_and_back(config: Any) -> None:
    plain = to_plain(config)
    assert types_in(plain) <= {dict, list, str, int, float, bool, type(None)}
    assert json.loads(json.dumps(plain)) == plain, "JSON keeps every value and key"
    again = from_plain(type(config), plain)
    assert again == config
    assert to_plain(again) == plain
    assert type(again.model.transformer.attention) is type(config.model.transformer.attention)


def test_a_part_is_written_with_its_class() -> None:
    plain = to_plain(OTHERS["image"])
    assert plain["model"]["head"] == {
        "class_path": "triptych.core.heads.MixtureOfLogistics",
        "init_args": {"components": 3, "neighbours": False},
    }
    assert "class_path" not in plain["run"], "a group of which there is one kind is spread out"


def test_what_is_left_out_takes_its_default() -> None:
    for kind in CONFIGS:
        assert from_plain(kind, {}) == kind()
    part = {"attention": {"class_path": "triptych.core.attention.relative.Relative"}}
    for attention in (part, {"attention": "Relative"}):
        found = from_plain(ImageConfig, {"model": {"transformer": attention}}).model.transformer
        assert found == replace(ImageConfig().model.transformer, attention=Relative())


@dataclass(frozen=True)
class Odd:
    """Values that are nearly plain."""

    value: Any
    made: int = dataclasses.field(default=3, init=False)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(0.5), 0.5),
        (Path("a/b"), "a/b"),
        ((1, (2, 3)), [1, [2, 3]]),
        ({1: True}, {"1": True}),
        (None, None),
        (True, True),
    ],
    ids=repr,
)
def test_nearly_plain_values(value: Any, plain: Any) -> None:
    found = to_plain(Odd(value))
    assert found == {"value": plain}, "what no argument sets is left out"
    assert types_in(found) == types_in({"value": plain})


def test_what_has_no_plain_form() -> None:
    for value in (object(), {1, 2}, np.zeros(2)):
        with pytest.raises(TypeError, match="no plain form"):
            to_plain(Odd(value))


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"modle": {}}, "unknown key modle; did you mean model?"),
        (
            {"model": {"transformer": {"attention": {"class_path": "os.system"}}}},
            "os.system is not a kind of AttentionConfig",
        ),
    ],
    ids=str,
)
def test_a_mistake_names_where_it_was_read(plain: Any, says: str) -> None:
    with pytest.raises(UserError) as caught:
        from_plain(ImageConfig, plain, where="the checkpoint x.ckpt")
    assert str(caught.value).startswith("the checkpoint x.ckpt: ")
    assert says in str(caught.value)


def test_every_setting_of_every_kind_has_a_sentence_and_a_type() -> None:
    """The literal below a field is its help; an unresolved type would accept any value."""
    found = set()
    for config in CONFIGS:
        groups = [class_in(hint) for hint in get_type_hints(config).values()]
        hints = [hint for group in groups for hint in get_type_hints(group).values()]
        parts = [class_in(hint) for hint in hints if is_part(hint)]
        for kind in [
            config,
            *(
                resolve_name(path)
                for part in parts
                for path in subclass_paths(part)
                if path.startswith("triptych.")  # other tests declare parts of their own
            ),
        ]:
            parser = parser_for(kind, prog="x", description="x", config=False)
            for action in parser._actions:
                if action.option_strings and not action.dest.endswith(("help", "config")):
                    found.add(action.dest)
                    assert action.help, f"{kind.__module__}: {action.dest}"
                    unchecked = "Unvalidated" in repr(getattr(action, "_typehint", None))
                    assert not unchecked, f"{kind.__module__}: {action.dest}"
    assert {"run.seed", "directory", "model.transformer.n_layers"} <= found


@pytest.mark.parametrize("hint", [Union[float, int, None], Union[int, float, str]])  # noqa: UP007
def test_a_whole_number_stays_whole_in_any_order_of_its_type(hint: Any) -> None:
    """1 is one batch and 1.0 is all of them, in Lightning's limit_train_batches."""
    parser = ArgumentParser()
    parser.add_argument("--limit", type=hint)
    prefer_int(parser)
    for text, value in (("1", 1), ("1.0", 1.0), ("0.5", 0.5)):
        found = parser.parse_args(["--limit", text]).limit
        assert (type(found), found) == (type(value), value)


def test_the_file_and_line_of_an_error(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("# first\nmodel:\n transformer:\n  d_model: 8\n  attention:\n"
                     "    class_path: Relative\n"
                     "    init_args:\n      window: 3\nrun: {seed: 2}\n")  # fmt: skip
    second.write_text("run:\n  name: x\n")
    parser = parser_for(ImageConfig, prog="x", description="x")
    files = ["--config", str(first), "--config", str(second)]
    values, locate = parse_settings(parser, [*files, "--model.transformer.n_heads", "2"])
    assert (values.run.seed, values.run.name, values.model.transformer.n_heads) == (2, "x", 2)
    assert locate("model.transformer.d_model") == f"{first}, line 4"
    assert locate("model.transformer.attention.window") == f"{first}, line 8"
    assert locate("run.seed") == f"{first}, line 9"
    assert locate("run.name") == f"{second}, line 2"
    assert locate("model.transformer.n_heads") == "the command line"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "cannot be read"),
        (b"a: 1\na: 2\n", "line 2: a was already set on line 1"),
        (b"a: {b: 1, b: 2}\n", "line 1: a.b was already set"),
        (b"a: [1\n", "is not YAML"),
        (b"word", "holds a str"),
        (b"# nothing\n", "holds nothing"),
    ],
    ids=repr,
)
def test_a_settings_file_that_is_none(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_settings_file(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
