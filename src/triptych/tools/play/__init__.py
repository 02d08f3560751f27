"""Trained models in the browser (`triptych play`): a page for each model, on this machine alone.

A domain names the module of its page, which has what the page computes, its layout, and a `Page`
named `PAGE`. `parts` has what the pages share, and `app` the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from triptych import domains
from triptych.domains.base import TrainedModel
from triptych.errors import UserError


@dataclass(frozen=True)
class Page:
    """Page of the models of a domain."""

    layout: Callable[[Any, str], None]
    """Adds the components of a model's page to the tab that is open. The word that it gets is one
    that no other page has, for the ids of its elements."""
    check: Callable[[Any, str], None] = lambda model, name: None
    """Raises UserError for a model that the page does not show; gets the name of its checkpoint."""


def page_of(model: TrainedModel, name: str) -> Page:
    """Return the page of a model; UserError where none shows it. name: of its checkpoint."""
    module = domains.find_domain(model.domain).page
    if module is None:
        known = [one for one in domains.names() if domains.find_domain(one).page is not None]
        raise UserError(
            f"{name} is of the domain {model.domain}, for which there is no page; expected a model "
            f"of {', '.join(known)}"
        )
    page: Page = import_module(module).PAGE
    page.check(model, name)
    return page
