"""Trained models in the browser (`triptych play`): a page for each model, on this machine alone.

A domain names the module of its page, which has what the page computes and `layout`; that adds the
components of a model's page to the tab that is open. It gets a model and a word that no other page
has, for the ids of its elements. `check_model`, where there is one, raises UserError for a model
that the page does not show; it gets a model and the name of its checkpoint. `parts` has what the
pages share, and `app` the server.
"""

import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from triptych import domains, pretrained
from triptych.domains.base import TrainedModel
from triptych.domains.options import PluginOptions, argument
from triptych.errors import UserError, library
from triptych.types import PositiveInt


def page_of(model: TrainedModel, name: str) -> ModuleType:
    """Return the module with the page of a model; UserError where none shows it.

    name: of its checkpoint.
    """
    module = domains.find_domain(model.domain).page
    if module is None:
        known = [one for one in domains.names() if domains.find_domain(one).page is not None]
        raise UserError(
            f"{name} is of the domain {model.domain}, for which there is no page; expected a model "
            f"of {', '.join(known)}"
        )
    page = import_module(module)
    if hasattr(page, "check_model"):
        page.check_model(model, name)
    return page


@dataclass(frozen=True, kw_only=True)
class Play(PluginOptions):
    """Serve trained models to the browser of this machine.

    Translate a sentence, finish a drawing, harmonise a melody, continue a text. It needs no
    network, and no other machine can open the pages. Ctrl-C ends it.
    """

    checkpoint: list[str] | None = None
    device: str = "auto"
    """auto (a GPU where there is one), cpu or cuda."""
    port: PositiveInt | None = None
    """Port of the server; null for the first free one from 7860 on."""
    no_browser: bool = False

    parser_arguments = argument(
        "--checkpoint",
        "Checkpoint file of a model (.ckpt), or pretrained:NAME; several at will. By "
        "default all models shipped with Triptych.",
        nargs="+",
        action="extend",
        metavar="FILE",
    ) | argument("--no_browser", "Print the address, open no browser.", action="store_true")

    def checkpoints(self) -> list[str]:
        return self.checkpoint or [f"{pretrained.PREFIX}{name}" for name in pretrained.names()]

    def run(self) -> None:
        library("gradio", "play", "play")
        names = self.checkpoints()
        if not names:
            raise UserError(
                "no model is shipped with this installation; name one with --checkpoint"
            )

        import triptych
        from triptych.tools.play.app import serve
        from triptych.training.engine.devices import device_named

        device_named(self.device)  # a wrong device is refused before a file is read
        print(f"opening {', '.join(names)}", file=sys.stderr)
        models = {}
        for name in names:
            models[name] = triptych.load(name, device=self.device)
            page_of(models[name], name)  # refused before the server starts
        if self.checkpoint is None:  # models of a domain stand side by side
            models = dict(sorted(models.items(), key=lambda item: item[1].domain))
        serve(models, port=self.port, browser=not self.no_browser)
