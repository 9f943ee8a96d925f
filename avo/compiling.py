"""Whether kernels can be compiled and run here, told before anything needs it."""

from __future__ import annotations

import sys
from importlib import util

from avo.errors import HarnessUnavailable


def has_triton() -> bool:
    """Triton is installed. Finds it without importing it."""
    try:
        return util.find_spec("triton") is not None
    except (ImportError, ValueError):
        return False


def has_torch() -> bool:
    try:
        return util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def require_triton(what: str) -> None:
    """Raises HarnessUnavailable, which says what is missing and what works without it."""
    if has_triton():
        return
    get = (
        "pip install 'triton>=3.6'"
        if sys.platform == "linux"
        else "it has wheels for Linux only: use WSL2 or a container"
    )
    raise HarnessUnavailable(
        f"{what} needs Triton, which is not installed ({get}). "
        "check, fmt, knobs, sol, lower --emit triton, log, show, diff and report work without it"
    )


def require_torch(what: str) -> None:
    """Raises HarnessUnavailable, which says what is missing."""
    if not has_torch():
        raise HarnessUnavailable(f"{what} needs torch, which is not installed: pip install 'torch>=2.9'")
