"""Layout of the pages in gradio: one module for each domain, named after it.

A module has the function `layout(model, name, key)`, which adds the components of a model's page to
the tab that is open. name: of the model's checkpoint. key: a word that no other page has, for the
ids of its elements. It raises UserError for a model that the page does not show.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from triptych import domains
from triptych.errors import UserError


def page_of(domain: str, name: str) -> ModuleType:
    """Return the module with the page of a domain; UserError where there is none.

    name: of the checkpoint, for the message.
    """
    known = sorted({module.name for module in pkgutil.iter_modules(__path__)} & {*domains.names()})
    if domain not in known:
        raise UserError(
            f"{name} is of the domain {domain}, for which there is no page; expected a model of "
            f"{', '.join(known)}"
        )
    return import_module(f"{__name__}.{domain}")
