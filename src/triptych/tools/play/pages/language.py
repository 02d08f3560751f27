"""Page of a model of text."""

from __future__ import annotations

from typing import Any

import gradio as gr

from triptych.domains.language.inference import LanguageModel
from triptych.tools.play.language import CONTINUE, FILL, LABEL, MAX_CHARACTERS, action, label, write
from triptych.tools.play.limits import MAX_COUNT
from triptych.tools.play.pages import Page
from triptych.tools.play.pages.shared import (
    result_table,
    run_button,
    sampling_fields,
    stop_button,
    table,
)

INFO = {
    CONTINUE: "May be empty.",
    FILL: "[MASK] stands for each token that the model fills in.",
    LABEL: "Each line is one of the texts that the model reads together.",
}
"""What the text field says, by action."""


def layout(model: LanguageModel, key: str) -> None:
    """Add the page of a model, see `Page`."""
    offered = action(model)
    columns = ["label", "probability"] if offered == LABEL else ["sample", "text"]
    caption = "Labels" if offered == LABEL else "Texts"
    most = model.settings.max_length

    def answer(*values: Any) -> str:
        rows = label(model, values[0]) if offered == LABEL else write(model, *values)
        return table(caption, columns, rows)

    what = "Beginning of the text" if offered == CONTINUE else "Text"
    text = gr.Textbox(label=what, info=INFO[offered], lines=3, max_length=MAX_CHARACTERS)
    buttons = gr.Row()
    result = result_table(caption, columns)
    inputs = [text]
    if offered != LABEL:
        length = gr.Slider(
            1, most, most, step=1, label="Length", visible=offered == CONTINUE,
            info="Most tokens of a text, its beginning included.",
        )  # fmt: skip
        inputs += [length, *sampling_fields(count=4, most=MAX_COUNT, what="texts")]
    with buttons:
        run_button(offered, answer, inputs, [result], primary=True)
        stop_button()


PAGE = Page(layout)
