"""Page of a translation model."""

from __future__ import annotations

import io
from typing import Any

import gradio as gr
from PIL import Image

from triptych.domains.options import TranslateOptions
from triptych.domains.translation.inference import TranslationModel
from triptych.tools.play.limits import MAX_COUNT
from triptych.tools.play.pages import Page
from triptych.tools.play.pages.shared import (
    result_image,
    result_table,
    run_button,
    sampling_fields,
    stop_button,
    table,
)
from triptych.tools.play.translation import (
    COLUMNS,
    MAX_BEAM,
    MAX_CHARACTERS,
    Translated,
    example,
    sample,
    search,
)

CAPTION = "Translations"


def layout(model: TranslationModel, key: str) -> None:
    """Add the page of a model, see `Page`."""
    settings = model.settings
    what = "Document" if settings.summaries else "Sentence"
    languages = f"{' or '.join(settings.source_languages)} to {settings.target_language}"

    def searched(*values: Any) -> tuple[Any, Any]:
        return _shown(search(model, *values[:-1]))

    def sampled(*values: Any) -> tuple[Any, Any]:
        return _shown(sample(model, *values[:-1]))

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
                max_length=MAX_CHARACTERS,
                elem_id=f"{key}-text",
            )
            inputs = [text, *_search_fields(model)]
            run_button("Translate", searched, inputs, [results, picture], primary=True, enter=text)
            with gr.Accordion("Sample translations instead of searching the best", open=False):
                fields = sampling_fields(count=4, most=MAX_COUNT, what="translations")
                run_button("Sample", sampled, [text, *fields], [results, picture])
                stop_button()
        with gr.Column():
            results.render()
            picture.render()


def _search_fields(model: TranslationModel) -> list[Any]:
    n_heads = model.settings.model.transformer.n_heads
    beam = gr.Slider(
        1, MAX_BEAM, TranslateOptions.beam, step=1, label="Beam", info="Number of hypotheses."
    )
    with gr.Accordion("Length penalty, layer and head", open=False):
        return [
            beam,
            gr.Textbox(
                TranslateOptions.length_penalty,
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


def _shown(found: Translated) -> tuple[Any, Any]:
    """Return the values of the table and of the picture."""
    picture = None if found.attention is None else Image.open(io.BytesIO(found.attention))
    return table(CAPTION, found.columns, found.rows), picture


PAGE = Page(layout)
