"""Runs a target's PyTorch reference in float64. What goes wrong here is the target's fault: a TargetError."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from dsl.syntax import Algorithm
from dsl.wording import counted
from evaluators.inputs import FLOATS, Array
from evaluators.target import Target, TargetError, Workload


def exact(target: Target, algorithm: Algorithm, workload: Workload, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Output name -> value (float64, integer or bool). Inputs are passed in declaration order, floats as float64.

    Raises TargetError where the reference raises, returns no tensors, another number of them, or NaN.
    """
    import torch

    tensors = []
    for tensor in algorithm.inputs:
        # a copy: a reference that works in place must not change what the candidate is judged on
        value = torch.from_numpy(np.array(inputs[tensor.name], order="C"))
        dtype = tensor.dtype or "f32"
        tensors.append(value.double() if dtype in FLOATS else value.to(_integer(dtype)))
    try:
        with torch.no_grad():
            result = target.reference(*tensors, **workload.params)
    except Exception as error:
        what = f"raised {type(error).__name__} on {workload.name}: {error}{_line(error)}"
        raise TargetError(f"target {target.name}: the reference {what}") from error
    values = result if isinstance(result, tuple | list) else (result,)
    names = [t.name for t in algorithm.outputs]
    if not all(isinstance(v, torch.Tensor) for v in values):
        kinds = ", ".join(type(v).__name__ for v in values)
        raise TargetError(f"target {target.name}: the reference must return a tensor or a tuple of them, not {kinds}")
    if len(values) != len(names):
        raise TargetError(
            f"target {target.name}: the reference returns {counted(len(values), 'tensor')}, the program has "
            f"{counted(len(names), 'output')} "
            f"({', '.join(names)})"
        )
    found: dict[str, Array] = {}
    for name, value in zip(names, values, strict=True):
        array = value.detach().cpu()
        found[name] = (array.double() if array.is_floating_point() else array).numpy()
        if found[name].dtype.kind == "f" and np.isnan(found[name]).any():
            raise TargetError(
                f"target {target.name}: the reference returns NaN in {name} on {workload.name}; "
                "give inputs for which it is defined (make_inputs) or mend the reference"
            )
    return found


def _integer(dtype: str) -> Any:
    import torch

    return {"int8": torch.int8, "i32": torch.int32, "bool": torch.bool}[dtype]


def _line(error: Exception) -> str:
    """Where in the person's file: the last frame that is neither torch's nor ours."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and f.filename != __file__]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
