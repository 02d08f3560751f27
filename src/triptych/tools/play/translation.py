"""Page of a translation model: hypotheses with scores, and attention weights."""

import html
import io
from typing import Any

import gradio as gr
from PIL import Image

from triptych.domains.translation.domain import SearchOptions
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.render import EXAMPLES, draw, sentence_attention
from triptych.errors import UserError
from triptych.tools.play.parts import (
    given_text,
    result_image,
    result_table,
    run_button,
    table,
)

MAX_BEAM = 12
CAPTION = "Translations"
COLUMNS = ["rank", "translation", "score", "log p in nats"]


def example(model: TranslationModel) -> str:
    """Return a text for the model to begin with; empty where none fits."""
    settings = model.settings
    return "" if settings.summaries else EXAMPLES.get(settings.source_languages[0], "")


def search(
    model: TranslationModel, text: str, beam: int, length_penalty: str, layer: int, head: int
) -> tuple[list[list[str]], bytes]:
    """Return a row for each hypothesis of beam search, and a PNG of the attention of the best one.

    layer, head: from 1; 0 for the last layer and for the mean of all heads. Raises UserError for a
    text that is empty or too long and for a length penalty without sense. Characters that are not
    in the vocabulary are named in a warning.
    """
    line = checked_line(model, text)
    if unread := "".join(dict.fromkeys(model.vocabulary.source.unread(line))):
        gr.Warning(html.escape(f"The model does not know the characters {unread[:20]}"))
    (hypotheses,) = model.search([line], beam=beam, n_best=beam, length_penalty=length_penalty)
    (texts,) = model.texts([hypotheses])
    rows = [
        [str(rank), translation, f"{one.score:.3f}", f"{one.log_probability:.3f}"]
        for rank, (translation, one) in enumerate(zip(texts, hypotheses, strict=True), start=1)
    ]
    attended = sentence_attention(
        model.full_model,
        model.vocabulary,
        line,
        hypotheses[0],
        layer=layer or None,
        head=head or None,
    )
    return rows, draw(attended)


def checked_line(model: TranslationModel, text: str) -> str:
    """Return the text as one line; UserError where it is empty or too long for the model."""
    line = " ".join(given_text(text).split())
    most = model.settings.max_length
    if (length := len(model.vocabulary.source.encode(line))) >= most:
        raise UserError(
            f"The text has {length} tokens; this model was trained on texts of fewer than {most}."
        )
    return line


def layout(model: TranslationModel, key: str) -> None:
    """Add the page of a model, see `triptych.tools.play`."""
    settings = model.settings
    what = "Document" if settings.summaries else "Sentence"
    languages = f"{' or '.join(settings.source_languages)} to {settings.target_language}"

    def translate(*values: Any) -> tuple[str, Any]:
        rows, png = search(model, *values[:-1])  # without the progress
        return table(CAPTION, COLUMNS, rows), Image.open(io.BytesIO(png))

    # The results stand right of the fields, which name them.
    results = result_table(CAPTION, COLUMNS, render=False)
    picture = result_image("Attention of the best translation", height=420)
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(
                example(model),
                label=f"{what}, {languages}",
                lines=1,
                max_lines=4,
                elem_id=f"{key}-text",
            )
            inputs, outputs = [text, *_search_fields(model)], [results, picture]
            run_button("Translate", translate, inputs, outputs, primary=True, enter=text)
        with gr.Column():
            results.render()
            picture.render()


def _search_fields(model: TranslationModel) -> list[Any]:
    n_heads = model.settings.model.transformer.n_heads
    beam = gr.Slider(
        1, MAX_BEAM, SearchOptions.beam, step=1, label="Beam", info="Number of hypotheses."
    )
    with gr.Accordion("Length penalty, layer and head", open=False):
        return [
            beam,
            gr.Textbox(
                SearchOptions.length_penalty,
                label="Length penalty",
                info="0 (none), 1 (average) or gnmt:ALPHA; divides log p into the score.",
            ),
            gr.Slider(
                0, model.full_model.n_layers, 0, step=1, label="Layer of the attention",
                info="0 for the last one.",
            ),
            gr.Slider(
                0, n_heads, 0, step=1, label="Head of the attention",
                info="0 for the mean of all heads.",
            ),
        ]  # fmt: skip
