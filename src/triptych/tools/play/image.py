"""Page of an image model: completions of a drawing, and samples."""

import base64
import math
from functools import partial
from typing import Any

import gradio as gr
import numpy as np
from numpy.typing import NDArray

from triptych.domains.image.domain import HALVES
from triptych.domains.image.given import filled_pixels
from triptych.domains.image.inference import ImageModel
from triptych.domains.pictures import render
from triptych.domains.pictures.decode import decode_pages
from triptych.domains.pictures.options import Reading
from triptych.errors import UserError
from triptych.tools.play import vote
from triptych.tools.play.parts import (
    result_image,
    run_button,
    sampling,
    sampling_fields,
    stop_button,
    template,
)
from triptych.types import Progress

MAX_PASSES = 5
MAX_COLUMNS = 3
"""Largest number of images in a row beside a drawing."""
FIRST_PART = "bottom"
ADDRESS = "data:image/png;base64,"
"""Begins a drawing as the browser sends it."""


def check_model(model: ImageModel, name: str) -> None:
    """Raise UserError for a model that the page does not show. name: of its checkpoint."""
    if model.full_model.factor is not None:
        raise UserError(
            f"{name} is a model of super-resolution; the page of images shows models that complete "
            "images (triptych sample image serves both)"
        )


def passes_for(model: ImageModel, part: str) -> int:
    """Return the passes of resampling that completion of a part needs to use all given pixels.

    0 where every given pixel precedes the others in the generation order, otherwise 1.
    """
    height, width, _ = model.full_model.shape
    return 0 if model.full_model.given_first(filled_pixels(part, height, width)) else 1


def complete(
    model: ImageModel, drawing: str, part: str, label: int | None, passes: int, *fields: Any
) -> NDArray[np.uint8]:
    """Return the given part of a drawing and its completions next to each other: RGB [H', W', 3].

    drawing: data address of a PNG in the size of the model's images. part: half that the model
    samples, one of `HALVES`. label: index of the class, None without classes. fields: see
    `sampling`. Raises UserError for a drawing of another size.
    """
    options = sampling(*fields)
    filled = filled_pixels(part, *model.full_model.shape[:2]).numpy()
    image = read_drawing(model, drawing)[None]  # [1, H, W, C]
    completed = model.complete(
        image,
        filled,
        labels=None if label is None else [label],
        passes=passes,
        **options,
    )[0]  # [count, H, W, C]
    levels = model.full_model.levels
    given = render.hide(render.to_bytes(image, levels), filled)
    cells = np.concatenate([given, render.in_colour(render.to_bytes(completed, levels))])
    return vote.enlarged(cells, min(len(cells), MAX_COLUMNS))


def sample(model: ImageModel, label: int | None, *fields: Any) -> NDArray[np.uint8]:
    """Return sampled images of a class in a grid: RGB [H', W', 3]."""
    sampled = model.sample(**sampling(*fields), label=label)
    cells = render.in_colour(render.to_bytes(sampled, model.full_model.levels))
    return vote.enlarged(cells, math.ceil(math.sqrt(len(cells))))


def example(
    model: ImageModel, label: Any, seed: Any, temperature: Any, progress: Progress | None = None
) -> str:
    """Return an image of the model's own as a drawing, a data address."""
    options = sampling(seed, temperature, 1, progress)
    sampled = model.sample(**options, label=label)
    shown = render.in_colour(render.to_bytes(sampled, model.full_model.levels))[0]
    return ADDRESS + base64.b64encode(render.png_content(shown)).decode()


def read_drawing(model: ImageModel, drawing: str) -> NDArray[np.uint8]:
    """Return a drawing as levels of the model, [H, W, C]; UserError for one of another size."""
    height, width, channels = model.full_model.shape
    content = base64.b64decode(drawing.removeprefix(ADDRESS))
    pixels = next(decode_pages(content, channels, reading=Reading(), notes=set()))
    if pixels.shape[:2] != (height, width):  # a page that is open since another model was served
        rows, columns, _ = pixels.shape
        raise UserError(
            f"The drawing is {columns} wide and {rows} high (pixels); expected {width} by "
            f"{height}: load the page again"
        )
    return render.to_levels(pixels, model.full_model.levels)


def layout(model: ImageModel, key: str) -> None:
    """Add the page of a model, see `triptych.tools.play`."""
    height, width, channels = model.full_model.shape
    names = model.vocabulary["class_names"] if model.full_model.n_classes else []
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
            fields = sampling_fields(count=4, what="images")
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
                drawn = run_button(
                    "Example", partial(example, model), [label, seed, temperature],
                    [address], shown_on=[result],
                )  # fmt: skip
                run_button("New images", partial(sample, model), [label, *fields], [result])
                stop_button()
    with gr.Accordion("Real or drawn?", open=False):
        vote.layout(model, [seed, temperature])
    drawn.success(None, address, address, js=f"(address) => showDrawing('{canvas}', address)")
    part.change(
        partial(passes_for, model), part, passes, js=f"(part) => hidePart('{canvas}', part)",
        queue=False, show_progress="hidden", api_visibility="private",
    )  # fmt: skip
