"""The command line called inside this process, and one tiny trained run of each domain."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pretty_midi
import pytest
import yaml
from export_cases import rewritten
from number_tables import write_numbers

from triptych.cli.main import main
from triptych.config.schema import to_plain


def gelu(d_ff: int) -> dict[str, Any]:
    return {"class_path": "triptych.core.layers.GELU", "init_args": {"d_ff": d_ff}}


MODEL = {
    "n_layers": 1, "d_model": 16, "n_heads": 2, "dropout": 0.0, "feed_forward": gelu(16)
}  # fmt: skip
TRAINER = {
    "max_steps": 3,
    "val_check_interval": 3,
    "check_val_every_n_epoch": None,
    "num_sanity_val_steps": 0,
    "accelerator": "cpu",
}


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Call `triptych` with arguments, in an empty folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: Any, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    return call


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its content; folders stand for themselves, with None."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def refused(cli: Cli, tmp_path: Path) -> Callable[..., str]:
    """Call `triptych`, which must answer one sentence with exit code 2 and touch nothing."""

    def call(*arguments: Any, says: list[str], stdin: bytes = b"") -> str:
        before = snapshot(tmp_path)
        answer = cli(*arguments, stdin=stdin)
        assert answer.code == 2, answer
        assert answer.out == ""
        assert answer.err.startswith("triptych: ")
        assert answer.err.count("\n") == 1, answer.err
        assert answer.err.endswith("\n")
        missing = [part for part in says if part not in answer.err]
        assert not missing, (missing, answer.err)
        assert snapshot(tmp_path) == before
        return answer.err

    return call


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder can be written; done by hand, as root (whom tests may run as) may write all."""

    def denied(*arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", denied)


def settings(data: dict[str, Any], **run: Any) -> dict[str, Any]:
    return {
        "data": data,
        "model": {"transformer": dict(MODEL)},
        "run": {"wandb": "off", **run},
        "trainer": dict(TRAINER),
    }


def digits() -> dict[str, Any]:
    content = settings({"batch_size": 8, "validation_limit": 8, "samples": 2})
    content["model"]["class_conditional"] = True
    return content


def numbers(folder: Path) -> dict[str, Any]:
    source = write_numbers(folder / "numbers", train_size=100, validation_size=8, test_size=8)
    return settings(
        {
            "source": to_plain(source),
            "vocabulary_size": 270,
            "max_tokens": 512,
            "validation_lines": 4,
        }
    )


def performances(directory: Path) -> dict[str, Any]:
    source = {
        "class_path": "triptych.domains.music.sources.midi_folder.MidiFolder",
        "init_args": {"directory": str(directory), "validation_share": 0.3, "test_share": 0.3},
    }
    content = settings(
        {
            "source": source,
            "sequence_length": 32,
            "overlap": 16,
            "batch_size": 2,
            "samples": 1,
            "sample_seconds": 1,
        }
    )
    content["model"]["tokenizer"] = "EventTokenizer"
    return content


def write_piece(path: Path, *, first_pitch: int, count: int = 12) -> Path:
    midi = pretty_midi.PrettyMIDI()
    piano = pretty_midi.Instrument(0)
    for index in range(count):
        pitch, onset = first_pitch + index * 3 % 30, index * 0.25
        piano.notes.append(pretty_midi.Note(60, pitch, onset, onset + 0.2))
    midi.instruments.append(piano)
    midi.write(str(path))
    return path


def write_yaml(path: Path, content: Any) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture
def tiny_settings(
    music_run: MusicRun, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """The settings of each domain's run below."""
    made: dict[str, Any] = {"image": digits}
    made["translation"] = lambda: numbers(tmp_path_factory.mktemp("numbers"))
    made["music"] = lambda: performances(music_run.folder / "midi")
    return lambda domain: made[domain]()


@pytest.fixture
def configs(tmp_path: Path, tiny_settings: Any) -> Callable[..., Path]:
    """Write the settings of a domain's tiny run, in which each weight that is not frozen changes.

    transformer: changes of it. optim: settings of the optimiser's group.
    """

    def written(
        domain: str, *, optimizer: str = "AdamW", transformer: Any = (), **optim: Any
    ) -> Path:
        content = tiny_settings(domain)
        content["model"]["transformer"] |= dict(transformer)
        chosen = {"class_path": optimizer, "init_args": {"weight_decay": 0.5}}
        constant = {"class_path": "Constant", "init_args": {"warmup_steps": 1}}
        content["optim"] = {
            "learning_rate": 0.1,
            "schedule": constant,
            "optimizer": chosen,
            **optim,
        }
        content["run"]["directory"] = str(tmp_path / "runs")
        return write_yaml(tmp_path / "settings.yaml", content)

    return written


@pytest.fixture
def digits_yaml(tmp_path: Path) -> Path:
    return write_yaml(tmp_path / "digits.yaml", digits())


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        yield


@pytest.fixture(scope="session")
def image_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    with working_in(folder):
        assert (
            main(["train", "image", "--config", str(write_yaml(folder / "d.yaml", digits()))]) == 0
        )
    return folder / "runs/run/checkpoints/best.ckpt"


@pytest.fixture(scope="session")
def translation_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translation")
    path = write_yaml(folder / "n.yaml", numbers(folder))
    with working_in(folder):
        assert main(["train", "translation", "--config", str(path)]) == 0
    return folder / "runs/run/checkpoints/best.ckpt"


@pytest.fixture(scope="session")
def english_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model into English that has learnt something: its translations differ from line to line.

    Its text files, test.en among them, lie in the folder `text` beside `runs`.
    """
    folder = tmp_path_factory.mktemp("english")
    (folder / "text").mkdir()
    sizes = {"train_size": 300, "validation_size": 8, "test_size": 60}
    languages = {"source_language": "de", "target_language": "en"}
    words = write_numbers(folder / "numbers", **languages, **sizes)
    for split in words.splits():
        for side, language in enumerate(("de", "en")):
            lines = "".join(f"{pair[side]}\n" for pair in words.items(split))
            (folder / f"text/{split}.{language}").write_text(lines, encoding="utf-8")
    content = numbers(folder / "small")
    files = {split: [f"{split}.{{language}}"] for split in words.splits()}
    content["data"]["source"] = {
        "class_path": "triptych.domains.translation.sources.ParallelText",
        "init_args": {
            "source_language": "de",
            "target_language": "en",
            "directory": str(folder / "text"),
            "files": files,
        },
    }
    content["data"]["vocabulary_size"] = 320
    content["model"]["transformer"] |= {"d_model": 32, "feed_forward": gelu(64)}
    schedule = {"class_path": "Constant", "init_args": {"warmup_steps": 10}}
    content["optim"] = {"learning_rate": 1e-2, "schedule": schedule}
    content["trainer"] |= {"max_steps": 80, "val_check_interval": 40}
    path = write_yaml(folder / "n.yaml", content)
    with working_in(folder):
        assert main(["train", "translation", "--config", str(path)]) == 0
    return folder / "runs/run/checkpoints/best.ckpt"


@dataclass(frozen=True)
class MusicRun:
    """A run on a folder with bad files, and what the command printed."""

    folder: Path
    corrupt: list[str]
    answer: Answer

    @property
    def checkpoint(self) -> Path:
        return self.folder / "runs/run/checkpoints/best.ckpt"


@pytest.fixture(scope="session")
def music_run(tmp_path_factory: pytest.TempPathFactory) -> MusicRun:
    folder = tmp_path_factory.mktemp("music")
    pieces = folder / "midi"
    pieces.mkdir()
    rows = ["midi_filename,split"]
    for index in range(9):
        write_piece(pieces / f"p{index}.mid", first_pitch=40 + 3 * index)
        rows.append(f"p{index}.mid,{['train', 'train', 'validation', 'test'][index % 4]}")
    corrupt = ["cut.mid", "noise.mid"]
    (pieces / "cut.mid").write_bytes((pieces / "p0.mid").read_bytes()[:-30])
    (pieces / "noise.mid").write_bytes(b"MThd and then nothing that is music")
    rows += [f"{name},train" for name in corrupt]
    (pieces / "split.csv").write_text("\n".join(rows) + "\n")
    path = write_yaml(folder / "m.yaml", performances(pieces))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["train", "music", "--config", str(path)])
    return MusicRun(folder, corrupt, Answer(code, out.getvalue(), err.getvalue()))


@pytest.fixture(scope="session")
def checkpoints(
    image_checkpoint: Path,
    translation_checkpoint: Path,
    music_run: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """One checkpoint a domain; those with files have lost the path of this machine's data."""

    def move(content: dict[str, Any]) -> None:
        source = content["triptych"]["data"]["source"]
        source["init_args"]["directory"] = "/somebody/shared/data/nowhere"

    folder = tmp_path_factory.mktemp("moved")
    music = rewritten(music_run.checkpoint, folder / "music.ckpt", move)
    translation = rewritten(translation_checkpoint, folder / "translation.ckpt", move)
    return {"image": image_checkpoint, "translation": translation, "music": music}
