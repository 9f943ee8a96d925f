"""Runs PyTorch code in float64, whatever dtypes it names."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)

# What rms_norm adds where no eps is named: float32's, for narrower inputs too, since it computes in float32.
NORM_EPS = 2.0**-23


class NormEps(TorchFunctionMode):
    """Under it rms_norm without an eps adds what it adds for the dtypes that the function names, not float64's."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.rms_norm, torch.nn.functional.rms_norm):
            if len(args) < 4 and kwargs.get("eps") is None:
                kwargs["eps"] = NORM_EPS
            elif len(args) == 4 and args[3] is None:
                args = (*args[:3], NORM_EPS)
        return function(*args, **kwargs)


class Float64(TorchDispatchMode):
    """Under it an operator that is asked for a narrower float dtype gives float64, and meets only float64 operands."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _FLOATS:
            kwargs["dtype"] = torch.float64
        return function(*[torch.float64 if a in _FLOATS and isinstance(a, torch.dtype) else a for a in args], **kwargs)
