"""Scores of a shipped model: read from `triptych evaluate --json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triptych import pretrained
from triptych.errors import UserError


def read_scores(paths: Sequence[str], block: dict[str, Any], name: str) -> dict[str, Any]:
    """Return {split: {"options": of evaluate, "fp32" or "rounded": metrics}} of score files.

    rounded: the scores of pretrained:NAME. Raises UserError for a score of another model, of a part
    of a split, in another dtype, or with other options than another score of the same split.
    """
    found: dict[str, Any] = {}
    for path in paths:
        try:
            score = json.loads(Path(path).read_text(encoding="utf-8"))
            facts = {key: score[key] for key in ("domain", "split", "dtype", "limit", "metrics")}
            source, step = score["checkpoint"]["file"], score["checkpoint"]["step"]
            options = options_of(score["details"])
        except OSError as error:
            raise UserError(f"--scores {path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"--scores {path} is not from `triptych evaluate --json`") from None
        others = found.setdefault(facts["split"], {"options": options})
        for what, is_, wanted in [
            ("the domain", facts["domain"], block["domain"]),
            ("step", step, block["step"]),
            ("dtype", facts["dtype"], "fp32"),
            ("limit", facts["limit"], None),
            ("the options", options, others["options"]),
        ]:
            if is_ != wanted:
                raise UserError(f"--scores {path} has {what} {is_}; expected {wanted}")
        rounded = source.startswith(pretrained.PREFIX)
        if rounded and source != pretrained.PREFIX + name:
            raise UserError(f"--scores {path} is of {source}; expected {pretrained.PREFIX}{name}")
        others["rounded" if rounded else "fp32"] = facts["metrics"]
    return found


def options_of(details: dict[str, Any]) -> str:
    """Return the options of `triptych evaluate` that a score depends on, from its details."""
    windows = {name: details.get(name) for name in ("sequence_length", "overlap")}
    given = {**windows, **details.get("search", {})}
    return " ".join(f"--{key} {value}" for key, value in given.items() if value is not None)


def joined(before: dict[str, Any], scores: dict[str, Any]) -> dict[str, Any]:
    """Return both by split, without older scores of a split that have other options."""
    both = dict(before)
    for split, found in scores.items():
        old = before.get(split, {})
        both[split] = {**(old if old.get("options") == found["options"] else {}), **found}
    return both
