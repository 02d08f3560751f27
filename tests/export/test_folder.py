"""A folder of an export is complete or absent, and no other file is ever replaced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from triptych.errors import UserError
from triptych.files.results import atomic_folder, new_folder


def content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


FILES = ("config.json", "model.bin")


def write(out: str, *, overwrite: bool = False) -> None:
    with new_folder(out, files=FILES, overwrite=overwrite) as folder:
        (folder / "config.json").write_text("new")


def test_a_folder_with_content_needs_overwrite(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write(str(out))
    with pytest.raises(UserError, match=r"holds config\.json.*--overwrite"):
        write(str(out))
    (out / "config.json").write_text("old")
    write(str(out), overwrite=True)
    assert content(out) == {"config.json": "new"}


def test_a_file_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    for name in ("thesis.tex", "checkpoints", "model.bin"):  # each is a folder
        out = tmp_path / f"with-{name}"
        (out / name).mkdir(parents=True)
        with pytest.raises(UserError, match=f"already holds {name}; expected a new folder$"):
            write(str(out), overwrite=True)
    (tmp_path / "file").touch()
    for out in ("file", "file/below"):
        with pytest.raises(UserError, match="is a file"):
            write(str(tmp_path / out), overwrite=True)


def test_a_former_export_comes_back_where_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rename = tmp_path / "out", Path.rename
    out.mkdir()
    (out / "config.json").write_text("old")

    def second_fails(self: Path, target: Path) -> Path:
        if (self / "config.json").read_text() == "new":
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(OSError, match="Input/output"), atomic_folder(out) as folder:
        (folder / "config.json").write_text("new")
    assert content(tmp_path) == {"out/config.json": "old"}


def test_a_link_stays_and_what_a_link_inside_names_is_not_touched(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.write_text("mine")
    out.mkdir()
    (out / "config.json").symlink_to(mine)
    link = tmp_path / "link"
    link.symlink_to(out)
    write(str(link), overwrite=True)
    assert link.is_symlink()
    assert content(out) == {"config.json": "new"}
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("exists", [False, True])
def test_a_fault_leaves_everything_as_it_was(tmp_path: Path, exists: bool) -> None:
    out = tmp_path / "out"
    if exists:
        out.mkdir()
        (out / "config.json").write_text("old")
    before = content(tmp_path)

    def fail() -> None:
        with atomic_folder(out) as folder:
            (folder / "config.json").write_text("new")
            assert content(out) == ({"config.json": "old"} if exists else {})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert content(tmp_path) == before
    assert list(tmp_path.iterdir()) == ([out] if exists else [])
    with atomic_folder(out) as folder:
        (folder / "README.md").write_text("new")
    assert content(tmp_path) == {"out/README.md": "new"}, "no file of the former export stays"
    assert list(tmp_path.iterdir()) == [out]
