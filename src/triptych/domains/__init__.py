"""The domains of data, one package each, and the domain of a name.

A domain is a package with a module `domain`; what several domains share lies beside them, such as
`pictures`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from triptych.config.messages import module_exists
from triptych.errors import UserError, unknown

if TYPE_CHECKING:
    from triptych.domains.base import Domain


def names() -> list[str]:
    """Return the names of the domains that are part of Triptych, sorted."""
    return sorted(path.parent.name for path in Path(__path__[0]).glob("*/domain.py"))


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
        more = ", or the dotted path of a package with a module `domain`"
        raise unknown("domain", word, names(), more)
    domain = getattr(import_module(f"{package}.domain"), "DOMAIN", None)
    if not isinstance(domain, Domain) or domain.name != word:
        raise UserError(
            f"the package {package} is no domain; expected an instance of triptych.domains.base."
            f"Domain with the name {word!r} in {package}.domain.DOMAIN"
        )
    return domain
