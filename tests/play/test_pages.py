"""A domain names its page, and each tab has a title of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace

import pytest
from tiny_models import image_model, language_model, music_model, translator

from triptych.errors import UserError
from triptych.tools.export.original import Original
from triptych.tools.play import page_of
from triptych.types import Progress


def test_a_domain_without_a_page_is_refused_in_a_sentence() -> None:
    model = image_model().model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "domain", "gan")
        with pytest.raises(UserError, match=r"x\.ckpt is of the domain gan.*of image, language"):
            page_of(model, "x.ckpt")


@pytest.mark.parametrize("made", [image_model, language_model, music_model, translator])
def test_every_model_has_the_page_of_its_domain(made: Callable[[], Original]) -> None:
    pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
    assert callable(page_of(made().model, "x.ckpt").layout)


def test_a_model_that_its_page_does_not_show_is_refused() -> None:
    pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
    with pytest.raises(UserError, match=r"x\.ckpt is a model of super-resolution"):
        page_of(image_model(super_resolution={"factor": 2}).model, "x.ckpt")


@pytest.mark.parametrize(
    ("field", "value"), [(0, -1), (0, 2**31), (1, -0.1), (1, 2.1), (2, 0), (2, 9)]
)
def test_a_field_refuses_what_is_outside_of_its_limits(field: int, value: float) -> None:
    gradio = pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
    parts = import_module("triptych.tools.play.parts")
    with gradio.Blocks():
        fields = parts.sampling_fields(count=1, what="samples")
    with pytest.raises(gradio.Error, match=r"than m(in|ax)imum value"):
        fields[field].preprocess(value)


def test_an_empty_seed_is_zero() -> None:
    pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
    parts = import_module("triptych.tools.play.parts")
    assert parts.sampling(None, 1.0, 2)["seed"] == 0


def test_the_end_of_the_server_ends_work_that_still_waits() -> None:
    gradio = pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
    parts = import_module("triptych.tools.play.parts")

    def work(progress: Progress) -> str:
        progress(1, 2)
        return "done"

    with gradio.Blocks():
        answer = parts.run_button("Run", work, [], [gradio.Textbox()]).fn
    request = SimpleNamespace(session_hash="x")
    parts.Work.stopped.set()  # of the work before
    assert answer(request, gradio.Progress()) == "done"
    parts.Work.server_ends.set()
    try:
        with pytest.warns(UserWarning, match="Stopped"):
            answer(request, gradio.Progress())
    finally:
        parts.Work.server_ends.clear()
