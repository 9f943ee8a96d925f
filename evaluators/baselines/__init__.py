"""What programs are held against: the libraries that people use today, and limits that no kernel passes.

One module a target, listed in `MODULES`; importing this package imports no torch. A baseline that cannot run somewhere
says why, and stands in the table with its reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

# target -> the module beside this file that has its BASELINES, and, where inputs need another scale than 1, `scales`
MODULES: Mapping[str, str] = {
    "attention": "attention",
    "cross_entropy": "rows",
    "gemm": "products",
    "layernorm": "rows",
    "matmul": "products",
    "matmul_f16": "products",
    "matmul_fp8": "products",
    "rmsnorm": "rows",
    "softmax": "rows",
    "swiglu": "products",
}

Call = Callable[[int, Sequence["Tensor"]], Any]  # (which set of inputs, that set) -> the output


class CannotRun(Exception):
    """Why a baseline does not run on this machine or at this size."""


@dataclass(frozen=True)
class Setting:
    """One workload as a baseline sees it. inputs: one set of them. bytes: every input and output once."""

    inputs: Sequence[Tensor]
    params: Mapping[str, int | float | bool]
    bytes: int
    sets: int = 1


@dataclass(frozen=True)
class Baseline:
    """make: builds the call for a setting; raises CannotRun, or whatever the library says, where it cannot.

    tunes: it times choices of its own when it is first called, so the card has to be free then. role: "baseline" gives
    the target's answer; "limit" moves the same bytes and gives none; "approximate" gives an
    answer of lower precision, which is compared for speed and never called the best baseline.
    """

    name: str
    about: str
    make: Callable[[Setting], Call]
    role: Literal["baseline", "limit", "approximate"] = "baseline"
    tunes: bool = False


def of(target: str) -> list[Baseline]:
    """The baselines of a built-in target; none for one that avo does not know. Imports torch."""
    if target not in MODULES:
        return []
    module = importlib.import_module(f"evaluators.baselines.{MODULES[target]}")
    found: list[Baseline] = module.BASELINES[target]
    return found


def scales(target: str, sizes: Mapping[str, int]) -> dict[str, float]:
    """Standard deviation of the float inputs that are not of size 1: weights, say. Imports torch."""
    if target not in MODULES:
        return {}
    module = importlib.import_module(f"evaluators.baselines.{MODULES[target]}")
    made: dict[str, float] = getattr(module, "SCALES", {}).get(target, lambda sizes: {})(sizes)
    return made


def plainly(function: Callable[..., Any]) -> Call:
    """A function of the inputs as a call: it does not care which set they are."""
    return lambda place, inputs: function(*inputs)


def compiled(function: Callable[..., Any], mode: str | None = None) -> Call:
    """torch.compile for exactly these sizes; graphs of its own would hide in ours, so it makes none."""
    import torch

    if not torch.cuda.is_available():
        raise CannotRun("torch.compile is measured on a GPU only")
    torch._dynamo.reset()  # else the eighth size silently runs uncompiled
    if mode is None:
        return plainly(torch.compile(function, dynamic=False))
    return plainly(torch.compile(function, dynamic=False, mode=mode))


AUTOTUNE = "max-autotune-no-cudagraphs"


def _copy(setting: Setting) -> Call:
    import torch

    count = max(1, setting.bytes // 4)  # half is read, half is written, two bytes an element
    device = setting.inputs[0].device
    pairs = [
        (
            torch.zeros(count, dtype=torch.bfloat16, device=device),
            torch.empty(count, dtype=torch.bfloat16, device=device),
        )
        for _ in range(max(1, setting.sets))
    ]

    def memcpy(place: int, inputs: Sequence[Tensor]) -> Any:
        source, sink = pairs[place % len(pairs)]
        return sink.copy_(source)

    def kernel(place: int, inputs: Sequence[Tensor]) -> Any:
        source, sink = pairs[place % len(pairs)]
        return torch.neg(source, out=sink)

    if device.type == "cpu":
        return memcpy
    # Copies of less than about 70 MB go another way in the driver, which is slower than a kernel on an H200.
    return min((memcpy, kernel), key=lambda call: _seconds(call, len(pairs), setting.inputs))


def _seconds(call: Call, sets: int, inputs: Sequence[Tensor]) -> float:
    """Roughly: enough to tell which of two is faster."""
    import torch

    best = float("inf")
    for _ in range(3):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for place in range(4 * sets):
            call(place % sets, inputs)
        stop.record()
        stop.synchronize()
        best = min(best, start.elapsed_time(stop) / (4 * sets))
    return best


COPY = Baseline(
    "copy", "the faster of a memcpy and a kernel that moves as many bytes in all", _copy, "limit", tunes=True
)
