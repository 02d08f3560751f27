"""Settings of a first run: a size out of a table, and files that are filled with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from triptych.tools.new_run.data import Description, Setting
from triptych.tools.new_run.suggest import fill, suggested

TEXT = """\
# Old header: gone.
# More of it.

data:
  source:
    class_path: some.Source
    init_args:
      directory: images   # the folder
      files:
        train: ["a.{language}"]   # .gz too
        test: [b]

      # a comment between
      share: 0.1
  stretch: [0.9, 1.0]
model:
  name: "old"  # in quotes
"""
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_values_change_and_comments_stay() -> None:
    settings = {
        "data.source.directory": Setting("my: folder"),
        "data.source.share": Setting(0.25, "of 8 files"),
        "data.stretch": Setting([1.0]),
        "model.name": Setting(None),
    }
    filled = fill(TEXT, settings, ["New header", ""])
    assert filled.startswith("# New header\n#\n\ndata:\n")
    assert "gone" not in filled
    assert "'my: folder'   # the folder\n" in filled
    assert "share: 0.25  # of 8 files\n" in filled
    assert "# a comment between" in filled
    content = yaml.safe_load(TEXT)
    content["data"]["source"]["init_args"] |= {"directory": "my: folder", "share": 0.25}
    content["data"]["stretch"], content["model"]["name"] = [1.0], None
    assert yaml.safe_load(filled) == content


def test_a_mapping_is_replaced_as_a_whole() -> None:
    files = {"train": ["x | y"], "validation": ["z"]}
    filled = fill(TEXT, {"data.source.files": Setting(files, "found")}, [])
    content = yaml.safe_load(TEXT)
    content["data"]["source"]["init_args"]["files"] = files
    assert yaml.safe_load(filled) == content
    assert "# found\n" in filled
    assert ".gz too" in fill(TEXT, {"data.source.share": Setting(0.2)}, [])
    last = fill(TEXT.replace("[0.9, 1.0]", "1\nx:\n  a: 2  # two"), {"x": Setting({"a": 3})}, [])
    assert "two" not in last, "the comment belongs to the value that was replaced"
    assert yaml.safe_load(fill(TEXT, {}, ["\x1b \u2028 \x00"])) == yaml.safe_load(TEXT)
    source = {"class_path": "other.Source", "init_args": {"column": None}}
    filled = fill(TEXT, {"data.source": Setting(source)}, [])
    assert yaml.safe_load(filled)["data"] == {"source": source, "stretch": [0.9, 1.0]}


def test_a_key_that_the_text_does_not_set() -> None:
    with pytest.raises(KeyError, match=r"data\.source\.height"):
        fill(TEXT, {"data.source.height": Setting(3)}, [])


@pytest.mark.parametrize(
    "name", ["image/folder", "music/own-midi", "music/band-midi", "translation/own-text"]
)
def test_the_same_values_leave_a_template_as_it_was(name: str) -> None:
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    same = {
        "data.source": Setting(content["data"]["source"]),
        "optim.optimizer.betas": Setting(content["optim"]["optimizer"]["init_args"]["betas"]),
        "trainer.max_steps": Setting(content["trainer"]["max_steps"]),
    }
    filled = fill(text, same, ["Header"])
    assert yaml.safe_load(filled) == content
    line = next(line for line in text.splitlines() if "precision:" in line)
    assert line in filled.splitlines(), "with its comment"


TABLE = """\
things:
  batch: data.batch_size
  steps: [80, 1000]
  columns: [below, epochs, data.batch_size, model.size]
  rows:
    - [100, 10, 4, 1]
    - [.inf, 2, 8, null]
"""


@pytest.mark.parametrize(
    ("amount", "items", "passes", "size", "steps"),
    [
        (99, 400, 1.0, 1, 1000),  # 100 batches of 4, ten times
        (99, 40, 1.0, 1, 96),  # a multiple of the validations: 8 of 12 steps
        (99, 40, 2.0, 1, 200),
        (99, 4, 1.0, 1, 80),  # the least
        (100, 800, 1.0, None, 200),  # 100 batches of 8, twice; size as in the template
    ],
)
def test_a_row_of_the_table_is_chosen_by_the_amount(
    tmp_path: Path, amount: int, items: int, passes: float, size: int | None, steps: int
) -> None:
    (tmp_path / "sizes.yaml").write_text(TABLE)
    source = {"data.source": Setting("there")}
    settings = suggested(
        Description("x", "things", amount, items, source, [], [], passes), tmp_path / "sizes.yaml"
    )
    values = {key: setting.value for key, setting in settings.items()}
    assert values["data.source"] == "there"
    assert values["data.batch_size"] == (4 if amount < 100 else 8)
    assert values.get("model.size") == size
    assert values["trainer.max_steps"] == steps == 8 * values["trainer.val_check_interval"]
    assert values["optim.schedule.warmup_steps"] == max(10, steps // 10)
    made = steps * values["data.batch_size"] / items
    assert settings["trainer.max_steps"].why == f"about {made:,.0f} passes over the training data"
