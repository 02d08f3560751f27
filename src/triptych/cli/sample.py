"""`triptych sample DOMAIN`: samples of a trained model as files in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.cli.options import run_verb
from triptych.domains.base import Domain


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Sample and print what was written; raises UserError for bad input."""
    return run_verb(domain.sample, "sample", domain, arguments)
