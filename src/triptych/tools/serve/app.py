"""Endpoints of a server, and the server itself: FastAPI under uvicorn."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

import triptych
from triptych.errors import UserError
from triptych.tools.serve import Serve
from triptych.tools.serve.metrics import BATCH, REQUESTS, SECONDS, Metrics
from triptych.tools.serve.services import Sampler, SampleRequest, TranslateRequest, Translator
from triptych.tools.serve.worker import Job, Worker
from triptych.types import Progress

LOG = logging.getLogger(__name__)
LANGUAGES = {
    "cs": "Czech", "de": "German", "en": "English", "es": "Spanish", "fr": "French",
    "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "pt": "Portuguese",
    "ru": "Russian", "zh": "Chinese",
}  # fmt: skip
"""Names of languages by code; another one is called by its code."""
Models = dict[str, tuple[str, Translator | Sampler]]
"""Domain and service of each model by its name; the first ones are the defaults."""
LISTED = "GET /models lists what is served"
OWN_FIELDS = {"label", "seconds", "prompt", "length"}
"""Fields of a request for samples that not all models have."""
Body = TypeVar("Body", bound=BaseModel)


def build(models: Models, limits: Serve) -> FastAPI:
    """Return the endpoints of models."""
    metrics = Metrics()
    workers = {name: _worker(name, model, limits, metrics) for name, (_, model) in models.items()}
    translators = {name: m for name, (_, m) in models.items() if isinstance(m, Translator)}
    samplers = {name: m for name, (_, m) in models.items() if isinstance(m, Sampler)}
    app = FastAPI(title="Triptych", version=triptych.__version__, docs_url=None, redoc_url=None)
    app.add_exception_handler(HTTPException, _refusal)
    app.add_exception_handler(UserError, _refusal)

    @app.middleware("http")
    async def count(request: Request, call_next: Any) -> Response:
        started, path = time.monotonic(), request.url.path
        try:
            response: Response = await call_next(request)
        except Exception:
            LOG.exception("a request has failed")
            response = await _refusal(request, HTTPException(500, "the server's log says why"))
        path = path if path in paths else "other"
        metrics.add(REQUESTS, path=path, status=str(response.status_code))
        metrics.observe(SECONDS, time.monotonic() - started, path=path)
        return response

    async def computed(request: Request, name: str, job: Job) -> Any:
        if not workers[name].submit(job):
            full = f"the queue of {name} is full ({limits.max_queue}); come again later"
            raise HTTPException(503, full, {"Retry-After": "1"})
        result = asyncio.wrap_future(job.result)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {result, gone}, timeout=limits.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if result.done():
                return result.result()
            if gone.done():
                raise HTTPException(499, "nobody waits for the result any more")
            raise HTTPException(504, f"no result in {limits.timeout:g} seconds")
        finally:
            result.cancel()
            gone.cancel()

    @app.post("/translate", openapi_extra=_schema(TranslateRequest))
    async def translate(request: Request) -> dict[str, Any]:
        asked = await _asked(TranslateRequest, request, limits)
        name = next((n for n, m in translators.items() if asked.fits(n, m.sources, m.target)), None)
        if name is None:
            by = f" by {asked.model}" if asked.model else ""
            raise UserError(f"nothing translates {asked.source} to {asked.target}{by}; {LISTED}")
        texts, in_html = [asked.q] if isinstance(asked.q, str) else asked.q, asked.format == "html"
        if in_html and (translators[name].translate_html is None or asked.alternatives):
            raise UserError(f"{name} translates HTML neither without torch nor with alternatives")
        rows = [[text] if in_html else text.split("\n") for text in texts]
        lines = [line for row in rows for line in row]
        _check("lines", len(lines), limits.max_lines)
        _check("characters", sum(map(len, texts)), limits.max_characters)
        _check("alternatives", asked.alternatives, limits.beam - 1)
        job = Job((lines, asked.alternatives + 1, in_html), len(lines))
        found = await computed(request, name, job)
        best = [_joined([found.pop(0) for _ in row]) for row in rows]
        answer: dict[str, Any] = {"translatedText": [one[0] for one in best]}
        if asked.alternatives:
            answer["alternatives"] = [one[1:] for one in best]
        return {k: v[0] for k, v in answer.items()} if isinstance(asked.q, str) else answer

    @app.post("/sample", openapi_extra=_schema(SampleRequest))
    async def sample(request: Request) -> dict[str, Any]:
        asked = await _asked(SampleRequest, request, limits)
        name = next((n for n in samplers if asked.fits(n, models[n][0])), None)
        if name is None:
            by = f" by {asked.model}" if asked.model else ""
            raise UserError(f"nothing samples {asked.domain or 'any domain'}{by}; {LISTED}")
        options = asked.model_dump(exclude={"model", "domain"}, exclude_none=True)
        if foreign := options.keys() & OWN_FIELDS - samplers[name].fields:
            raise UserError(f"a model of {models[name][0]} has no {min(foreign)}")
        _check("samples", asked.count, limits.max_count)
        _check("characters", len(asked.prompt or ""), limits.max_characters)
        samples = await computed(request, name, Job(options, asked.count))
        return {"model": name, "media_type": samplers[name].media_type, "samples": samples}

    @app.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        pairs = [(source, m.target) for m in translators.values() for source in m.sources]
        return [
            {
                "code": code,
                "name": LANGUAGES.get(code, code),
                "targets": sorted({target for source, target in pairs if source == code}),
            }
            for code in dict(pairs)
        ]

    @app.get("/models")
    async def listed() -> list[dict[str, Any]]:
        return [
            {"name": name, "domain": domain}
            | {
                key: value
                for key, value in model._asdict().items()
                if not (callable(value) or value is None)
            }
            for name, (domain, model) in models.items()
        ]

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def figures() -> PlainTextResponse:
        waiting = {name: worker.length() for name, worker in workers.items()}
        return PlainTextResponse(metrics.text(waiting), media_type="text/plain; version=0.0.4")

    paths = {getattr(route, "path", "") for route in app.routes}
    return app


def _worker(name: str, model: Translator | Sampler, limits: Serve, metrics: Metrics) -> Worker:
    def compute(contents: Sequence[Any], progress: Progress) -> list[Any]:
        if isinstance(model, Sampler):
            return [model.sample(**options, progress=progress) for options in contents]
        options = {"beam": limits.beam, "batch_size": limits.max_batch, "progress": progress}
        plain = [line for lines, _, in_html in contents if not in_html for line in lines]
        found = model.translate(plain, n_best=max(n for _, n, _ in contents), **options)
        marked = [line for lines, _, in_html in contents if in_html for line in lines]
        if marked and model.translate_html is not None:
            of_html = model.translate_html(marked, **options)
        return [
            [(of_html if in_html else found).pop(0)[:n] for _ in lines]
            for lines, n, in_html in contents
        ]

    return Worker(
        compute,
        lambda size: metrics.observe(BATCH, size, model=name),
        # Samples of a seed depend on those beside them.
        max_batch=limits.max_batch if isinstance(model, Translator) else 1,
        max_wait=limits.max_wait_ms / 1000,
        max_queue=limits.max_queue,
    )


def serve(models: Models, limits: Serve, listener: socket.socket) -> None:
    """Serve models at a bound socket until SIGTERM or Ctrl-C; print the address."""
    listener.listen(1024)
    host, port = listener.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C ends it)", flush=True)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: None)  # at its end uvicorn raises what it received again
    grace: Any = limits.grace  # seconds, a float too
    app = build(models, limits)

    async def until_grace(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:  # by uvicorn, after the grace
            await JSONResponse({"error": "the server ends"}, 503)(scope, receive, send)

    config = uvicorn.Config(
        until_grace,
        access_log=False,
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=grace,
    )
    uvicorn.Server(config).run(sockets=[listener])
    sys.stderr.flush()
    os._exit(0)  # a thread that still computes would abort the process at an ordinary end


async def _disconnected(request: Request) -> None:
    """Wait until the client of a request that was read is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _joined(lines: list[list[str]]) -> list[str]:
    """Return texts by rank from translations of lines; the last one of a line stands for more."""
    ranks = range(max(map(len, lines)))
    return ["\n".join(best[min(rank, len(best) - 1)] for best in lines) for rank in ranks]


def _check(what: str, found: int, most: int) -> None:
    if found > most:
        raise UserError(f"the request has {found} {what}; expected at most {most}")


async def _refusal(request: Request, error: Exception) -> JSONResponse:
    """Return an error as LibreTranslate words it."""
    code, headers = getattr(error, "status_code", 400), getattr(error, "headers", None)
    return JSONResponse({"error": getattr(error, "detail", str(error))}, code, headers)


async def _asked(kind: type[Body], request: Request, limits: Serve) -> Body:
    """Return a body, JSON or a form; refused in a sentence where it is wrong or too long."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > 12 * limits.max_characters + 65536:  # a character has at most 12 in JSON
            raise HTTPException(413, f"expected at most {limits.max_characters} characters")
    try:
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            form = parse_qs(content.decode(errors="replace"), keep_blank_values=True)
            return kind.model_validate({k: v[0] if len(v) == 1 else v for k, v in form.items()})
        return kind.model_validate_json(bytes(content))
    except ValidationError as error:
        wrong = error.errors()[0]
        place = "".join(f"{part}: " for part in wrong["loc"][:1])
        known = f"JSON or a URL-encoded form with {', '.join(kind.model_fields)}"
        raise UserError(f"{place}{wrong['msg']}; expected {known}") from None


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": kind.model_json_schema()}}}}
