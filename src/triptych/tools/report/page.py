"""The page: templates filled with runs and exhibits, as one file without a network."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import triptych
from triptych.files.piano_roll import Piece
from triptych.tools.report.curves import HEIGHT, WIDTH, charts, line_class, short
from triptych.tools.report.metrics import key_points
from triptych.tools.report.piano_roll import piano_roll_svg, statistics
from triptych.tools.report.run import Run, differences
from triptych.tools.report.samples import Items

STYLES = ("colours.css", "style.css")
"""Files of the page's style; the rules of the second one may be nested below an element."""
PLAYER = "player.js"
"""File of the script that plays a figure of `piece_figure`, by its function attachPiece."""


@dataclass(frozen=True)
class Exhibit:
    """Samples that belong to no validation of a run, with text about them."""

    title: str
    text: str
    items: Items
    facts: dict[str, str] = field(default_factory=dict)
    """Name -> value, shown small below the samples."""


def report(
    runs: Sequence[Run],
    *,
    title: str,
    exhibits: Sequence[Exhibit] = (),
    failures: Sequence[str] = (),
) -> bytes:
    """Return the page in UTF-8; characters that UTF-8 lacks become question marks.

    runs: with different names; shown side by side. exhibits: shown before the runs. failures:
    sentences shown first.

    A policy in the page lets the browser load nothing but the images inside it, and run no script
    and apply no style but the page's own, which it knows by their hashes. So text of a sample can
    do nothing even where it were not escaped.
    """
    style, script = template_text(*STYLES), template_text(PLAYER, "script.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template("page.html.j2").render(
        title=title,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        runs=runs,
        exhibits=exhibits,
        failures=failures,
        differences=differences([run.settings for run in runs]),
        charts=charts(runs),
        version=triptych.__version__,
    )  # fmt: skip
    # A name of a file may hold bytes that are no UTF-8, and JSON half of a surrogate pair.
    return page.encode("utf-8", errors="replace")


def piece_figure(piece: Piece, where: str) -> str:
    """Return the HTML of a piano roll with its controls and its MIDI file.

    where: end of the accessible names of its parts, such as the name of the run.
    """
    macros: Any = _environment().get_template("items.html.j2").module
    return str(macros.piece_figure(piece, where))


def piece_drawing(piece: Piece) -> Markup:
    """Return the piano roll of a piece as an SVG element, which its statistics describe."""
    facts = ", ".join(f"{name} {value}" for name, value in statistics(piece))
    return Markup(piano_roll_svg(piece.roll, f"Piano roll: {facts}", piece.bars))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("triptych.tools.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        width=WIDTH,
        height=HEIGHT,
        line_class=line_class,
        piece_drawing=piece_drawing,
        piece_statistics=statistics,
        key_points=key_points,
        base64=lambda content: base64.b64encode(content).decode(),
    )
    environment.filters["short"] = short
    environment.filters["breakable"] = breakable
    return environment


def breakable(text: str) -> Markup:
    """Return a dotted name, escaped, in which a line may break after a dot before a letter."""
    return Markup(".<wbr>").join(re.split(r"\.(?=[A-Za-z_])", text))


def template_text(*names: str) -> str:
    """Return the files of the folder of templates, one after the other."""
    folder = files("triptych.tools.report") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _hash(text: str) -> str:
    """Return the hash of an inline style or script, as a Content-Security-Policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
