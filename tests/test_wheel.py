"""The wheel, built from the sdist, and an editable install, each in an environment of its own."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = (
    "import sys; sys.path.insert(0, 'scripts'); import wheel_configs as backend; "
    "print(backend.build_{kind}({folder!r}))"
)
"""What pip runs, see `backend-path` in pyproject.toml."""
CODE_OF_LOAD = "import triptych; triptych.load; print('triptych', triptych.__version__)"
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src", "configs", "scripts")
"""What the build reads of the checkout; it is copied, as the build writes beside its sources."""


def build(kind: str, source: Path, folder: Path) -> Path:
    code = BUILD.format(kind=kind, folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, in a folder named triptych as `git clone` makes it."""
    if int(importlib.metadata.version("setuptools").partition(".")[0]) < 77:
        pytest.skip("the build needs setuptools 77")
    folder = tmp_path_factory.mktemp("build") / "triptych"
    folder.mkdir()
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in PARTS:
        part = ROOT / name
        if part.is_dir():
            shutil.copytree(part, folder / name, ignore=left_out)
        else:
            shutil.copy(part, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    folder = checkout.parent
    sdist = build("sdist", checkout, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return build("wheel", unpacked, folder)


def installation(wheel: Path, folder: Path) -> tuple[Path, Path, dict[str, str]]:
    """Install a wheel; return the environment, its site-packages and variables to run it with.

    The packages that Triptych needs come from this environment, Triptych from the wheel alone. A
    .pth file adds the folder of the packages; .pth files in that folder, such as that of an
    editable install, are not read.
    """
    home = folder / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    return home, site, {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


@pytest.mark.slow
def test_the_wheel_carries_configs_models_and_data_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    configs = {path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.yaml")}
    assert {f"triptych/{name}" for name in configs} <= names
    for folder in ("recipes", "lectures"):
        programs = {path.name for path in (ROOT / "scripts" / folder).glob("*.py")}
        assert {f"triptych/{folder}/{name}" for name in programs} <= names
    for path in (ROOT / "src/triptych").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.relative_to(ROOT / "src").as_posix() in names
    assert not [name for name in names if name.startswith(("configs/", "scripts/", "tests/"))]


@pytest.mark.slow
def test_an_installation_works_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    home, site, environment = installation(wheel, tmp_path)

    def run(*words: str, stdin: str = "") -> str:
        done = subprocess.run(
            words, cwd=empty, env=environment, input=stdin, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(home / "bin/python"), "-c", "import triptych; print(triptych.__file__)").strip()
    assert Path(where).is_relative_to(site)
    triptych = str(home / "bin/triptych")
    model = ["--checkpoint", "pretrained:multi30k-en-de", "--device", "cpu"]
    assert len(run(triptych, "translate", *model, stdin="A man.\n").splitlines()) == 1
    small = ["--trainer.max_steps", "2", "--trainer.val_check_interval", "2", "--run.wandb", "off"]
    few = ["--data.samples", "1", "--data.validation_limit", "8"]
    run(triptych, "train", "image", "--config", "digits", *small, *few)
    assert (empty / "runs/image/digits/checkpoints/best.ckpt").is_file()
    run(triptych, "explain", "mask", "--out", "figures")
    assert (empty / "figures/mask.png").is_file()
    run(triptych, "data", "make", "digits", "--train_size", "2000")
    run(triptych, "train", "translation", "--config", "digits-universal", *small)
    assert (empty / "runs/translation/digits-universal/checkpoints/best.ckpt").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["-m", "triptych"], ["-c", CODE_OF_LOAD]])
def test_an_editable_install_works_in_the_folder_above_the_checkout(
    checkout: Path, tmp_path: Path, words: list[str]
) -> None:
    """There, Python sees the folder `triptych` of the checkout as a package without modules."""
    home, _, environment = installation(build("editable", checkout, tmp_path), tmp_path)
    done = subprocess.run(
        [str(home / "bin/python"), *words, "--version"], cwd=checkout.parent, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("triptych ")
