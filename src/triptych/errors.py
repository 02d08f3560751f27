"""Ends of a command that are told in one sentence, and the nearest word to what a user wrote."""

import signal
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class UserError(Exception):
    """Mistake in the input of a user: one sentence, and exit code 2 of the command line.

    The sentence names the file or the option, the value found and the values expected. A fault of
    Triptych itself is never raised as this class and keeps its traceback.
    """

    exit_code = 2


class TrainingStopped(Exception):  # noqa: N818 - an end, not always an error
    """End of a run before its last step, with the exit code of the command line."""

    exit_code = 1


class Diverged(TrainingStopped):
    """The loss became NaN or infinite."""


class SaveFailed(TrainingStopped):
    """A checkpoint could not be written."""


class Interrupted(TrainingStopped):
    """A signal ended the run: exit code 128 + its number; message: follows the signal's name."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(f"{signal.Signals(signum).name} {message}")
        self.exit_code = 128 + signum


def library(name: str, what: object, extra: str) -> Any:
    """Return a module of an extra of Triptych, which `what` needs; UserError without it."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(
            f"{what} needs {name.partition('.')[0]}, which is not installed: pip install "
            f"'triptych[{extra}]'"
        ) from None


SYNONYMS = {
    "generate": "sample", "inference": "sample", "predict": "translate", "infer": "translate",
    "fit": "train", "test": "evaluate", "score": "evaluate", "eval": "evaluate", "init": "new-run",
    "new": "new-run", "convert": "export", "demo": "play", "class": "label",
    "classes": "label", "lr": "learning_rate", "epochs": "max_epochs", "steps": "max_steps",
    "gpus": "devices", "model": "checkpoint", "ckpt": "checkpoint", "output": "out",
    "num_samples": "count", "n_samples": "count", "num_beams": "beam", "beam_size": "beam",
    "warmup": "warmup_steps", "lenpen": "length_penalty", "dataset": "data",
}  # fmt: skip
"""What Triptych calls the words of other toolkits, for commands and options."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that an unknown one means or is most similar to; None without one."""
    known = list(known)
    bare = word.lstrip("-")
    same = word.removesuffix(bare) + SYNONYMS.get(bare.replace("-", "_"), bare.replace("-", "_"))
    return same if same in known else next(iter(get_close_matches(word, known, n=1)), None)


def unknown(what: str, word: str, known: Iterable[str], more: str = "") -> UserError:
    """Return the refusal of a word: `there is no WHAT 'word'; did you mean NAME?`.

    Where no known word is similar, the sentence ends with all of them, and with `more`.
    """
    known = list(known)
    instead = f"expected one of {', '.join(known)}{more}"
    if near := nearest(word, known):
        instead = f"did you mean {near}?"
    elif not known:
        instead = "none comes with this installation"
    return UserError(f"there is no {what} {word!r}; {instead}")
