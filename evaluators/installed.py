"""Versions of installed packages by the names that people know them by."""

from __future__ import annotations

from importlib import metadata

# ROCm's builds of Triton are distributions of another name.
_OTHERWISE = {"triton": ("triton-rocm", "pytorch-triton-rocm", "pytorch-triton")}


def version(package: str) -> str | None:
    """The version of a distribution; None where it is not installed."""
    for name in (package, *_OTHERWISE.get(package, ())):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
