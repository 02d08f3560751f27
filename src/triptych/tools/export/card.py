"""Model cards, and settings without paths of the machine that trained the model."""

import re
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from triptych.domains import find_domain
from triptych.errors import UserError

TEXTS = {
    "what": "one sentence: what the model does",
    "data": "the data and the split that it was trained on",
    "terms": "terms of use of the data, and who states them",
    "time": "how long the training took",
    "hardware": "the machine of the training",
    "figure": "how good: figure, unit, split",
}
"""Texts of a card that a checkpoint does not have -> what each says."""
MACHINE = {"run.directory": "runs"}
"""Settings whose paths belong to the machine of the training -> value in the export."""
MEMORY = "Like any model of a small dataset it may reproduce passages of its training data."
TEMPLATE = Path(__file__).with_name("card.md").read_text(encoding="utf-8")


def portable(value: Any, key: str = "", *, strict: bool = True) -> Any:
    """Return settings without paths of this machine.

    Paths below shared/data become ../shared/data/... Of another absolute path the name of the file
    is left; where strict, UserError instead.
    """
    if isinstance(value, dict):
        # Keys without init_args, as on the command line.
        inner = {name: key if name == "init_args" else f"{key}.{name}".strip(".") for name in value}
        return {name: portable(item, inner[name], strict=strict) for name, item in value.items()}
    if isinstance(value, list):
        return [portable(item, key, strict=strict) for item in value]
    if not isinstance(value, str):
        return value
    if below := re.fullmatch(r"(?:.*[/\\])?shared[/\\]data[/\\](.+)", value):
        return f"../shared/data/{below[1]}"
    anchored = (PurePosixPath(value).anchor, PureWindowsPath(value).anchor, value.startswith("~"))
    if any(anchored):
        if key in MACHINE:
            return MACHINE[key]
        if key == "run.start.init_from" or not strict:
            return PureWindowsPath(value).name
        raise UserError(
            f"{key} is {value}, a path of this machine; expected one like ../shared/data/NAME"
        )
    return value


def portable_header(header: dict[str, Any], *, strict: bool = True) -> dict[str, Any]:
    """Return the header of a checkpoint without paths of this machine, as `portable` does."""
    return {
        key: value if key == "vocabulary" else portable(value, key, strict=strict)
        for key, value in header.items()
    }


def command(domain: str, source: str) -> str:
    """Return a block of Markdown with the command that uses a model; "" for a domain without one.

    source: the model as --checkpoint names it.
    """
    offered = find_domain(domain)
    if offered.translate_options is not None:
        line = f"triptych translate --checkpoint {source} < in.txt > out.txt"
    elif offered.sample_options is not None:
        line = f"triptych sample {domain} --checkpoint {source} --out samples"
        needed = (f.name for f in fields(offered.sample_options) if f.default is MISSING)
        more = (name for name in needed if name not in ("checkpoint", "out"))
        line += "".join(f" --{name} {name.upper()}" for name in more)
    else:
        return ""
    return f"```bash\n{line}\n```"


def render_card(
    metadata: dict[str, Any],
    *,
    source: str,
    use: str,
    weights: str,
    checks: Sequence[str] = (),
) -> str:
    """Return the text of a card, Markdown.

    metadata: of `Original.metadata`. source: the model as --checkpoint names it. use: how to use
    it, weights: their size and number format. checks: what was compared, a sentence each.
    """
    header = metadata["triptych"]
    domain = header["domain"]
    listed = "\n".join(f"- {check}" for check in checks)
    limits = (find_domain(domain).limits, MEMORY, metadata["card"].get("limits", ""))
    return TEMPLATE.format(
        **{key: metadata["card"][key] for key in TEXTS},
        name=metadata["name"],
        source=source,
        use=use,
        step=header["step"],
        seed=header["seed"],
        domain=domain,
        model=f"{domain}: {metadata['parameters']:,} parameters{_sizes(header)}",
        weights=weights,
        versions=", ".join(f"{key} {value}" for key, value in header["versions"].items()),
        commit=header["commit"] or "unknown",
        scores=score_table(metadata["metrics"]),
        checks=f"\n## Checked when it was exported\n\n{listed}\n" if checks else "",
        limits=" ".join(filter(None, limits)),
    )


def _sizes(header: dict[str, Any]) -> str:
    """Return depth, width and attention of a model; "" for one without a Transformer."""
    if "transformer" not in header["model"]:
        return ""
    model = header["model"]["transformer"]
    attention = model["attention"]["class_path"].rpartition(".")[2]
    settings = model["attention"].get("init_args") or {}
    if settings:
        attention += f" ({', '.join(f'{key} {value}' for key, value in settings.items())})"
    return f", depth {model['n_layers']}, width {model['d_model']}, {attention}"


def score_table(metrics: dict[str, Any]) -> str:
    """Return the scores as a Markdown table, one metric per row; — for a missing score."""
    rows = ["| split | metric | fp32 | these weights |", "|---|---|---|---|"]
    for split, scores in metrics.items():
        label = f"{split}, `{scores['options']}`" if scores.get("options") else split
        for metric in dict.fromkeys([*scores.get("fp32", {}), *scores.get("rounded", {})]):
            cells = (
                f"{scores[kind][metric]:.4f}" if metric in scores.get(kind, {}) else "—"
                for kind in ("fp32", "rounded")
            )
            rows.append(f"| {label} | {metric} | {' | '.join(cells)} |")
    return "\n".join(rows)
