"""The page of a piano roll has every note at its place."""

from __future__ import annotations

from xml.etree import ElementTree

import pretty_midi

from triptych.domains.music.roll_page import SECOND, SEMITONE, piano_roll_page


def test_each_note_is_a_bar() -> None:
    midi, part = pretty_midi.PrettyMIDI(), pretty_midi.Instrument(0, name="<soprano>")
    part.notes = [pretty_midi.Note(80, 60, 0.0, 1.0), pretty_midi.Note(80, 64, 1.0, 1.5)]
    midi.instruments.append(part)
    page = piano_roll_page(midi)
    assert "script" not in page
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</body>")])
    low, high = svg
    assert float(high.attrib["x"]) == SECOND
    assert float(low.attrib["width"]) == 2 * float(high.attrib["width"]) == SECOND
    assert float(low.attrib["y"]) - float(high.attrib["y"]) == 4 * SEMITONE
    assert low[0].text == "<soprano>: pitch 60, 0.00 to 1.00 s"


def test_an_empty_piece_is_a_page() -> None:
    assert "<rect" not in piano_roll_page(pretty_midi.PrettyMIDI())
