"""The file of a comparison: variants, seeds and a budget. Imports nothing heavy."""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from triptych.config.files import read_settings_file
from triptych.config.schema import from_plain, to_plain
from triptych.errors import UserError, unknown
from triptych.files.results import json_bytes, why_unwritable, write_atomically
from triptych.tools import configs
from triptych.types import Checked, PositiveFloat, PositiveInt, Seed

RECORD = "compare.json"
"""File of the folder with the budget, and with settings and costs of the variants begun in it."""
GIVEN = {
    "trainer.max_steps", "trainer.max_epochs", "trainer.max_time", "trainer.val_check_interval",
    "trainer.check_val_every_n_epoch", "trainer.fast_dev_run", "run.name", "run.directory",
    "run.seed", "run.early_stopping_patience", "minutes", "resume",
}  # fmt: skip
"""Settings that a comparison sets itself."""


class Cost(NamedTuple):
    """What a variant costs."""

    parameters: int
    flops: float
    """Operations of an update: three times those of the forward pass."""
    batches: int = 1
    """Batches of an update."""


@dataclass(frozen=True)
class Budget(Checked):
    """What each run may cost: one of three."""

    steps: PositiveInt | None = None
    """Updates."""
    flops: PositiveFloat | None = None
    """Operations of all updates."""
    minutes: PositiveFloat | None = None
    """Minutes on this machine, by `triptych train --minutes`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(amount is not None for amount in vars(self).values()) != 1:
            raise ValueError("expected one of steps, flops and minutes")


@dataclass(frozen=True)
class Comparison(Checked):
    """Content of the file."""

    domain: str
    base: str
    """Settings file of all runs, or the name of a shipped one."""
    variants: dict[str, dict[str, Any] | None]
    """Name of each variant and its settings, by dotted keys; the first is compared with."""
    budget: Budget
    seeds: list[Seed] = field(default_factory=lambda: [0, 1, 2])
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of all runs, by dotted keys."""
    validations: PositiveInt = 4
    """Validations of each run, at equal distances."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [name.casefold() for name in self.variants]  # equal on some file systems
        for name in self.variants:
            if not re.fullmatch(r"\w[\w.+-]*", name) or names.count(name.casefold()) > 1:
                raise ValueError(
                    f"variants: {name!r} is no name of a folder of its own; expected different "
                    "names of letters, digits and _ . + -"
                )
        if not self.variants or not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("variants and seeds need at least one each, and no seed twice")
        keys = {*self.settings}.union(*filter(None, self.variants.values()))
        if given := sorted(keys & GIVEN):
            raise ValueError(f"settings: {given[0]} is set by the comparison; leave it out")
        if (steps := self.budget.steps) is not None and steps % self.validations:
            raise ValueError(
                f"validations must divide budget.steps, {steps}, so that the last step is "
                f"validated; got {self.validations}"
            )

    def options(self, variant: str) -> list[str]:
        """Return the settings of a variant as options of `triptych train`."""
        settings = {"run.log.samples": False, **self.settings, **(self.variants[variant] or {})}
        values = {k: x if isinstance(x, str) else json.dumps(x) for k, x in settings.items()}
        return [f"--{key}={value}" for key, value in values.items()]

    def words(self, variant: str) -> list[str]:
        """Return the arguments of `triptych train` for a variant, without length, seed and name."""
        files = configs.with_files(self.domain, [configs.OPTION, self.base])
        return [*files, *self.options(variant)]

    def steps(self, cost: Cost) -> int | None:
        """Return the updates of a run; None where minutes decide. UserError for too few."""
        if self.budget.flops is None:
            return self.budget.steps
        steps = int(self.budget.flops // cost.flops)
        if steps < self.validations:
            raise UserError(
                f"budget.flops {self.budget.flops:g} allows {steps} updates of {cost.flops:.3g}; "
                f"expected at least {self.validations}, one for each validation"
            )
        return steps - steps % self.validations

    def length(self, cost: Cost) -> list[str]:
        """Return the arguments of `triptych train` for the length of a run and its validations."""
        # --minutes keeps the number of validations that these say, and fits the rest.
        steps = self.steps(cost) or self.validations
        interval = steps // self.validations * cost.batches
        words = [f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={interval}"]
        words += ["--trainer.max_epochs=-1", "--trainer.check_val_every_n_epoch=null"]
        return words + [f"--minutes={m}" for m in [self.budget.minutes] if m is not None]


def shipped() -> dict[str, Path]:
    """Return the files of the shipped comparisons by name."""
    files = sorted((configs.FOLDER / "compare").glob("*.yaml")) if configs.FOLDER else []
    return {file.stem: file for file in files}


def find(name: str) -> Path:
    """Return the file of a comparison: a path, or the name of a shipped one; UserError for none."""
    if Path(name).exists() or Path(name).suffix in configs.SUFFIXES:
        return Path(name)
    if name not in shipped():
        raise unknown("file or shipped comparison", name, shipped())
    return shipped()[name]


def read_comparison(file: Path) -> Comparison:
    """Read the file of a comparison; UserError for anything in it that is not as declared."""
    content = read_settings_file(file).content
    checked = from_plain(Comparison, deepcopy(content), where=str(file))
    # As they stand: the parser takes a quoted "off" among values of any type for false.
    return replace(checked, **{k: content[k] for k in ("settings", "variants") if k in content})


def read_record(out: Path, comparison: Comparison) -> dict[str, Cost]:
    """Return the costs of the variants that were begun in a folder.

    UserError where they had another budget or other settings, so that their runs do not compare,
    and where the folder cannot be written.
    """
    if (why := why_unwritable(out)) is not None:
        raise UserError(f"cannot write into --out {out}: {why}; expected a folder")
    if not (out / RECORD).is_file():
        return {}
    record = json.loads((out / RECORD).read_bytes())
    if record["all"] != _all(comparison):
        raise UserError(f"the runs in {out} have another base, another budget or other "
                        "validations; choose another --out")  # fmt: skip
    for name, begun in record["variants"].items():
        if name in comparison.variants and begun["options"] != comparison.options(name):
            raise UserError(f"the variant {name} has other settings in {out}; give it another "
                            "name, or choose another --out")  # fmt: skip
    return {name: Cost(*begun["cost"]) for name, begun in record["variants"].items()}


def write_record(out: Path, comparison: Comparison, costs: Mapping[str, Cost]) -> None:
    """Write what `read_record` reads, variants that the file no longer has included."""
    former = json.loads((out / RECORD).read_bytes())["variants"] if (out / RECORD).is_file() else {}
    now = {name: {"options": comparison.options(name), "cost": x} for name, x in costs.items()}
    record = {"all": _all(comparison), "variants": {**former, **now}}
    write_atomically(out / RECORD, json_bytes(record))


def _all(comparison: Comparison) -> dict[str, Any]:
    """Return what the runs of all variants and seeds share."""
    same = ("domain", "base", "budget", "validations")
    return {name: to_plain(getattr(comparison, name)) for name in same}
