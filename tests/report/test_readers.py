"""What the report reads of a run: curves, settings, samples, pieces; damage is named."""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from written_runs import WriteRun, write_png, write_table

from triptych.errors import UserError
from triptych.tools.report.curves import HEIGHT, WIDTH, chart
from triptych.tools.report.metrics import key_points, read_metrics, total
from triptych.tools.report.page import report
from triptych.tools.report.run import Run, differences, read_run, read_runs
from triptych.tools.report.samples import evenly_spaced, read_items, read_table


def test_a_run_is_read_whole(write_run: WriteRun) -> None:
    run = read_run(write_run("one"), most=12)
    assert run.notices == []
    assert run.curves["train/loss"][3] == (4, 1.25)
    assert run.curves["val/bleu"] == [(10, 3.5), (20, 7.0)]
    assert run.settings["model.attention.class_path"] == "triptych.core.attention.full.Full"
    assert run.settings["model.attention.init_args"] == "{}"
    assert [validation.step for validation in run.validations] == [10, 20]
    items = run.validations[1].items
    assert [picture.name for picture in items.pictures] == ["samples"], "the roll is drawn anew"
    assert (items.pictures[0].width, items.pictures[0].height) == (12, 8)
    assert [piece.name for piece in items.pieces] == ["piece-00"]
    assert [picture.name for picture in run.attention] == ["line-0"]
    (score,) = run.scores
    assert (score.split, score.count) == ("test", 40)
    assert score.values == {"bleu": 8.5, "bleu_of: a <b> model": 2.0}
    overview = run.overview()
    assert overview["last step"] == "20 of 20"
    assert overview["parameters"] == "1,234"
    assert overview["best val/bleu"] == "7.0000 at step 20"
    assert overview["seed"] == "7"


def test_differences_are_those_of_the_values_and_not_of_the_names(write_run: WriteRun) -> None:
    relative = {"class_path": "triptych.core.attention.relative.Relative", "init_args": {"w": 8}}
    runs = read_runs([write_run("a"), write_run("b", attention=relative, extra=[1, 2])], most=1)
    found = differences([run.settings for run in runs])
    assert found == {
        "model.attention.class_path": [
            "triptych.core.attention.full.Full",
            "triptych.core.attention.relative.Relative",
        ],
        "model.attention.init_args": ["{}", None],
        "model.attention.init_args.w": [None, "8"],
        "model.extra": [None, "[1, 2]"],
    }
    assert differences([runs[0].settings]) == {}


def test_settings_of_a_resumed_run(write_run: WriteRun) -> None:
    folder = write_run("a")
    content = yaml.safe_load((folder / "config.yaml").read_text())
    content["trainer"]["max_steps"] = 40
    (folder / "config.step-00000020.yaml").write_text(yaml.safe_dump(content))
    (resumed,) = read_run(folder, most=1).resumed
    assert (resumed.step, resumed.changed) == (20, {"trainer.max_steps": ["20", "40"]})


def test_two_runs_of_one_name_are_told_apart(write_run: WriteRun, tmp_path: Path) -> None:
    first = write_run("x")
    other = tmp_path / "elsewhere"
    first.rename(other)
    names = [run.name for run in read_runs([write_run("x"), other], most=1)]
    assert names == [str(tmp_path / "x"), str(other)]
    with pytest.raises(UserError, match="given twice"):
        read_runs([other, tmp_path / "x" / ".." / "elsewhere"], most=1)


def test_a_half_written_run_is_shown_as_far_as_it_goes(write_run: WriteRun) -> None:
    folder = write_run("one")
    text = (folder / "metrics.csv").read_text()
    lines = text.splitlines()[:9]
    (folder / "metrics.csv").write_text("\n".join([*lines, "9,0.", "x,1,2,3", "8,nan,4.0,"]) + "\n")
    (folder / "versions.json").write_text('{"wandb": "a", "sta')
    (folder / "checkpoints").rmdir()
    samples = folder / "samples" / "step-00000020"
    (samples / "samples.png").write_bytes((samples / "samples.png").read_bytes()[:40])
    (samples / "piece-00.mid").write_bytes(b"MThd")
    (samples / "translations.csv").write_bytes(b"\xff\xfe")
    run = read_run(folder, most=12)
    assert run.curves["train/loss"][-1] == (8, 0.625), "NaN and incomplete rows are left out"
    assert run.starts == []
    assert not run.validations[1].items
    said = " ".join(run.notices)
    for part in ("samples.png", "piece-00.mid", "translations.csv", "versions.json", "checkpoint",
                 "2 incomplete", "1 value", "step 8 of 20"):  # fmt: skip
        assert part in said


@pytest.mark.parametrize("left", ["config.yaml", "metrics.csv", "versions.json"])
def test_one_file_is_enough_for_a_run(write_run: WriteRun, left: str) -> None:
    folder = write_run("one")
    for path in folder.iterdir():
        if path.is_file() and path.name != left:
            path.unlink()
    run = read_run(folder, most=12)
    assert run.name == "one"
    assert run.notices


def test_a_damaged_config_is_a_notice(write_run: WriteRun) -> None:
    folder = write_run("one")
    for content in (b"a: [1,", b"text", b"\xff\x00", b""):
        (folder / "config.yaml").write_bytes(content)
        assert any("config.yaml" in notice for notice in read_run(folder, most=1).notices)


def huge_image() -> bytes:
    """A PNG file of a few bytes that claims to have 60,000 x 60,000 pixels."""

    def part(kind: bytes, content: bytes) -> bytes:
        size, check = len(content), zlib.crc32(kind + content)
        return struct.pack(">I", size) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(b"0"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.csv", b"step,a\n" + b"9" * 5000 + b",1\n"),
        ("metrics.csv", b"step,a\n1,1e308\n2,-1e308\n"),
        ("versions.json", b'{"starts": [{"seed": "\\ud800"}]}'),
        ("samples/step-00000020/huge.png", huge_image()),
        (b"samples/step-00000020/\xff.csv", b"a\nb\n"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_content_made_to_break_the_page_does_not(
    write_run: WriteRun, name: str | bytes, content: bytes
) -> None:
    folder = write_run("one")
    Path(os.fsdecode(os.fsencode(folder) + b"/" + os.fsencode(name))).write_bytes(content)
    page = report(read_runs([folder], most=12), title="t").decode("utf-8")
    assert "one" in page


@pytest.mark.parametrize("content", [b"", b"loss,step\n1,2\n", b"\xff\xfe\x00", b"step,a,a\n"])
def test_a_file_that_holds_no_metrics_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"metrics\.csv"):
        read_metrics(path)


def test_the_later_value_of_a_step_counts(tmp_path: Path) -> None:
    write_table(tmp_path / "m.csv", [["step", "a", "b"], ["2", "1", ""], ["1", "5", ""],
                                     ["2", "3", ""]])  # fmt: skip
    assert read_metrics(tmp_path / "m.csv").curves == {"a": [(1, 5.0), (2, 3.0)]}


def test_key_points_are_the_first_of_equal_values() -> None:
    curve = [(1, 2.0), (2, 5.0), (3, 1.0), (4, 5.0), (5, 1.0)]
    assert key_points(curve) == [(1, 2.0), (5, 1.0), (3, 1.0), (2, 5.0)]


def test_a_clock_that_starts_again_is_added_up() -> None:
    assert total([(1, 2.0), (2, 5.0), (3, 1.0), (4, 4.0)]) == 9.0
    assert total([(1, 2.0)]) == 2.0


def test_evenly_spaced_has_both_ends() -> None:
    for count in range(30):
        for most in range(1, 12):
            found = evenly_spaced(range(count), most)
            assert len(found) == len(set(found)) == min(count, most)
            if count:
                assert found[-1] == count - 1
            if count and most > 1:
                assert found[0] == 0


def points_of(drawing: str) -> list[list[tuple[float, float]]]:
    """Points of each line of a chart."""
    root = ElementTree.fromstring(drawing)
    lines = [group for group in root.iter("g") if group.get("class", "").startswith("line")]
    paths = [re.findall(r"[ML] (\S+) (\S+)", group[0].get("d", "")) for group in lines]
    return [[(float(x), float(y)) for x, y in path] for path in paths]


def test_points_of_a_chart_are_at_their_values() -> None:
    drawn = chart("loss", {"a": [(0, 2.0), (50, 1.0), (100, 0.0)], "b & <c>": [(100, 1.5)]},
                  {"a": 0, "b & <c>": 9})  # fmt: skip
    ((x0, y0), (x1, y1), (x2, y2)), ((x3, y3),) = points_of(drawn.drawing)
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.02)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.02)
    assert (x3, y3) == pytest.approx((x2, y0 + (y2 - y0) / 4), abs=0.02)
    assert 0 < y0 < y2 < HEIGHT
    root = ElementTree.fromstring(drawn.drawing)
    ticks = [text for text in root.iter("text") if text.get("text-anchor") == "end"]
    for tick in ticks:  # the same scale for labels and lines
        at = y2 + (y0 - y2) * float(tick.text or "") / 2
        assert float(tick.get("y", "")) == pytest.approx(at + 3.8, abs=0.1)
    assert len(ticks) > 3
    assert 'class="line colour-3 dash-2"' in drawn.drawing
    assert [title.text for title in root.iter("title")][-1] == "b & <c>, step 100: 1.5"
    assert drawn.rows == [(0, ["2", ""]), (50, ["1", ""]), (100, ["0", "1.5"])]


def test_a_chart_follows_the_style_of_the_page_and_is_the_same_each_time() -> None:
    """The page's policy drops style attributes, and a colour of its own would not turn dark."""
    curves = {"a": [(step, step % 3 + 9.0 * (step == 2500)) for step in range(5000)]}
    drawing = chart("loss", curves, {"a": 0}).drawing
    assert "style" not in drawing
    assert "#" not in drawing.replace('href="#m', "")
    assert drawing == chart("loss", curves, {"a": 0}).drawing
    (points,) = points_of(drawing)
    assert len(points) < 2500, "lines are thinned to what can be seen"
    ((_, low), (_, high)) = points_of(
        chart("loss", {"a": [(0, 0.0), (9, 11.0)]}, {"a": 0}).drawing
    )[0]
    assert (max(y for _, y in points), min(y for _, y in points)) == pytest.approx((low, high))


@pytest.mark.parametrize(
    "curve",
    [
        [(0, 0.0)],
        [(5, 3.0), (6, 3.0)],
        [(1, -3e-4)],
        [(1, -1e-30), (2, 1e30)],
        [(1, -1e300), (10**15 - 1, 1e300)],
    ],
)
def test_a_chart_of_any_values_has_finite_coordinates(curve: list[tuple[int, float]]) -> None:
    (points,) = points_of(chart("x", {"a": curve}, {"a": 0}).drawing)
    assert points
    for x, y in points:
        assert 0 < x <= WIDTH
        assert 0 <= y <= HEIGHT


def test_a_grid_stands_for_its_images(tmp_path: Path) -> None:
    for name in ("grid.png", "sample-0000.png", "sample-0001.png"):
        write_png(tmp_path / name)
    assert [picture.name for picture in read_items(tmp_path).pictures] == ["grid"]
    assert not read_items(tmp_path / "missing")


def test_rows_of_another_length_are_left_out(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", [["source", "target"], ["eins", "one"], ["x"]])
    assert read_table(tmp_path / "t.csv").rows == [["eins", "one"]]


def test_results_that_are_no_scores_are_ignored(write_run: WriteRun) -> None:
    folder = write_run("one")
    (folder / "other.json").write_text(json.dumps([1]))
    (folder / "cut.json").write_text('{"metrics": {')
    run: Run = read_run(folder, most=1)
    assert [score.file for score in run.scores] == ["test.json"]
