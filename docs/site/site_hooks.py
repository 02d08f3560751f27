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
import hashlib
import html
import json
import os
import re
import textwrap
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runpy import run_path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
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
AUDIO = re.compile(r'src="data:audio/[\w-]+;base64,([^"]+)"')
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


def executed(path: Path) -> Path:
    """A notebook with the outputs of its cells; build/notebooks keeps them until it changes."""
    import nbformat
    from nbclient import NotebookClient

    text = path.read_text(encoding="utf-8")
    key = hashlib.sha1(f"{os.environ.get('NOTEBOOK_STEPS')} {text}".encode()).hexdigest()[:12]
    done = ROOT / f"build/notebooks/{path.stem}-{key}.ipynb"
    if not done.is_file():
        notebook = nbformat.reads(text, as_version=4)
        with TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            env = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # draws
            client = NotebookClient(notebook, timeout=3600, resources=resources)
            client.execute(stderr=DEVNULL, env=env)
        done.parent.mkdir(parents=True, exist_ok=True)
        done.write_text(nbformat.writes(notebook), encoding="utf-8")
    return done


def page_of_notebook(path: Path, done: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the files that it shows by name.

    done: the notebook with outputs. Texts stand as they are, code and printed text in fences.
    """
    files: dict[str, bytes] = {}
    parts = []
    for cell in json.loads(done.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            parts.append(shown(output, f"{path.stem}-{len(files) + 1:02d}", files))
            if all(part.startswith("```text") for part in parts[-2:]):  # one text in two outputs
                parts[-2:] = [parts[-2].removesuffix("```") + parts[-1].removeprefix("```text\n")]
    title, *rest = parts
    how = (
        f"The outputs are those of a CPU. To run it, download [{path.name}]({path.name}), or open "
        f"`docs/notebooks/{path.name}` of a checkout; in Colab, upload the file and set `PACKAGE`."
    )
    return "\n\n".join([title, how, *filter(None, rest)]), files


def shown(output: dict[str, Any], name: str, files: dict[str, bytes]) -> str:
    """An output as Markdown; a picture or sound gets the name in `files`."""
    data = output.get("data", {})
    sound = AUDIO.search("".join(data.get("text/html", "")))
    if sound:
        files[f"{name}.wav"] = b64decode(sound[1])
        return f'<audio controls src="{name}.wav"></audio>'
    if "image/png" in data:
        files[f"{name}.png"] = b64decode(data["image/png"])
        return f"![output of the cell]({name}.png)"
    text = "".join(output["text"] if output.get("name") == "stdout" else data.get("text/plain", ""))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook, and that of the command line."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "cli.md", content=run_path(str(CLI_PAGE))["document"]()))
    paths = sorted((DOCS / "notebooks").glob("*.ipynb"))
    with ThreadPoolExecutor(2) as pool:
        for path, done in zip(paths, pool.map(executed, paths), strict=True):
            text, media = page_of_notebook(path, done)
            for name, content in {f"{path.stem}.md": text, **media}.items():
                files.append(File.generated(config, f"notebooks/{name}", content=content))
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
