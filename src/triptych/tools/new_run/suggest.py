"""Settings file of a first run: what a domain finds in the data, a size out of its table, advice.

The table is a YAML file with a section for each unit of amounts. A row of a section is for amounts
below its first column; the other columns are passes over the data and settings by dotted key, null
for those of the template. The text of the new file is that of a commented one with other values.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from triptych.domains.base import Domain
from triptych.domains.options import NewRunOptions
from triptych.tools.new_run.data import Description, Setting

WIDTH = 96
"""Characters of a line of the comment."""
VALIDATIONS = 8
"""Of a run."""


def suggested(data: Description, sizes: Path) -> dict[str, Setting]:
    """Return the settings of a first run by dotted key, without `init_args`; sizes: the table."""
    table = yaml.safe_load(sizes.read_text(encoding="utf-8"))[data.unit]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    row = next(row for row in rows if data.amount < row["below"])
    batches = data.items / row[table["batch"]]
    epochs = row["epochs"] * data.passes
    least, most = table["steps"]
    wanted = min(most, max(least, round(batches * epochs)))
    interval = max(1, wanted // VALIDATIONS)
    steps = interval * VALIDATIONS
    reasons = {
        "model.transformer.n_layers": f"a size for about {data.amount:,.0f} {data.unit}",
        "model.transformer.dropout": "more of it if the model overfits",
    }
    return {
        **data.settings,
        **{
            key: Setting(value, reasons.get(key, ""))
            for key, value in row.items()
            if "." in key and value is not None
        },
        "trainer.max_steps": Setting(
            steps, f"about {steps / max(batches, 1e-9):,.0f} passes over the training data"
        ),
        "trainer.val_check_interval": Setting(interval),
        "trainer.log_every_n_steps": Setting(min(50, max(1, interval // 5))),
        "optim.schedule.warmup_steps": Setting(min(400, max(10, steps // 10))),
    }


def header_lines(
    domain: Domain, data: Description, options: NewRunOptions, name: str, said: Sequence[str]
) -> list[str]:
    """Return the comment that the file begins with: commands, what was found, and advice.

    name: of the run. said: by `said_in_preparing`.
    """
    best = f"runs/{name}/checkpoints/best.ckpt"
    commands = [
        f"triptych train {domain.name} --config {options.out}",
        f"triptych evaluate {domain.name} --checkpoint {best}",
    ]
    if domain.sample_options is not None:
        sample = f"triptych sample {domain.name} --checkpoint {best}"
        commands.append(f"{sample}{data.sample} --out samples")
    if domain.translate_options is not None:
        commands.append(f"triptych translate --checkpoint {best} < lines.txt")
    template = f"{domain.name}/{data.template}"
    first = (
        f"First settings for {options.data}, written by `triptych new-run {domain.name}` from the "
        f"config {template}; `triptych configs {template}` says more about its settings."
    )
    listed = [*data.facts, *data.advice, "`triptych train --minutes N` fits the run to a time"]
    return [
        *textwrap.wrap(first, WIDTH, break_on_hyphens=False),
        "",
        *(f"  {command}" for command in commands),
        "",
        *(
            row
            for line in listed
            for row in textwrap.wrap(line, WIDTH, initial_indent="- ", subsequent_indent="  ")
        ),
        *(["", "What `train` says of the data:"] if said else []),
        *(f"  {row}" for sentence in said for row in sentence.splitlines()),
    ]


def said_in_preparing(domain: Domain, config: Any) -> list[str]:
    """Return what `train` says of the data that is unusual, each sentence once.

    Raises UserError where the run could not be started with these settings.
    """
    said: list[str] = []
    collect = logging.Handler()
    collect.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("triptych")
    log.addHandler(collect)
    try:
        domain.prepare(config)
    finally:
        log.removeHandler(collect)
    return [*dict.fromkeys(said)]


def fill(text: str, settings: Mapping[str, Setting], header: list[str]) -> str:
    """Return the text of a settings file with other values and another comment at its beginning.

    settings: by dotted key as on the command line, without `init_args`; a comment at the end of the
    line gives way to the reason. A mapping replaces all of a mapping, with the comment at its end.
    header: lines of the new comment, without `# `. Raises KeyError for a key that the text does not
    set.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    nodes: dict[str, yaml.Node] = {}
    for key, node in _values(root):
        nodes.setdefault(key, node)  # a part before its arguments
    spans = [(*_span(nodes[key]), setting) for key, setting in settings.items()]
    for start, end, setting in sorted(spans, key=lambda span: span[0], reverse=True):
        indent = " " * (start - text.rfind("\n", 0, start) - 1)
        rest = text.find("\n", end)
        if isinstance(setting.value, dict):
            why = f"# {setting.why}\n{indent}" if setting.why else ""
            block = yaml.safe_dump(setting.value, sort_keys=False, allow_unicode=True).rstrip()
            new = why + block.replace("\n", f"\n{indent}")
        else:
            why = f"  # {setting.why}" if setting.why else text[end:rest]
            new = _flow(setting.value) + why
        text = text[:start] + new + text[rest:]
    body = text.splitlines(keepends=True)
    while body and (body[0].startswith("#") or not body[0].strip()):
        del body[0]
    comment = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in header)
    return f"{comment}\n{''.join(body)}"


def _printable(line: str) -> str:
    """Return a line with a question mark for each character that is not printable."""
    return "".join(character if character.isprintable() else "?" for character in line)


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    listed = yaml.safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True)
    return listed.strip().removeprefix("[").removesuffix("]")


def _values(node: yaml.Node, key: str = "") -> Iterator[tuple[str, yaml.Node]]:
    """Yield dotted keys with their nodes; `init_args` stands for nothing in a key."""
    yield key, node
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner = key if name.value == "init_args" else f"{key}.{name.value}".lstrip(".")
            yield from _values(value, inner)


def _span(node: yaml.Node) -> tuple[int, int]:
    """Return the first character of a value and the one after its last.

    The end of a block in YAML's sense lies behind the comments and blank lines that follow it.
    """
    last = node
    while isinstance(last, yaml.CollectionNode) and last.value and not last.flow_style:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    return node.start_mark.index, last.end_mark.index
