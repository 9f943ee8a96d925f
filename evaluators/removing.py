"""Removes a folder that somebody untrusted has filled, however deep it is.

`shutil.rmtree` takes a call of itself and an open descriptor for each level: a folder of a few thousand levels ends it
with RecursionError, whatever errors it was asked to ignore.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC if os.name == "posix" else 0


def remove(folder: Path) -> None:
    """Removes it with all that is in it, and follows no link; what cannot be removed stays, and nothing is raised.

    A folder's folders are moved up beside it before it goes, so that no path and no stack grows with the depth.
    """
    with contextlib.suppress(OSError):
        top = os.open(folder, _FOLDER)
        try:
            while _shallower(top):
                pass
        finally:
            os.close(top)
        os.rmdir(folder)


def _shallower(top: int) -> bool:
    """Removes files and folders of the first level; what lay in the folders is of the first level now, or gone. False
    where nothing was left, or nothing could be done."""
    done = False
    with os.scandir(top) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        with contextlib.suppress(OSError):
            if is_folder:
                _emptied(top, name)
                os.rmdir(name, dir_fd=top)
            else:
                os.unlink(name, dir_fd=top)
            done = True
    return done


def _emptied(top: int, name: str) -> None:
    try:
        inner = os.open(name, _FOLDER, dir_fd=top)
    except PermissionError:  # made without any right for its owner
        os.chmod(name, 0o700, dir_fd=top)
        inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        with os.scandir(inner) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        for inside, is_folder in entries:
            with contextlib.suppress(OSError):
                if is_folder:
                    os.rename(inside, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
                else:
                    os.unlink(inside, dir_fd=inner)
    finally:
        os.close(inner)
