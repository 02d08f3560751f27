"""Server of the pages: gradio on localhost, with nothing loaded from elsewhere."""

import os
import tempfile
import threading
from collections import Counter
from importlib.resources import files
from typing import Any

from triptych.domains.base import TrainedModel
from triptych.domains.options import short_names
from triptych.errors import UserError
from triptych.tools.play import page_of
from triptych.tools.report.page import PLAYER, STYLES, template_text

HOST = "127.0.0.1"
HOST_NAMES = [HOST, "localhost"]
"""Names of the server that a request may have: another name that leads here is a foreign page."""
TITLE = "Triptych"
SCRIPTS = ("drawing.js", "keyboard.js", "play.js")
MAX_UPLOAD = "1mb"
"""Largest file that the server takes."""
POLICY = (
    "default-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; form-action 'self'; base-uri 'self'"
)
"""Content-Security-Policy: the browser asks no other server for anything. gradio's own page needs
inline and evaluated scripts."""


class PolicyHeader:
    """ASGI middleware that adds the policy to every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""

        async def with_policy(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = (b"content-security-policy", POLICY.encode())
                message["headers"] = [*message["headers"], own]
            await send(message)

        await self.app(scope, receive, with_policy)


def build(models: dict[str, TrainedModel]) -> Any:
    """Return the gradio Blocks with a tab for each model; models: by the name of the checkpoint."""
    import gradio as gr

    from triptych.tools.play.parts import stop_work

    names = short_names(list(models))
    counts = Counter(model.domain for model in models.values())
    with gr.Blocks(title=TITLE, analytics_enabled=False) as blocks, gr.Tabs():
        for number, (name, model) in enumerate(models.items()):
            more = f": {names[name]}" if counts[model.domain] > 1 else ""
            with gr.Tab(f"{model.domain.capitalize()}{more}", id=number):
                gr.Markdown(f"Model: `{name}`")
                page_of(model, name).layout(model, f"{model.domain}-{number}")
        blocks.unload(stop_work)
    return blocks


def serve(models: dict[str, TrainedModel], *, port: int | None, browser: bool) -> None:
    """Serve the pages until Ctrl-C; print the address.

    port: None for the first free one from gradio's default on. browser: open the user's browser.
    Raises UserError for a port that cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="triptych-play-") as uploads:
        # gradio reads these variables. Nothing is sent to its makers, nor to the hub that it knows.
        os.environ |= {
            "GRADIO_ANALYTICS_ENABLED": "False",
            "GRADIO_TEMP_DIR": uploads,
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        import gradio as gr
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        from triptych.tools.play.parts import Work

        blocks = build(models).queue(default_concurrency_limit=1, max_size=16)
        try:
            _, address, _ = blocks.launch(
                server_name=HOST,
                server_port=port,
                inbrowser=browser,
                share=False,
                prevent_thread_lock=True,
                quiet=True,
                footer_links=[],
                run_history=False,
                max_file_size=MAX_UPLOAD,
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                enable_monitoring=False,
                app_kwargs={
                    "middleware": [
                        Middleware(TrustedHostMiddleware, allowed_hosts=HOST_NAMES),
                        Middleware(PolicyHeader),
                    ]
                },
                theme=gr.themes.Default(font=("system-ui", "sans-serif"), font_mono="monospace"),
                head=head(),
            )
        except (OSError, OverflowError) as error:
            why = "no port from 7860 on is free" if port is None else f"port {port} cannot be used"
            raise UserError(f"{why} on {HOST}; choose another one with --port") from error
        print(f"{address} (Ctrl-C ends the server)", flush=True)
        try:
            threading.Event().wait()
        finally:
            Work.server_ends.set()  # work that runs would keep the process alive
            blocks.close(verbose=False)


def head() -> str:
    """Return the style and the scripts of the pages' own elements, for the head of the page.

    The style of the report is nested below its elements, since gradio has classes of the same
    names.
    """
    colours, style = (template_text(name) for name in STYLES)
    folder = files("triptych.tools.play") / "templates"
    own = [(folder / name).read_text(encoding="utf-8") for name in ("play.css", *SCRIPTS)]
    script = "\n".join([template_text(PLAYER), *own[1:]])
    return f"<style>{colours}.triptych {{ {style} }}\n{own[0]}</style><script>{script}</script>"
