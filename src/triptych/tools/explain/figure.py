"""The options of `triptych explain`, the decorator that makes a figure, and the names of all.

Imports nothing heavy: the names and sentences of the figures are read without their modules.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triptych
from triptych.domains.options import OVERWRITE, PluginOptions, argument
from triptych.errors import UserError, unknown
from triptych.files.progress import aligned
from triptych.files.results import OutputFolder
from triptych.tools.carried import carried
from triptych.types import NonNegativeInt, PositiveInt, Seed

if TYPE_CHECKING:
    import matplotlib.figure

FOLDER = carried("lectures")
"""Folder of the figures."""
ALL = "all"
"""Name that stands for every figure."""
MODELS = {"translation": "pretrained:multi30k-en-de", "image": "pretrained:mnist"}
"""Models that figures show where the options name none, by domain."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(PluginOptions):
    """Draw figures of the lectures from the project's classes; `triptych explain` lists them."""

    name: str = ALL
    out: str | None = None
    """Folder for the figures; needed for all but texts, which are printed without it."""
    checkpoint: str | None = None
    """Checkpoint (.ckpt), or pretrained:NAME, for the figures that show a trained model; null for
    the figure's own pretrained model."""
    sentence: str | None = None
    """Sentence to translate; null for an example in the language of the model."""
    layer: PositiveInt | None = None
    """Layer whose attention is drawn, counted from 1; null for the last."""
    label: NonNegativeInt | None = None
    """Class of the image that is sampled, for a model with classes; null for 3, or for the last
    class of a model with fewer."""
    seed: Seed = 0
    """Seed of sampling and of random examples."""
    overwrite: bool = False

    parser_arguments = OVERWRITE | argument(
        "name", f"Name of a figure, or {ALL} for every one.", metavar="NAME"
    )

    def checkpoints(self) -> list[str]:
        return [] if self.checkpoint is None else [self.checkpoint]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sentence is not None and not self.sentence.strip():
            raise ValueError("sentence is empty; expected a sentence to translate")

    @staticmethod
    def names() -> list[str]:
        """Return the names of the figures."""
        return [*descriptions(), ALL]

    @staticmethod
    def overview() -> None:
        """List the figures."""
        print(*aligned([*descriptions().items()]), sep="\n")

    def run(self) -> None:
        """Draw figures into a folder, or print a text; UserError before any file is written."""
        name = self.name
        figures = [find_figure(one) for one in (descriptions() if name == ALL else [name])]
        if name != ALL:
            figures[0].check_options(self)
        out = None
        if self.out is not None:
            out = OutputFolder(self.out, overwrite=self.overwrite)
            out.check_free([figure.file for figure in figures])
        elif any(figure.suffix != ".txt" for figure in figures):
            raise UserError(
                f"explain {name} needs a folder for its figure; give one with --out DIR"
            )
        models: dict[str | None, Any] = {None: None}
        if self.checkpoint is not None:
            given = triptych.load(self.checkpoint, device="cpu")
            shown = sorted({figure.domain for figure in figures if figure.domain is not None})
            if given.domain not in shown:
                raise UserError(
                    f"--checkpoint {self.checkpoint} is of the domain {given.domain}; the figures "
                    f"show models of {' and '.join(shown)}"
                )
            models[given.domain] = given
        for figure in figures:
            if figure.domain not in models:
                models[figure.domain] = triptych.load(MODELS[str(figure.domain)], device="cpu")
            content = figure.draw(self, models[figure.domain])
            if out is None:
                print(content.decode(), end="")
            else:
                print(out.write(figure.file, content), file=sys.stderr)


@dataclass(frozen=True)
class LectureFigure:
    """One figure: a function that draws it.

    function: takes the model, where it shows one, and by name the options that it reads; returns a
    figure of matplotlib, the content of a GIF, or a text. domain: of the models that it shows, None
    for no model.
    """

    function: Callable[..., matplotlib.figure.Figure | bytes | str]
    suffix: str
    domain: str | None

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.function.__name__.replace("_", "-") + self.suffix

    def draw(self, options: ExplainOptions, model: Any = None) -> bytes:
        """Return the content of the file. model: trained, of the figure's domain."""
        import matplotlib

        from triptych.files.drawing import fonts_of_every_script, missing_letters_told, png

        values = {name: getattr(options, name) for name in self._options()}
        fonts = fonts_of_every_script() if self.domain == "translation" else nullcontext()
        with (
            missing_letters_told(),
            fonts,
            matplotlib.rc_context({"legend.fontsize": 8, "legend.frameon": False}),
        ):
            drawn = self.function(*([model] if self.domain else []), **values)
            if isinstance(drawn, str):
                return drawn.encode()
            return drawn if isinstance(drawn, bytes) else png(drawn)

    def check_options(self, options: ExplainOptions) -> None:
        """Raise UserError for an option that the figure does not read."""
        reads = {"out", *self._options(), *(("checkpoint", "plugin") if self.domain else ())}
        for option, value in vars(options).items():
            always = option in ("name", "overwrite")
            if not always and option not in reads and value != getattr(ExplainOptions, option):
                name, given = Path(self.file).stem, ", ".join(f"--{one}" for one in sorted(reads))
                raise UserError(f"the figure {name} has no option --{option}; expected {given}")

    def _options(self) -> list[str]:
        return list(inspect.signature(self.function).parameters)[1 if self.domain else 0 :]


def figure(
    suffix: str = ".png", *, domain: str | None = None
) -> Callable[[Callable[..., matplotlib.figure.Figure | bytes | str]], LectureFigure]:
    """Make a figure of a function, see `LectureFigure`.

    The function's name is that of the figure, with hyphens, and the first line of its docstring
    says what the figure shows. suffix: of the file, .txt for a text.
    """
    return lambda function: LectureFigure(function, suffix, domain)


@cache
def _functions() -> dict[str, tuple[str, str]]:
    """Return module and first line of the docstring of each figure by name, sorted."""
    found = {}
    for path in FOLDER.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(call, ast.Call) and ast.unparse(call.func) == figure.__name__
                for call in node.decorator_list
            ):
                sentence = (ast.get_docstring(node) or "").partition("\n")[0]
                found[node.name.replace("_", "-")] = path.stem, sentence
    return dict(sorted(found.items()))


def descriptions() -> dict[str, str]:
    """Return the names of the figures, sorted, each with one sentence on what it shows."""
    return {name: sentence for name, (_, sentence) in _functions().items()}


def find_figure(name: str) -> LectureFigure:
    """Return the figure of a name; raises UserError for a name that no figure has."""
    if name not in _functions():
        raise unknown("figure", name, [*_functions(), ALL])
    module = import_module(f"triptych.lectures.{_functions()[name][0]}")
    found: LectureFigure = getattr(module, name.replace("-", "_"))
    return found
