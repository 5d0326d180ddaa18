"""Files and folders appear whole or not at all."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from mn.files import link_or_copy, replacing, replacing_folder, sha256


class PowerCut(Exception):
    pass


def test_file_is_replaced_by_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new folder/file"
    for text in ("first", "second"):
        with replacing(path) as aside:
            aside.write_text(text)
        assert path.read_text() == text
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [PowerCut, KeyboardInterrupt])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with contextlib.suppress(error), replacing(path) as aside:
        aside.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_file_is_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "replaced") as aside:
        aside.write_text("x")
    assert (tmp_path / "replaced").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for name in ("first", "second"):
        with replacing_folder(path) as aside:
            (aside / name).write_text(name)
        assert [entry.name for entry in path.iterdir()] == [name]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_failure_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    with contextlib.suppress(PowerCut), replacing_folder(path) as aside:
        (aside / "half").touch()
        raise PowerCut
    assert [entry.name for entry in path.iterdir()] == ["old"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_linked_file_has_the_same_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert sha256(tmp_path / "b") == sha256(tmp_path / "a")
    # SHA-256 of the seven letters, by an independent implementation (sha256sum).
    assert sha256(tmp_path / "a") == "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
