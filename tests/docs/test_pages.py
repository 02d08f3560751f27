"""README and the pages of docs/: links, included code, commands, settings, and Python blocks."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from site_hooks import (
    DOCS,
    FENCE,
    INCLUDED,
    LINK,
    ROOT,
    on_config,
    source_of,
    with_sources,
    with_spaces,
)

from triptych.tools.explain.figure import descriptions, find_figure

README = ROOT / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))
IDEAS = sorted(path for path in (DOCS / "learn").glob("*.md") if path.stem != "index")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
KINDS = ("bash", "python", "sh", "yaml")
"""Kinds of blocks; `sh` and `text` are not checked."""


def name_of(page: Path) -> str:
    return page.relative_to(DOCS if DOCS in page.parents else ROOT).with_suffix("").as_posix()


def blocks_of(page: Path, kind: str) -> list[str]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [block for kind_of_block, block in found if kind_of_block == kind]


def code_of(page: Path) -> str:
    return "\n".join(blocks_of(page, "python"))


def is_slow(page: Path) -> bool:
    """Whether the code of a page opens a trained model or imports Lightning."""
    return any(word in code_of(page) for word in ("pretrained:", ".task import"))


def ids_of(page: Path) -> set[str]:
    """Ids of the headings, as the site and GitHub write them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def faults_of_links(page: Path) -> Iterator[str]:
    """Links and images that lead nowhere, and code, included or in a link, that is not there."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    images = [("", target) for target in IMAGE.findall(text)]
    for name, target in [*LINK.findall(text), *images]:
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if "://" not in target and not (file.is_file() and (not anchor or anchor in ids_of(file))):
            yield target
        elif path.endswith(".py") and name.startswith("`") and not name.endswith(".py`"):
            with contextlib.suppress(ValueError):
                source_of(file, name.strip("`"))
                continue
            yield name


@functools.cache
def options_of(*words: str) -> frozenset[str]:
    """The options that the help of a command names."""
    from triptych.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*words, "--help"])  # argparse leaves so after printing the help
    return frozenset(re.findall(r"--[\w.]+", out.getvalue()))


def commands_of(page: Path) -> list[str]:
    """The commands of Triptych in the bash blocks of a page, without what they are piped to."""
    lines = [
        line
        for block in blocks_of(page, "bash")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    commands = [part.strip() for line in lines for part in re.split(r"(?<!\|)\|(?!\|)", line)]
    return [command for command in commands if command.startswith("triptych ")]


def faults_of_commands(page: Path) -> Iterator[str]:
    """Options that a command shown does not know, and configs and scripts that are not there."""
    for command in commands_of(page):
        _, *words = shlex.split(command.replace(" DOMAIN ", " translation "), comments=True)
        known = options_of(*itertools.takewhile(lambda word: word[0] not in "-<", words))
        # The settings of a part depend on the class that the YAML names.
        parts = ("--data.source.", "--optim.optimizer.", "--optim.schedule.")
        given = [word.partition("=")[0] for word in words if word.startswith("--")]
        for option in given:
            if not option.startswith(parts) and option not in known:
                yield f"{command}: {option}"
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"\bconfigs/[a-z\d/_-]+\.yaml|\bscripts/\w+(?:\.\w+)?", text):
        if not (ROOT / path).exists():
            yield path


def faults_of_blocks(page: Path) -> Iterator[str]:
    """Kinds of blocks that no test knows, and settings with classes that do not exist."""
    fences = FENCE.findall(page.read_text(encoding="utf-8"))
    plain = {"text", ""} if page == README else {"text"}
    yield from {fence.partition("\n")[0][3:] for fence in fences} - plain - {*KINDS}
    for block in blocks_of(page, "yaml"):
        if not yaml.safe_load(block):
            yield block
        for path in re.findall(r"class_path: (triptych\.[\w.]+)", block):
            module, _, name = path.rpartition(".")
            if not hasattr(importlib.import_module(module), name):
                yield path


@pytest.mark.parametrize("page", [README, *PAGES], ids=name_of)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert [*faults_of_links(page), *faults_of_commands(page), *faults_of_blocks(page)] == []


def test_the_faults_of_a_page_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n[one](#b) [two](none.md) ![three](none.png)\n"
        "configs/image/none.yaml scripts/none\n\n"
        f"[`nothing`]({DOCS}/site/site_hooks.py) [`source_of`]({DOCS}/site/site_hooks.py)\n\n"
        "```bash\ntriptych train image --config digits --none 1 | triptych explain --all 1\n```\n"
        "```yaml\nclass_path: triptych.errors.None_\n```\n```perl\n```\n"
    )
    assert list(faults_of_links(page)) == ["#b", "none.md", "`nothing`", "none.png"]
    train, explain, *paths = faults_of_commands(page)
    assert (train[-6:], explain[-5:]) == ("--none", "--all")
    assert paths == ["configs/image/none.yaml", "scripts/none"]
    assert list(faults_of_blocks(page)) == ["perl", "triptych.errors.None_"]


def test_code_is_included_with_its_decorators_and_in_its_place() -> None:
    path = ROOT / "src/triptych/core/layers.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    for name in ("Residual.forward", "LayerNorm", "NormPosition", "NormConfig.epsilon"):
        first, text = source_of(path, name)
        of_file = lines[first - 1 : first - 1 + len(text.splitlines())]
        assert [line.strip() for line in of_file] == [line.strip() for line in text.splitlines()]
    page = DOCS / "learn/blocks.md"
    assert source_of(path, "Residual").text in with_sources(page.read_text(encoding="utf-8"), page)
    assert source_of(path, "LayerNorm").text.startswith("@dataclass")
    assert source_of(path, "NormConfig.epsilon").text.endswith('"""')
    with pytest.raises(ValueError, match=r"has no Residual\.backward"):
        source_of(path, "Residual.backward")


@pytest.mark.parametrize("page", IDEAS, ids=name_of)
def test_a_page_has_formula_code_test_picture_and_exercise(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "$$" in text or page.stem == "cost"  # its formulas are in a table
    targets = [target for _, target in INCLUDED.findall(text)]
    for folders in (("/src/triptych/", "/scripts/lectures/"), ("/tests/",)):
        assert any(folder in target for target in targets for folder in folders), folders
    assert IMAGE.search(text) or "triptych explain" in text
    assert "## Exercise" in text
    assert "assert" in code_of(page)


def test_every_page_is_listed() -> None:
    listed = (DOCS / "learn/index.md").read_text(encoding="utf-8")
    assert [page.name for page in IDEAS if f"({page.name})" not in listed] == []


def test_the_weeks_have_every_page_once_and_their_sums() -> None:
    text = (DOCS / "learn/index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| [^|]+ \| ([^|]+) \| (\d+) \|$", text, re.M)
    parts = [re.findall(r"\(([^)]+)\) (\d+)", pages) for pages, _ in rows]
    names = [name for part in parts for name, _ in part]
    assert sorted(name for name in names if "/" not in name) == [page.name for page in IDEAS]
    assert [sum(int(n) for _, n in part) for part in parts] == [int(total) for _, total in rows]


def test_figures_that_are_named_and_shown_exist() -> None:
    figures = descriptions()
    files = {find_figure(name).file for name in figures}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"triptych explain ([a-z][\w-]*)", text))
        assert named <= {*figures, "all"}
        assert set(re.findall(r"images/explain/([\w.-]+)", text)) <= files


def test_pages_that_the_settings_do_not_list_are_in_the_guide() -> None:
    config = SimpleNamespace(nav=[{"Guide": ["index.md"]}, {"Reference": ["tour.md"]}])
    guide = on_config(config).nav[0]["Guide"]
    assert sorted([*guide, "tour.md"]) == sorted(path.name for path in DOCS.glob("*.md"))


@pytest.mark.parametrize(
    ("formula", "spaces"), [(r"\log p", 1), (r"\log_2 p", 1), (r"\log(p)", 0), (r"a \sin b", 2)]
)
def test_names_of_functions_have_spaces_where_no_bracket_follows(formula: str, spaces: int) -> None:
    converter = pytest.importorskip("latex2mathml.converter", reason="extra docs")
    plain = converter.convert(formula)
    spaced = with_spaces(plain)
    assert spaced.count("<mspace") == spaces
    assert re.sub("<mspace[^>]*>", "", spaced) == plain
    assert not re.search("<msub><mi>log</mi><mspace", spaced)


def run(page: Path) -> None:
    exec(compile(code_of(page), str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize(
    "page", [page for page in PAGES if code_of(page) and not is_slow(page)], ids=name_of
)
def test_the_code_of_a_page_runs(page: Path) -> None:
    run(page)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if is_slow(page)], ids=name_of)
def test_the_code_of_a_slow_page_runs(page: Path) -> None:
    run(page)
