"""The compile cache is kept within its size, oldest first, and what a killed run left goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from evaluators.compile_cache import EVERY, CompileCache


def kernel(cache: CompileCache, name: str, size: int, used: float) -> Path:
    path = cache.folder / name
    path.mkdir()
    (path / "code.cubin").write_bytes(b"x" * size)
    os.utime(path / "code.cubin", (used, used))
    return path


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache = CompileCache(limit_bytes=1000, where=tmp_path)
    paths = [kernel(cache, f"k{n}", 300, 1e9 + 1000 * n) for n in range(3)]
    assert cache.trim() == 900 and all(p.exists() for p in paths)
    paths.append(kernel(cache, "k3", 300, 1e9 + 9000))
    assert cache.trim() == 600
    assert [p.exists() for p in paths] == [False, False, True, True]
    cache.close()
    assert not cache.folder.exists()


def test_folders_of_killed_runs_are_swept(tmp_path: Path) -> None:
    dead = tmp_path / "avo-compiled-4194303-abc"  # beyond the largest process number
    foreign = tmp_path / "avo-compiled-notes"
    for path in (dead, foreign):
        path.mkdir()
    mine = CompileCache(where=tmp_path)
    other = CompileCache(where=tmp_path)
    assert not dead.exists() and foreign.exists() and mine.folder.exists() and other.folder.exists()


def test_the_size_is_looked_at_now_and_then(tmp_path: Path) -> None:
    cache = CompileCache(limit_bytes=100, where=tmp_path)
    path = kernel(cache, "k", 300, 1e9)
    for _ in range(EVERY - 1):
        cache.used()
    assert path.exists()
    cache.used()
    deadline = time.monotonic() + 20
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not path.exists()
