"""`scripts/bench` runs every section, names every row, and times nothing that it should not."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks import (  # noqa: E402
    decoding_contest,
    decoding_late,
    machine,
    measuring,
    memory,
    summary,
    table,
)
from benchmarks.measuring import Budget, CannotRunError, Case, Timing  # noqa: E402
from benchmarks.rows import Row, Section, Table  # noqa: E402
from benchmarks.run import Options, run  # noqa: E402

from triptych.core.feed_forward import GELU  # noqa: E402
from triptych.core.models.encoder_decoder import EncoderDecoder  # noqa: E402
from triptych.core.transformer import TransformerConfig  # noqa: E402

CPU = torch.device("cpu")
PEERS = {
    "x_transformers": ["x-transformers"],
    "transformers": ["GPT-2 (Hugging Face)", "Marian (Hugging Face)", "T5 (Hugging Face)"],
}
TRAINED = ["minimal", "torch.nn", "x-transformers", "GPT-2 (Hugging Face)", "Triptych full"]
PAIRS = ["torch.nn.Transformer", "x-transformers", "Marian (Hugging Face)", "T5 (Hugging Face)"]
LOCAL_2D = ["Triptych local 2-D", "Triptych local 2-D, block order"]
EVERY_ROW = {
    "decoder/line/fp32": [
        *TRAINED,
        "Triptych relative",
        "Triptych relative, window 8",
        "Triptych local 1-D",
        "Triptych full, attention dropout 0.1",
        "Triptych full, compiled",
    ],
    "decoder/picture/bf16": [*TRAINED, *LOCAL_2D, "Triptych full, compiled"],
    "translation/bf16": [
        f"{name}{mask}" for mask in ("", ", padding masked") for name in (*PAIRS, "Triptych")
    ],
    "attention/24/fp32": [
        "SDPA full",
        "relative, published skewing",
        "relative, published gather",
        "Triptych full",
        "Triptych relative",
        "Triptych relative, window 8",
        "Triptych local 1-D, 4+4",
    ],
    "states": ["Triptych full", *LOCAL_2D],
    "pictures/16x16x1/bf16": ["SDPA full", "Triptych full", *LOCAL_2D],
    "decoding/3": [
        "minimal",
        "minimal, bf16",
        "GPT-2 (Hugging Face)",
        "GPT-2 (Hugging Face), bf16",
        "x-transformers",
        "Triptych",
        "Triptych, fp32 weights",
        "Triptych, bf16 weights",
        "Triptych, int8 weights",
        "Triptych, compiled",
        "Triptych, fp32 weights, compiled",
        "floor: the weights read once a token",
    ],
    "decoding/line": [
        "minimal",
        "minimal, bf16",
        "x-transformers",
        "Triptych full",
        "Triptych relative",
        "Triptych relative, bf16 weights",
        "Triptych relative, compiled",
        "Triptych relative, bf16, compiled",
    ],
    "late": ["Triptych", "Triptych, fp32 weights"],
    "translating": [
        "Triptych, greedy",
        "Triptych, beam 4",
        "Triptych, greedy, bf16 weights",
        "Triptych, beam 4, bf16 weights",
        "Triptych, greedy, int8 weights",
        "Triptych, beam 4, int8 weights",
        "same weights without a cache, greedy",
        "Marian (Hugging Face), greedy",
        "Marian (Hugging Face), beam 4",
    ],
    "growth/length/32": [
        "minimal",
        "Triptych full",
        "Triptych relative",
        "Triptych relative, window 8",
        "Triptych local 1-D",
    ],
    "growth/side/16": ["minimal", "Triptych full", *LOCAL_2D],
    "growth/decoding batch/2": ["minimal", "Triptych full"],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the whole command wrote at tiny sizes."""
    out = tmp_path_factory.mktemp("bench")
    command = [sys.executable, ROOT / "scripts/bench", "--tiny", "--device", "cpu", "--out", out]
    done = subprocess.run([*command, "--threads", "1"], capture_output=True, text=True)
    page = out / "bench.md"
    assert done.returncode == 0, done.stderr + (page.read_text() if page.exists() else "")
    return out


def rows_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    data = json.loads((out / "bench.json").read_text())
    return {
        table["key"]: table["rows"] for section in data["sections"] for table in section["tables"]
    }


@pytest.mark.slow
def test_every_row_has_finite_figures_or_says_why_not(results: Path) -> None:
    found = rows_of(results)
    for key, names in EVERY_ROW.items():
        assert [row["name"] for row in found[key]] == names, key
    for key, rows in found.items():
        for row in rows:
            if row["state"] == "skipped":
                peer = any(
                    row["name"].startswith(name) for names in PEERS.values() for name in names
                )
                assert peer or "compiled" in row["name"] or "no " in row["why"], (key, row)
                assert row["why"], (key, row)
                continue
            assert row["state"] == "measured", (key, row)
            figures = [row["median_s"], row["min_s"], row["rate"]]
            if key in ("states", "late"):
                figures = list(row["extra"].values())
            assert figures, (key, row)
            for figure in figures:
                assert 0 < figure < math.inf, (key, row)
    if memory.SCRIPTS and Path("/proc/self/clear_refs").exists():
        for row in found["attention/24/fp32"]:
            assert math.isfinite(row["peak_mib"])
            assert row["peak_mib"] >= 0


@pytest.mark.slow
def test_installed_peers_are_measured_and_missing_ones_named(results: Path) -> None:
    rows = {row["name"]: row for rows in rows_of(results).values() for row in rows}
    for module, names in PEERS.items():
        reason = machine.missing(module)
        for name in names:
            found = [row for row in rows if row.startswith(name)]
            assert found
            for row in found:
                assert rows[row]["state"] == ("measured" if reason is None else "skipped")
                assert reason is None or module in rows[row]["why"]


@pytest.mark.slow
def test_the_page_carries_the_rows_and_what_they_were_measured_on(results: Path) -> None:
    page = (results / "bench.md").read_text()
    machine_of = json.loads((results / "bench.json").read_text())["machine"]
    assert "Not measured on a GPU" in page
    assert torch.__version__.split("+")[0] in page
    assert machine_of["processor"] in page
    assert "1 threads" in page
    assert "--tiny" in page
    for key, names in EVERY_ROW.items():
        for name in names:
            assert f"| {name} |" in page, (key, name)
    assert "nan" not in page.lower().replace("finance", "")
    assert (results / "growth.png").read_bytes()[:4] == b"\x89PNG"


def test_a_missing_peer_is_named_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import training
    from benchmarks.setting import Ceilings, Setting

    for name in ("missing",):
        monkeypatch.setattr(training, name, lambda module: f"{module} is not installed")
    setting = Setting(CPU, "tiny", tiny_budget(), Ceilings({"fp32": 1.0}, 1.0), say=str)
    found = training.decoders(setting, training.SIZES["tiny"], (32,), "fp32", 1)
    rows = {row.name: row for row in found.rows}
    for name, module in (
        ("x-transformers", "x_transformers"),
        ("GPT-2 (Hugging Face)", "transformers"),
    ):
        assert rows[name].state == "skipped"
        assert module in rows[name].why
        assert rows[name].median_s is None
    assert rows["Triptych full"].state == "measured"


def tiny_budget(**changes: Any) -> Budget:
    return Budget(**{"seconds": 30.0, "max_rounds": 4, "call_s": 0.0, "wait_s": 0.0, **changes})


def test_first_calls_are_not_timed_and_cases_take_turns() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        def build() -> measuring.Run:
            calls = iter([0.3])  # the first call is slow

            def call() -> None:
                order.append(name)
                time.sleep(next(calls, 0.001))

            return call

        return Case(name, build, work=2.0)

    found = measuring.measure(
        Table("k", "t", "a", "tokens"), [case("a"), case("b")], tiny_budget(), 1, CPU
    )
    assert all(row.min_s is not None and row.median_s < 0.1 for row in found.rows)
    assert [row.rounds for row in found.rows] == [4, 4]
    # After the first calls, rounds in turn, every other one backwards.
    assert order[2:] == ["a", "b", "b", "a"] * 2
    assert found.rows[0].rate == pytest.approx(2.0 / found.rows[0].median_s)


def test_medians_are_over_quiet_rounds_where_there_are_enough() -> None:
    row = Row("r")
    timings = [Timing(1.0, 0.0), Timing(1.2, 0.01), Timing(1.4, 0.02), *[Timing(9.0, 0.5)] * 4]
    measuring.summarise(row, timings, work=6.0, quiet_alone=True)
    assert (row.median_s, row.min_s, row.rounds, row.quiet) == (1.2, 1.0, 7, 3)
    assert row.rate == 5.0
    measuring.summarise(row, timings, work=6.0, quiet_alone=False)
    assert (row.median_s, row.quiet) == (9.0, 3)
    measuring.summarise(row, [Timing(1.0, None)], work=6.0, quiet_alone=False)
    assert row.quiet is None
    # Both sides of a ratio are of one kind: a row with too few quiet rounds decides for all.
    assert measuring.enough_quiet([timings, timings])
    assert not measuring.enough_quiet([timings, timings[1:]])
    assert not measuring.enough_quiet([[Timing(1.0, None)] * 9])


def test_what_others_used_is_what_all_used_without_our_own() -> None:
    share = measuring.others_share((10.0, 4.0), (12.0, 5.0), wall=1.0)
    assert share == pytest.approx(1.0 / machine.os.cpu_count())
    assert measuring.others_share(None, (1.0, 1.0), 1.0) is None


def test_on_a_gpu_the_queue_is_empty_before_and_waited_for_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order of the calls, with everything that belongs to CUDA replaced."""
    calls: list[str] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            calls.append("record")

        def synchronize(self) -> None:
            calls.append("wait")

        def elapsed_time(self, other: Event) -> float:
            calls.append("elapsed")
            return 600.0  # ms

    for name, said in (
        ("Event", Event),
        ("synchronize", lambda device: calls.append("empty")),
        ("memory_allocated", lambda device: 2**20),
        ("max_memory_allocated", lambda device: 4 * 2**20),
        ("reset_peak_memory_stats", lambda device: calls.append("reset")),
        ("empty_cache", lambda: None),
    ):
        monkeypatch.setattr(torch.cuda, name, said)
    cuda = torch.device("cuda")
    found = measuring.timed(lambda: calls.append("run"), 3, cuda)
    assert calls == ["empty", "record", "run", "run", "run", "record", "wait", "elapsed"]
    assert found.seconds == pytest.approx(0.2)
    calls.clear()
    case = Case("a", lambda: lambda: calls.append("run"), work=1.2)
    row = measuring.measure(Table("k", "t", "a", ""), [case], tiny_budget(), 1, cuda).rows[0]
    assert row.peak_mib == 3.0
    assert row.median_s == 0.6
    assert row.rate == 2.0
    assert calls.index("reset") > calls.index("run")  # the first call's memory does not count


def test_a_failing_row_leaves_its_reason_and_the_rest_go_on() -> None:
    def fail() -> measuring.Run:
        raise ValueError("planted")

    def full() -> measuring.Run:
        raise CannotRunError("does not fit")

    cases = [
        Case("bad", fail, 1.0),
        Case("large", full, 1.0),
        Case("absent", fail, 1.0, missing="not installed"),
        Case("good", lambda: lambda: time.sleep(0.001), 1.0),
    ]
    found = measuring.measure(Table("k", "t", "good", "tokens"), cases, tiny_budget(), 1, CPU)
    assert [row.state for row in found.rows] == ["failed", "skipped", "skipped", "measured"]
    assert found.rows[0].why == "ValueError: planted"
    assert found.rows[3].ratio == 1.0
    page = table.table_lines(found)
    assert "| bad | failed: ValueError: planted |" in page
    assert Section("s", "d", "c", tables=[found]).failed
    assert not Section("s", "d", "c", tables=[Table("k", "t", "", "", rows=found.rows[1:])]).failed


def test_a_failing_section_is_reported_and_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks import attention, images

    def broken(setting: object) -> Any:
        yield Table("a", "what was done before", "", "tokens", rows=[Row("r", extra={"x": 1.0})])
        raise RuntimeError("planted")

    monkeypatch.setattr(attention, "run", broken)
    monkeypatch.setattr(images, "run", lambda setting: iter([Table("b", "the rest", "", "")]))
    options = Options(("attention", "images"), "tiny", tmp_path, CPU, None, "scripts/bench")
    assert run(options) == 1
    page = (tmp_path / "bench.md").read_text()
    assert "RuntimeError: planted" in page
    assert "what was done before" in page
    assert "the rest" in page
    monkeypatch.setattr(attention, "run", lambda setting: iter([]))
    assert run(Options(("attention",), "tiny", tmp_path, CPU, None, "scripts/bench")) == 0
    page = (tmp_path / "bench.md").read_text()
    assert "planted" not in page
    assert "the rest" in page


def test_rounds_end_with_the_time_but_not_before_the_fewest() -> None:
    runs = {"a": (lambda: time.sleep(0.02), 1)}
    spent = measuring.in_turn(runs, tiny_budget(min_rounds=3, max_rounds=9), 0.03, CPU)
    assert 3 <= len(spent["a"]) <= 4
    late = measuring.in_turn(runs, tiny_budget(min_rounds=3, max_rounds=9), -1.0, CPU)
    assert len(late["a"]) == 3


def test_peak_memory_is_that_of_the_call_and_a_fault_is_answered_for() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from Linux's /proc")
    spec = {
        "length": 512,
        "dtype": "fp32",
        "device": "cpu",
        "batch": 1,
        "n_heads": 2,
        "d_head": 8,
        "window": 8,
        "threads": 1,
    }
    names = ["relative, published skewing", "SDPA full", "no such row"]
    square, linear, reason = memory.peaks(
        "attention", [{**spec, "name": name} for name in names], timeout_s=120
    )
    one = 2 * 512 * 512 * 4 / 2**20  # MiB of one tensor of all logits
    assert 3 * one < square < 12 * one
    assert linear < one
    assert "KeyError" in str(reason)


def test_a_measurement_that_kills_its_process_is_answered_for_and_the_rest_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = iter([("1.5\n2.", -9), ("3.5\n", 0)])

    def fake(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        text, code = next(said)
        return subprocess.CompletedProcess(command, code, text, "")

    monkeypatch.setattr(memory.subprocess, "run", fake)
    answers = memory.peaks("attention", [{"n": 1}, {"n": 2}, {"n": 3}], timeout_s=1)
    assert answers == [1.5, "the process ended with -9", 3.5]


def test_all_translate_the_same_amount() -> None:
    from benchmarks import peers_hf, translation_search
    from benchmarks.setting import Ceilings, Setting

    setting = Setting(CPU, "tiny", tiny_budget(), Ceilings({"fp32": 1.0}, 1.0), say=str)
    config = TransformerConfig(
        n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(32), dropout=0.0
    )
    model = EncoderDecoder.build(config, source_vocabulary=24, target_vocabulary=24).eval()
    with torch.no_grad():
        model.target_embedding.table.weight[peers_hf.END] *= 30  # it would like to end at once
    sources, lengths = [[5, 6, 7, 1], [8, 9, 1], [10, 1]], [4, 2, 6]
    (batch,) = translation_search.in_batches(setting, sources, lengths, 8)
    cached = translation_search.forced_search(model, batch, 1)
    assert [len(row) for row in cached] == lengths
    assert cached == translation_search.without_cache(model, batch)
    assert [len(row) for row in translation_search.forced_search(model, batch, 3)] == lengths
    if machine.missing("transformers"):
        pytest.skip("transformers is not installed")
    shape = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    peer = peers_hf.HFSeq2Seq("marian", 24, 32, **shape, padded=True).eval()
    for beam in (1, 3):
        tokens = peer.generate(batch.source, batch.padding, batch.lengths, beam)[:, 1:]
        assert [row.index(peers_hf.END) + 1 for row in tokens.tolist()] == lengths


def test_the_summary_compares_what_it_says() -> None:
    def filled(key: str, rates: dict[str, float], **peaks: float) -> Table:
        rows = [Row(n, rate=r, peak_mib=peaks.get(n.split()[-1])) for n, r in rates.items()]
        return Table(key, "t", "", "tokens", rows=rows)

    tables = [
        filled(
            "decoder/line/fp32", {"minimal": 2.0, "Triptych full": 3.0, "Triptych relative": 2.4}
        ),
        filled(
            "attention/2048/fp32",
            {"relative, published skewing": 1.0, "Triptych relative": 4.0},
            skewing=100.0,
            relative=10.0,
        ),
        filled("attention/8192/fp32", {"Triptych relative": 1.0}, relative=42.0),
    ]
    found = {line.what: line.value for line in summary.summary([Section("s", "", "", 0.0, tables)])}
    assert found == {
        "training step, full, x minimal, fp32": 1.5,
        "training step, relative, x full, fp32": pytest.approx(0.8),
        "relative attention, L 2048, x published skewing, fp32": 4.0,
        "its peak memory, share of skewing's, fp32": pytest.approx(0.1),
        "its peak memory, L 8192 over L 2048, fp32": pytest.approx(4.2),
    }


def test_a_late_token_is_compared_with_measured_attention() -> None:
    figures = {
        "200th, ms": 10.0,
        "2000th, ms": 14.0,
        decoding_late.READING: 1.0,
        decoding_late.RATIO: 1.25,
    }
    row = Row("Triptych", dtype="fp32", extra=figures)
    late = Table("late", "The 2000th token beside the 200th, one sequence", "", "", rows=[row])
    first, second = summary.summary([Section("s", "", "", 0.0, [late])])
    assert first.what.startswith("The 2000th token beside the 200th and what its attention takes")
    assert (first.value, first.goal) == (1.25, "<= 1.3")
    assert "at full bandwidth" in second.what
    assert (second.value, second.goal) == (pytest.approx(1.3), "")


def test_attention_is_timed_in_turn_on_keys_that_no_cache_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks.setting import Ceilings, Setting

    setting = Setting(CPU, "tiny", tiny_budget(), Ceilings({"fp32": 1.0}, 1.0), say=str)
    sizes = decoding_contest.Sizes(d_model=8, n_layers=2, n_heads=2, vocabulary=3, early=4, late=9)
    seen: list[tuple[int, int] | int] = []
    original, total = decoding_late.F.scaled_dot_product_attention, torch.Tensor.sum

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        assert options["attn_mask"].shape == (1, k.shape[2])
        seen.append((k.shape[2], k.data_ptr()))
        return original(q, k, v, **options)

    def read(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor.numel())
        return total(tensor)

    monkeypatch.setattr(decoding_late.F, "scaled_dot_product_attention", attend)
    monkeypatch.setattr(torch.Tensor, "sum", read)
    few, many = decoding_late.attention_costs(setting, sizes, rounds=3)
    assert len(few) == len(many) == 3
    assert min(few + many) > 0
    (_, first), (_, second) = seen[:2]
    assert first != second, "a layer has its own keys"
    weights = 2 * 12 * 8**2 + 3 * 8
    once = [weights, (4, first), (4, second), weights, (9, first), (9, second)]
    assert seen[4:] == once * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "trainin"], "trainin"),
        (["--threads", "0"], "at least 1"),
        (["--translation-checkpoint", "no-such.ckpt"], "no-such.ckpt"),
        (["--translation-checkpoint", "pretrained:multi30k"], "did you mean"),
        (["--translation-checkpoint", "pretrained:mnist"], "is of the domain image"),
        (["--translation-sentences", "no-such.en"], "no-such.en"),
    ],
)
def test_a_wrong_command_ends_with_2_before_any_work(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/bench", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert said in done.stderr
