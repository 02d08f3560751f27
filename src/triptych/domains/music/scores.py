"""Scores in notation: MusicXML, and ABC and Humdrum by way of the package music21."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from io import BytesIO
from typing import Any

from triptych.domains.music.musicxml import MUSICXML_SUFFIXES, parse_musicxml
from triptych.domains.music.notes import Score
from triptych.errors import UserError

CONVERTED = {".abc": "abc", ".krn": "humdrum"}
"""Suffix of the files that music21 converts -> its name of their format."""
NOTATION_SUFFIXES = (*MUSICXML_SUFFIXES, *CONVERTED)
BEGINNINGS = {
    ".xml": rb"(?:\xef\xbb\xbf)?\s*<|\xff\xfe<\0|\xfe\xff\0<",
    ".abc": rb"(?:%.*\s+)*X:\s*\d+\s*\n(?:.*\n)*?K:",
    ".krn": rb"(?:!.*\s+)*\*\*",
}
"""How files of a suffix begin."""


def notation_of(content: bytes, name: str) -> str:
    """Return the suffix of a score's kind, by its content; empty where it is none.

    name: of the file. The name decides for archives, in which .mxl files look like others.
    """
    if content[:2] == b"PK":
        return ".mxl" if name.lower().endswith(".mxl") or _holds_score(content) else ""
    head = content[:10_000].replace(b"\r\n", b"\n")
    return next((kind for kind, start in BEGINNINGS.items() if re.match(start, head)), "")


def _holds_score(content: bytes) -> bool:
    try:
        return "META-INF/container.xml" in zipfile.ZipFile(BytesIO(content)).namelist()
    except zipfile.BadZipFile:
        return False


def parse_score(content: bytes, kind: str, *, name: str) -> Score:
    """Parse the bytes of a score; kind: of `notation_of`.

    Of a file of several ABC tunes the first. Raises UserError as `parse_musicxml`, and for ABC and
    Humdrum where music21 is missing or does not read them.
    """
    if kind not in CONVERTED:
        return parse_musicxml(content, name=name)
    try:
        from music21 import converter
        from music21.musicxml.m21ToXml import GeneralObjectExporter
    except ImportError as error:
        raise UserError(
            f"{name}: ABC and Humdrum are read with the package music21, which is not installed "
            "here: pip install 'triptych[scores]'"
        ) from error
    tune, *others = re.split(rb"\n(?=X:)", content) if kind == ".abc" else [content]
    text = tune.decode("utf-8-sig", "replace")
    # The readers of music21 raise many types for damaged files.
    try:
        music: Any = converter.parseData(text, format=CONVERTED[kind])
        exporter = GeneralObjectExporter(music)
        # Measures stay as short as they are written; only music without any has to be divided.
        exporter.makeNotation = not music.recurse().getElementsByClass("Measure")
        document = exporter.parse()
    except Exception as error:
        raise UserError(f"{name} is not a {kind} file that music21 reads ({error!r})") from error
    score = parse_musicxml(document, name=name)
    further = [f"all tunes but the first, {len(others) + 1} in all"] * bool(others)
    return replace(score, left_out=[*score.left_out, *further])
