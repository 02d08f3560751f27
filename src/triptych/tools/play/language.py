"""Page of a model of text: continuations, filled masks, or the label of a text."""

from typing import Any

import gradio as gr

from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.language.inference import LanguageModel
from triptych.domains.language.sources import Labelled
from triptych.domains.language.tasks.labelled import LabelledTask
from triptych.tools.play.parts import (
    given_text,
    result_table,
    run_button,
    sampling,
    sampling_fields,
    stop_button,
    table,
)

CONTINUE, FILL, LABEL = "Continue", "Fill masks", "Label"
INFO = {
    CONTINUE: "May be empty.",
    FILL: "[MASK] stands for each token that the model fills in.",
    LABEL: "Each line is one of the texts that the model reads together.",
}
"""What the text field says, by action."""


def action(model: LanguageModel) -> str:
    """Return what a model does with a text."""
    if isinstance(model.settings.task, LabelledTask):
        return LABEL
    return CONTINUE if isinstance(model.full_model, DecoderOnly) else FILL


def write(model: LanguageModel, prompt: str, length: Any, *fields: Any) -> list[list[str]]:
    """Return rows of number and text: the prompt continued, or with its masks filled.

    length: most tokens of a continuation, prompt included; ignored where masks are filled. fields:
    see `sampling`. Raises UserError for a prompt that the model cannot read.
    """
    options = sampling(*fields)
    if action(model) == CONTINUE:
        options["length"], prompt = length, prompt.strip()
    else:
        prompt = given_text(prompt)
    texts = model.sample(prompt=prompt, **options)
    return [[str(number), text] for number, text in enumerate(texts, start=1)]


def label(model: LanguageModel, text: str) -> list[list[str]]:
    """Return rows of label and probability, the most probable first.

    text: each of its lines is a text of the example. Raises UserError for another number of texts
    than the model reads.
    """
    lines = given_text(text).splitlines()
    texts = tuple(line.strip() for line in lines if line.strip())
    (probabilities,) = model.probabilities([Labelled(texts)])
    ranked = sorted(probabilities.items(), key=lambda each: -each[1])
    return [[name, f"{probability:.4f}"] for name, probability in ranked]


def layout(model: LanguageModel, key: str) -> None:
    """Add the page of a model, see `triptych.tools.play`."""
    offered = action(model)
    columns = ["label", "probability"] if offered == LABEL else ["sample", "text"]
    caption = "Labels" if offered == LABEL else "Texts"
    most = model.settings.max_length

    def answer(*values: Any) -> str:
        rows = label(model, values[0]) if offered == LABEL else write(model, *values)
        return table(caption, columns, rows)

    what = "Beginning of the text" if offered == CONTINUE else "Text"
    text = gr.Textbox(label=what, info=INFO[offered], lines=3)
    buttons = gr.Row()
    result = result_table(caption, columns)
    inputs = [text]
    if offered != LABEL:
        length = gr.Slider(
            1, most, most, step=1, label="Length", visible=offered == CONTINUE,
            info="Most tokens of a text, its beginning included.",
        )  # fmt: skip
        inputs += [length, *sampling_fields(count=4, what="texts")]
    with buttons:
        run_button(offered, answer, inputs, [result], primary=True)
        stop_button()
