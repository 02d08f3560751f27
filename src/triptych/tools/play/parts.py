"""What the pages share: fields, buttons that run a model, and limits of what a visitor may ask.

Each limit is refused in one sentence; gradio refuses numbers outside of those of their fields.
"""

import html
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import gradio as gr
from jinja2 import Environment, PackageLoader, StrictUndefined

from triptych.errors import UserError
from triptych.types import Progress

MAX_COUNT = 8
"""Largest number of samples at a time."""
MAX_TEMPERATURE = 2.0
MAX_SEED = 2**31 - 1
QUEUE = "model"
"""Queue of all buttons that run a model: one runs at a time, since torch uses all cores."""
IMAGE_BUTTONS = ["download", "fullscreen"]
"""Of an image; gradio's own list has one that uploads it."""
SHOWN_EVERY = 0.2
"""Seconds between two displays of progress."""
_TEMPLATES = Environment(
    loader=PackageLoader("triptych.tools.play"), autoescape=True, undefined=StrictUndefined
)


class Work:
    """Work that a model does for one tab of a browser; there is one at a time."""

    stopped = Event()
    """Ends the work at its next step."""
    server_ends = Event()
    """Ends the work, and then that which waits in the queue."""
    session: str | None = None
    """Tab that asked for it."""

    @classmethod
    def begin(cls, session: str | None) -> None:
        """Note that the work of a tab begins."""
        cls.session = session
        cls.stopped.clear()


def stop_work(request: gr.Request) -> None:
    """End the work of the tab of a request; work of other tabs goes on."""
    if request.session_hash == Work.session:
        Work.stopped.set()


def given_text(text: str) -> str:
    """Return a text without white space at its ends; UserError where it is empty."""
    if not (text := text.strip()):
        raise UserError("There is no text yet: type one first.")
    return text


def sampling(
    seed: int | None, temperature: float, count: int, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the arguments of a model's sampling from the values of `sampling_fields`.

    seed: None for an empty field, which is 0.
    """
    return {"seed": seed or 0, "temperature": temperature, "count": count, "progress": progress}


def template(name: str, **values: Any) -> str:
    """Return a file of the folder of templates, filled with values."""
    return _TEMPLATES.get_template(name).render(**values)


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> str:
    """Return a table of results as HTML."""
    return template("table.html.j2", caption=caption, columns=columns, rows=rows)


def result_table(caption: str, columns: Sequence[str], **options: Any) -> Any:
    """Add an element for `table`, at first without rows."""
    return gr.HTML(table(caption, columns), apply_default_css=False, **options)


def sampling_fields(*, count: int, what: str, most: int = MAX_COUNT) -> list[Any]:
    """Add the fields of seed, temperature and number of samples, and return them."""
    with gr.Row():
        return [
            gr.Number(
                0, label="Seed", precision=0, minimum=0, maximum=MAX_SEED, min_width=180,
                info="Another seed gives another result.",
            ),
            gr.Slider(
                0, MAX_TEMPERATURE, 1, step=0.05, label="Temperature", min_width=180,
                info="Below 1 safer, above 1 more varied.",
            ),
            gr.Slider(
                1, most, count, step=1, label=f"Number of {what}", min_width=180,
                info="More take more time.",
            ),
        ]  # fmt: skip


def run_button(
    text: str,
    *arguments: Any,
    primary: bool = False,
    enter: Any = None,
    **options: Any,
) -> Any:
    """Add a button that calls a function, and return its event; arguments, options: of `run_on`.

    enter: text field in which the Enter key does the same.
    """
    button = gr.Button(text, variant="primary" if primary else "secondary", min_width=100)
    triggers = [button.click, *([] if enter is None else [enter.submit])]
    return run_on(triggers, *arguments, **options)


def run_on(
    triggers: Sequence[Any],
    function: Callable[..., Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    js: str | None = None,
    shown_on: Sequence[Any] | None = None,
) -> Any:
    """Call a function with the values of the inputs at some events, and return gradio's event.

    function: takes a `Progress` as last argument and returns the values of the outputs; a UserError
    is shown as its sentence. js: JavaScript that changes the values before they are sent. shown_on:
    components over which the progress is shown, None for the outputs.
    """

    # gradio finds a Progress by its default and a Request by its type, and passes both.
    def answer(
        request: gr.Request,
        progress: gr.Progress = gr.Progress(),  # noqa: B008
        *values: Any,
    ) -> Any:
        Work.begin(request.session_hash)
        try:
            return function(*values, _display(progress))
        except UserError as error:
            # gradio shows a message as HTML. After an exception it would cover the results.
            gr.Warning(html.escape(" ".join(str(error).split())), duration=None, title="Triptych")
            return gr.skip()

    return gr.on(
        triggers, answer, inputs, outputs, js=js, show_progress_on=shown_on, concurrency_id=QUEUE,
        concurrency_limit=1, api_visibility="private",
    )  # fmt: skip


def result_image(label: str, **options: Any) -> Any:
    """Return an image of a result, to be rendered where it is to stand."""
    return gr.Image(
        render=False, label=label, show_label=False, format="png", interactive=False,
        buttons=IMAGE_BUTTONS, **options,
    )  # fmt: skip


def stop_button() -> None:
    """Add a button that ends the work that runs."""
    gr.Button("Stop", variant="stop", min_width=80).click(
        stop_work, queue=False, show_progress="hidden", api_visibility="private"
    )


def _display(progress: gr.Progress) -> Progress:
    """Return a Progress that gradio shows and that the stop button ends."""
    latest = 0.0

    def show(done: int, total: int) -> None:
        nonlocal latest
        if Work.stopped.is_set() or Work.server_ends.is_set():
            raise UserError("Stopped.")
        if time.monotonic() - latest > SHOWN_EVERY:
            latest = time.monotonic()
            progress((done, total or None), desc="sampled", unit="positions")

    return show
