"""Trained models behind JSON endpoints (`triptych serve`): translation, images, music and text.

A domain names the function that makes a `Translator` or a `Sampler` of its models. `app` has the
endpoints, `worker` the queue of a model, `metrics` what is counted. Imports neither torch nor
FastAPI: help and refusals appear at once, and a folder of CTranslate2 is served without torch.
"""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from triptych import domains
from triptych.domains.options import PluginOptions, argument, short_names
from triptych.errors import UserError, library
from triptych.tools.serve.translation import is_export, open_export
from triptych.types import Dtype, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from triptych.tools.serve.services import Sampler, Translator


@dataclass(frozen=True, kw_only=True)
class Serve(PluginOptions):
    """Serve trained models to other programs by HTTP and JSON.

    POST /translate, as LibreTranslate has it, and /sample; GET /languages, /models, /health,
    /metrics and /openapi.json. A first SIGTERM or Ctrl-C ends it when what runs is finished.
    """

    checkpoint: list[str]
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all of this machine. There is no password."""
    port: NonNegativeInt = 8000
    """Port to listen on; 0 for a free one, which is printed."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""
    dtype: Dtype = "fp32"
    """Number format of the weights; bf16 and int8 are faster and change some results."""
    beam: PositiveInt = 4
    """Number of hypotheses in beam search; at most beam - 1 alternatives of a translation."""
    max_batch: PositiveInt = 32
    """Most lines of waiting requests that are translated together."""
    max_wait_ms: NonNegativeFloat = 5.0
    """Milliseconds that a request waits for others to be translated with it."""
    max_lines: PositiveInt = 256
    """Most lines of a request."""
    max_characters: PositiveInt = 20_000
    """Most characters of a request."""
    max_count: PositiveInt = 16
    """Most samples of a request."""
    max_queue: PositiveInt = 128
    """Requests that wait for a model; further ones are answered 503."""
    timeout: PositiveFloat = 60.0
    """Seconds until a request is answered 504."""
    grace: NonNegativeFloat = 30.0
    """Seconds that requests have to finish when the server ends."""

    parser_arguments = argument(
        "--checkpoint",
        "Checkpoint files (.ckpt), pretrained:NAME, or folders of `triptych export`, ctranslate2 "
        "among them; the first one of a domain serves requests that name no model.",
        nargs="+",
        action="extend",
        metavar="FILE",
        required=True,
    )

    def checkpoints(self) -> list[str]:
        return [name for name in self.checkpoint if not is_export(name)]

    def run(self) -> None:
        if self.port > 65535:
            raise UserError(f"--port must be at most 65535, got {self.port}")
        for package in ("fastapi", "uvicorn"):
            library(package, "serve", "serve")
        from triptych.tools.serve.app import serve

        if models := self.checkpoints():
            library("torch", f"{models[0]}, which is no folder of CTranslate2,", "serve")
            from triptych.training.engine.devices import device_named

            device_named(self.device)  # a wrong device is refused before a file is read
        with self.listener() as listener:
            print(f"opening {', '.join(self.checkpoint)}", file=sys.stderr)
            names = short_names(self.checkpoint)
            serve({names[each]: self.open(each) for each in self.checkpoint}, self, listener)

    def open(self, checkpoint: str) -> tuple[str, Translator | Sampler]:
        """Open a model; return its domain and what serves it.

        Raises UserError as `triptych.load` does, and for a model that nothing serves.
        """
        if is_export(checkpoint):
            return "translation", open_export(checkpoint, self.device, self.dtype)
        import triptych

        model = triptych.load(checkpoint, device=self.device)
        place = domains.find_domain(model.domain).service
        if place is None:
            known = [one for one in domains.names() if domains.find_domain(one).service is not None]
            raise UserError(
                f"{checkpoint} is of the domain {model.domain}, which is not served; expected a "
                f"model of {', '.join(known)}"
            )
        model = model if self.dtype == "fp32" else model.with_dtype(self.dtype)
        return model.domain, resolve_name(place)(model)

    def listener(self) -> socket.socket:
        """Return the bound socket, before models are read; UserError where the port is taken."""
        listener = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
        except OSError as error:
            listener.close()
            raise UserError(
                f"port {self.port} of {self.host} cannot be used ({error.strerror}); choose others "
                "with --host and --port"
            ) from error
        return listener
