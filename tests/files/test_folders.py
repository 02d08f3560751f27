"""Files of a user's folder: links, loops, and what an operating system leaves."""

from __future__ import annotations

from pathlib import Path

from triptych.files.folders import visible_files


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    store, data = tmp_path / "store", tmp_path / "data"
    for name in ("store/dog/1.png", "data/cat/2.png", "data/.hidden/3.png", "data/cat/._2.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (data / "dog").symlink_to(store / "dog")
    (data / "hound").symlink_to(store / "dog")  # a second way to the same files
    (data / "cat" / "loop").symlink_to(data)
    (store / "dog" / "back").symlink_to(store)
    (data / "gone.png").symlink_to(tmp_path / "nowhere")
    found = [path.relative_to(data).as_posix() for path in visible_files(data)]
    assert found == ["cat/2.png", "dog/1.png", "gone.png", "hound/1.png"]
    linked = tmp_path / "linked"
    linked.symlink_to(data)
    assert len(list(visible_files(linked))) == 4
