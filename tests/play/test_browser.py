"""Pages of shipped models and of tiny ones in headless Chromium: used as a visitor uses them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pretty_midi
import pytest
import torch
from PIL import Image
from tiny_models import image_model, language_model, music_model, translator

from triptych.domains.music.midi import read_midi
from triptych.domains.music.musicxml_writing import musicxml_bytes
from triptych.domains.music.notes import Notes, Part, Score
from triptych.tools.export.original import Original

pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
pytestmark = pytest.mark.slow
MODELS = ["jsb-chorales", "mnist", "multi30k-en-de"]
"""One of each domain, so that the tabs have the names of the domains."""
PATIENCE = 60_000  # milliseconds, for a busy machine
STEP = 0.2  # seconds of a sixteenth
TUNE = [("h", 69), ("h", 69), ("k", 72), ("j", 71), ("g", 67)]
"""Keys of the computer and the pitches that they play."""


class Server:
    """`triptych play` in a process of its own."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "triptych", "play", "--no_browser", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Tests that a script runs in the background ignore SIGINT, and so would the server.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split(" ")[0]

    def interrupt(self) -> None:
        """Press Ctrl-C, which ends the server without a traceback."""
        self.process.send_signal(signal.SIGINT)
        try:
            out, err = self.process.communicate(timeout=60)
        finally:
            self.process.kill()
        assert self.process.returncode == 130
        assert "Traceback" not in out + err


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    named = [f"--checkpoint=pretrained:{name}" for name in MODELS]
    running = Server("--device", "cpu", *named)
    yield running
    running.interrupt()


@pytest.fixture(scope="module")
def tiny_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of random models as a user may have trained them."""
    recurrent = {"class_path": "triptych.domains.translation.model.Recurrent"}
    models = {
        "colour": image_model(class_conditional=True),
        "plain": image_model(),
        "text": language_model(),
        "melody": music_model(model={"melody": {"n_layers": 1}}),
        "recurrent": translator(n_heads=1, model={"architecture": recurrent}),
    }
    folder = tmp_path_factory.mktemp("runs")
    named = [f"--checkpoint={saved(model, folder / name)}" for name, model in models.items()]
    running = Server("--device", "cpu", *named)
    yield running
    running.interrupt()


def saved(model: Original, run: Path) -> Path:
    """Write a checkpoint where a run has it; return its path."""
    path = run / "checkpoints" / "best.ckpt"
    path.parent.mkdir(parents=True)
    weights = model.model.full_model.state_dict()
    state = {f"model.{name}": weight for name, weight in weights.items()}
    torch.save({"triptych": model.header, "state_dict": state}, path)
    return path


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """A fresh page of the shipped models; see `opened`."""
    yield from opened(browser, server)


@pytest.fixture
def tiny_page(browser: Any, tiny_server: Server) -> Iterator[Any]:
    """A fresh page of the tiny models; see `opened`."""
    yield from opened(browser, tiny_server)


def opened(browser: Any, server: Server) -> Iterator[Any]:
    """Yield a fresh page; at its end it has reported no error and asked no other server."""
    assert urlsplit(server.address).hostname == "127.0.0.1"
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    asked: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.address)
    page.wait_for_function("typeof attachAll === 'function'")  # gradio adds scripts late
    yield page
    page.close()
    assert errors == []
    assert len(asked) > 10
    assert {urlsplit(url).hostname for url in asked if url.startswith("http")} == {"127.0.0.1"}


def tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def button(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def number(page: Any, label: str, value: int) -> None:
    """Type a number as a person does: a field that has just unfolded may forget a set value."""
    field = page.get_by_label(label).first
    field.click()
    field.press("ControlOrMeta+a")
    field.press_sequentially(str(value))
    field.press("Tab")


def test_a_played_melody_is_harmonised_heard_and_downloaded(page: Any, tmp_path: Path) -> None:
    tab(page, "Music")
    page.get_by_role("button", name="C4", exact=True).wait_for()
    for key, _ in TUNE:
        page.keyboard.press(key)
    page.get_by_role("radio", name="half", exact=True).check()
    page.get_by_role("button", name="C5", exact=True).click()
    assert page.get_by_text("6 notes").is_visible()
    assert page.evaluate("audio.state") == "running"

    button(page, "Harmonise").click()
    figure = page.locator("figure.piece")
    figure.wait_for()
    assert figure.locator("figcaption").inner_text() == "Harmony 1"
    assert figure.locator("g.voice").count() == 4

    with page.expect_download() as download:
        figure.get_by_role("link", name="MIDI file").click()
    download.value.save_as(tmp_path / "harmony.mid")
    midi = pretty_midi.PrettyMIDI(str(tmp_path / "harmony.mid"))
    assert [part.name for part in midi.instruments] == ["Melody", "Alto", "Tenor", "Bass"]
    lengths = [4] * len(TUNE) + [8]
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    pitches = [pitch for _, pitch in TUNE] + [72]
    found = [
        (round(note.start / STEP), round((note.end - note.start) / STEP), note.pitch)
        for note in midi.instruments[0].notes
    ]
    assert found == list(zip(starts, lengths, pitches, strict=True))
    assert all(part.notes for part in midi.instruments)

    figure.get_by_role("button", name="Play").click()
    page.wait_for_function("playing && playing.sources.size >= 4")
    before = page.evaluate("audio.currentTime")
    page.wait_for_function("() => Number(document.querySelector('.piece .position').value) > 0.5")
    assert page.evaluate("audio.currentTime") > before
    figure.get_by_role("button", name="Pause").click()

    number(page, "Seconds of new music", 5)
    button(page, "New piece").click()  # gradio changes the figure in place
    page.get_by_text("Piece 1", exact=True).wait_for()
    figure.get_by_role("button", name="Play").click()
    page.wait_for_function("playing && playing.sources.size >= 4")
    bars = figure.locator("[data-sound]").count()
    assert page.evaluate("playing.notes.length") == bars
    figure.get_by_role("button", name="Pause").click()


def test_a_score_is_drawn_and_its_bars_are_made_anew(page: Any, tmp_path: Path) -> None:
    """Bars 2 and 3 of the alto; both versions are heard, and saved as MusicXML."""
    names = ("Soprano", "Alto", "Tenor", "Bass")
    rows = [
        (pitch, beat * 480, (beat + 1) * 480, 80, voice)
        for voice, pitch in enumerate((67, 64, 60, 48))
        for beat in range(12)
    ]
    parts = [Part(name, is_drum=False) for name in names]
    given = Score("hymn", parts, Notes.of(rows), 480, 5760, [], [(0, 3, 4)])
    (tmp_path / "hymn.musicxml").write_bytes(musicxml_bytes(given))
    tab(page, "Music")
    page.get_by_text("MIDI or MusicXML file in place").click()
    page.locator("input[type=file]:not(.file)").first.set_input_files(tmp_path / "hymn.musicxml")
    figure = page.locator("figure.piece")
    figure.wait_for()
    assert figure.locator("figcaption").inner_text() == "hymn"
    assert figure.locator("text.bar").all_text_contents() == ["1", "2", "3", "4"]

    number(page, "From bar", 2)
    number(page, "To bar", 3)
    page.get_by_label("Tracks").first.fill("alto")
    button(page, "Redo").click()
    page.get_by_text("Redone 1", exact=True).wait_for()
    assert figure.locator("figcaption").all_inner_texts() == ["Before", "Redone 1"]
    for version in figure.all():
        version.get_by_role("button", name="Play").click()
        page.wait_for_function("playing && playing.sources.size >= 4")
        version.get_by_role("button", name="Pause").click()
    notes = {}
    for version, name in zip(figure.all(), ("before", "after"), strict=True):
        with page.expect_download() as download:
            version.get_by_role("link", name="MusicXML").click()
        download.value.save_as(tmp_path / f"{name}.musicxml")
        score = read_midi(tmp_path / f"{name}.musicxml")
        assert score.time_signatures == [(0, 3, 4)]
        beat = score.ticks_per_quarter
        notes[name] = {
            (part, onset / beat, pitch)
            for part, onset, pitch in score.notes.rows("part", "onset", "pitch")
        }
    changed = notes["before"] ^ notes["after"]
    assert changed
    assert all(part == 1 and 3 <= onset < 9 for part, onset, _ in changed)


def test_the_grid_of_the_melody_takes_clicks_and_undoes(page: Any) -> None:
    tab(page, "Music")
    page.get_by_role("button", name="C4", exact=True).wait_for()
    steps = page.locator(".steps")
    steps.click(position={"x": 12 * 8 + 5, "y": 9 * 23 + 4})  # ninth sixteenth, C4
    melody = "JSON.parse(melodyOf(document.querySelector('.keyboard').id)).notes"
    assert page.evaluate(melody) == [[8, 4, 60]]
    steps.click(position={"x": 12 * 10 + 5, "y": 9 * 22 + 4})  # C sharp, in the middle of it
    assert page.evaluate(melody) == [[8, 2, 60], [10, 4, 61]]
    steps.click(position={"x": 12 * 8 + 5, "y": 9 * 23 + 4})
    assert page.evaluate(melody) == [[10, 4, 61]]
    page.keyboard.press("Backspace")
    assert page.evaluate(melody) == [[8, 2, 60], [10, 4, 61]]
    button(page, "Clear").click()
    assert page.evaluate(melody) == []
    page.get_by_label("Seed").first.click()
    page.keyboard.press("a")  # a field has the focus
    assert page.evaluate(melody) == []
    page.get_by_label("Quarters per minute").first.fill("120")
    assert page.evaluate(melody.replace("notes", "tempo")) == 120


def test_half_a_drawing_is_completed(page: Any) -> None:
    tab(page, "Image")
    canvas = page.locator("canvas")
    canvas.wait_for()
    place = canvas.bounding_box()
    at = lambda x, y: (place["x"] + x * place["width"], place["y"] + y * place["height"])  # noqa: E731
    page.mouse.move(*at(0.35, 0.3))
    page.mouse.down()
    for point in ((0.45, 0.2), (0.6, 0.2), (0.65, 0.3), (0.5, 0.48)):
        page.mouse.move(*at(*point), steps=4)
    page.mouse.up()
    page.get_by_label("Class of the image").click()
    page.get_by_role("option", name="3", exact=True).click()
    number(page, "Number of images", 2)
    button(page, "Finish drawing").click()
    image = page.locator("[id$=-result] img")
    image.wait_for()
    size = image.evaluate("async (one) => { await one.decode(); return one.naturalWidth; }")
    assert size >= 3 * 28 * 6
    # The first image of the grid is the drawing itself, above the half that is covered.
    same = page.evaluate(
        """() => {
            const image = document.querySelector("[id$=-result] img");
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [image.naturalWidth, image.naturalHeight];
            const context = copy.getContext("2d");
            context.drawImage(image, 0, 0);
            const drawn = document.querySelector("canvas").getContext("2d");
            let [same, white] = [0, 0];
            for (let y = 0; y < 14; y++) for (let x = 0; x < 28; x++) {
                const shown = context.getImageData(4 + 6 * x + 3, 4 + 6 * y + 3, 1, 1).data[0];
                const given = drawn.getImageData(x, y, 1, 1).data[0];
                same += shown === given;
                white += given > 200;
            }
            return [same, white];
        }"""
    )
    assert same[0] == 14 * 28
    assert same[1] > 10


def test_a_sentence_is_translated(page: Any) -> None:
    tab(page, "Translation")
    text = page.get_by_label("Sentence, en to de")
    text.fill("A man plays the guitar.")
    text.press("Enter")
    page.get_by_role("cell", name="Ein Mann spielt Gitarre.").first.wait_for()
    assert page.get_by_role("row").count() == 5
    page.locator("img").first.wait_for()


def test_a_mistake_is_a_sentence_and_stop_ends_the_work(page: Any) -> None:
    tab(page, "Music")
    button(page, "Harmonise").click()
    page.get_by_text("There are no notes yet").wait_for()
    button(page, "Example melody").click()
    number(page, "Number of pieces", 4)
    number(page, "Particles", 64)
    button(page, "Harmonise").click()
    page.get_by_text(re.compile(r"sampled - \d")).wait_for()
    button(page, "Stop").click()
    page.get_by_text("Stopped.").wait_for()
    assert page.locator("figure.piece").count() == 0


def test_a_foreign_host_name_is_refused(server: Server) -> None:
    foreign = Request(server.address, headers={"Host": "pages.example"})
    with pytest.raises(HTTPError, match="400"):
        urlopen(foreign)
    with urlopen(server.address) as answer:
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def test_each_model_has_a_tab_with_the_name_of_its_run(tiny_page: Any) -> None:
    tiny_page.get_by_role("tab").first.wait_for()
    titles = [one.inner_text() for one in tiny_page.get_by_role("tab").all()]
    assert titles == ["Image: colour", "Image: plain", "Language", "Music", "Translation"]


def test_a_drawing_in_colour_keeps_its_colours(tiny_page: Any, tmp_path: Path) -> None:
    tab(tiny_page, "Image: colour")
    seen = tiny_page.locator("canvas:visible")
    seen.wait_for()
    tiny_page.locator("input.ink:visible").fill("#ff0000")
    button(tiny_page, "Fill").click()
    assert pixel(tiny_page, "canvas:visible", 1, 1) == [255, 0, 0]
    number(tiny_page, "Number of images", 1)
    button(tiny_page, "Finish drawing").click()
    shown = tiny_page.locator("[id$=-result] img:visible")
    shown.wait_for()
    shown.evaluate("async (one) => { await one.decode(); }")
    assert pixel(tiny_page, "[id$=-result] img", 10, 10) == [255, 0, 0]

    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    tiny_page.locator("input.file").first.set_input_files(tmp_path / "clear.png")
    tiny_page.wait_for_function(PIXEL + "('canvas', 1, 1)[2] === 255")  # white, as in training


PIXEL = """((where, x, y) => {
    const source = [...document.querySelectorAll(where)].find((one) => one.offsetParent);
    const context = document.createElement("canvas").getContext("2d");
    context.drawImage(source, 0, 0);
    return [...context.getImageData(x, y, 1, 1).data].slice(0, 3);
})"""


def pixel(page: Any, where: str, x: int, y: int) -> list[int]:
    """Colour of a pixel of the first canvas or image of a selector that is seen."""
    found: list[int] = page.evaluate(f"{PIXEL}({where.removesuffix(':visible')!r}, {x}, {y})")
    return found


def test_a_text_is_continued(tiny_page: Any) -> None:
    tab(tiny_page, "Language")
    tiny_page.get_by_label("Beginning of the text").fill("a man")
    number(tiny_page, "Number of texts", 2)
    button(tiny_page, "Continue").click()
    texts = tiny_page.locator("tbody:visible tr td:last-child")
    texts.nth(1).wait_for()
    assert all(text.startswith("a man") for text in texts.all_inner_texts())
    assert texts.count() == 2


def test_a_melody_is_accompanied(tiny_page: Any) -> None:
    tab(tiny_page, "Music")
    button(tiny_page, "Example melody").click()
    button(tiny_page, "Accompany").click()
    figure = tiny_page.locator("figure.piece")
    figure.wait_for()
    assert figure.locator("g.voice").count() > 1
    assert button(tiny_page, "Harmonise").count() == button(tiny_page, "New piece").count() == 0


def test_a_recurrent_model_translates_and_shows_its_attention(tiny_page: Any) -> None:
    tab(tiny_page, "Translation")
    text = tiny_page.locator("textarea:visible").first
    text.fill("the man runs")
    text.press("Enter")
    tiny_page.locator("img:visible").first.wait_for()
    assert tiny_page.locator("tbody:visible tr").count() == 4
