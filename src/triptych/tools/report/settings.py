"""Settings of runs as flat tables, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

IDENTITY = ("run.name", "run.directory")
"""Settings that differ between any two runs."""
MOST_SETTINGS = 10_000
"""Settings of a run at most; aliases of YAML may stand for billions."""

FlatSettings = dict[str, str]
"""Name of a setting, as an option of `triptych train`, -> its value as YAML."""


def read_settings(path: Path) -> FlatSettings:
    """Read a config.yaml of a run.

    Raises ValueError for a file that is no mapping in YAML, or that has more than MOST_SETTINGS.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError(f"{path.name} holds no settings")
        settings = dict(islice(_flat(content, ""), MOST_SETTINGS + 1))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} is no YAML: {' '.join(str(error).split())}") from error
    if len(settings) > MOST_SETTINGS:
        raise ValueError(f"{path.name} holds more than {MOST_SETTINGS:,} settings")
    return settings


def _flat(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict) and inner:
            yield from _flat(inner, f"{name}.")
        else:
            text = yaml.safe_dump(inner, default_flow_style=True, allow_unicode=True, width=10**6)
            yield name, text.removesuffix("...\n").strip()


def differences(runs: Sequence[FlatSettings]) -> dict[str, list[str | None]]:
    """Return the settings that differ, with the value in each run; None where a run has none.

    The name and the folder of a run are left out. The order is that of the first run that has the
    setting.
    """
    names = dict.fromkeys(name for settings in runs for name in settings)
    values_of = {name: [settings.get(name) for settings in runs] for name in names}
    return {
        name: values
        for name, values in values_of.items()
        if name not in IDENTITY and len(set(values)) > 1
    }
