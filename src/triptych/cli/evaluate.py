"""`triptych evaluate DOMAIN`: score a checkpoint on a held-out split, on screen and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych import __version__
from triptych.cli.options import (
    ProgressOnStderr,
    at_least_one,
    check_checkpoint,
    check_new_file,
    check_writable,
    counted,
    open_model,
    read_options,
    write_json,
)
from triptych.cli.shared_options import Dtype
from triptych.errors import UserError
from triptych.training.files import write_whole
from triptych.training.held_out import ALL, ALL_OF_OTHER_DATA


@dataclass(frozen=True)
class Options:
    """Options of `triptych evaluate`."""

    checkpoint: str
    """Checkpoint file (.ckpt), which needs no settings file beside it, or pretrained:NAME."""
    split: str = "test"
    """Part of the data to score: validation, test, or another name that the source knows. Of
    pictures and music also all: every file of a folder given as --data."""
    data: str | None = None
    """Folder to read the data from, in place of the one the model was trained from."""
    batch_size: int | None = None
    """Items scored at a time, without influence on the score; null for the model's own number."""
    limit: int | None = None
    """Score only the first so many items, for a quick look; null for all."""
    json: str | None = None
    """File to write the score to, whole or not at all; an older one is replaced."""
    dtype: Dtype = "fp32"
    """Precision of the model: for bf16 and int8 the score in fp32 and the change are added."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers below 1."""
        at_least_one(self, "batch_size", "limit")

    def for_model(self) -> dict[str, Any]:
        """What the model's `evaluate` takes beside what those of all domains take."""
        return {}


@dataclass(frozen=True)
class MusicOptions(Options):
    """Options of `triptych evaluate music`."""

    length: int | None = None
    """Length of the windows in tokens, which may be longer than in training; null for the model's
    own."""
    context: int | None = None
    """Tokens before the scored ones that a window holds at the least; 0 to score every position of
    every window, null for the model's own in proportion to the length."""
    by_position: str | None = None
    """JSON file for the nats per token of each place in the window (scripts/length_plot draws it);
    an older one is replaced."""
    bucket: int = 32
    """Positions that are averaged in that file."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that make no window."""
        super().__post_init__()
        for name, least in (("length", 1), ("context", 0), ("bucket", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")

    def for_model(self) -> dict[str, Any]:
        bucket = None if self.by_position is None else self.bucket
        return {"length": self.length, "context": self.context, "bucket": bucket}


@dataclass(frozen=True)
class TranslationOptions(Options):
    """Options of `triptych evaluate translation`."""

    beam: int = 4
    """Hypotheses kept in beam search, 1 for greedy."""
    length_penalty: str = "gnmt:0.6"
    """Divisor of a hypothesis's log-probability: 0 (none), 1 (average: its length in tokens) or
    gnmt:ALPHA, ((5 + length) / 6)^ALPHA."""
    hypotheses: str | None = None
    """File for the translations, one a line in the order of the split, as `sacrebleu REF -i FILE`
    reads them; null for none. An older one is kept unless --overwrite is given."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that make no search."""
        super().__post_init__()
        at_least_one(self, "beam")

    def for_model(self) -> dict[str, Any]:
        search = {"beam": self.beam, "length_penalty": self.length_penalty}
        return {**search, "hypotheses": self.hypotheses is not None}


OPTIONS: dict[str, type[Options]] = {"music": MusicOptions, "translation": TranslationOptions}
"""By domain, where it has options of its own."""
FLAGS = {"translation": {"overwrite": "Replace the file of --hypotheses where there is one."}}
"""By domain, the options that take no value."""


def run(domain: str, arguments: Sequence[str]) -> int:
    """Score a checkpoint and print the metrics; raises UserError for what a user got wrong."""
    options, flags = read_options(
        OPTIONS.get(domain, Options),
        arguments,
        prog=f"triptych evaluate {domain}",
        description=f"Score a checkpoint of the domain {domain} on a split of its data.",
        flags=FLAGS.get(domain),
    )
    path = check_checkpoint(options.checkpoint)
    out = check_writable(options.json, "json") if options.json is not None else None
    curve = None
    if isinstance(options, MusicOptions) and options.by_position is not None:
        curve = check_writable(options.by_position, "by_position")
        if out is not None and curve.resolve() == out.resolve():
            raise UserError(f"--by_position and --json both name {curve}; expected two files")
    texts = None
    if isinstance(options, TranslationOptions) and options.hypotheses is not None:
        texts = check_new_file(options.hypotheses, "hypotheses", overwrite="overwrite" in flags)
        if out is not None and texts.resolve() == out.resolve():
            raise UserError(f"--hypotheses and --json both name {texts}; expected two files")
    if options.data is not None:
        check_data(options.data)
    elif options.split == ALL and domain != "translation":  # whose splits may have any name
        raise UserError(ALL_OF_OTHER_DATA)

    model, facts = open_model(path, domain=domain, device=options.device)
    model = model.with_dtype(options.dtype)  # an impossible dtype ends here, before the work

    def scored(judge: Any, what: str) -> tuple[Any, dict[str, float]]:
        try:
            evaluation = judge.evaluate(
                options.split,
                data=options.data,
                batch_size=options.batch_size,
                limit=options.limit,
                progress=ProgressOnStderr(what),
                **options.for_model(),
            )
        except UserError as error:
            folder = getattr(model.config.data.source, "directory", None)
            if (
                options.data is None
                and folder is not None
                and not Path(folder).expanduser().exists()
            ):
                raise UserError(f"{error} Give the folder of the data with --data.") from error
            raise
        return evaluation, {name: float(value) for name, value in evaluation.metrics.items()}

    change = {}
    if options.dtype == "fp32":
        evaluation, metrics = scored(model, "scored batches")
    else:
        _, full = scored(model.with_dtype("fp32"), "scored batches (fp32)")
        evaluation, metrics = scored(model, f"scored batches ({options.dtype})")
        change = {
            "metrics_fp32": full,
            "change": {name: value - full[name] for name, value in metrics.items()},
        }
    details = dict(evaluation.details)
    lines = details.pop("hypotheses", [])  # they have a file of their own
    result = {
        "domain": evaluation.domain,
        "split": evaluation.split,
        "dtype": options.dtype,
        "metrics": metrics,
        **change,
        "count": evaluation.count,
        "details": details,
        "checkpoint": {"file": options.checkpoint, "step": facts.get("step")},
        "versions": {
            "triptych": __version__,
            "trained_with": facts.get("versions", {}),
        },
        "limit": options.limit,
    }
    if texts is not None:
        write_whole(texts, "".join(f"{line}\n" for line in lines).encode())
    if out is not None:
        write_json(out, result)
    if curve is not None:
        write_json(curve, by_position(result))
    print_metrics(result)
    return 0


def by_position(result: dict[str, Any]) -> dict[str, Any]:
    """What scripts/length_plot reads: a score of music, with its windows and buckets in front."""
    details = dict(result["details"])
    return {**details.pop("by_position"), **result, "details": details}


def check_data(path: str) -> None:
    """Raise UserError where --data names nothing that is there."""
    if not Path(path).expanduser().exists():
        raise UserError(f"--data {path} does not exist; expected the folder of the data")


def print_metrics(result: dict[str, Any]) -> None:
    """Print one metric a line, aligned, with the split and the number of items above them.

    Below them are the labels of scores of which there are several kinds. In a reduced precision
    each metric is followed by its change from float32.
    """
    first = f", the first {result['limit']} of it" if result["limit"] else ""
    items = counted(result["count"], "item", "items")
    dtype = f" in {result['dtype']}" if "change" in result else ""
    given = f", given the {result['details']['given']}" if "given" in result["details"] else ""
    print(f"{result['domain']}, split {result['split']}{first}: {items} scored{dtype}{given}")
    width = max(map(len, result["metrics"]), default=0)
    for name, value in result["metrics"].items():
        change = ""
        if "change" in result:
            full = result["metrics_fp32"][name]
            change = f"  ({result['change'][name]:+.4f}, fp32 {full:.4f})"
        print(f"  {name:<{width}}  {value:.4f}{change}")
    details = result["details"]
    for name, label in details.get("labels", {}).items():
        print(f"{name}: {label}; {details['signatures'][name]}")
    for name, reason in details.get("not_scored", {}).items():
        print(f"{name}: not scored, {reason}")
    sys.stdout.flush()
