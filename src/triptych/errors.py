"""What a user did wrong, told in one sentence."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in what the user gave: one sentence that names it, and exit code 2.

    The sentence names the file or the option, what was found and what was expected. Faults of
    Triptych itself are never raised as this class: they keep their traceback.
    """
