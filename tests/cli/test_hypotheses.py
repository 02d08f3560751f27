"""`evaluate translation --hypotheses`: the file that anybody can score again, and the search."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import triptych


@pytest.fixture
def text(english_checkpoint: Path) -> Path:
    return english_checkpoint.parents[3] / "text"


def sacrebleu(reference: Path, hypotheses: Path, *more: str) -> dict[str, float]:
    """What the command `sacrebleu` says, by metric."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypotheses)]
    done = subprocess.run([*command, "-w", "6", *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found if isinstance(found, list) else [found]
    return {row["name"].lower().removesuffix("2"): row["score"] for row in rows}


def command(checkpoint: Path, *more: Any) -> list[Any]:
    return ["evaluate", "translation", "--checkpoint", checkpoint, "--device", "cpu", *more]


def test_plain_sacrebleu_of_the_file_gives_the_same_scores(
    cli, tmp_path: Path, english_checkpoint: Path, text: Path
) -> None:
    files = ["--hypotheses", "new/hyp.en", "--json", "score.json"]
    answer = cli(*command(english_checkpoint, *files, "--beam", 2))
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "score.json").read_text(encoding="utf-8"))
    assert "hypotheses" not in result["details"]
    hypotheses = tmp_path / "new/hyp.en"
    assert [path.name for path in hypotheses.parent.iterdir()] == ["hyp.en"]
    found = sacrebleu(text / "test.en", hypotheses, "-m", "bleu", "chrf")
    for name in ("bleu", "chrf"):
        assert found[name] == pytest.approx(result["metrics"][name], abs=1e-5)
        assert result["metrics"][name] > 1
    lines = hypotheses.read_text(encoding="utf-8").split("\n")
    assert len(set(lines)) > 10
    assert lines[60:] == [""]
    # The order counts, or the comparison would have shown nothing.
    moved = tmp_path / "moved.en"
    moved.write_text("\n".join([*lines[1:60], lines[0]]) + "\n", encoding="utf-8")
    assert sacrebleu(text / "test.en", moved)["bleu"] != pytest.approx(found["bleu"], abs=0.5)

    translate = ["translate", "--checkpoint", english_checkpoint, "--beam", 2, "--device", "cpu"]
    translated = cli(*translate, stdin=(text / "test.de").read_bytes())
    assert translated.out == hypotheses.read_text(encoding="utf-8")


def test_intervals_and_the_paired_test_are_those_of_sacrebleu(
    cli, refused, tmp_path: Path, english_checkpoint: Path, text: Path
) -> None:
    assert cli(*command(english_checkpoint, "--hypotheses", "h.en", "--beam", 1)).code == 0
    lines = (tmp_path / "h.en").read_text(encoding="utf-8").splitlines()
    (tmp_path / "moved.en").write_text("\n".join([*lines[1:], lines[0]]), encoding="utf-8")
    files = ["--compare", "moved.en", "--json", "score.json"]
    answer = cli(*command(english_checkpoint, *files, "--beam", 1))
    assert answer.code == 0, answer.err
    details = json.loads((tmp_path / "score.json").read_text(encoding="utf-8"))["details"]
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", text / "test.en", "-i", "h.en", "--confidence", "-w6"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert details["interval"]["bleu"] == pytest.approx(json.loads(done.stdout)["confidence_var"])
    moved = sacrebleu(text / "test.en", tmp_path / "moved.en", "-m", "bleu", "chrf")
    for name, of in details["compared"].items():
        assert of["other"] == pytest.approx(moved[name], abs=1e-5)
        assert of["p"] < 0.05 < 1
    (tmp_path / "short.en").write_text("one line\n", encoding="utf-8")
    words = command(english_checkpoint, "--compare", "short.en")
    refused(*words, says=["short.en has 1 lines", "one for each of the 60 of test"])
    refused(*command(english_checkpoint, "--compare", "none.en"), says=["none.en does not exist"])


def test_the_search_is_an_option_and_is_told(cli, tmp_path: Path, english_checkpoint: Path) -> None:
    def scored(*options: Any) -> tuple[dict, bytes]:
        files = ["--hypotheses", "h", "--overwrite", "--json", "s", "--limit", 20]
        answer = cli(*command(english_checkpoint, *files, *options))
        assert answer.code == 0, answer.err
        details = json.loads((tmp_path / "s").read_text(encoding="utf-8"))["details"]
        return details["search"], (tmp_path / "h").read_bytes()

    search, greedy = scored("--beam", 1)
    assert (search["beam"], search["length_penalty"]) == (1, "gnmt:0.6")
    search, long = scored("--beam", 3, "--length_penalty", "gnmt:5")
    assert (search["beam"], search["length_penalty"]) == (3, "gnmt:5")
    search, short = scored("--beam", 3, "--length_penalty", 0)
    assert (search["beam"], search["length_penalty"]) == (3, "none")
    assert len(short) < len(long)
    model = triptych.load(english_checkpoint, device="cpu")
    python = model.evaluate(limit=20, beam=1)
    assert "".join(f"{line}\n" for line in python.details["hypotheses"]).encode() == greedy


def test_both_kinds_of_bleu_are_labelled_on_screen(cli, english_checkpoint: Path) -> None:
    pytest.importorskip("sacremoses")
    out = cli(*command(english_checkpoint, "--limit", 20, "--beam", 1)).out.splitlines()
    figures = [line.split()[0] for line in out if line.startswith("  ")]
    assert figures == ["nats_per_token", "bleu", "bleu_papers", "chrf", "exact_match"]
    told = {line.split(": ")[0]: line for line in out if not line.startswith("  ")}
    assert "true case" in told["bleu"]
    assert "case:mixed" in told["bleu"]
    assert "lowercased" in told["bleu_papers"]
    assert "tokenise:sacremoses[en,escape]" in told["bleu_papers"]


class TestAFileThatIsThere:
    """A file of translations is replaced only if asked for, and checked before the search."""

    def test_it_is_kept(self, refused, tmp_path: Path, translation_checkpoint: Path) -> None:
        (tmp_path / "h.txt").write_text("kept")
        refused(
            *command(translation_checkpoint, "--hypotheses", "h.txt"),
            says=["--hypotheses h.txt exists", "--overwrite"],
        )

    def test_it_is_replaced_when_asked(
        self, cli, tmp_path: Path, translation_checkpoint: Path
    ) -> None:
        (tmp_path / "h.txt").write_text("old")
        more = ["--hypotheses", "h.txt", "--overwrite", "--limit", 2, "--beam", 1]
        assert cli(*command(translation_checkpoint, *more)).code == 0
        assert (tmp_path / "h.txt").read_text(encoding="utf-8").count("\n") == 2

    def test_other_mistakes(self, refused, tmp_path: Path, translation_checkpoint: Path) -> None:
        def says(*options: Any, parts: list[str]) -> None:
            refused(*command(translation_checkpoint, *options), says=parts)

        (tmp_path / "folder").mkdir()
        says("--hypotheses", "folder", parts=["--hypotheses folder is a folder"])
        says("--hypotheses", "x", "--json", "./x", parts=["both name x", "expected two files"])
        says("--beam", 0, parts=["beam must be at least 1, got 0"])
        says("--length_penalty", "gnmt:-1", parts=["length_penalty", "gnmt:-1"])
        says("--length_penalty", "long", parts=["length_penalty", "long"])

    def test_pictures_have_no_lines(self, refused, image_checkpoint: Path) -> None:
        refused(
            "evaluate", "image", "--checkpoint", image_checkpoint, "--hypotheses", "h",
            says=["--hypotheses"],
        )  # fmt: skip
