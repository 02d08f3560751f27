"""Hooks of the documentation site: code from the source, formulas as MathML, notebooks as pages.

Pages are readable without the site too: formulas are between dollar signs, links go to files.

A link that is a paragraph of its own, such as

    [`Residual.forward`](../../src/triptych/core/layers.py)

becomes the code of that function, so that a page cannot differ from the source. Other links to
files outside docs/ lose their target, which the site does not have.
"""

from __future__ import annotations

import ast
import functools
import html
import json
import os
import re
import textwrap
from pathlib import Path
from runpy import run_path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
CLI_PAGE = Path(__file__).with_name("cli_page.py")
INCLUDED = re.compile(r"^\[`([\w.]+)`\]\(([^)\s]+\.py)\)$", re.M)
"""A paragraph that stands for the code of an object."""
IMAGE = re.compile(r'<img [^>]*src="([^"]+)"[^>]*>')
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
FUNCTION = re.compile(r"<m[io]>(log|exp|sin|cos|tanh|softmax|score)</m[io]>")
AFTER_FUNCTION = re.compile(
    r"((?<!<msub>)<mi>(?:log|exp|sin|cos|tanh)</mi>|<msub><mi>log</mi><mn>\d</mn></msub>)"
    r"(?=<m(?:i|n|sub|over)>)"
)
BEFORE_FUNCTION = re.compile(r"(?<=</mi>)(?=<mi>(?:log|exp|sin|cos|tanh)</mi>)")
THIN_SPACE = '<mspace width="0.17em"/>'
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


class Source(NamedTuple):
    """Code of an object."""

    first_line: int
    text: str


def source_of(path: Path, name: str) -> Source:
    """The code of an object of a Python file, by its dotted name within the file.

    With its decorators and, for a value, the text below that documents it. Raises ValueError where
    there is none of the name.
    """
    text, module = _parsed(path, path.stat().st_mtime_ns)
    body = module.body
    found: list[ast.stmt] = []
    for part in name.split("."):
        found = _named(body, part)
        if not found:
            raise ValueError(f"{path.relative_to(ROOT)} has no {name}")
        body = getattr(found[0], "body", [])
    decorators = getattr(found[0], "decorator_list", [])
    first = min(node.lineno for node in (found[0], *decorators))
    last = found[-1].end_lineno
    lines = text.splitlines()[first - 1 : last]
    return Source(first, textwrap.dedent("\n".join(lines)))


@functools.cache
def _parsed(path: Path, changed: int) -> tuple[str, ast.Module]:
    """The text of a file and its syntax tree; changed: time of its last change."""
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def _named(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    """The statement that defines a name, and the text that documents a value."""
    for index, node in enumerate(body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return [node]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                following = body[index + 1 : index + 2]
                is_text = following and isinstance(following[0], ast.Expr)
                return [node, *following] if is_text else [node]
    return []


def with_sources(markdown: str, page: Path) -> str:
    """The text of a page with the code of the objects that it includes."""

    def include(match: re.Match[str]) -> str:
        name, target = match.groups()
        path = (page.parent / target).resolve()
        source = source_of(path, name)
        title = f"{path.relative_to(ROOT).as_posix()}: {name}"
        return f'```python linenums="{source.first_line}" title="{title}"\n{source.text}\n```'

    return INCLUDED.sub(include, markdown)


def with_links_of_the_site(markdown: str, page: Path) -> str:
    """The text of a page for the site.

    Links to files outside docs/ are their texts, and links to notebooks lead to their pages.
    """

    def replace(match: re.Match[str]) -> str:
        text, target = match.groups()
        if ":" in target or target.startswith("#"):
            return match[0]
        path = (page.parent / target.partition("#")[0]).resolve()
        if path.suffix == ".ipynb" and path.parent != page.parent:
            return f"[{text}]({target.removesuffix('.ipynb')}.md)"
        return match[0] if path.is_relative_to(DOCS) else text

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(replace, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(replace, markdown[end:])])


def page_of_notebook(path: Path) -> str:
    """A notebook as Markdown: its texts, and its code in fences."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, *rest = parts
    how = (
        f"To see its figures, run it: download [{path.name}]({path.name}), or open "
        f"`docs/notebooks/{path.name}` of a checkout."
    )
    return "\n\n".join([title, how, *rest])


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook, and that of the command line."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "cli.md", content=run_path(str(CLI_PAGE))["document"]()))
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        page = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, page, content=page_of_notebook(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Include code, and drop links that the site cannot follow."""
    path = DOCS / page.file.src_uri
    return with_links_of_the_site(with_sources(markdown, path), path)


def on_page_content(content: str, **_: Any) -> str:
    """Replace formulas in LaTeX by MathML; let images open in full size."""
    from latex2mathml.converter import convert

    def formula(match: re.Match[str]) -> str:
        display = "block" if match[2] == "[" else "inline"
        return with_spaces(convert(html.unescape(match[3].strip()), display=display))

    return IMAGE.sub(r'<a href="\1">\g<0></a>', FORMULA.sub(formula, content))


def with_spaces(formula: str) -> str:
    """MathML with the spaces that LaTeX has at names of functions: log p, and softmax(z)."""
    formula = FUNCTION.sub(r"<mi>\1</mi>", formula)  # an operator has wide spaces
    formula = AFTER_FUNCTION.sub(rf"\1{THIN_SPACE}", formula)
    return BEFORE_FUNCTION.sub(THIN_SPACE, formula)


def on_config(config: Any) -> Any:
    """Add the pages of docs/ that the settings do not list to the guide."""
    listed = json.dumps(config.nav)
    found = sorted(path.name for path in DOCS.glob("*.md"))
    guide = next(part["Guide"] for part in config.nav if "Guide" in part)
    guide += [name for name in found if f'"{name}"' not in listed]
    return config


def on_startup(**_: Any) -> None:
    """Find the project's source from any folder."""
    os.chdir(ROOT)
