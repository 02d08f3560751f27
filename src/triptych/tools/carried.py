"""Packages of programs beside Triptych's own: `scripts/NAME/` of the repository.

A wheel carries them as `triptych/NAME/`, see `scripts/wheel_configs.py`.
"""

from pathlib import Path

import triptych


def carried(name: str) -> Path:
    """Return the folder of a package of programs, which can be imported as `triptych.NAME`."""
    package = Path(__file__).parents[1]
    if (package / name).is_dir():
        return package / name
    scripts = package.parents[1] / "scripts"
    if str(scripts) not in triptych.__path__:
        triptych.__path__.append(str(scripts))
    return scripts / name
