"""The pages of docs/: links, included code, and Python blocks, which are run."""

from __future__ import annotations

import importlib
import re
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

PAGES = sorted(DOCS.rglob("*.md"))
IDEAS = sorted(path for path in (DOCS / "learn").glob("*.md") if path.stem != "index")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).with_suffix("").as_posix()


def code_of(page: Path) -> str:
    return "\n".join(PYTHON.findall(page.read_text(encoding="utf-8")))


def is_slow(page: Path) -> bool:
    """Whether the code of a page opens a trained model or imports Lightning."""
    return any(word in code_of(page) for word in ("pretrained:", ".task import"))


def heading_ids(page: Path) -> set[str]:
    """Ids of the headings, as the site and GitHub write them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_and_image_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [target for _, target in LINK.findall(text)] + IMAGE.findall(text)
    for target in targets:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), target
        if anchor:
            assert anchor in heading_ids(file), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_all_included_code_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not INCLUDED.search(with_sources(text, page))
    # Names of functions and classes in links within the text.
    for name, target in LINK.findall(text):
        if target.endswith(".py") and name.startswith("`") and not name.endswith(".py`"):
            assert source_of((page.parent / target).resolve(), name.strip("`")).text


def test_code_is_included_with_its_decorators_and_in_its_place() -> None:
    path = ROOT / "src/triptych/core/layers.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    for name in ("Residual.forward", "LayerNorm", "NormPosition", "NormConfig.epsilon"):
        first, text = source_of(path, name)
        of_file = lines[first - 1 : first - 1 + len(text.splitlines())]
        assert [line.strip() for line in of_file] == [line.strip() for line in text.splitlines()]
    assert source_of(path, "LayerNorm").text.startswith("@dataclass")
    assert source_of(path, "NormConfig.epsilon").text.endswith('"""')
    with pytest.raises(ValueError, match=r"has no Residual\.backward"):
        source_of(path, "Residual.backward")


@pytest.mark.parametrize("page", IDEAS, ids=name_of)
def test_a_page_has_formula_code_test_picture_and_exercise(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "$$" in text or page.stem == "cost"  # its formulas are in a table
    targets = [target for _, target in INCLUDED.findall(text)]
    for folder in ("/src/triptych/", "/tests/"):
        assert any(folder in target for target in targets), folder
    assert IMAGE.search(text) or "triptych explain" in text
    assert "## Exercise" in text
    assert "assert" in code_of(page)


def test_every_page_is_listed() -> None:
    listed = (DOCS / "learn/index.md").read_text(encoding="utf-8")
    assert [page.name for page in IDEAS if f"({page.name})" not in listed] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    """Commands are checked by tests/test_readme.py, `sh` and `text` are not."""
    fences = FENCE.findall(page.read_text(encoding="utf-8"))
    kinds = {fence.partition("\n")[0].removeprefix("```") for fence in fences}
    kinds -= {"text"} if page.stem != "README" else {"text", ""}
    assert kinds <= {"bash", "python", "sh", "yaml"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_settings_that_are_shown_name_classes_that_exist(page: Path) -> None:
    for fence in FENCE.findall(page.read_text(encoding="utf-8")):
        if fence.startswith("```yaml"):
            assert yaml.safe_load(fence.strip("`").removeprefix("yaml"))
            for path in re.findall(r"class_path: (triptych\.[\w.]+)", fence):
                module, _, name = path.rpartition(".")
                assert hasattr(importlib.import_module(module), name), path


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
