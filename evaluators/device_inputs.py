"""Inputs, right answers and errors on the device itself: a whole workload never crosses to the host.

The distributions are those of `evaluators.inputs` and the figures those of `evaluators.tolerance`, in torch. The right
answer is the target's reference in float64; the honest one is the same with both operands of every matrix product
rounded to the inputs' narrow dtype, as a kernel on matrix units has to, and their results too where the program names
a narrow dtype inside, of which the reference knows nothing. Runs in workers; `limits` in the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evaluators.cpu import TORCH_DTYPES

Job = Mapping[str, Any]
_NARROW = ("bf16", "f16", "e4m3", "e5m2")
_UNITS = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # as `tolerance.FLOORS`
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")


def torch_dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, TORCH_DTYPES[name])
    return found


# Drawing ------------------------------------------------------------------------------------------------------------


def draw(
    shape: tuple[int, ...], dtype: str, distribution: str, rng: torch.Generator, device: str, index: int | None = None
) -> torch.Tensor:
    """One tensor of that dtype. index: the extent that an integer input indexes; None where it holds plain values."""
    if dtype in ("i32", "int8", "i64", "u8"):
        return _integers(shape, dtype, distribution, rng, device, index)
    if dtype == "bool":
        chance = 0.95 if distribution == "near_constant" else 0.5
        return torch.rand(shape, generator=rng, device=device) < chance

    def normal(*extent: int) -> torch.Tensor:
        return torch.randn(extent, generator=rng, device=device)

    def sign(*extent: int) -> torch.Tensor:
        return torch.randint(0, 2, extent, generator=rng, device=device).float() * 2 - 1

    values = normal(*shape)
    if distribution == "outlier_channels" and shape:
        values += 0.5 * normal(shape[-1])
        chosen = torch.randperm(shape[-1], generator=rng, device=device)[: max(1, shape[-1] // 32)]
        values[..., chosen] = 10.0 * (values[..., chosen] + sign(len(chosen)))
    elif distribution == "large_logits":
        rows = (*shape[:-1], 1) if shape else ()
        values *= torch.exp2(3.0 * torch.rand(rows, generator=rng, device=device))
    elif distribution == "near_constant":
        values = 4.0 * sign(1)[0] + 0.25 * values
    return values.to(torch_dtype(dtype))


def _integers(
    shape: tuple[int, ...], dtype: str, distribution: str, rng: torch.Generator, device: str, index: int | None
) -> torch.Tensor:
    def integers(low: int, high: int, extent: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(low, high, extent, generator=rng, device=device)

    if index is not None:
        if distribution == "near_constant":
            values = integers(0, index, (1,)).expand(shape).clone()
        elif distribution == "large_logits":
            values = integers(0, 2, shape) * (index - 1)
        else:
            values = integers(0, index, shape)
    else:
        bound = 127 if dtype == "int8" else 8
        values = integers(bound - 3 if distribution == "near_constant" else -bound, bound + 1, shape)
    return values.to(torch_dtype(dtype))


def inputs_of(job: Job, device: str, load: Callable[[Mapping[str, str]], Any]) -> list[torch.Tensor]:
    """The inputs of a job in declaration order; by the target's own `make_inputs` where it has one."""
    if job["make_inputs"] is None:
        rng = torch.Generator(device=device).manual_seed(job["seed"])
        return [
            draw(tuple(t["shape"]), t["dtype"], job["distribution"], rng, device, t["index"]) for t in job["inputs"]
        ]
    from evaluators.target import Workload

    sizes = {axis: job["sizes"][axis] for axis in job["given"]}
    made = load(job["make_inputs"])(
        Workload(sizes, job["params"]), job["distribution"], np.random.default_rng(job["seed"])
    )
    found = []
    for t in job["inputs"]:
        values = torch.from_numpy(np.ascontiguousarray(made[t["name"]])).to(device)
        found.append(values.to(torch_dtype(t["dtype"])).contiguous())
    return found


def shifted(inputs: list[torch.Tensor], turn: int) -> list[torch.Tensor]:
    """Other inputs of the same kind: everything moved by an odd number of elements."""
    return [x.reshape(-1).roll(turn * 12345 + 1).reshape(x.shape) if x.numel() > 1 else x.clone() for x in inputs]


# Right answers ------------------------------------------------------------------------------------------------------


class _Rounding(TorchDispatchMode):
    """Rounds the operands of matrix products to a narrow dtype, and their results to another where there is one;
    everything else stays float64."""

    def __init__(self, dtype: torch.dtype, inside: torch.dtype | None) -> None:
        super().__init__()
        self._dtype, self._inside = dtype, inside

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in _PRODUCTS:
            start = len(args) - 2 if func._schema.name in _PRODUCTS[:2] else 1
            args = tuple(_rounded(a, self._dtype) if start <= i < start + 2 else a for i, a in enumerate(args))
            found = func(*args, **(kwargs or {}))
            return found if self._inside is None else _rounded(found, self._inside)
        return func(*args, **(kwargs or {}))


def _rounded(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype).to(value.dtype) if value.dtype == torch.float64 else value


def answers(
    job: Job, inputs: list[torch.Tensor], cut: Mapping[str, list[int]], reference: Callable[..., Any]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(oracle, honest) of each output on one slice, both float64 (integers stay what they are)."""
    parts = [take(x, t["axes"], cut) for x, t in zip(inputs, job["inputs"], strict=True)]
    wide = [x.double() if x.is_floating_point() else x for x in parts]
    narrow = next((t["dtype"] for t in job["inputs"] if t["dtype"] in _NARROW), None)
    with torch.no_grad(), torch.device(inputs[0].device):
        exact = _tuple(reference(*wide, **job["params"]))
        if narrow is None:
            loose = exact
        else:
            inside = job.get("inside")
            with _Rounding(torch_dtype(narrow), torch_dtype(inside) if inside else None):
                loose = _tuple(reference(*wide, **job["params"]))
    found = []
    for right, near, t in zip(exact, loose, job["outputs"], strict=True):
        floating = torch_dtype(t["dtype"]).is_floating_point
        found.append((right, near.to(torch_dtype(t["dtype"])).double() if floating else near))
    return found


def take(tensor: torch.Tensor, axes: list[str], cut: Mapping[str, list[int]]) -> torch.Tensor:
    """The part of a tensor that a slice names."""
    for place, axis in enumerate(axes):
        if axis in cut:
            begin, end = cut[axis]
            tensor = tensor.narrow(place, begin, end - begin)
    return tensor


def _tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


# Errors -------------------------------------------------------------------------------------------------------------


def figures(got: torch.Tensor, oracle: torch.Tensor, honest: torch.Tensor, block: int, small_row: float) -> dict:
    """All that `evaluators.errors.judge` needs about one output: plain numbers, whatever its size."""
    if not got.is_floating_point():
        wrong = got != oracle.to(got.dtype)
        return {"exact": True, "different": int(wrong.sum()), "of": got.numel()}
    unit = _UNITS.get(got.dtype)
    got = got.double()
    for what, test in (("NaN", torch.isnan), ("inf", torch.isposinf), ("-inf", torch.isneginf)):
        ours, theirs = test(got), test(honest)
        wrong = ours != theirs
        if bool(wrong.any()):
            place = _place(wrong, int(wrong.reshape(-1).to(torch.uint8).argmax()))
            return {"nonfinite": what, "ours": int(ours.sum()), "theirs": int(theirs.sum()), "at": place}
    if not bool(torch.isfinite(honest).all() & torch.isfinite(oracle).all()):
        finite = torch.isfinite(honest) & torch.isfinite(oracle)
        got, oracle, honest = (torch.where(finite, x, 0.0) for x in (got, oracle, honest))
    size = float(oracle.square().mean().sqrt())
    found: dict[str, Any] = {"size": size, "top": float(got.abs().max()), "count": got.numel()}
    if size == 0.0:
        return found
    error, honest_error = got - oracle, honest - oracle
    largest = error.abs()
    found |= {
        "l2": [float(error.square().mean().sqrt()) / size, float(honest_error.square().mean().sqrt()) / size],
        "largest": [float(largest.max()), float(honest_error.abs().max())],
        "largest_at": _place(largest, int(largest.argmax())),
    }
    rows: list[tuple[str, int, tuple[torch.Tensor, ...]]] = [
        ("row", -1, (error, honest_error, oracle)),
        ("column", -2, (error, honest_error, oracle)),
    ]
    if oracle.ndim < 2:
        pad = -oracle.numel() % block
        cut = tuple(
            torch.nn.functional.pad(x.reshape(-1), (0, pad)).reshape(-1, block) for x in (error, honest_error, oracle)
        )
        rows = [("block", -1, cut)]
    for name, axis, (e, h, o) in rows:
        norm = o.square().mean(axis).sqrt().clamp(min=small_row * size)
        ours, theirs = (x.square().mean(axis).sqrt() / norm for x in (e, h))
        median = float(theirs.reshape(-1).quantile(0.5)) if theirs.numel() < 1 << 24 else float(theirs.median())
        found[name] = [float(ours.max()), float(theirs.max()), median]
        found[f"{name}_at"] = _place(ours, int(ours.argmax()))
    lean = (got - honest) * torch.sign(oracle)
    if unit is not None:
        found["beyond"] = float((honest_error.abs() - unit * oracle.abs()).clamp(min=0.0).mean())
    found["lean"] = [float(lean.mean()), float(lean.std(correction=0)), float(oracle.abs().mean())]
    return found


def _place(tensor: torch.Tensor, flat: int) -> list[int]:
    return [int(i) for i in np.unravel_index(flat, tuple(tensor.shape))]
