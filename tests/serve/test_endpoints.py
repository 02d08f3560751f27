"""The endpoints of `triptych serve`, called in this process: answers, limits, batches, figures."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_models import LINES, image_model, language_model, music_model, translator

pytest.importorskip("fastapi", reason="FastAPI is not installed (extra serve)")
from fastapi.testclient import TestClient

from triptych.domains.music.midi import midi_bytes
from triptych.domains.pictures.render import to_bytes
from triptych.tools.serve import Serve, services
from triptych.tools.serve.app import build
from triptych.tools.serve.services import Translator
from triptych.tools.translation.documents import translate_html

Options = dict[str, Any]
ASKED = {"q": LINES[0], "source": "en", "target": "de"}


def client(limits: Options | None = None, **models: Any) -> TestClient:
    """A client of models by name: domain and service."""
    return TestClient(build(models, Serve(checkpoint=["unused"], **(limits or {}))))


def real(**limits: Any) -> tuple[Any, TestClient]:
    model = translator().model
    served = services.translation(model)._replace(sources=["en"], target="de")
    return model, client(limits, tiny=("translation", served))


class Slow:
    """A translator in capitals that begins when it may, and notes its batches."""

    def __init__(self) -> None:
        self.may, self.begun = threading.Event(), threading.Event()
        self.batches: list[list[str]] = []
        self.reports: list[Any] = []

    def translate(
        self, lines: list[str], *, n_best: int, progress: Any, **_: Any
    ) -> list[list[str]]:
        self.batches.append(lines)
        self.begun.set()
        assert self.may.wait(30)
        try:
            progress(0, 1)
        except Exception as error:
            self.reports.append(error)
            raise
        if "fault" in lines:
            raise RuntimeError("a fault")
        return [[line.upper()] * n_best for line in lines]

    def client(self, **limits: Any) -> TestClient:
        return client(limits, slow=("translation", Translator(["en"], "de", self.translate)))


def post(server: TestClient, **changes: Any) -> tuple[int, Any]:
    answer = server.post("/translate", json=ASKED | changes)
    return answer.status_code, answer.json()


def waiting(server: TestClient, number: int) -> None:
    """Wait until so many requests wait."""
    for _ in range(1000):
        if f'triptych_queue_length{{model="slow"}} {number}\n' in server.get("/metrics").text:
            return
        time.sleep(0.01)
    raise AssertionError(f"there are never {number} requests that wait")


def test_a_text_and_a_list_are_translated_as_by_the_model() -> None:
    model, server = real()
    best: Any = model.translate(LINES)
    assert post(server) == (200, {"translatedText": best[0]})
    assert post(server, q=LINES) == (200, {"translatedText": best})
    both = f"{LINES[0]}\n\n{LINES[1]}"
    assert post(server, q=both) == (200, {"translatedText": f"{best[0]}\n\n{best[1]}"})
    assert post(server, q=[]) == (200, {"translatedText": []})
    assert server.post("/translate", data=ASKED).json() == {"translatedText": best[0]}


def test_alternatives_are_the_further_hypotheses() -> None:
    model, server = real()
    first, second = model.translate(LINES[:2], n_best=3)
    one = {"translatedText": first[0], "alternatives": first[1:]}
    assert post(server, alternatives=2) == (200, one)
    several = {"translatedText": [first[0], second[0]], "alternatives": [first[1:], second[1:]]}
    assert post(server, q=LINES[:2], alternatives=2) == (200, several)


def test_html_is_translated_as_by_the_model() -> None:
    model, server = real(max_wait_ms=300)
    texts = [f"<p>{LINES[0]} <b>{LINES[1]}</b></p>", f"<i>{LINES[2]}</i>\n&amp;"]
    first, second = translate_html(model, texts)
    assert sorted(re.findall("<.*?>", first)) == ["</b>", "</p>", "<b>", "<p>"]
    assert post(server, q=texts[0], format="html") == (200, {"translatedText": first})
    with ThreadPoolExecutor(2) as pool:  # in one batch with a text
        html = pool.submit(post, server, q=texts, format="html")
        assert pool.submit(post, server).result()[1] == {
            "translatedText": model.translate(LINES)[0]
        }
    assert html.result() == (200, {"translatedText": [first, second]})
    slow = Slow()
    slow.may.set()
    code, answer = post(slow.client(), format="html")
    assert (code, "without torch" in answer["error"]) == (400, True)


def test_requests_that_wait_are_translated_together() -> None:
    slow = Slow()
    server = slow.client(max_batch=4, max_wait_ms=0)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(post, server, q="first")
        assert slow.begun.wait(30)
        others = [pool.submit(post, server, q=f"n{number}") for number in range(5)]
        waiting(server, 5)
        slow.may.set()
        found = [one.result() for one in [first, *others]]
    assert found == [(200, {"translatedText": t}) for t in ("FIRST", *(f"N{n}" for n in range(5)))]
    assert [len(batch) for batch in slow.batches] == [1, 4, 1]
    text = server.get("/metrics").text
    assert 'triptych_batch_size_bucket{model="slow",le="1"} 2\n' in text
    assert 'triptych_batch_size_bucket{model="slow",le="4"} 3\n' in text
    assert 'triptych_batch_size_sum{model="slow"} 6\n' in text


def test_a_batch_of_several_requests_has_the_answers_of_each_alone() -> None:
    model, server = real(max_wait_ms=300)
    requests = [{"q": LINES[n % 4], "alternatives": n % 3} for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda changes: post(server, **changes), requests))
    assert 'triptych_batch_size_bucket{model="tiny",le="1"} 0\n' in server.get("/metrics").text
    for asked, (code, answer) in zip(requests, found, strict=True):
        (best,) = model.translate([asked["q"]], n_best=3)
        assert (code, answer["translatedText"]) == (200, best[0])
        assert answer.get("alternatives", []) == best[1 : 1 + asked["alternatives"]]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"q": 3}, "q: "),
        ({"q": None}, "q: "),
        ({"target": None}, "target: "),
        ({"target": "fr"}, "nothing translates en to fr"),
        ({"source": "de"}, "nothing translates de to de"),
        ({"model": "other"}, "by other"),
        ({"format": "xml"}, "format: "),
        ({"format": "html", "alternatives": 1}, "with alternatives"),
        ({"format": "html", "q": "<p>a <b"}, "the HTML is damaged: it ends inside a tag"),
        ({"alternatives": -1}, "alternatives: "),
        ({"alternatives": 4}, "4 alternatives; expected at most 3"),
        ({"q": ["a"] * 3}, "3 lines; expected at most 2"),
        ({"q": "a\nb\nc"}, "3 lines; expected at most 2"),
        ({"q": "a" * 101}, "101 characters; expected at most 100"),
    ],
    ids=str,
)
def test_a_wrong_request_is_refused_in_a_sentence(changes: Options, says: str) -> None:
    _, server = real(max_lines=2, max_characters=100)
    code, answer = post(server, **changes)
    assert (code, list(answer)) == (400, ["error"])
    assert says in answer["error"]
    assert "\n" not in answer["error"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b'{"q": "\\ud800", "target": "de"}', b"\xff", b"[" * 9999]
)
def test_a_damaged_body_is_refused(body: bytes) -> None:
    answer = real()[1].post("/translate", content=body)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


def test_what_is_not_there_and_what_is_too_long() -> None:
    _, server = real(max_characters=10)
    assert server.get("/nothing").status_code == 404
    assert server.get("/translate").status_code == 405
    assert server.head("/health").status_code == 200
    form = server.post("/translate", data=ASKED, files={"more": b""})  # multipart
    assert "a URL-encoded form" in form.json()["error"]
    assert server.post("/translate", content=b" " * 100_000).status_code == 413
    assert server.post("/sample", json={}).status_code == 400


def test_a_full_queue_and_a_late_answer() -> None:
    slow = Slow()
    server = slow.client(max_queue=1, timeout=0.3, max_wait_ms=0)
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(post, server, q="running")
        assert slow.begun.wait(30)
        late = pool.submit(post, server, q="late")
        waiting(server, 1)
        refused = server.post("/translate", json=ASKED)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "come again later" in refused.json()["error"]
        assert [one.result()[0] for one in (running, late)] == [504, 504]
        waiting(server, 0)
        slow.may.set()
        assert post(server, q="next") == (200, {"translatedText": "NEXT"})
    assert slow.batches == [["running"], ["next"]], "nobody waited for the late one any more"
    assert len(slow.reports) == 1, "work that nobody waits for ends at its next step"


def test_a_client_that_is_gone_leaves_the_queue() -> None:
    slow = Slow()
    server, sent = slow.client(max_wait_ms=0), list[Any]()
    messages = iter([{"type": "http.request", "body": json.dumps(ASKED).encode()}])

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/translate", "headers": []}
    asyncio.run(server.app(scope | {"query_string": b""}, receive, send))
    assert sent[0]["status"] == 499
    slow.may.set()
    assert post(server, q="next") == (200, {"translatedText": "NEXT"})
    assert slow.batches[-1] == ["next"]
    assert len(slow.reports) == len(slow.batches) - 1, "work for it ends at its next step"


def test_html_that_nobody_waits_for_ends() -> None:
    def progress(done: int, total: int) -> None:
        raise CancelledError

    served = services.translation(translator().model)
    assert served.translate_html is not None
    with pytest.raises(CancelledError):
        served.translate_html([f"<p>{LINES[0]}</p>"], beam=1, batch_size=1, progress=progress)


def test_a_fault_is_that_of_one_request_and_is_told_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Slow()
    server = slow.client(max_wait_ms=0)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(post, server, q="first")
        assert slow.begun.wait(30)
        others = [pool.submit(post, server, q=text) for text in ("good", "fault")]
        waiting(server, 2)
        slow.may.set()
        assert first.result() == (200, {"translatedText": "FIRST"})
        good, bad = (one.result() for one in others)
    assert good == (200, {"translatedText": "GOOD"})
    assert bad[0] == 500
    assert "a fault" not in str(bad[1])
    assert "RuntimeError: a fault" in caplog.text


def test_every_answer_is_counted_once() -> None:
    _, server = real()
    for changes in ({}, {}, {"target": "fr"}):
        post(server, **changes)
    server.get("/somewhere/else")
    assert server.get("/health").json() == {"status": "ok"}
    text = server.get("/metrics").text
    for line in (
        'triptych_requests_total{path="/translate",status="200"} 2',
        'triptych_requests_total{path="/translate",status="400"} 1',
        'triptych_requests_total{path="other",status="404"} 1',
        'triptych_request_seconds_count{path="/translate"} 3',
        'triptych_request_seconds_bucket{path="/translate",le="+Inf"} 3',
        'triptych_queue_length{model="tiny"} 0',
        "# TYPE triptych_request_seconds histogram",
    ):
        assert f"{line}\n" in text


def test_several_models_and_their_defaults() -> None:
    def named(name: str, sources: list[str], target: str) -> tuple[str, Translator]:
        def translate(lines: list[str], **_: Any) -> list[list[str]]:
            return [[name] for _ in lines]

        return "translation", Translator(sources, target, translate)

    server = client(
        a=named("a", ["en"], "de"), b=named("b", ["ko", "en"], "de"), c=named("c", ["de"], "en")
    )
    for changes, name in (
        ({}, "a"),
        ({"model": "b"}, "b"),
        ({"source": "ko"}, "b"),
        ({"source": "auto", "target": "en"}, "c"),
    ):
        assert post(server, **changes)[1] == {"translatedText": name}
    assert server.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "ko", "name": "Korean", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    about = {"name": "b", "domain": "translation", "sources": ["ko", "en"], "target": "de"}
    assert server.get("/models").json()[1] == about


OPTIONS = {"count": 2, "seed": 5, "temperature": 0.8, "top_k": 3}


def png(sample: str) -> Any:
    return np.asarray(Image.open(io.BytesIO(b64decode(sample))))


def midi(sample: str) -> bytes:
    return b64decode(sample)


def pieces(model: Any, **options: Any) -> list[bytes]:
    return [midi_bytes(piece.score) for piece in model.sample(**options)]


def images(model: Any, **options: Any) -> Any:
    return to_bytes(model.sample(**options), model.full_model.levels)


@pytest.mark.parametrize(
    ("domain", "made", "own", "media_type", "read", "expected"),
    [
        ("image", image_model, {}, "image/png", png, images),
        ("music", music_model, {"seconds": 0.5}, "audio/midi", midi, pieces),
        ("language", language_model, {"prompt": "the man", "length": 8}, "text/plain", str,
         lambda model, **options: model.sample(**options)),
    ],
    ids=["image", "music", "language"],
)  # fmt: skip
def test_samples_are_those_of_the_model(
    domain: str, made: Callable[[], Any], own: Options, media_type: str, read: Any, expected: Any
) -> None:
    model = made().model
    server = client({"max_count": 2}, tiny=(domain, getattr(services, domain)(model)))
    answer = server.post("/sample", json=OPTIONS | own).json()
    assert (answer["model"], answer["media_type"]) == ("tiny", media_type)
    found = [read(sample) for sample in answer["samples"]]
    np.testing.assert_array_equal(found, expected(model, **OPTIONS, **own))
    assert server.post("/sample", json=OPTIONS | own).json() == answer
    for wrong in (
        {"count": 3}, {"count": 0}, {"seed": -1}, {"top_p": 2}, {"model": "x"}, {"domain": "x"},
        {"label": 99, "seconds": 999}, {"prompt": "a" * 30_000}, {"labl": 1}, {"temperature": "x"},
    ):  # fmt: skip
        refused = server.post("/sample", json=wrong)
        assert (refused.status_code, list(refused.json())) == (400, ["error"]), wrong


def test_a_field_of_another_domain_and_a_class_that_is_not_there() -> None:
    server = client(
        a=("language", services.language(language_model().model)),
        b=("image", services.image(image_model(class_conditional=True).model)),
    )
    for asked, says in (
        ({"label": 1}, "a model of language has no label"),
        ({"domain": "image", "prompt": "a"}, "a model of image has no prompt"),
        ({"domain": "image", "label": 7}, "label"),
    ):
        answer = server.post("/sample", json=asked)
        assert answer.status_code == 400
        assert says in answer.json()["error"]
    assert server.post("/sample", json={"domain": "image", "label": 1}).status_code == 200


def test_openapi_describes_the_bodies() -> None:
    paths = real()[1].get("/openapi.json").json()["paths"]
    body = paths["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"q", "source", "target", "alternatives"} <= body["properties"].keys()
