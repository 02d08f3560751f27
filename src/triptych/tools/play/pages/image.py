"""Page of an image model."""

from __future__ import annotations

from functools import partial

import gradio as gr

from triptych.domains.image.domain import HALVES
from triptych.domains.image.inference import ImageModel
from triptych.tools.play.image import (
    MAX_PASSES,
    check_model,
    class_names,
    complete,
    example,
    passes_for,
    sample,
)
from triptych.tools.play.limits import MAX_COUNT
from triptych.tools.play.pages import Page
from triptych.tools.play.pages.shared import (
    result_image,
    run_button,
    sampling_fields,
    stop_button,
    template,
)

FIRST_PART = "bottom"


def layout(model: ImageModel, key: str) -> None:
    """Add the page of a model, see `Page`."""
    height, width, channels = model.full_model.shape
    names = class_names(model)
    canvas = f"{key}-canvas"
    # The script of a button fills the first one; the second one goes to the canvas.
    drawing = gr.Textbox(visible=False)
    address = gr.Textbox(visible=False)
    result = result_image("Images", elem_id=f"{key}-result")
    with gr.Row():
        with gr.Column():
            label = gr.Dropdown(
                [(text, index) for index, text in enumerate(names)],
                value=0 if names else None,
                label="Class of the image",
                visible=bool(names),
            )
            gr.HTML(
                template(
                    "drawing.html.j2", id=canvas, width=width, height=height, grey=channels == 1,
                    part=FIRST_PART,
                ),
                apply_default_css=False,
            )  # fmt: skip
            part = gr.Radio(HALVES, value=FIRST_PART, label="Part that the model fills")
            passes = gr.Slider(
                0, MAX_PASSES, passes_for(model, FIRST_PART), step=1, label="Passes",
                info="Each pass of resampling, which is slow, lets the model take account of given "
                "pixels that come later in its order.",
            )  # fmt: skip
        with gr.Column():
            buttons = gr.Row()
            result.render()
            fields = sampling_fields(count=4, most=MAX_COUNT, what="images")
            seed, temperature, _ = fields
            with buttons:
                run_button(
                    "Finish drawing",
                    partial(complete, model),
                    [drawing, part, label, passes, *fields],
                    [result],
                    js=f"(_, ...others) => [drawingOf('{canvas}'), ...others]",
                    primary=True,
                )
                sampling = run_button(
                    "Example", partial(example, model), [label, seed, temperature],
                    [address], shown_on=[result],
                )  # fmt: skip
                run_button("New images", partial(sample, model), [label, *fields], [result])
                stop_button()
    sampling.success(None, address, address, js=f"(address) => showDrawing('{canvas}', address)")
    part.change(
        partial(passes_for, model), part, passes, js=f"(part) => hidePart('{canvas}', part)",
        queue=False, show_progress="hidden", api_visibility="private",
    )  # fmt: skip


PAGE = Page(layout, check_model)
