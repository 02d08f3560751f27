"""Who may import whom: each of LAYERS those to its left; no domain and no variant another one."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "triptych"
LAYERS = [
    "core", "decoding", "training", "domains", "export", "report", "complexity", "explain", "play",
    "cli",
]  # fmt: skip
LIGHT = {"core": {"torch", "einops", "triptych"}, "decoding": {"torch", "einops", "triptych"}}
TOOLS = {"export", "report", "complexity", "play"}
"""Packages that ask domains for what they need. The pages of play are named after domains."""
EVERYBODY = {"errors", "config", "pretrained", "shipped_configs", "datasets"}
FILES = sorted(SOURCE.rglob("*.py"))
DOMAINS = {path.parent.name for path in SOURCE.glob("domains/*/domain.py")}


def imported(path: Path) -> set[str]:
    """Dotted names of everything that a file imports, inside functions too."""
    return imported_by(ast.parse(path.read_text(encoding="utf-8")))


def imported_by(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{ast.unparse(node)} is relative"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def place(path: Path) -> list[str]:
    return list(path.relative_to(SOURCE).with_suffix("").parts)


def breaches(where: list[str], name: str) -> str | None:
    """Why the file at `where` may not import `name`, or None."""
    parts = name.split(".")
    layer = where[0]
    if layer not in LAYERS:
        return None
    if layer in LIGHT and parts[0] not in LIGHT[layer] | sys.stdlib_module_names:
        return f"{layer} needs torch and einops alone"
    if parts[0] != "triptych" or len(parts) < 2 or parts[1] in EVERYBODY | {"__version__"}:
        return None
    target = parts[1]
    if target in LAYERS and LAYERS.index(target) > LAYERS.index(layer):
        return f"{target} stands above {layer}"
    if layer == target == "domains" and parts[2:] and parts[2] in DOMAINS - {where[1]}:
        return "one domain knows another"
    if layer in TOOLS and target == "domains" and parts[2:] and parts[2] in DOMAINS - {where[-1]}:
        return "a tool asks a domain and names none"
    if where[:2] == ["core", "attention"] and parts[1:3] == ["core", "attention"]:
        shared = {
            "base", "mask", "relative_bias", "multihead", "backends", "context",
            "capture",
        }  # fmt: skip
        if where[2] not in shared and parts[3] not in shared:
            return "one attention variant knows another"
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(place(path)))
def test_imports_run_downwards_only(path: Path) -> None:
    found = {name: breaches(place(path), name) for name in imported(path)}
    assert not {name: why for name, why in found.items() if why}


def test_the_rule_itself_can_fail() -> None:
    assert breaches(["core", "heads"], "triptych.decoding.sampling.Sampling")
    assert breaches(["core", "heads"], "numpy.array")
    assert breaches(["domains", "image", "task"], "triptych.domains.music.data")
    assert breaches(["core", "attention", "full"], "triptych.core.attention.local2d.Local2D")
    assert breaches(["domains", "base"], "triptych.domains.music.domain")
    assert breaches(["training", "run"], "triptych.domains.image.task")
    assert breaches(["domains", "image", "task"], "triptych.explain.drawing.png")
    assert breaches(["report", "samples"], "triptych.domains.music.midi.read_midi")
    assert breaches(["play", "app"], "triptych.domains.image.inference.ImageModel")
    assert not breaches(["play", "pages", "image"], "triptych.domains.image.inference.ImageModel")
    assert not breaches(["explain", "figures", "digit"], "triptych.domains.pictures.render.hide")
    assert breaches(["domains", "pictures", "data"], "triptych.domains.image.model")
    assert not breaches(["domains", "image", "task"], "triptych.domains.pictures.data.read")
    assert not breaches(["domains", "image", "domain"], "triptych.domains.base.Domain")
    assert not breaches(["core", "attention", "full"], "triptych.core.attention.multihead.attend")


class WithoutTypes(ast.NodeTransformer):
    """Leaves out what is imported for a type checker alone."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else node


def first_circle(sources: dict[str, str]) -> list[str]:
    """A circle of modules that import each other when they run; empty for none."""
    graph = {}
    for module, source in sources.items():
        names = imported_by(WithoutTypes().visit(ast.parse(source)))
        graph[module] = {n for name in names for n in (name, name.rpartition(".")[0])} & {*sources}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_one_that_imports_it() -> None:
    """In functions neither. An __init__.py is not counted: it runs before all modules below it."""
    files = [path for path in FILES if path.stem != "__init__"]
    assert not first_circle(
        {".".join(["triptych", *place(path)]): path.read_text(encoding="utf-8") for path in files}
    )
    late = "def f():\n    from t.a import x"
    typed = "if TYPE_CHECKING:\n    import t.a"
    assert first_circle({"t.a": "import t.b", "t.b": late}) == ["t.a", "t.b", "t.a"]
    assert not first_circle({"t.a": "import t.b", "t.b": typed})


def test_core_and_decoding_import_with_torch_and_einops_alone() -> None:
    """They must serve on a machine that has neither Lightning nor wandb nor jsonargparse."""
    code = (
        "import importlib, pkgutil, sys\n"
        "for name in ('pytorch_lightning', 'wandb', 'jsonargparse', 'pretty_midi', 'torchvision',\n"
        "             'tokenizers', 'sacrebleu', 'matplotlib', 'rich', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "import triptych.core, triptych.decoding\n"
        "for package in (triptych.core, triptych.decoding):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_map_names_every_package_and_every_layer() -> None:
    page = (SOURCE.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    places = [path for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()]
    names = [path.name + "/" * path.is_dir() for path in places if "__" not in path.name]
    assert not [name for name in names if name not in page.partition("```text")[2].split("```")[0]]
    assert " -> ".join(reversed(LAYERS)) in page
    assert {name.removesuffix(".py").strip("/") for name in names} >= {*LAYERS} | EVERYBODY


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert not [path for path in FILES if path.stem in ("utils", "util", "helpers", "misc")]
    long = {str(path): n for path in FILES if (n := path.read_text().count("\n")) > 400}
    assert not long, "past 400 lines there are two subjects in a file"
