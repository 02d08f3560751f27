"""The page in headless Chromium: no error, no request, playing, enlarging, contrast, names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import written_runs

from triptych.tools.report.page import report
from triptych.tools.report.run import read_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs side by side, with a script as a translation and damage that is named."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [written_runs.write_run(folder, "one"), written_runs.write_run(folder, "two", d_model=8)]
    (runs[1] / "versions.json").unlink()
    written_runs.write_midi(
        runs[0] / "samples/step-00000020/piece-01.mid", [(0, 1, 60), (90, 95, 64)]
    )
    page = folder / "report.html"
    page.write_bytes(report(read_runs(runs, most=12), title="Two runs"))
    return page


class Visit:
    """An open page with what it said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


@pytest.fixture(params=["light", "dark"])
def visit(request: pytest.FixtureRequest, browser: Any, file: Path) -> Iterator[Visit]:
    page = browser.new_page(color_scheme=request.param)
    found = Visit(page)
    page.goto(file.as_uri())
    yield found
    page.close()
    assert found.errors == []
    outside = [url for url in found.requests if not url.startswith("data:")]
    assert outside == [file.as_uri()], "the file itself and nothing else"


def test_a_script_in_a_translation_is_text(visit: Visit) -> None:
    assert visit.page.title() == "Two runs"
    assert visit.page.locator("td:visible").get_by_text(written_runs.SCRIPT).first.is_visible()


def test_play_moves_the_cursor_and_pause_stops_it(visit: Visit) -> None:
    page = visit.page
    figure = page.locator("figure.piece:visible").first
    cursor, button = figure.locator(".cursor"), figure.get_by_role("button", name="Play")
    start = float(cursor.get_attribute("x1"))
    button.click()
    page.wait_for_function(
        "([x]) => Number(document.querySelector('.validation:not([hidden]) .cursor')"
        ".getAttribute('x1')) > x + 80",
        arg=[start],
        timeout=5000,
    )
    assert float(figure.locator(".position").input_value()) > 0
    figure.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(150)
    there = cursor.get_attribute("x1")
    page.wait_for_timeout(300)
    assert cursor.get_attribute("x1") == there
    assert figure.get_by_role("button", name="Play").is_visible()


def test_a_piece_ends_at_its_start_and_only_one_plays(visit: Visit) -> None:
    page = visit.page
    first, second = (page.locator("figure.piece:visible").nth(number) for number in (0, 1))
    first.get_by_role("button", name="Play").click()
    second.get_by_role("button", name="Play").click()
    assert first.get_by_role("button", name="Play").is_visible()
    second.get_by_role("button", name="Pause").click()
    first.locator(".position").fill("2.4")  # of 2.5 s
    first.get_by_role("button", name="Play").click()
    first.get_by_role("button", name="Play").wait_for(timeout=5000)
    assert first.locator(".position").input_value() == "0"


def test_the_sound_is_that_of_the_notes(visit: Visit) -> None:
    """Render the player's oscillators offline and look for the pitch of the first note."""
    found = visit.page.evaluate(
        """async () => {
            openAudio();
            const offline = new OfflineAudioContext(1, 44100, 44100);
            audio = offline; output = offline.destination;
            playing = {sources: new Set()};
            const figure = document.querySelector(".piece");
            sound(figure.notes[0], 0, 0);
            playing = null;
            const samples = (await offline.startRendering()).getChannelData(0);
            let crossings = 0;
            for (let i = 4410; i < 39690; i++)
                if (samples[i - 1] < 0 && samples[i] >= 0) crossings++;
            audio = null;
            return [figure.notes[0].pitch, crossings / 0.8];
        }"""
    )
    pitch, hertz = found
    assert hertz == pytest.approx(440 * 2 ** ((pitch - 69) / 12), rel=0.02)


def test_a_slider_chooses_the_step_and_a_hidden_piece_is_silent(visit: Visit) -> None:
    page = visit.page
    group = page.locator(".validations").first
    assert [one.is_visible() for one in group.locator(".validation").all()] == [False, True]
    group.get_by_role("button", name="Play").first.click()
    group.locator(".chooser").focus()
    page.keyboard.press("ArrowLeft")
    assert [one.is_visible() for one in group.locator(".validation").all()] == [True, False]
    assert group.locator(".chooser").get_attribute("aria-valuetext") == "step 10"
    assert page.evaluate("playing") is None


def test_an_image_opens_larger_and_closes_with_the_keyboard(visit: Visit) -> None:
    page = visit.page
    button = page.get_by_role("button", name="Enlarge samples, one, step 20")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Enlarged image")
    image = dialog.locator("img")
    before = image.bounding_box()["width"]
    assert before > button.bounding_box()["width"]
    dialog.get_by_role("slider", name="Zoom").focus()
    page.keyboard.press("End")
    assert image.bounding_box()["width"] > 7 * before
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert button.evaluate("one => one === document.activeElement")


def test_contrast_names_and_structure(visit: Visit) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe-playwright-python is not installed (extra browser)",
    ).Axe()
    page = visit.page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    results = axe.run(page)
    assert results.violations_count == 0, results.generate_report()
    page.get_by_role("button", name="Enlarge").first.click()
    results = axe.run(page)
    assert results.violations_count == 0, results.generate_report()


def test_a_narrow_window_needs_no_sideways_scrolling(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 360, "height": 740})
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_policy_without_the_hash_stops_the_script(browser: Any, file: Path) -> None:
    """The policy is in force: text added to the script is a refusal of the whole script."""
    changed = file.with_name("changed.html")
    changed.write_text(
        file.read_text(encoding="utf-8").replace('"use strict";', '"use strict"; 1;')
    )
    page = browser.new_page()
    visit = Visit(page)
    page.goto(changed.as_uri())
    assert any("Content Security Policy" in error for error in visit.errors)
    assert not page.locator(".play").first.is_visible()
    page.close()
