"""Train a few steps, evaluate, sample or translate, and the same through Python."""

from __future__ import annotations

import json
import os
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pretty_midi
import pytest
from PIL import Image

import triptych
from triptych.errors import UserError


def test_corrupt_files_are_skipped_counted_and_named(music_run) -> None:
    answer = music_run.answer
    assert answer.code == 0, answer.err
    assert "skipped 1 of 7 files: noise.mid" in answer.err
    assert "cut.mid: 1 place left out" in answer.err, "what stands before the cut is read"
    for name in music_run.corrupt:
        assert name in answer.err
    assert "Traceback" not in answer.err
    assert "Finished at step 3" in answer.out
    assert "the run is in runs/run" in answer.err


METRICS = {
    "image": {"bits_per_dim"},
    "translation": {"nats_per_token", "bleu", "chrf", "exact_match", "character_accuracy"},
    "music": {"nats_per_token", "nats_per_note"},
}


@pytest.mark.parametrize("domain", METRICS)
def test_evaluate_writes_the_score(
    cli,
    tmp_path: Path,
    image_checkpoint: Path,
    translation_checkpoint: Path,
    music_run,
    domain: str,
) -> None:
    path = {
        "image": image_checkpoint,
        "translation": translation_checkpoint,
        "music": music_run.checkpoint,
    }[domain]
    out = tmp_path / "new/folder/score.json"
    arguments = ["evaluate", domain, "--checkpoint", path, "--limit", 2, "--json", out]
    answer = cli(*arguments, "--split", "validation", "--device", "cpu")
    assert answer.code == 0, answer.err
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["domain"] == domain
    assert result["split"] == "validation"
    assert result["count"] == result["limit"] == 2
    assert set(result["metrics"]) == METRICS[domain]
    assert all(np.isfinite(value) for value in result["metrics"].values())
    assert result["checkpoint"] == {"file": str(path), "step": 3}
    assert result["versions"]["triptych"] == triptych.__version__
    assert [file.name for file in out.parent.iterdir()] == ["score.json"]
    assert f"{domain}, split validation, the first 2 of it: 2 items scored" in answer.out
    for name, value in result["metrics"].items():
        row = next(line.split() for line in answer.out.splitlines() if line.split()[0] == name)
        assert row == [name, f"{value:.4f}"]

    python = triptych.load(path, device="cpu").evaluate("validation", limit=2)
    assert python.metrics == pytest.approx(result["metrics"])
    assert (python.domain, python.split, python.count) == (domain, "validation", 2)


def test_the_whole_test_split_is_the_default(cli, image_checkpoint: Path) -> None:
    answer = cli("evaluate", "image", "--checkpoint", image_checkpoint)
    assert "image, split test: 180 items scored" in answer.out


def test_evaluate_other_data_with_the_same_model(cli, tmp_path: Path, music_run) -> None:
    from shutil import copytree

    copytree(music_run.folder / "midi", tmp_path / "moved")
    first = cli("evaluate", "music", "--checkpoint", music_run.checkpoint)
    second = cli("evaluate", "music", "--checkpoint", music_run.checkpoint, "--data", "moved")
    assert first.out == second.out
    assert "2 items scored" in first.out


def test_sample_image(cli, tmp_path: Path, image_checkpoint: Path) -> None:
    def draw(out: str, *more: object) -> list[bytes]:
        command = ["sample", "image", "--checkpoint", image_checkpoint, "--out", out]
        answer = cli(*command, "--count", 3, *more)
        assert answer.code == 0, answer.err
        assert answer.out == ""
        assert answer.err.endswith(f"3 images and grid.png are in {out}\n")
        files = sorted((tmp_path / out).iterdir())
        assert [file.name for file in files] == [
            "grid.png", *(f"sample-{index:04d}.png" for index in range(3)),
        ]  # fmt: skip
        return [file.read_bytes() for file in files]

    first = draw("a/b", "--seed", 1)
    with Image.open(tmp_path / "a/b/sample-0000.png") as picture:
        assert (picture.size, picture.mode) == ((8, 8), "L")
    assert draw("same", "--seed", 1) == first
    assert draw("other", "--seed", 2) != first
    assert draw("cold", "--temperature", 0, "--label", 3) != first
    one = draw("label", "--label", 3, "--temperature", 0)
    assert one[1] == one[2] == one[3], "the same class, the likeliest value of each pixel"

    (tmp_path / "same/mine.txt").write_text("kept")
    command = ["sample", "image", "--checkpoint", image_checkpoint, "--out", "same"]
    assert cli(*command, "--count", 1, "--overwrite").err.endswith(
        "1 image and grid.png are in same\n"
    )
    assert (tmp_path / "same/mine.txt").read_text() == "kept"


def test_sample_music(cli, tmp_path: Path, music_run) -> None:
    command = ["sample", "music", "--checkpoint", music_run.checkpoint, "--count", 1]
    primer = music_run.folder / "midi/p0.mid"
    assert cli(*command, "--out", "free", "--seconds", 1).code == 0
    answer = cli(*command, "--out", "continued", "--length", 40, "--primer", primer)
    assert answer.code == 0, answer.err
    assert "1 piece (.mid, .wav, .png) in continued; sound by " in answer.err
    for out in ("free", "continued"):
        names = sorted(path.name for path in (tmp_path / out).iterdir())
        assert names == ["piece-00.mid", "piece-00.png", "piece-00.wav"]
        with wave.open(str(tmp_path / out / "piece-00.wav")) as sound:
            assert sound.getnframes() > 0
    piece = pretty_midi.PrettyMIDI(str(tmp_path / "continued/piece-00.mid"))
    before = pretty_midi.PrettyMIDI(str(primer)).instruments[0].notes
    found = {(note.pitch, round(note.start, 2)) for note in piece.instruments[0].notes}
    # The last note may still sound when the primer ends, and is then the model's to end.
    assert {(note.pitch, round(note.start, 2)) for note in before[:-1]} <= found


@pytest.fixture
def translate(cli, translation_checkpoint: Path) -> Callable[..., list[str]]:
    def call(stdin: bytes, *options: object) -> list[str]:
        answer = cli("translate", "--checkpoint", translation_checkpoint, *options, stdin=stdin)
        assert answer.code == 0, answer.err
        assert answer.out == "" or answer.out.endswith("\n")
        return answer.out.split("\n")[:-1]

    return call


def test_n_lines_in_n_lines_out(translate) -> None:
    words = ["one", "", "two hundred", "   ", "\N{GRINNING FACE} 여섯", "a\u2028b\x0cc", "one"]
    plain = translate("\n".join(words).encode() + b"\n")
    assert len(plain) == len(words)
    assert plain[1] == plain[3] == ""
    assert plain[0] == plain[-1] != ""
    assert translate("\n".join(words).encode()) == plain, "no line end after the last line"
    assert translate("\r\n".join(words).encode() + b"\r\n") == plain, "CRLF"
    assert translate(b"\xef\xbb\xbf" + "\n".join(words).encode()) == plain, "a byte order mark"
    assert translate("\n".join(words).encode(), "--batch_size", 1) == plain
    for stdin, count in [(b"", 0), (b"\n", 1), (b"\n\n", 2), (b"one", 1), (b"one\n\n", 2)]:
        assert len(translate(stdin)) == count


def test_n_best(translate) -> None:
    best = translate(b"one\n\ntwo", "--n_best", 3, "--beam", 3)
    assert len(best) == 9
    assert best[3:6] == [""] * 3, "an empty line has empty translations, all three"
    assert best[0::3] == translate(b"one\n\ntwo", "--beam", 3)
    assert len(set(best[:3])) == 3


@pytest.mark.slow
def test_many_lines_flow_in_runs(translate) -> None:
    """More lines than one run of batches takes: nothing is lost or doubled at the border."""
    words = ["one", "two", "", "three"] * 10
    found = translate("\n".join(words).encode(), "--batch_size", 1, "--beam", 1)
    assert found == translate("\n".join(words).encode(), "--batch_size", 64, "--beam", 1)
    assert len(found) == len(words)


def test_every_line_has_its_number_of_translations() -> None:
    import io

    from triptych.cli.translate import write_lines

    stream = io.BytesIO()
    write_lines(stream, ["a b", "c"], n_best=1)
    write_lines(stream, [["x"], []], n_best=2)
    assert stream.getvalue() == b"a b\nc\nx\n\n\n\n"


class TestPython:
    """`triptych.load(path)`: the device is found, no settings are needed."""

    def test_translator(self, translation_checkpoint: Path) -> None:
        model = triptych.load(translation_checkpoint)
        lines = model.translate(["one", "", "two"])
        assert len(lines) == 3
        assert lines[1] == ""
        assert [len(best) for best in model.translate(["one"], beam=3, n_best=2)] == [2]
        assert model.evaluate("validation", limit=2).count == 2

    def test_pictures(self, image_checkpoint: Path) -> None:
        model = triptych.load(str(image_checkpoint))
        pictures = model.sample(2, seed=1, label=4)
        assert (pictures.shape, pictures.dtype) == ((2, 8, 8, 1), np.uint8)
        assert (pictures == model.sample(2, seed=1, label=4)).all()

    def test_music(self, music_run, tmp_path: Path) -> None:
        model = triptych.load(music_run.checkpoint)
        pieces = model.sample(2, length=20, primer=music_run.folder / "midi/p1.mid")
        written = [piece.write(tmp_path / f"{n}.mid") for n, piece in enumerate(pieces)]
        assert all(pretty_midi.PrettyMIDI(str(path)).instruments for path in written)

    def test_a_checkpoint_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"nowhere\.ckpt cannot be read"):
            triptych.load(tmp_path / "nowhere.ckpt")


def test_what_is_found_can_go_into_a_pipe(cli, image_checkpoint: Path) -> None:
    """As `--json >(jq .metrics)` gives it: nothing is made beside it, nothing overwritten."""
    reading, writing = os.pipe()
    answer = cli(
        "evaluate", "image", "--checkpoint", image_checkpoint, "--limit", 2, "--device", "cpu",
        "--json", f"/dev/fd/{writing}",
    )  # fmt: skip
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        content = file.read()
    assert answer.code == 0, answer.err
    assert json.loads(content)["count"] == 2
