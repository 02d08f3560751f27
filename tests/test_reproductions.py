"""The rows of `scripts/reproduce`: what counts as the same figure, the table, the shipped file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import reproductions  # noqa: E402

from triptych.config.schema import from_plain  # noqa: E402
from triptych.errors import UserError  # noqa: E402

PLAIN = {"domain": "music", "config": "c.yaml", "metric": "nats_per_token", "splits": ["test"]}
MEASURED = {"tolerance": 0.1, "hardware": "a machine", "minutes": 0.1, "commit": "abc"}


def make_row(**fields: Any) -> reproductions.Row:
    return reproductions.Row(name="r", **{**PLAIN, **fields})


@pytest.mark.parametrize(
    ("metric", "figures", "good", "bad"),
    [
        ("nats_per_token", [0.5], [0.3, 0.5, 0.6], [0.6002, 2.0, float("nan"), float("inf")]),
        ("nats_per_token", [0.5, 0.7], [0.75, 0.8], [0.81]),
        ("bleu", [40.0, 41.0], [39.9, 50.0], [39.8, float("nan")]),
    ],
)
def test_as_good_as_the_worst_seed_less_the_tolerance(
    metric: str, figures: list[float], good: list[float], bad: list[float]
) -> None:
    row = make_row(metric=metric, ours={"test": dict(enumerate(figures))}, **MEASURED)
    assert [row.within("test", figure) for figure in good] == [True] * len(good)
    assert [row.within("test", figure) for figure in bad] == [False] * len(bad)
    assert make_row().within("test", 0.0) is None


def test_the_table() -> None:
    published = reproductions.Published(0.335, "validation", "Huang et al. 2018")
    ours = {"validation": {0: 0.331, 1: 0.336, 2: 0.335}}
    rows = {
        "r": make_row(splits=["validation", "test"], ours=ours, published=published, **MEASURED)
    }
    assert reproductions.table(rows).splitlines()[2:] == [
        "| `r` | validation | nats_per_token | 0.3340 (3 seeds, 0.3310 to 0.3360) | 0.335: Huang et"
        " al. 2018 | 0.1 min, a machine, abc |",
        "| `r` | test | nats_per_token | not measured |  |  |",
    ]
    assert "there is no such file yet" in reproductions.listing(rows, ROOT)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"colour": 1}, "unknown key colour"),
        ({"metric": None}, "metric"),
        ({"domain": "dance"}, "domain is 'dance'"),
        ({"splits": []}, "splits is empty"),
        ({"splits": "test"}, "splits is 'test'; expected a list"),
        ({"ours": {"train": {0: 1.0}}, **MEASURED}, "a figure for train"),
        ({"ours": {"test": {}}, **MEASURED}, "expected seed: figure"),
        ({"ours": {"test": 0.3}, **MEASURED}, "ours of test is 0.3; expected seed: figure"),
        ({"ours": {"test": {0: "0.3"}}, **MEASURED}, "expected numbers"),
        ({"ours": {"test": {0: 1.0}}}, "but no tolerance"),
        ({"published": {"figure": 1.0, "split": "train", "source": "s"}}, "a figure for train"),
        ({"published": {"figure": 1.0, "split": "test"}}, "source"),
    ],
)
def test_a_row_that_cannot_be_is_named(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(yaml.safe_dump({"tiny": {**PLAIN, **fields}}), encoding="utf-8")
    with pytest.raises(UserError, match=says) as caught:
        reproductions.read_rows(path)
    assert "rows.yaml, row tiny: " in str(caught.value)


SHIPPED = reproductions.read_rows(ROOT / "scripts/reproductions.yaml")


def test_every_domain_has_a_row_with_a_figure() -> None:
    assert {row.domain for row in SHIPPED.values() if row.ours} == set(reproductions.DOMAINS)


@pytest.mark.parametrize("row", SHIPPED.values(), ids=lambda row: row.name)
def test_a_row_names_a_config_that_is_there(row: reproductions.Row) -> None:
    assert row.config.startswith(f"configs/{row.domain}/")
    assert (ROOT / row.config).is_file()


@pytest.mark.parametrize("name", ["copied-rows", "copied-motifs", "reversed"])
def test_the_entropy_in_the_table_and_in_the_config_is_the_sources(name: str) -> None:
    row = SHIPPED[name]
    text = (ROOT / row.config).read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    content.pop("trainer")
    kind = importlib.import_module(f"triptych.domains.{row.domain}.task").Config
    entropy = f"{from_plain(kind, content).data.source.entropy():.4f}"
    assert row.published is not None
    assert f"{row.published.figure:.4f}" == entropy
    assert f"beat {entropy}" in text
    for seen in row.ours.get("test", {}).values():
        assert float(entropy) * 0.99 < seen < float(entropy) * 1.05
