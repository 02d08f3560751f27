"""The constraints of a run of sampling, from the options and the tokenizer of the model."""

from __future__ import annotations

from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.constraints import chorales, events
from triptych.domains.music.constraints.options import ConstraintOptions
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError

APPLICABLE = {
    "chorales": ("scale", "ranges", "no_parallels", "no_repeat"),
    "events": ("scale", "ranges", "grid", "max_polyphony", "no_repeat"),
}
"""Constraints that each tokenizer has, by its name."""
BUILDERS = {"chorales": chorales.build, "events": events.build}


def build_constraints(
    tokenizer: MusicTokenizer, options: ConstraintOptions
) -> list[LogitsConstraint]:
    """Return the constraints that a tokenizer obeys after its grammar, for `ByPriority`.

    Raises UserError for constraints that the tokenizer does not have or that no pitch meets.
    """
    applicable = APPLICABLE.get(tokenizer.name, ())
    for name in options.constraints():
        if name not in applicable:
            known = ", ".join(applicable) or "none"
            raise UserError(
                f"{name} cannot constrain the music of this model, which is written as "
                f"{tokenizer.name}; its constraints are: {known}"
            )
    return BUILDERS[tokenizer.name](options) if tokenizer.name in BUILDERS else []
