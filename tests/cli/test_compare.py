"""`triptych compare`: its plan, its statistics, and runs in processes that a script stands for."""

from __future__ import annotations

import csv
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from triptych.cli import compare
from triptych.cli.options import read_run
from triptych.domains import find_domain
from triptych.tools.compare import plan
from triptych.tools.compare.plan import Cost
from triptych.tools.compare.runs import Cell, Outcome
from triptych.tools.compare.table import as_latex, as_markdown, p_value, summarise

SMALL = {
    "data.batch_size": 4,
    "model.transformer.n_layers": 1,
    "model.transformer.d_model": 8,
    "model.transformer.n_heads": 2,
    "model.transformer.feed_forward.init_args.d_ff": 12,
    "run.wandb": "off",
}
ATTENTION = "model.transformer.attention"
MINIMAL = {
    "domain": "image",
    "base": "digits",
    "settings": SMALL,
    "variants": {"plain": None, "wide": {"model.transformer.d_model": 16}},
    "seeds": [3, 5],
    "budget": {"steps": 4},
}
TRAINER = """\
#!{python} -S
import os, signal, sys, time
from pathlib import Path
given = dict(word[2:].split("=", 1) for word in sys.argv if "=" in word)
steps = int(given["trainer.max_steps"])
folder = Path(given["run.directory"], given["run.name"])
variant, seed = given["run.name"].split("/")
with open("started.txt", "a") as file:
    file.write(given["run.name"] + "\\n")
if Path("together").exists():  # two runs wait for each other
    until = time.monotonic() + 20
    while len(Path("started.txt").read_text().split()) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
if Path("forever").exists():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Path("stopped.txt").touch()))
    time.sleep(60)
if Path("fails").exists() and Path("fails").read_text() == given["run.name"]:
    print("what went before")
    sys.exit("no memory is left")
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.yaml").write_text("trainer:\\n  max_steps: %d\\n" % steps)
(folder / "versions.json").write_text('{{"starts": [{{"monitor": ["val/bits_per_dim", "min"]}}]}}')
score = {{"plain": 2.0, "wide": 1.5}}[variant] + int(seed) / 10
rows = ["%d,%.2f" % (steps * part // 4, score + abs(3 - part)) for part in (1, 2, 3, 4)]
(folder / "metrics.csv").write_text("\\n".join(["step,val/bits_per_dim", *rows]) + "\\n")
"""
"""A training whose third of four validations is the best: 2.0 or 1.5, and a tenth of the seed."""


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**MINIMAL, **changed}, sort_keys=False))
    return path


def table(folder: Path, name: str = "table.csv") -> list[dict[str, str]]:
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trainer(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that stands for `triptych train`; started.txt has the runs it was called for."""
    script = tmp_path / "trainer"
    script.write_text(TRAINER.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr("triptych.tools.compare.runs.sys.executable", str(script))
    return tmp_path / "started.txt"


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [
        (1.0, 1, 0.5),  # 1 - 2 atan(1) / pi
        (2.0, 2, 1 - 2 / 6**0.5),  # 1 - t / sqrt(2 + t^2)
        (-3.182446, 3, 0.05),  # quantiles of printed tables
        (2.776445, 4, 0.05),
        (2.570582, 5, 0.05),
        (3.249836, 9, 0.01),
        (0.0, 6, 1.0),
        (float("inf"), 7, 0.0),
    ],
)
def test_p_value_of_students_t(t: float, freedom: int, p: float) -> None:
    assert p_value(t, freedom) == pytest.approx(p, abs=1e-6)


def test_p_values_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in range(1, 12):
        for t in (0.1, 1.3, 4.0, 20.0):
            assert p_value(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), abs=1e-12)


def outcomes(mode: str = "min", **scores: dict[int, float]) -> dict[Cell, Outcome]:
    """One outcome for each variant, seed and score; the last validation is no better than it."""
    worse = 9.0 if mode == "min" else -9.0
    return {
        Cell(variant, seed): Outcome("val/x", mode, [(5, score), (10, worse)], 10)
        for variant, of_seed in scores.items()
        for seed, score in of_seed.items()
    }


@pytest.mark.parametrize("mode", ["min", "max"])
def test_differences_are_paired_by_seed(mode: str) -> None:
    found = outcomes(mode, a={0: 1.0, 1: 5.0, 2: 3.0, 7: 100.0}, b={2: 6.0, 1: 7.0, 0: 2.0})
    first, second = summarise(found, {"a": Cost(10, 2.0), "b": Cost(20, 3.0)}, {})
    assert (first.seeds, first.difference, first.p) == (4, None, None)
    # By hand: differences 1, 2, 3; t = 2 / (1 / sqrt(3)) with two degrees of freedom.
    assert (second.steps, second.flops, second.seeds, second.mean) == (10, 30.0, 3, 5.0)
    assert second.error == pytest.approx((7 / 3) ** 0.5)
    assert (second.difference, second.difference_error) == (2.0, pytest.approx(3**-0.5))
    assert second.p == pytest.approx(1 - 12**0.5 / 14**0.5)
    fewer = summarise(
        outcomes(mode, a={0: 1.0}, b={0: 2.0, 1: 7.0}), dict.fromkeys("ab", Cost(1, 1.0)), {}
    )
    assert [row.common_seeds for row in (second, fewer[1])] == [3, 1]


def test_a_single_pair_and_equal_differences_have_their_limits() -> None:
    found = outcomes(a={0: 1.0, 1: 2.0}, single={0: 3.0}, same={0: 1.0, 1: 2.0}, one={0: 2, 1: 3})
    costs = dict.fromkeys(("a", "single", "same", "one", "none"), Cost(1, 1.0))
    _, single, same, one, none = summarise(found, costs, {"none": 8})
    assert (single.difference, single.error, single.p) == (2.0, None, None)
    assert (same.difference, same.p) == (0.0, 1.0)
    assert (one.difference, one.p) == (1.0, 0.0)
    assert (none.seeds, none.mean, none.steps, none.flops) == (0, None, 8, 8.0)


def test_tables_of_markdown_and_latex() -> None:
    lines = [["variant", "lowest val/x_y", "p"], ["a", "1.0 ± 0.1", ""], ["b", "-2.0", "< 0.001"]]
    assert as_markdown(lines).splitlines() == [
        "| variant | lowest val/x_y | p |", "| --- | ---: | ---: |", "| a | 1.0 ± 0.1 |  |",
        "| b | -2.0 | < 0.001 |",
    ]  # fmt: skip
    assert as_latex(lines).splitlines() == [
        r"\begin{tabular}{lrr}", r"\toprule", r"variant & lowest val/x\_y & p \\", r"\midrule",
        r"a & 1.0 $\pm$ 0.1 &  \\", r"b & $-$2.0 & $<$ 0.001 \\", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_steps_of_equal_operations(tmp_path: Path) -> None:
    batch, length, width, hidden, levels = 4, 64, 8, 12, 17
    each = length * (8 * width**2 + 4 * length * width + 4 * width * hidden + 2 * width * levels)
    flops = 3 * 2 * batch * each  # forward and backward pass of both batches of an update
    more = {**SMALL, "trainer.accumulate_grad_batches": 2}
    file = written(tmp_path, settings=more, budget={"flops": 11.5 * flops}, validations=3)
    comparison = plan.read_comparison(file)
    cost = compare.measure(comparison, "plain")
    assert (cost.flops, cost.batches) == (flops, 2)
    assert comparison.steps(cost) == 9  # of 11, so that each of 3 validations ends 3 updates
    options = read_run(
        "train", [*comparison.words("plain"), *comparison.length(cost)], find_domain("image")
    )[2]
    assert (options.max_steps, options.val_check_interval) == (9, 6)  # the interval is of batches
    with pytest.raises(Exception, match=r"allows 2 updates.*at least 3"):
        comparison.steps(Cost(0, 11.5 * flops / 2.5))


def test_equal_minutes_are_given_to_each_training(tmp_path: Path) -> None:
    comparison = plan.read_comparison(written(tmp_path, budget={"minutes": 1.5}, validations=2))
    words = [*comparison.words("wide"), *comparison.length(Cost(0, 1.0))]
    config, options, trainer = read_run("train", words, find_domain("image"))
    assert (options.minutes, config.model.transformer.d_model) == (1.5, 16)
    assert trainer.max_steps // trainer.val_check_interval == 2
    assert comparison.steps(Cost(0, 1.0)) is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"budget": {"epochs": 3}}, ["unknown key budget.epochs", "flops, minutes, steps"]),
        ({"budget": {"steps": 4, "flops": 1e9}}, ["one of steps, flops and minutes"]),
        ({"budget": {"steps": 6}}, ["validations must divide budget.steps, 6", "got 4"]),
        ({"bugdet": {"steps": 4}}, ["unknown key bugdet", "did you mean budget?"]),
        ({"variants": {"a": None, "A": {}}}, ["'a'", "different names"]),
        ({"variants": {"../a": None}}, ["'../a'", "letters, digits"]),
        ({"variants": {}}, ["at least one"]),
        ({"seeds": [1, 1]}, ["no seed twice"]),
        ({"settings": {"run.seed": 3}}, ["run.seed is set by the comparison"]),
        ({"variants": {"a": {"trainer.max_steps": 3}}}, ["trainer.max_steps is set"]),
        ({"domain": "imgae"}, ["'imgae'", "did you mean image?"]),
        ({"base": "digit"}, ["'digit'", "did you mean image/digits?"]),
        ({"variants": {"a": None, "b": {"model.transformer.d_modle": 3}}},
         ["variant b", "--model.transformer.d_model?"]),
        ({"variants": {"a": None, "b": {"model.transformer.n_heads": 3}}}, ["variant b", "8", "3"]),
        ({"variants": {"a": None, "b": {ATTENTION: "triptych.core.attention.full.Ful"}}},
         ["variant b", "is not a kind of AttentionConfig"]),
        ({"variants": {"a": {"trainer.precision": "8"}}}, ["variant a", "32-true"]),
    ],
    ids=str,
)  # fmt: skip
def test_a_file_that_cannot_be_compared_is_refused(
    cli, trainer: Path, tmp_path: Path, changed: dict[str, Any], says: list[str]
) -> None:
    answer = cli("compare", written(tmp_path, **changed))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines()[-1].startswith("triptych: ")
    assert [part for part in says if part not in answer.err.splitlines()[-1]] == []
    assert not trainer.exists()
    assert not (tmp_path / "runs").exists()


def test_names_and_keys_given_twice_are_refused(refused, tmp_path: Path) -> None:
    text = written(tmp_path).read_text().replace("  wide:", "  plain:")
    (tmp_path / "mine.yaml").write_text(text)
    refused("compare", "mine.yaml", says=["variants.plain was already set on line"])
    refused("compare", "digit", says=["'digit'", "did you mean digits?"])
    refused("compare", "no.yaml", says=["no.yaml does not exist"])


def test_a_comparison_and_its_second_call(cli, trainer: Path, tmp_path: Path) -> None:
    written(tmp_path)
    answer = cli("compare", "mine.yaml")
    assert answer.code == 0, answer.err
    assert trainer.read_text().split() == ["plain/3", "wide/3", "plain/5", "wide/5"]
    out = tmp_path / "runs/compare/mine"
    plain, wide = table(out)
    assert (plain["mean"], wide["mean"]) == ("2.4", "1.9")
    assert float(wide["difference"]) == pytest.approx(-0.5)
    assert int(wide["parameters"]) > int(plain["parameters"]) > 0
    assert [(r["variant"], r["seed"], r["best"], r["step_of_best"], r["last"]) for r in
            table(out, "runs.csv")][1] == ("wide", "3", "1.8", "3", "2.8")  # fmt: skip
    assert "lowest val/bits_per_dim" in answer.out
    assert (out / "table.md").read_text().count("\n") == 4
    assert "wide" in (out / "table.tex").read_text()
    assert Image.open(out / "curves.png").size == (750, 450)

    trainer.unlink()
    assert cli("compare", "mine.yaml").code == 0
    assert not trainer.exists(), "all was trained"
    (out / "wide/5/metrics.csv").write_text("step,val/bits_per_dim\n3,2.5\n")  # it was stopped
    (out / "plain/3/versions.json").unlink()
    (out / "plain/5/metrics.csv").write_text("")  # killed before its first row
    dry = cli("compare", "mine.yaml", "--dry_run", "true")
    assert (dry.code, trainer.exists()) == (0, False)
    assert "3 of 4 runs are to be trained" in dry.err
    assert cli("compare", "mine.yaml").code == 0
    assert trainer.read_text().split() == ["plain/3", "plain/5", "wide/5"]

    trainer.unlink()
    written(tmp_path, seeds=[3, 4], variants={"wide": {"model.transformer.d_model": 16}})
    assert cli("compare", "mine.yaml").code == 0
    assert trainer.read_text().split() == ["wide/4"]
    for changed, says in (
        ({"budget": {"steps": 8}}, "another budget"),
        ({"base": "digits-super-resolution"}, "another base"),
        ({"variants": {"plain": {"model.transformer.d_model": 24}}}, "plain has other settings"),
    ):
        written(tmp_path, **changed)
        answer = cli("compare", "mine.yaml")
        assert (answer.code, says in answer.err) == (2, True), answer.err


def test_a_failed_run_is_named_and_the_others_stay(cli, trainer: Path, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "fails").write_text("wide/3")
    answer = cli("compare", "mine.yaml", "--out", "here")
    assert answer.code == 1
    assert "wide/3 failed, exit code 1: no memory is left\n" in answer.out
    assert "1 of 4 runs failed" in answer.err
    assert [(row["variant"], row["seeds"], row["mean"]) for row in table(tmp_path / "here")] == [
        ("plain", "2", "2.4"), ("wide", "1", "2.0"),
    ]  # fmt: skip
    (tmp_path / "fails").unlink()
    assert cli("compare", "mine.yaml", "--out", "here").code == 0
    assert trainer.read_text().split()[4:] == ["wide/3"]


def test_several_runs_train_at_the_same_time(cli, trainer: Path, tmp_path: Path) -> None:
    (tmp_path / "together").touch()
    written(tmp_path)
    assert cli("compare", "mine.yaml", "--processes", 2).code == 0


def test_a_signal_stops_the_runs(cli, trainer: Path, tmp_path: Path) -> None:
    (tmp_path / "forever").touch()
    written(tmp_path)

    def interrupt() -> None:
        while not trainer.exists():
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=interrupt)
    thread.start()
    answer = cli("compare", "mine.yaml")
    thread.join()
    assert answer.code == 128 + signal.SIGTERM
    assert (tmp_path / "stopped.txt").exists()
    assert trainer.read_text().split() == ["plain/3"]
    assert signal.getsignal(signal.SIGTERM) == before


def built(comparison: plan.Comparison) -> list[Any]:
    """The settings of each variant, as training reads them."""
    domain, length = find_domain(comparison.domain), comparison.length(Cost(1, 1.0))
    words = [comparison.words(variant) for variant in comparison.variants]
    return [read_run("train", [*each, *length], domain)[0] for each in words]


@pytest.mark.slow
@pytest.mark.parametrize("name", plan.shipped())
def test_shipped_comparisons_have_eight_kinds_of_attention_or_six_widths(name: str) -> None:
    models = [config.model.transformer for config in built(plan.read_comparison(plan.find(name)))]
    kinds = {(model.positions, model.attention) for model in models}
    widths = {model.d_model for model in models}
    assert (len(kinds), len(widths)) == ((1, 6) if name == "scaling" else (8, 1))


@pytest.mark.slow
def test_the_file_on_the_page_is_a_comparison(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/compare.md").read_text(encoding="utf-8")
    (tmp_path / "page.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    first, *others = built(plan.read_comparison(tmp_path / "page.yaml"))
    assert all(replace(other, run=first.run) != first for other in others)


@pytest.mark.slow
def test_runs_are_those_of_train_with_the_settings(cli, tmp_path: Path) -> None:
    written(tmp_path, seeds=[3])
    answer = cli("compare", "mine.yaml", "--processes", 2)
    assert answer.code == 0, answer.err
    out = tmp_path / "runs/compare/mine"
    for variant, width in (("plain", 8), ("wide", 16)):
        settings = yaml.safe_load((out / variant / "3/config.yaml").read_text())
        assert settings["model"]["transformer"]["d_model"] == width
        assert (settings["run"]["seed"], settings["trainer"]["max_steps"]) == (3, 4)
        assert (out / variant / "3/checkpoints/best.ckpt").exists()
    train = ["train", "image", *plan.read_comparison(tmp_path / "mine.yaml").words("plain")]
    train += ["--trainer.max_steps=4", "--trainer.val_check_interval=1", "--run.seed=3"]
    assert cli(*train, "--run.name", "alone").code == 0
    score = "val/bits_per_dim"
    alone = [r[score] for r in table(tmp_path / "runs/alone", "metrics.csv") if r[score]]
    row = table(out, "runs.csv")[0]
    assert float(row["best"]) == min(map(float, alone))
    assert float(row["last"]) == float(alone[-1])
