"""`triptych evaluate DOMAIN`: score a checkpoint on a split, on screen and as JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.cli.models import data_advice, open_model, shared_work
from triptych.domains.base import Domain, TrainedModel
from triptych.domains.options import EvaluateOptions, counted
from triptych.errors import UserError
from triptych.files.progress import display
from triptych.files.results import check_result_file, json_bytes, write_atomically
from triptych.version import __version__

if TYPE_CHECKING:
    from triptych.training.engine.evaluate import Evaluation


def run(domain: Domain, options: EvaluateOptions) -> None:
    """Score a checkpoint and print the metrics; raises UserError for bad input."""
    files = result_paths(options)
    folder = Path(options.checkpoint).expanduser().parent.parent
    if options.wandb:
        from triptych.training.wandb_logger import add_to_run, run_in

        run_in(folder)  # refuses a checkpoint without a run before it is scored
    if options.data is not None and not Path(options.data).expanduser().exists():
        raise UserError(f"--data {options.data} does not exist; expected the folder of the data")

    from triptych.decoding.ranks import share

    with shared_work(options) as options:
        model = open_model(domain, options)
        model.check_evaluation(options)
        change: dict[str, Any] = {}
        if options.dtype == "fp32":
            evaluation = score(model, options, "scored batches")
        else:
            full = score(model.with_dtype("fp32"), options, "scored batches (fp32)").metrics
            evaluation = score(model, options, f"scored batches ({options.dtype})")
            difference = {name: value - full[name] for name, value in evaluation.metrics.items()}
            change = {"metrics_fp32": full, "change": difference}
        further = model.further_details(options)
        if share()[0]:  # process 0 writes
            return
    result = {
        "domain": evaluation.domain,
        "split": evaluation.split,
        "dtype": options.dtype,
        "metrics": evaluation.metrics,
        **change,
        "count": evaluation.count,
        "details": {**evaluation.details, **further},
        "checkpoint": {
            "file": options.checkpoint,
            "step": model.header.get("step"),
            **({"average": [*options.average]} if options.average else {}),
            **options.symmetries(),
        },
        "versions": {"triptych": __version__, "trained_with": model.header.get("versions", {})},
        "limit": options.limit,
    }
    contents = options.result_files(result)  # before the JSON file, which may lose details to them
    contents["json"] = json_bytes(result)
    for name, file in files.items():
        write_atomically(file, contents[name])
    print_metrics(result)
    for line in options.report(result):
        print(line)
    if options.wandb:
        figures = {f"{result['split']}/{name}": n for name, n in result["metrics"].items()}
        add_to_run(folder, figures)


def score(model: TrainedModel, options: EvaluateOptions, what: str) -> Evaluation:
    """Score the split that the options name, with a progress line."""
    from triptych.training.engine.devices import out_of_memory_advice

    data = model.data_settings if options.data is None else None
    with data_advice(data, "--data"), out_of_memory_advice("lower --batch_size"):
        return model.score_split(options, display(what))


def result_paths(options: Any) -> dict[str, Path]:
    """Return the result files by option; UserError for one as `check_result_file`, or twice."""
    files: dict[str, Path] = {}
    for name in (*options.replaced_files, *options.kept_files):
        if (value := getattr(options, name)) is None:
            continue
        replaces = name not in options.kept_files or options.overwrite
        file = check_result_file(value, name, replaces=replaces)
        for other, path in files.items():
            if path.resolve() == file.resolve():
                raise UserError(f"--{name} and --{other} both name {file}; expected two files")
        files[name] = file
    return files


def print_metrics(result: dict[str, Any]) -> None:
    """Print the split and number of items, one metric a line with its change, and labels."""
    first = f", the first {result['limit']} of it" if result["limit"] else ""
    items = counted(result["count"], "item", "items")
    dtype = f" in {result['dtype']}" if "change" in result else ""
    given = f", given the {result['details']['given']}" if "given" in result["details"] else ""
    print(f"{result['domain']}, split {result['split']}{first}: {items} scored{dtype}{given}")
    width = max(map(len, result["metrics"]), default=0)
    for name, value in result["metrics"].items():
        full = result["metrics_fp32"][name] if dtype else value
        change = f"  ({result['change'][name]:+.4f}, fp32 {full:.4f})" if dtype else ""
        print(f"  {name:<{width}}  {value:.4f}{change}")
    details = result["details"]
    for name, label in details.get("labels", {}).items():
        print(f"{name}: {label}; {details['signatures'][name]}")
    for name, reason in details.get("not_scored", {}).items():
        print(f"{name}: not scored, {reason}")
    if "leak" in details:
        print(details["leak"]["sentence"])
    sys.stdout.flush()
