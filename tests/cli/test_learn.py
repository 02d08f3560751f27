"""`triptych learn`: every exercise accepts another solution than ours and refuses wrong ones."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from triptych.tools.learn.exercises import EXERCISES

SOLUTIONS = Path(__file__).with_name("learn_solutions.py").read_text(encoding="utf-8")
PAGES = sorted({each.page for each in EXERCISES.values()})
DOCS = Path(__file__).resolve().parents[2] / "docs"
WRONG = {
    "attention_parameters": [("4 * (d_model", "3 * (d_model"), ("+ d_model)", ")")],
    "attention": [("math.sqrt(q.shape[1])", "q.shape[1]"), ("total == 0, 1.0", "total < 0, 1.0"),
                  ("(mask,", "(~mask,"), ("return weights", "return v.T.new_ones(3, 4) * weights")],
    "online_attention": [("total * old", "total"), ("y * old", "y"), ("return y / total",
                         "return y"), (" - new).exp()\n", ").exp()\n")],
    "multi_head": [("width**0.5", "x.shape[1] ** 0.5"), (" @ w_o", ""),
                   ("h * width, (h + 1) * width", "h, None, n")],
    "look_ahead_mask": [("<= i for", "< i for"), ("i - window <", "i - window <="),
                        ("torch.tensor(", "1.0 * torch.tensor("), ("range(n)] for",
                         "range(n - 1)] for")],
    "local_2d_mask": [("range(i + 1)", "range(len(mask))"), ("top - halo", "top"),
                      ("left - halo <=", "left <="), ("block + halo", "block"),
                      ("i % width // block * block", "i % width")],
    "sinusoids": [("(math.sin, math.cos)", "(math.cos, math.sin)"), ("2 * i /", "i /"),
                  ("for angle in angles for f in (math.sin, math.cos)",
                   "for f in (math.sin, math.cos) for angle in angles")],
    "relative_logits": [(".tril()", ""), ("[1:]", "[:-1]"), ("reshape(n + 1, n)", "T")],
    "cache_bytes": [("2 * n_layers", "n_layers"), (" * 4", "")],
    "beam_step": [("log_p[:, None] + ", ""), ("len(log_p)", "2 * len(log_p)"),
                  ("return best, index //", "return best, index %"), ("topk(", "neg().topk(")],
    "top_p": [("total < p", "total <= 2 * p"), ("if total < p:", "if total + 0.01 < p:"),
              (" / left.sum(1, keepdim=True)", ""), ("descending=True", "descending=False")],
    "bpe": [("min(pairs, key=merges.index)", "pairs[0]"), ("while pairs", "if pairs"),
            ("return tokens", "return tuple(tokens)")],
    "smoothed_loss": [("(1 - smoothing) * right", "right"), (").mean()", ").sum()"),
                      (").mean()", ")")],
    "nats_per_token": [("-(log_p * real).sum() / real.sum()", "-(log_p * real).mean()"),
                       ("-(log_p * real).sum() / real.sum()",
                        "-((log_p * real).sum(1) / real.sum(1)).mean()"), ("-(", "(")],
    "lora_merged": [("alpha / len(a)", "alpha"), ("b @ a", "(b @ a) / 2"), ("weight + ", "")],
}  # fmt: skip
"""Slips in the solution of each exercise: a text and what stands in its place."""


def solution(name: str) -> str:
    """The source of one solution."""
    nodes = {n.name: n for n in ast.parse(SOLUTIONS).body if isinstance(n, ast.FunctionDef)}
    return str(ast.get_source_segment(SOLUTIONS, nodes[name]))


def results(out: str) -> dict[str, str]:
    return {name: text for name, _, text in (line.partition(" ") for line in out.splitlines())}


def test_each_page_has_a_file_to_fill_in_whose_functions_are_still_to_be_done(cli) -> None:
    listed = cli("learn", "list").out
    assert cli("learn").out == listed
    for page in PAGES:
        assert any((DOCS / f).is_file() for f in (f"learn/{page}.md", f"{page}.md")), page
        text = cli("learn", "start", page).out
        Path("page.py").write_text(text)
        answer = cli("learn", "check", "page.py")
        names = [name for name, each in EXERCISES.items() if each.page == page]
        assert (answer.code, [*results(answer.out)]) == (1, names)
        assert all(text.strip() == "wrong: to be done" for text in results(answer.out).values())
        assert all(name in listed for name in names)


def test_other_right_solutions_are_right(cli) -> None:
    Path("all.py").write_text(SOLUTIONS)
    answer = cli("learn", "check", "all.py")
    assert answer.code == 0, answer.out
    assert [*results(answer.out)] == [*EXERCISES]
    assert {text.strip() for text in results(answer.out).values()} == {"right"}


@pytest.mark.parametrize("name", EXERCISES)
def test_wrong_solutions_are_wrong(cli, name: str) -> None:
    own = solution(name)
    for before, after in WRONG[name]:
        assert before in own
        Path("all.py").write_text(SOLUTIONS.replace(own, own.replace(before, after)))
        answer = cli("learn", "check", "all.py")
        wrong = {key for key, text in results(answer.out).items() if text.strip() != "right"}
        assert (answer.code, wrong, answer.err) == (1, {name}, ""), (before, after)


def test_what_is_wrong_is_said_in_one_line(cli) -> None:
    q = "    return q.new_zeros(len(q), len(v.T))\n"
    Path("a.py").write_text(
        "import torch\n\n\ndef attention(q, k, v, mask):\n" + q + "\n\n"
        "def online_attention(q, blocks):\n    return blocks[9]\n"
    )
    said = results(cli("learn", "check", "a.py").out)
    assert "0 at [0, 0], expected" in said["attention"]
    assert "line 9: IndexError: list index out of range" in said["online_attention"]
    Path("a.py").write_text("def attention(q, k, v, mask):\n    return q\n")
    said = results(cli("learn", "check", "a.py").out)
    kinds = "Tensor [4, 8] of float64, expected Tensor [4, 3] of float64"
    assert f"returns {kinds}" in said["attention"]
    assert "no such function" in said["online_attention"]
    Path("a.py").write_text("def beam_step(log_p, next_log_p):\n    return log_p.numpy(), 1, 2\n")
    said = results(cli("learn", "check", "a.py").out)["beam_step"]
    assert "item 0: returns ndarray [1] of float64, expected Tensor [1] of float64" in said
    Path("a.py").write_text("def bpe(word, merges):\n    exit()\n")
    assert "SystemExit" in results(cli("learn", "check", "a.py").out)["bpe"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("x = 1\n", ["no function of the exercises", "learn start"]),
        ("def attention(:\n", ["line 1: SyntaxError"]),
        ("x = 1\n1 / 0\n", ["line 2: ZeroDivisionError: division by zero"]),
        ("raise SystemExit(0)\n", ["line 1: SystemExit"]),
        ("\0", ["does not run"]),
        (b"\xff\xfe\xfd", ["does not run"]),
    ],
)
def test_a_file_that_does_not_run_is_refused(
    refused, tmp_path: Path, content: str | bytes, says: list[str]
) -> None:
    (tmp_path / "a.py").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused("learn", "check", "a.py", says=["a.py", *says])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check"], ["learn check FILE"]),
        (["start"], ["learn start PAGE"]),
        (["list", "attention"], ["expected learn list"]),
        (["start", "atention"], ["did you mean attention?"]),
        (["check", "none.py"], ["none.py is no file"]),
        (["check", "."], [". is no file"]),
    ],
)
def test_wrong_words_are_refused(refused, words: list[str], says: list[str]) -> None:
    refused("learn", *words, says=says)


def test_a_function_that_is_interrupted_is_wrong_and_the_next_one_is_checked(cli) -> None:
    Path("loop.py").write_text("def attention(*a):\n    raise KeyboardInterrupt\n")
    answer = cli("learn", "check", "loop.py")
    said = results(answer.out)
    assert (answer.code, answer.err) == (1, "")
    assert said["attention"].strip() == "wrong: line 2: KeyboardInterrupt"
    assert "no such function" in said["online_attention"]
