"""Layout of the pages in gradio: one module for each domain, named after it.

A module has the function `layout(model, key)`, which adds the components of a model's page to the
tab that is open. key: a word that no other page has, for the ids of its elements.

The module of that name in `triptych.play` has the function `check_model(model, name)`, which
returns a model that the page shows and raises UserError for another one. name: of its checkpoint.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from triptych import domains
from triptych.domains.base import TrainedModel
from triptych.errors import UserError


def check_served(model: TrainedModel, name: str) -> None:
    """Raise UserError for a model that no page shows; needs no gradio.

    name: of the checkpoint, for the message.
    """
    known = sorted({module.name for module in pkgutil.iter_modules(__path__)} & {*domains.names()})
    if model.domain not in known:
        raise UserError(
            f"{name} is of the domain {model.domain}, for which there is no page; expected a model "
            f"of {', '.join(known)}"
        )
    import_module(f"triptych.play.{model.domain}").check_model(model, name)


def page_of(model: TrainedModel) -> ModuleType:
    """Return the module with the page of a model that `check_served` lets pass."""
    return import_module(f"{__name__}.{model.domain}")
