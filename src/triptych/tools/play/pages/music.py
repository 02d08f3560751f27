"""Page of a music model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from markupsafe import Markup

from triptych.domains.music.inference import MusicModel
from triptych.domains.music.midi import MIDI_SUFFIXES
from triptych.tools.play import music
from triptych.tools.play.pages import Page
from triptych.tools.play.pages.shared import run_button, sampling_fields, stop_button, template
from triptych.tools.report.page import piece_figure

COMPUTER_KEYS = "AWSEDFTGYHUJKOLP;"
"""Keys of a computer keyboard that play the piano's, as in keyboard.js."""


def layout(model: MusicModel, key: str) -> None:
    """Add the page of a model, see `Page`."""
    keyboard = f"{key}-keyboard"
    notes = gr.Textbox(visible=False)  # filled by the script of a button
    offered = music.actions(model)
    gr.Markdown(
        "Play a melody: click the keys or press those of your computer that stand on them. Each "
        "note takes the chosen length. A click on the grid adds a note, or removes the one there."
    )
    gr.HTML(
        template("keyboard.html.j2", id=keyboard, letters=COMPUTER_KEYS), apply_default_css=False
    )
    result = gr.HTML(
        template("pieces.html.j2", figures=[]), render=False, apply_default_css=False
    )  # fmt: skip
    buttons = gr.Row()
    result.render()
    fields = sampling_fields(count=1, most=music.MAX_PIECES, what="pieces")
    with gr.Row():
        keep = gr.Dropdown(
            music.voices(model), label="Voice of the melody", visible=music.HARMONISE in offered,
            info="The model adds the others.",
        )  # fmt: skip
        particles = gr.Slider(
            1, music.MAX_PARTICLES, 16, step=1, label="Particles",
            visible=music.HARMONISE in offered,
            info="Copies of a harmony of which those that fit the melody survive.",
        )  # fmt: skip
        seconds = gr.Slider(
            5, music.MAX_SECONDS, 20, step=1, label="Seconds of new music",
            visible=music.CONTINUE in offered, info="Of a continuation and of a new piece.",
        )  # fmt: skip
    with gr.Accordion("MIDI file in place of the keyboard's notes", open=False):
        upload = gr.File(
            label="MIDI file", file_types=list(MIDI_SUFFIXES), type="filepath", height=120
        )
    given = [notes, upload]
    functions: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        music.HARMONISE: (music.harmonise, [*given, keep, particles, *fields]),
        music.CONTINUE: (music.continue_music, [*given, seconds, *fields]),
        music.ACCOMPANY: (music.accompany, [*given, *fields]),
        music.COMPOSE: (music.compose, [seconds, *fields]),
    }
    from_keyboard = f"(_, ...others) => [melodyOf('{keyboard}'), ...others]"
    with buttons:
        for number, text in enumerate(offered):
            function, inputs = functions[text]
            js = None if text == music.COMPOSE else from_keyboard
            answer = _figures(function, model)
            run_button(text, answer, inputs, [result], js=js, primary=number == 0)
        stop_button()


def _figures(function: Callable[..., Any], model: MusicModel) -> Callable[..., str]:
    """Return a function that returns the pieces of another one as HTML."""

    def answer(*values: Any) -> str:
        figures = [Markup(piece_figure(piece, "")) for piece in function(model, *values)]
        return template("pieces.html.j2", figures=figures)

    return answer


PAGE = Page(layout)
