"""Build backend (see pyproject.toml): setuptools, which also adds configs, recipes and lectures.

The settings files lie in configs/ of the repository, the recipes and the figures of lectures in
scripts/, and all in the package `triptych` of a wheel. An editable install copies nothing:
`triptych.tools.configs` and `triptych.tools.carried` find the folders of the repository.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.build_meta import *  # noqa: F403 - the hooks that pip calls
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
CARRIED = ("recipes", "lectures")
"""Packages of scripts/ that a wheel carries."""
OTHERS = ("scripts/wheel_configs.py",)
"""Files of the repository that building from the sdist needs."""


class BuildWithConfigs(build_py):
    """Build of the package that also copies the settings files and the packages of scripts/."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self._copies().items():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        copied = [] if self.editable_mode else list(self._copies().values())
        return [*super().get_outputs(include_bytecode), *copied]

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *self._copies(), *OTHERS]

    def _copies(self) -> dict[str, str]:
        """Where each settings file and program goes, both paths relative to the repository."""
        folder = Path(self.build_lib) / "triptych"
        configs = sorted((ROOT / "configs").rglob("*.yaml"))
        programs = [f for name in CARRIED for f in sorted((ROOT / "scripts" / name).glob("*.py"))]
        copies = {file: folder / file.relative_to(ROOT) for file in configs}
        copies |= {file: folder / file.relative_to(ROOT / "scripts") for file in programs}
        return {str(file.relative_to(ROOT)): str(copy) for file, copy in copies.items()}
