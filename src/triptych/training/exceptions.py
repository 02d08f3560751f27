"""Exceptions that end a run: one sentence for the user and an exit code other than 0."""

from __future__ import annotations

import signal


class TrainingStopped(Exception):  # noqa: N818 - an end, not always an error
    """End of a run before its last step.

    The command line prints the message without a traceback and exits with `exit_code`.
    """

    exit_code = 1


class Diverged(TrainingStopped):
    """The loss became NaN or infinite; exit code 1."""


class SaveFailed(TrainingStopped):
    """A checkpoint could not be written; exit code 1."""


class Interrupted(TrainingStopped):
    """A signal ended the run; exit code 128 + its number: 143 for SIGTERM, 130 for SIGINT."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum
        self.exit_code = 128 + signum

    @property
    def signal_name(self) -> str:
        """Name of the signal, such as "SIGTERM"."""
        return signal.Signals(self.signum).name
