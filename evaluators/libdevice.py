"""What CUDA's libdevice computes, for kernels that run in the interpreter: each function's exact value, rounded once.

Triton's interpreter has none of them, although they are the documented way to tanh, erf and their like. What is not in
the table (directed roundings, words taken apart) raises NotImplementedError with its name: only a device can judge it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def _torch(function: Callable[..., torch.Tensor]) -> Callable[..., NDArray]:
    return lambda *args: function(*(torch.from_numpy(np.array(a, order="C")) for a in args)).numpy()


def _round(x: NDArray) -> NDArray:
    """To the nearest whole number, halves away from zero."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _remainder(x: NDArray, y: NDArray) -> NDArray:
    return np.asarray(x - y * np.rint(x / y))


def _norm(*args: NDArray) -> NDArray:
    return np.asarray(np.sqrt(sum(a * a for a in args)))


def _ldexp(x: NDArray, n: NDArray) -> NDArray:
    return np.ldexp(x, n.astype(np.int64))


# By the name without its prefix `__nv_` and its suffix of the dtype; arguments are float64 where they are floats.
_OF_FLOATS: dict[str, Callable[..., NDArray]] = {
    **{name: getattr(np, name) for name in ("fabs", "floor", "ceil", "trunc", "rint", "sqrt", "cbrt", "hypot", "fmod")},
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "copysign")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    **{name: _torch(getattr(torch.special, name)) for name in ("erf", "erfc", "erfinv", "erfcx")},
    **{name: _torch(getattr(torch.special, f"bessel_{name}")) for name in ("j0", "j1", "y0", "y1")},
    **{f"cyl_bessel_{name}": _torch(getattr(torch.special, name)) for name in ("i0", "i1")},
    "nearbyint": np.rint,
    "round": _round,
    "llrint": np.rint,
    "llround": _round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "exp10": lambda x: np.power(10.0, x),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)),
    "erfcinv": _torch(lambda x: -torch.special.ndtri(x / 2) * 0.5**0.5),
    "lgamma": _torch(torch.lgamma),
    "tgamma": lambda x: _gamma(x),
    "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _torch(torch.special.ndtri),
    "logb": lambda x: np.frexp(x)[1] - 1.0,
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1),
    "pow": np.power,
    "powi": np.power,
    "remainder": _remainder,
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(np.isnan(x) | np.isnan(y), np.nan, 0)),
    "ldexp": _ldexp,
    "scalbn": _ldexp,
    "fma": lambda x, y, z: x * y + z,
    "fdivide": lambda x, y: x / y,
    **dict.fromkeys(("norm3d", "norm4d"), _norm),
    **dict.fromkeys(("rnorm3d", "rnorm4d"), lambda *args: 1 / _norm(*args)),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rcp": lambda x: 1 / x,
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "signbit": np.signbit,
}

_WHOLE = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_AS_BITS = {
    "float_as_int",
    "float_as_uint",
    "int_as_float",
    "uint_as_float",
    "double_as_longlong",
    "longlong_as_double",
}


def _gamma(x: NDArray) -> NDArray:
    size = np.exp(_OF_FLOATS["lgamma"](x))
    return np.where((x < 0) & (np.floor(x) % 2 != 0), -size, size)


def _bits(x: NDArray) -> NDArray:
    """Of whole numbers, one a byte along a new last axis, the lowest first."""
    size = 8 * x.dtype.itemsize
    unsigned = np.asarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))[..., None]
    return (unsigned >> np.arange(size, dtype=unsigned.dtype)) & 1


def _of_numbers(name: str) -> Callable[..., NDArray] | None:
    """Functions of whole numbers."""
    if name in ("abs", "llabs"):
        return np.abs
    if name in ("popc", "popcll"):
        return lambda x: _bits(x).sum(-1)
    if name in ("clz", "clzll"):
        return lambda x: np.where(_bits(x).any(-1), _bits(x)[..., ::-1].argmax(-1), 8 * x.dtype.itemsize)
    if name in ("ffs", "ffsll"):
        return lambda x: np.where(_bits(x).any(-1), _bits(x).argmax(-1) + 1, 0)
    if name in ("mulhi", "umulhi"):
        return lambda x, y: (x.astype(np.int64) * y) >> 32 if name == "mulhi" else (x.astype(np.uint64) * y) >> 32
    return None


def _float_function(name: str) -> Callable[..., NDArray] | None:
    """With the suffixes taken off in which libdevice says dtype, rounding and haste."""
    if to := re.fullmatch("(?:float|double)2(?:u?int|u?ll)_(r[nzdu])", name):
        return _WHOLE[to[1]]
    if re.fullmatch("(?:u?int|u?ll)2(?:float|double)_rn", name):
        return lambda x: x
    name = name.removeprefix("fast_")
    if nearest := re.fullmatch("[fd]?(add|sub|mul|div|rcp|sqrt|rsqrt|fma)f?_rn", name):
        name = nearest[1]
    for known in (name, name.removesuffix("f"), name.removesuffix("d")):
        if known in _OF_FLOATS:
            return _OF_FLOATS[known]
    return None


def apply(symbol: str, args: list[NDArray], wanted: np.dtype) -> NDArray:
    """The value of `__nv_...` for arrays of one shape, in the dtype `wanted`. Raises NotImplementedError."""
    name = symbol.removeprefix("__nv_")
    if name in _AS_BITS:
        return np.array(args[0], order="C").view(wanted)
    if (whole := _of_numbers(name)) is not None:
        return np.asarray(whole(*args)).astype(wanted)
    function = _float_function(name) if symbol.startswith("__nv_") else None
    if function is None:
        raise NotImplementedError(f"the interpreter has no {symbol}; only a device can judge a kernel that calls it")
    with np.errstate(all="ignore"):
        found = np.asarray(function(*(a.astype(np.float64) for a in args)))
        if wanted.kind in "iu" and found.dtype.kind == "f":  # what is beyond the ends becomes the ends, NaN zero
            ends = np.iinfo(wanted)
            found = np.where(np.isnan(found), 0, found)
            inside = np.clip(found, float(ends.min), float(ends.max))
            return np.where(found >= float(ends.max), ends.max, inside.astype(wanted, casting="unsafe"))
        return found.astype(wanted)


def install(semantic: Any) -> None:
    """Has libdevice's functions run outside of compiled kernels, under both names by which kernels know them; for the
    life of the process."""
    import triton.language as tl
    from triton.language.extra import libdevice as named
    from triton.language.extra.cuda import libdevice as real

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **{**kwargs, "_semantic": semantic})

        call.__name__, call.__module__ = function.__name__, function.__module__
        return call

    def missing(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"the interpreter has no libdevice.{name}; CUDA's libdevice has none")

        return call

    for name, member in list(vars(real).items()):
        if tl.core.is_builtin(member):
            setattr(real, name, bound(member))
    for name, stub in list(vars(named).items()):
        if callable(stub) and getattr(stub, "__module__", "") == named.__name__:
            setattr(named, name, getattr(real, name, None) or missing(name))
