"""The folder through which compile workers hand machine code to a device's worker: swept, and kept within a size.

Triton writes a folder a kernel (a few hundred KB with its intermediate texts). It is a run's own, for a candidate of
another run must not leave anything in it, and goes with the run; what a killed run left goes when the next one starts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

PREFIX = "avo-compiled-"
LIMIT_BYTES = 4 << 30
KEEP = 0.75  # of the limit, once it is passed
EVERY = 64  # candidates between two looks at its size


class CompileCache:
    """Any thread may call. limit_bytes: what its files may hold; the longest unused kernels go first."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES, where: Path | None = None) -> None:
        parent = where or Path(tempfile.gettempdir())
        sweep(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
        self._limit = limit_bytes
        self._count = 0
        self._lock = threading.Lock()

    def used(self) -> None:
        """A candidate more: now and then the size is looked at, in the background."""
        with self._lock:
            self._count += 1
            due = self._count % EVERY == 0
        if due:
            threading.Thread(target=self.trim, name="avo-cache", daemon=True).start()

    def trim(self) -> int:
        """Brings it to KEEP of the limit where it is above the limit; returns the bytes that it holds then."""
        kernels = sorted((_newest(path), _size(path), path) for path in self.folder.iterdir() if path.is_dir())
        total = sum(size for _, size, _ in kernels)
        if total <= self._limit:
            return total
        for _, size, path in kernels:
            if total <= KEEP * self._limit:
                break
            shutil.rmtree(path, ignore_errors=True)
            total -= size
        return total

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Removes the folders of runs that were killed."""
    for path in parent.glob(f"{PREFIX}*-*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if not owner.isdigit():
            continue
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue


def _files(folder: Path) -> list[os.stat_result]:
    found = []
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                found.append(os.stat(os.path.join(root, name)))
            except OSError:  # it has just been replaced
                continue
    return found


def _size(folder: Path) -> int:
    return sum(s.st_size for s in _files(folder))


def _newest(folder: Path) -> float:
    """When anything of it was last read or written."""
    return max((max(s.st_atime, s.st_mtime) for s in _files(folder)), default=0.0)
