"""The page as text: nothing of a run becomes markup, and nothing is loaded; the command."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from written_runs import SCRIPT, WriteRun, write_table

from triptych.cli.main import main
from triptych.tools.report.page import Exhibit, report
from triptych.tools.report.run import read_runs
from triptych.tools.report.samples import Items, Table

LOADS = {"src", "srcset", "href", "xlink:href", "poster", "data", "action", "background"}


class Reader(HTMLParser):
    """Collects tags with attributes, and the text of each element's kind."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(page.decode("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.open.append("")

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_nothing_that_a_run_holds_becomes_markup(write_run: WriteRun) -> None:
    folder = write_run("<img src=x onerror=alert(1)>", evil='"><script>alert(1)</script>')
    write_table(folder / "metrics.csv", [["step", 'train/"><script>x</script>'], ["1", "2"]])
    samples = folder / "samples" / "step-00000020"
    (samples / "piece-00.mid").rename(samples / 'a"onclick="x.mid')
    evil = "</style></script><script>x</script>"
    exhibit = Exhibit(evil, evil, Items(tables=[Table(evil, [evil], [[evil]])]), {evil: evil})
    runs = read_runs([folder], most=12)
    page = Reader(report(runs, title=evil, exhibits=[exhibit], failures=[evil]))
    assert len(page.named("script")) == 1
    assert len(page.named("style")) == 1
    assert not any(name.startswith("on") for _, found in page.tags for name in found)
    assert {picture.get("src", "")[:5] for picture in page.named("img")} == {"data:"}
    assert SCRIPT in page.text["td"], "it is shown as text"


def test_the_policy_admits_the_pages_own_style_and_script_alone(write_run: WriteRun) -> None:
    content = report(read_runs([write_run("one")], most=12), title="t")
    page = Reader(content)
    (policy,) = (m["content"] for m in page.named("meta") if "http-equiv" in m)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", content.decode(), flags=re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    addresses = [value for _, found in page.tags for name, value in found.items() if name in LOADS]
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert not any("style" in found for _, found in page.tags), "the policy would drop it"


def test_names_inside_the_page_are_unique_and_found(write_run: WriteRun) -> None:
    runs = read_runs([write_run("one"), write_run("two", d_model=32)], most=12)
    page = Reader(report(runs, title="t"))
    names = [found["id"] for _, found in page.tags if "id" in found]
    assert len(names) == len(set(names))
    for _, found in page.tags:
        for attribute in ("aria-labelledby", "aria-describedby"):
            assert set(found.get(attribute, "").split()) <= set(names)
        if found.get("href", "").startswith("#"):
            assert found["href"][1:] in names
    captions, tables = page.named("caption"), page.named("table")
    assert len(captions) == len(tables)
    assert all(image.get("alt") for image in page.named("img") if image.get("id") != "enlarged")


def test_the_command_writes_a_page_and_overwrites_only_when_told(
    write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pages" / "report.html"
    command = ["report", str(write_run("one")), str(write_run("two", d_model=8)), "--out", str(out)]
    assert main(command) == 0
    before = out.read_bytes()
    assert b"<title>one, two</title>" in before
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main([*command, "--overwrite", "--title", "A & B", "--steps", "1"]) == 0
    after = out.read_bytes()
    assert b"<title>A &amp; B</title>" in after
    assert after.count(b"data-step=") == 2, "one validation of each run"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], ["required: ", "runs"]),
        (["missing", "--out", "a.html"], ["missing does not exist"]),
        (["plain", "--out", "a.html"], ["plain is no run", "config.yaml"]),
        (["file", "--out", "a.html"], ["file is a file"]),
        ([".", "--out", "a.html"], ["is no run", "one"]),
        (["one", "one", "--out", "a.html"], ["given twice"]),
        (["bad", "--out", "a.html"], ["metrics.csv", "step"]),
        (["one", "--out", "one"], ["one is a folder"]),
        (["one", "--out", "a.html", "--steps", "0"], ["steps must be", "at least 1"]),
    ],
)
def test_the_command_refuses(
    write_run: WriteRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: list[str],
) -> None:  # fmt: skip
    write_run("one")
    write_run("bad")
    (tmp_path / "bad" / "metrics.csv").write_text("loss\n1\n")
    (tmp_path / "plain").mkdir()
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    said = capsys.readouterr().err
    for part in says:
        assert part in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "a.html").exists()


def test_the_command_needs_no_torch(write_run: WriteRun, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'pytorch_lightning', 'wandb')));"
        "from triptych.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = ["report", str(write_run("one")), "--out", str(tmp_path / "a.html")]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_without_metrics_has_a_page(
    write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run("one")
    (folder / "metrics.csv").unlink()
    out = tmp_path / "a.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    assert "metrics.csv" in capsys.readouterr().err
    assert "metrics.csv" in "".join(Reader(out.read_bytes()).text["li"])
