"""Error for bad input of a user."""

from __future__ import annotations


class UserError(Exception):
    """Mistake in the input of a user: one sentence, and exit code 2 of the command line.

    The sentence names the file or the option, the value found and the values expected. A fault of
    Triptych itself is never raised as this class and keeps its traceback.
    """
