"""The built-in jobs. Listing them imports neither torch nor a target's module; `target(name)` imports that one."""

from __future__ import annotations

import importlib
from pathlib import Path

from dsl.diagnostics import nearest
from evaluators.target import Target, TargetError

BUILTIN: dict[str, str] = {
    "attention": "evaluators.targets.attention:TARGET",
    "cross_entropy": "evaluators.targets.cross_entropy:TARGET",
    "gemm": "evaluators.targets.gemm:TARGET",
    "layernorm": "evaluators.targets.layernorm:TARGET",
    "matmul": "evaluators.targets.matmul:TARGET",
    "matmul_f16": "evaluators.targets.matmul_f16:TARGET",
    "matmul_fp8": "evaluators.targets.matmul_fp8:TARGET",
    "rmsnorm": "evaluators.targets.rmsnorm:TARGET",
    "softmax": "evaluators.targets.softmax:TARGET",
    "swiglu": "evaluators.targets.swiglu:TARGET",
}


def target(name: str) -> Target:
    """The built-in target of that name. Raises TargetError, with the nearest name, for an unknown one."""
    if name not in BUILTIN:
        near = nearest(name, list(BUILTIN))
        hint = f"did you mean '{near}'? " if near else ""
        raise TargetError(f"unknown target '{name}'; {hint}known: {', '.join(BUILTIN)}")
    module, _, attribute = BUILTIN[name].partition(":")
    found: Target = getattr(importlib.import_module(module), attribute)
    return found


def seed_text(name: str) -> str:
    """The naive program `NAME.avo` beside this file."""
    return (Path(__file__).parent / f"{name}.avo").read_text(encoding="utf-8")
