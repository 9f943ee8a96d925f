"""Baselines of matrix products: cuBLAS, on AMD hipBLASLt, through torch; and torch.compile's own search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from evaluators.baselines import AUTOTUNE, COPY, Baseline, Call, CannotRun, Setting, compiled, plainly

if TYPE_CHECKING:
    from torch import Tensor

_BLAS = "hipBLASLt" if torch.version.hip else "cuBLAS"


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def gemm(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """The bias in f32, as the target has it; eagerly each step is a pass of its own."""
    return F.gelu((a @ b).float() + bias).to(a.dtype)


def gemm_narrow(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """What people write: the bias in the product's dtype, so that cuBLAS adds it."""
    return F.gelu(torch.addmm(bias.to(a.dtype), a, b))


def swiglu(x: Tensor, wg: Tensor, wu: Tensor) -> Tensor:
    return F.silu(x @ wg) * (x @ wu)


def _scaled(setting: Setting) -> Call:
    def run(a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> Tensor:
        found: Tensor = torch._scaled_mm(
            a, b.t(), scale_a=sa[:, None], scale_b=sb[None, :], out_dtype=torch.bfloat16, use_fast_accum=True
        )
        return found

    if not setting.inputs[0].is_cuda:
        raise CannotRun("scaled products of 8-bit floats need a GPU")
    return plainly(run)


def _one_scale(setting: Setting) -> Call:
    one = torch.ones((), device=setting.inputs[0].device)

    def run(a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> Tensor:
        found: Tensor = torch._scaled_mm(
            a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
        return found

    if not setting.inputs[0].is_cuda:
        raise CannotRun("scaled products of 8-bit floats need a GPU")
    return plainly(run)


_PLAIN = [
    Baseline(_BLAS, "torch.matmul", lambda setting: plainly(product)),
    Baseline("max-autotune", "torch.compile, max-autotune", lambda setting: compiled(product, AUTOTUNE), tunes=True),
    COPY,
]

BASELINES = {
    "gemm": [
        Baseline(_BLAS, "torch.matmul, bias and GELU eagerly", lambda setting: plainly(gemm)),
        Baseline(
            f"{_BLAS} addmm", "torch.addmm with a narrow bias, GELU eagerly", lambda setting: plainly(gemm_narrow)
        ),
        Baseline("torch.compile", "the same, compiled", lambda setting: compiled(gemm), tunes=True),
        Baseline("max-autotune", "the same, max-autotune", lambda setting: compiled(gemm, AUTOTUNE), tunes=True),
    ],
    "matmul": _PLAIN,
    "matmul_f16": _PLAIN,
    "matmul_fp8": [
        Baseline("torch rowwise", "torch._scaled_mm with a scale a row and a column", _scaled),
        Baseline(_BLAS, "torch._scaled_mm with one scale: another answer", _one_scale, "limit"),
        COPY,
    ],
    "swiglu": [
        Baseline("eager", f"two products by {_BLAS}, SiLU eagerly", lambda setting: plainly(swiglu)),
        Baseline("torch.compile", "the same, compiled", lambda setting: compiled(swiglu), tunes=True),
        Baseline("max-autotune", "the same, max-autotune", lambda setting: compiled(swiglu, AUTOTUNE), tunes=True),
    ],
}

SCALES = {
    "gemm": lambda sizes: {"b": sizes["k"] ** -0.5},
    "swiglu": lambda sizes: {"wg": sizes["c"] ** -0.5, "wu": sizes["c"] ** -0.5},
}
