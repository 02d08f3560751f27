"""Piano rolls: every note at its place in the SVG and in the PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np
import pretty_midi
import pytest
from numpy.typing import NDArray
from PIL import Image

from triptych.files.piano_roll import GIVEN, PianoRoll, Piece, piano_roll_png, pitch_name
from triptych.tools.report.piano_roll import LEFT, ROW, piano_roll_svg, statistics


def part(
    *notes: Sequence[float], name: str = "", drum: bool = False, velocity: int = 90
) -> pretty_midi.Instrument:
    """A part of (pitch, start, end)."""
    made = pretty_midi.Instrument(0, drum, name)
    made.notes = [pretty_midi.Note(velocity, *note) for note in notes]
    return made


PIANO = part((60, 0, 1), (64, 1, 2.5), (66, 1, 2), name="Piano & <b>")
DRUMS = part((38, 0.5, 0.6), drum=True)


def rectangles(svg: str) -> list[dict[str, str]]:
    return [found.attrib for found in ElementTree.fromstring(svg).iter("rect")]


def test_notes_of_a_piece_and_their_bars() -> None:
    piece = Piece("piece", [PIANO, DRUMS], b"")
    assert (piece.roll.low, piece.roll.high, piece.roll.seconds) == (58, 68, 2.5)
    assert [(voice.name, voice.colour) for voice in piece.roll.voices] == [
        ("Piano & <b>", 0), ("drums", 5),
    ]  # fmt: skip
    facts = dict(statistics(piece))
    assert (facts["pitches"], facts["notes"], facts["duration"]) == ("C4 to F♯4", "4", "2.5 s")
    svg = ElementTree.fromstring(piano_roll_svg(piece.roll))
    scale, height = float(svg.attrib["data-scale"]), float(svg.attrib["height"])
    bars = [one for one in rectangles(piano_roll_svg(piece.roll)) if "data-sound" in one]
    assert [one["data-sound"].split()[2] for one in bars] == ["60", "64", "66", "38"]
    x, y, width = (np.array([float(one[key]) for one in bars]) for key in ("x", "y", "width"))
    assert x == pytest.approx(LEFT + scale * np.array([0, 1, 1, 0.5]), abs=0.01)
    assert width == pytest.approx([scale, 1.5 * scale, scale, 3], abs=0.01)
    assert [y[0] - y[1], y[1] - y[2]] == [4 * ROW, 2 * ROW], "higher notes are above"
    assert y[3] > y[0], "drums are below the notes"
    assert height > y.max() + ROW
    assert str(y[2].astype(int)) in {one["y"] for one in rectangles(piano_roll_svg(piece.roll))
                                     if one.get("class") == "row"}  # fmt: skip
    assert bars[3]["data-sound"] == "0.500 0.100 38 90 1"
    assert pitch_name(60) == "C4"


def test_a_long_piece_is_drawn_narrower() -> None:
    long = part((60, 0, 1), (60, 7000, 7001))
    svg = ElementTree.fromstring(piano_roll_svg(PianoRoll([long])))
    assert float(svg.attrib["width"]) < 13_000
    times = [float(line.attrib["x1"]) for line in svg.iter("line")]
    assert times[1] - times[0] > 40
    assert pixels(long).shape[1] <= 40 * 110


def test_the_roll_has_tooltips() -> None:
    svg = ElementTree.fromstring(piano_roll_svg(PianoRoll([PIANO])))
    assert svg.find(".//title").text == "Piano & <b>: pitch 60, 0.00 to 1.00 s"  # type: ignore[union-attr]
    assert "data-sound" not in piano_roll_svg(PianoRoll([part()]))


def pixels(*parts: pretty_midi.Instrument) -> NDArray[np.int64]:
    return np.asarray(Image.open(io.BytesIO(piano_roll_png(parts))).convert("RGB")).astype(int)


def test_voices_have_colours_of_their_own() -> None:
    image = pixels(*(part((pitch, 0, 4)) for pitch in (72, 67, 60, 48))).reshape(-1, 3)
    for colour in ((200, 68, 60), (217, 154, 43), (60, 138, 95), (51, 88, 156)):
        assert (np.abs(image - colour).sum(1) < 120).sum() > 500


def test_softer_notes_are_paler() -> None:
    soft, loud = (pixels(part((60, 0, 4), velocity=velocity)) for velocity in (10, 120))
    darkest = [image[100:200, 300:500].sum(-1).min() for image in (soft, loud)]
    assert darkest[0] > darkest[1] + 100


def test_given_notes_are_grey_and_told_in_the_legend() -> None:
    """Notes before 1 s are given: grey on the left, in colour on the right."""
    tune = part((60, 0, 2), (62, 2, 4))
    png = piano_roll_png([tune], [np.array([True, False])])
    image = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    grey = np.abs(image - [int(GIVEN[n : n + 2], 16) for n in (1, 3, 5)]).sum(-1) < 10
    red = np.abs(image - (200, 68, 60)).sum(-1) < 120
    assert grey[:, :350].sum() > 2000 > 400 > grey[:, 350:600].sum()
    assert red[:, 350:600].sum() > 2000 > 100 > red[:, :350].sum()
    assert grey[:, 650:].sum() > 50  # the legend, which a voice alone has too
    assert not (np.asarray(pixels(tune)) - pixels(tune)).any()


def test_bar_lines_are_drawn() -> None:
    plain, barred = (
        np.asarray(Image.open(io.BytesIO(piano_roll_png([part((60, 0, 4))], bars=bars))))
        for bars in ((), (1.0, 2.0, 3.0))
    )
    columns = np.flatnonzero((plain != barred).any(axis=(0, 2)))
    assert len(columns) >= 3
    assert (np.diff(columns) > 50).sum() == 2


def test_a_piece_without_notes_can_be_drawn() -> None:
    assert pixels().size
    assert piano_roll_svg(PianoRoll([part()]))
