"""Guard zones and poison around what a candidate allocates on a device: what it did not write, and where it strayed."""

from __future__ import annotations

from typing import Any

import torch

from evaluators.guards import poison

_ZONE = 4096


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    """Flat bytes of it."""
    return x.contiguous().reshape(-1).view(torch.uint8)


class Guards:
    """Has `torch.empty` give poison between guard zones while it is entered, and looks at the zones afterwards."""

    def __init__(self) -> None:
        self._zones: list[tuple[torch.Tensor, int, int, int]] = []
        self._empty: Any = None

    def __enter__(self) -> Guards:
        self._empty = torch.empty
        torch.empty = self._guard
        return self

    def __exit__(self, *_: object) -> None:
        torch.empty = self._empty

    def _guard(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        wanted: torch.Tensor = self._empty(*args, **kwargs)
        if wanted.layout != torch.strided or wanted.numel() == 0 or not wanted.is_contiguous():
            return wanted
        size, byte = wanted.numel() * wanted.element_size(), poison(wanted.dtype)
        shape, dtype, device = wanted.shape, wanted.dtype, wanted.device
        del wanted
        end = _ZONE + size
        whole = self._empty((end + _ZONE + -size % 16,), dtype=torch.uint8, device=device).fill_(byte)
        self._zones.append((whole, _ZONE, end, byte))
        return whole[_ZONE:end].view(dtype).reshape(shape)

    def strayed(self) -> list[str]:
        """The outputs around which something was written."""
        return [
            f"output {i}"
            for i, (whole, begin, end, byte) in enumerate(self._zones)
            if bool((whole[:begin] != byte).any()) or bool((whole[end:] != byte).any())
        ]

    def unwritten(self, x: torch.Tensor) -> int:
        """Elements that still hold the poison."""
        pointer = x.untyped_storage().data_ptr()
        known = [z for z in self._zones if z[0].data_ptr() == pointer]
        if not known or x.dtype == torch.bool:
            return 0
        content = bytes_of(x).view(-1, x.element_size())
        return int((content == known[0][3]).all(dim=1).sum())
