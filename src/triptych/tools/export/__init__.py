"""Export of trained models: folders that Triptych and other libraries open.

Each format is a module with the function `write(source, folder)`, see `source`. Imports nothing
heavy.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from triptych.errors import UserError


class Format(NamedTuple):
    """Format of an export."""

    module: str
    """Module that writes it."""
    packages: tuple[str, ...] = ()
    """Packages of the extra `export` that it needs."""
    opens: bool = False
    """Whether Triptych opens the folder."""


FORMATS = {
    "safetensors": Format("triptych.tools.export.safetensors", opens=True),
    "ctranslate2": Format("triptych.tools.export.ctranslate2", ("ctranslate2",)),
    "onnx": Format("triptych.tools.export.onnx", ("onnx", "onnxruntime", "onnxscript")),
    "hf": Format("triptych.tools.export.hf", opens=True),
}


def check_packages(name: str) -> None:
    """Raise UserError where a package that a format needs is not installed."""
    for package in FORMATS[name].packages:
        if find_spec(package) is None:
            raise UserError(
                f"--format {name} needs the package {package}, which is not installed: "
                "pip install 'triptych[export]'"
            )
