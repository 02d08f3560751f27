"""The domains of data, one package each, and the domain of a name or of a checkpoint."""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.domains.base import Domain


def names() -> list[str]:
    """Return the names of the domains that are part of Triptych, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def find_domain(word: str) -> Domain:
    """Import the domain that a user names: one of Triptych's, or a package by its dotted path.

    Raises UserError where there is none.
    """
    from triptych.domains.base import Domain

    if word in names():
        package = f"triptych.domains.{word}"
    elif module_exists(f"{word}.domain"):
        package = word
    else:
        known = names()
        near = difflib.get_close_matches(word, known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}, or"
        instead = meant if near else f"{meant} the dotted path of a package with a module `domain`"
        raise UserError(f"unknown domain {word!r}; {instead}")
    domain = getattr(import_module(f"{package}.domain"), "DOMAIN", None)
    if not isinstance(domain, Domain) or domain.name != word:
        raise UserError(
            f"the package {package} is no domain; expected an instance of triptych.domains.base."
            f"Domain with the name {word!r} in {package}.domain.DOMAIN"
        )
    return domain


def domain_of(header: dict[str, Any], *, named: str | None, file: object) -> Domain:
    """Return the domain of a checkpoint, by its header.

    named: the domain that the user asks for, None for any that is part of Triptych. The package of
    another domain is imported only where the user names it, as importing runs its code.
    file: what errors call the checkpoint. Raises UserError where the domain is another one.
    """
    from triptych.training.checkpoint import check_domain

    found = header["domain"]
    if named is not None:
        check_domain(header, named, file)
    elif found not in names():
        raise UserError(
            f"{file} is of the domain {found!r}, which is not part of Triptych; if you trust the "
            f"package {found}, name it: triptych.load(..., domain={found!r})"
        )
    return find_domain(found)


def module_exists(path: str) -> bool:
    """Return whether a dotted path names a module that can be imported; imports its parents."""
    if not all(part.isidentifier() for part in path.split(".")):
        return False
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:
        return False
