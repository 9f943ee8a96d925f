"""Runs PyTorch code in float64, whatever dtypes it names."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


class Float64(TorchDispatchMode):
    """Under it an operator that is asked for a narrower float dtype gives float64, and meets only float64 operands."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _FLOATS:
            kwargs["dtype"] = torch.float64
        return function(*[torch.float64 if a in _FLOATS and isinstance(a, torch.dtype) else a for a in args], **kwargs)
