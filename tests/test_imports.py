"""Who may import whom, as a graph of packages; no domain, tool or attention variant another one."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "triptych"
LEAVES = {"errors", "types", "version"}
"""Modules that everybody may import."""
ROOT = {"triptych", "triptych.load", "triptych.__version__"}
"""What the package itself has: it imports domains, so that only tools and commands import it."""
BELOW = {
    "core": set(),
    "decoding": {"core"},
    "config": set(),
    "pretrained": set(),
    "files": set(),
    "training": {"core", "decoding", "config", "pretrained", "files"},
    "text": {"core", "decoding", "config", "files", "training"},
    "domains": {"core", "decoding", "config", "pretrained", "files", "training", "text"},
    "tools": {
        "core", "decoding", "config", "pretrained", "files", "training", "text", "domains",
    },
    "cli": {"decoding", "config", "pretrained", "files", "training", "domains", "tools"},
}  # fmt: skip
"""Package -> packages that it may import, besides the leaves and itself."""
TOOLS_BELOW = {
    "compare": {"configs", "report"}, "completion": {"configs"}, "explain": {"carried"},
    "new_run": {"configs"}, "play": {"report"}, "serve": {"translation"}, "recipes": {"carried"},
}  # fmt: skip
"""Tool -> tools that it builds on."""
LIGHT = {"core": {"torch", "einops", "triptych"}, "decoding": {"torch", "einops", "triptych"}}
"""Package -> all that it needs besides the standard library."""
SHARED_ATTENTION = {"mask", "relative_bias", "multihead", "backends"}
"""Modules of `core/attention` that are no variants."""
FILES = sorted(SOURCE.rglob("*.py"))
DOMAINS = {path.parent.name for path in SOURCE.glob("domains/*/domain.py")}


def imported(tree: ast.AST) -> set[str]:
    """Dotted names of everything that a module imports, inside functions too."""
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


def breach(where: str, name: str) -> str | None:
    """Why the module `where` of triptych may not import `name`, or None."""
    here, parts = where.split("."), name.split(".")
    package = here[0]
    if package in LIGHT and parts[0] not in LIGHT[package] | sys.stdlib_module_names:
        return f"{package} needs torch and einops alone"
    if name in ROOT and package not in ("tools", "cli"):
        return "the package itself imports what this is a part of"
    if package not in BELOW or parts[0] != "triptych" or len(parts) < 2 or parts[1] in LEAVES:
        return None
    parts = parts[1:]
    if parts[0] != package and parts[0] not in BELOW[package]:
        return f"{parts[0]} is not below {package}"
    if parts[0] == "domains" and parts[1:] and parts[1] in DOMAINS:
        if package == "domains" and here[1] != parts[1]:
            return "one domain knows another"
        if package in ("tools", "cli") and parts[1] not in here:
            return "a tool asks a domain and names none"
    one, other = here[1:2], parts[1:2]
    if package == parts[0] == "tools" and one and other:
        builds_on = TOOLS_BELOW.get(one[0], set()) | {*one}
        return None if {*other} <= builds_on else "one tool knows another"
    if here[:2] == parts[:2] == ["core", "attention"] and here[2:] and parts[2:]:
        known = SHARED_ATTENTION | {here[2]}
        if here[2] not in SHARED_ATTENTION and parts[2] not in known:
            return "one attention variant knows another"
    return None


def test_imports_follow_the_graph() -> None:
    trees = {".".join(place(path)): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    breaches = [
        f"{where} imports {name}: {why}"
        for where, tree in trees.items()
        for name in imported(tree)
        if (why := breach(where, name))
    ]
    assert not breaches, "\n".join(breaches)
    TopologicalSorter(BELOW).prepare()  # raises CycleError for a circle of packages


@pytest.mark.parametrize(
    ("where", "name", "allowed"),
    [
        ("core.heads", "triptych.decoding.sampling.Draft", False),
        ("core.heads", "numpy.array", False),
        ("core.attention.full", "triptych.core.attention.local2d.Local2D", False),
        ("core.attention.full", "triptych.core.attention.multihead.attend", True),
        ("training.engine.module", "triptych.domains.image.task", False),
        ("training.run.checkpoint", "triptych", False),
        ("tools.report.page", "triptych", True),
        ("files.reading", "triptych.training.loading.loader", False),
        ("domains.image.task", "triptych.domains.music.data", False),
        ("domains.image.task", "triptych.domains.pictures.data.read", True),
        ("domains.pictures.data", "triptych.domains.image.model", False),
        ("domains.base", "triptych.domains.music.domain", False),
        ("domains.image.domain", "triptych.domains.base.Domain", True),
        ("domains.image.task", "triptych.tools.explain.figure.figure", False),
        ("tools.report.samples", "triptych.domains.music.midi.read_midi", False),
        ("tools.play.app", "triptych.domains.image.inference.ImageModel", False),
        ("tools.play.image", "triptych.domains.image.inference.ImageModel", True),
        ("tools.export.hf", "triptych.tools.report.page", False),
    ],
)
def test_the_rule_itself(where: str, name: str, allowed: bool) -> None:
    assert (breach(where, name) is None) == allowed


class WithoutTypes(ast.NodeTransformer):
    """Leaves out what is imported for a type checker alone."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else node


def first_circle(sources: dict[str, str]) -> list[str]:
    """A circle of modules that import each other when they run; empty for none."""
    graph = {}
    for module, source in sources.items():
        names = imported(WithoutTypes().visit(ast.parse(source)))
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


def test_the_map_and_the_graph_have_every_package() -> None:
    page = (SOURCE.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    places = [path for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()]
    names = [path.name + "/" * path.is_dir() for path in places if "__" not in path.name]
    assert not [name for name in names if name not in page.partition("```text")[2].split("```")[0]]
    assert {name.removesuffix(".py").strip("/") for name in names} <= {*BELOW} | LEAVES


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert not [path for path in FILES if path.stem in ("utils", "util", "helpers", "misc")]
    long = {str(path): n for path in FILES if (n := path.read_text().count("\n")) > 400}
    assert not long, "past 400 lines there are two subjects in a file"
