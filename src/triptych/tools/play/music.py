"""Page of a music model: harmonisations, continuations, accompaniments, new pieces and bars."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from triptych.domains.music.inference import MusicModel
from triptych.domains.music.midi import (
    MUSIC_SUFFIXES,
    parse_midi,
    piece_of,
)
from triptych.domains.music.notes import Notes, Part, Score, one_string_per_key
from triptych.errors import UserError
from triptych.files.piano_roll import Piece
from triptych.tools.play.parts import (
    run_button,
    run_on,
    sampling,
    sampling_fields,
    stop_button,
    template,
)
from triptych.tools.report.page import piece_figure

TEMPO = 75
"""Quarters per minute of the keyboard, before the visitor changes it."""
TEMPOS = (20, 300)
"""Least and most quarters per minute of the keyboard."""
MAX_SECONDS = 120.0
"""Most new music, in seconds."""
MAX_PIECES = 4
MAX_PARTICLES = 64
COMPUTER_KEYS = "AWSEDFTGYHUJKOLP;"
"""Keys of a computer keyboard that play the piano's, as in keyboard.js."""

HARMONISE, CONTINUE, ACCOMPANY, COMPOSE = "Harmonise", "Continue", "Accompany", "New piece"
RESULTS = {
    HARMONISE: "Harmony", CONTINUE: "Continuation", ACCOMPANY: "Accompaniment", COMPOSE: "Piece",
}  # fmt: skip
"""Name of the pieces, by action."""
REDO, BEFORE = "Redo", "Before"
"""Action on the piece that is drawn, and the name that it has beside the new one."""


def actions(model: MusicModel) -> list[str]:
    """Return what a model can do, the most interesting first."""
    if model.settings.model.melody is not None:
        return [ACCOMPANY]
    return [*[HARMONISE] * bool(voices(model)), CONTINUE, COMPOSE]


def voices(model: MusicModel) -> list[str]:
    """Return the names of the voices that can be kept; empty for music without voices."""
    return [name.lower() for name in model.tokenizer.voice_ranges]


def can_redo(model: MusicModel) -> bool:
    """Whether a model makes some bars and tracks of a piece anew."""
    return ACCOMPANY not in actions(model) and bool(voices(model) or model.tokenizer.can_fill)


def given_music(model: MusicModel, notes: str, upload: str | None) -> Score:
    """Return the music that a visitor gives: the file where there is one, or the melody.

    model: its melodies are of an instrument that it plays. notes: see `read_melody`. upload: path
    of the file. Raises UserError for a file that is no music, and where no note is given.
    """
    if upload is None:
        return read_melody(notes, model.tokenizer.melody_program)
    path = Path(upload)
    return parse_midi(path.read_bytes(), name=path.name)


def read_melody(notes: str, program: int = 0) -> Score:
    """Return the melody of the page's keyboard.

    notes: JSON, an object of "tempo" in quarters per minute and "notes", a list of [start, length,
    pitch] in sixteenths and MIDI pitches. program: of General MIDI. Raises UserError where there
    are no notes, and for another tempo than those of `TEMPOS`.
    """
    melody = json.loads(notes)
    tempo, rows = melody["tempo"], melody["notes"]
    if type(tempo) is not int or not TEMPOS[0] <= tempo <= TEMPOS[1]:
        raise UserError(
            f"Quarters per minute is {tempo}; expected a whole number from {TEMPOS[0]} to "
            f"{TEMPOS[1]}"
        )
    if not rows:
        raise UserError(
            "There are no notes yet: play some on the keyboard, press Example melody, or choose a "
            "MIDI file."
        )
    quarter = round(60e6 / tempo)  # microseconds
    step = 120  # ticks of a sixteenth
    played = Notes.of(
        (pitch, start * step, (start + length) * step, 80, 0, program)
        for start, length, pitch in rows
    )
    played = one_string_per_key(played, played.onset, least=1)
    part, end = Part("Melody", is_drum=False), int(played.release.max())
    played = played.sorted("onset", "release", "pitch")
    return Score("The melody", [part], played, 4 * step, end, [(0, quarter)], [(0, 4, 4)])


def perform(
    model: MusicModel,
    action: str,
    notes: str,
    upload: str | None,
    keep: str,
    particles: Any,
    seconds: Any,
    *fields: Any,
) -> list[Piece]:
    """Return pieces; all but new ones contain the given music, of `given_music`.

    A harmony keeps one voice, and the model samples the others. keep: name of the voice. particles:
    of a harmony. seconds: of a continuation and of a new piece. fields: see `sampling`. Raises
    UserError for music that the model cannot read.
    """
    options = sampling(*fields)
    given = None if action == COMPOSE else given_music(model, notes, upload)
    if action in (CONTINUE, COMPOSE):
        options["seconds"] = seconds
    if action == HARMONISE:
        pieces = model.complete(given, keep, particles=particles, **options)
    elif action == ACCOMPANY:
        pieces = model.sample(melody=given, **options)
    else:
        pieces = model.sample(primer=given, **options)
    of = "" if upload is None or action == COMPOSE else f" of {Path(upload).stem}"
    return [
        piece_of(made.score, f"{RESULTS[action]} {number}{of}")
        for number, made in enumerate(pieces, start=1)
    ]


def redo(
    model: MusicModel,
    shown: bytes | None,
    notes: str,
    upload: str | None,
    first: Any,
    last: Any,
    tracks: str,
    particles: Any,
    *fields: Any,
) -> list[Piece]:
    """Return the piece that is drawn, or the given music, and new versions of some of its bars.

    shown: content of the piece, None where none is drawn. first, last: bars, from 1. tracks: names
    of voices or tracks, or numbers of tracks, separated by commas; empty for all. Others and errors
    as in `perform`.
    """
    given = parse_midi(shown, name=BEFORE) if shown else given_music(model, notes, upload)
    part = [f"bars:{first}-{last}"]
    for name in filter(None, map(str.strip, tracks.split(","))):
        part.append(name.lower() if name.lower() in voices(model) else f"track:{name}")
    options = sampling(*fields)
    made = model.complete(given, fill=",".join(part), particles=particles, **options)
    after = (piece_of(one.score, f"Redone {number}") for number, one in enumerate(made, start=1))
    return [piece_of(given, BEFORE), *after]


def layout(model: MusicModel, key: str) -> None:
    """Add the page of a model, see `triptych.tools.play`."""
    keyboard = f"{key}-keyboard"
    notes = gr.Textbox(visible=False)  # filled by the script of a button
    offered = actions(model)
    gr.Markdown(
        "Play a melody: click the keys or press those of your computer that stand on them. Each "
        "note takes the chosen length. A click on the grid adds a note, or removes the one there."
    )
    gr.HTML(
        template(
            "keyboard.html.j2", id=keyboard, letters=COMPUTER_KEYS, tempo=TEMPO, tempos=TEMPOS
        ),
        apply_default_css=False,
    )
    result = gr.HTML(
        template("pieces.html.j2", figures=[]), render=False, apply_default_css=False
    )  # fmt: skip
    buttons = gr.Row()
    result.render()
    shown = gr.State(None)  # content of the first new piece that is drawn
    with gr.Row(visible=can_redo(model)):
        info = "Of the piece that is drawn."
        first = gr.Number(1, label="From bar", precision=0, minimum=1, min_width=120, info=info)
        last = gr.Number(2, label="To bar", precision=0, minimum=1, min_width=120, info=info)
        tracks = gr.Textbox(
            label="Tracks", min_width=240,
            info="Voices or tracks by name or number, separated by commas; empty for all.",
        )  # fmt: skip
        redo_row = gr.Column(min_width=120)
    fields = sampling_fields(count=1, most=MAX_PIECES, what="pieces")
    with gr.Row():
        keep = gr.Dropdown(
            voices(model), label="Voice of the melody", visible=HARMONISE in offered,
            info="The model adds the others.",
        )  # fmt: skip
        particles = gr.Slider(
            1, MAX_PARTICLES, 16, step=1, label="Particles", visible=HARMONISE in offered,
            info="Copies of a harmony of which those that fit the melody survive.",
        )  # fmt: skip
        seconds = gr.Slider(
            5, MAX_SECONDS, 20, step=1, label="Seconds of new music", visible=CONTINUE in offered,
            info="Of a continuation and of a new piece.",
        )  # fmt: skip
    with gr.Accordion("MIDI or MusicXML file in place of the keyboard's notes", open=False):
        upload = gr.File(
            label="MIDI or MusicXML file",
            file_types=list(MUSIC_SUFFIXES),
            type="filepath",
            height=120,
        )
    js = f"(_, ...others) => [melodyOf('{keyboard}'), ...others]"
    outputs = [result, shown]
    with buttons:
        for number, action in enumerate(offered):
            run_button(
                action,
                _figures(partial(perform, model, action)),
                [notes, upload, keep, particles, seconds, *fields],
                outputs,
                js=js,
                primary=number == 0,
            )
        stop_button()
    with redo_row:
        run_button(
            REDO,
            _figures(lambda notes, shown, *others: redo(model, shown, notes, *others)),
            [notes, shown, upload, first, last, tracks, particles, *fields],
            outputs,
            js=js,
        )

    def draw(path: str | None, *_: Any) -> list[Piece]:
        return [piece_of(given_music(model, "", path), Path(path).stem)] if path else []

    run_on([upload.change], _figures(draw), [upload], outputs)


def _figures(function: Callable[..., list[Piece]]) -> Callable[..., tuple[str, bytes | None]]:
    """Return a function that returns the pieces of another one as HTML, and the first new one."""

    def answer(*values: Any) -> tuple[str, bytes | None]:
        pieces = function(*values)
        figures = [Markup(piece_figure(piece, "")) for piece in pieces]
        new = (piece.midi for piece in pieces if piece.name != BEFORE)
        return template("pieces.html.j2", figures=figures), next(new, None)

    return answer
