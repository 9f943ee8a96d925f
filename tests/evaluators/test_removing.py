"""Folders that a candidate has left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluators.removing import remove


def _deep(folder: Path, levels: int) -> None:
    back = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    for level in range(levels):
        Path("file").write_text("x")
        os.mkdir("next")
        if level % 100 == 0:
            os.symlink("/", "link")
        os.chdir("next")
    os.fchdir(back)
    os.close(back)


@pytest.mark.parametrize("levels", [0, 1, 3, 3000])
def test_a_folder_goes_however_deep_it_is(levels, tmp_path: Path):
    folder, beside = tmp_path / "home", tmp_path / "beside"
    for path in (folder, beside, folder / "a", folder / "b"):
        path.mkdir()
    (beside / "kept").write_text("x")
    (folder / "link").symlink_to(beside)
    _deep(folder / "a", levels)
    remove(folder)
    assert os.listdir(tmp_path) == ["beside"] and os.listdir(beside) == ["kept"]


def test_folders_without_rights_and_what_is_no_folder(tmp_path: Path):
    folder = tmp_path / "home"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    remove(folder)
    assert not folder.exists()
    (tmp_path / "link").symlink_to(tmp_path)
    remove(tmp_path / "link")
    remove(tmp_path / "nothing")
    assert os.listdir(tmp_path) == ["link"]
