"""What a device's worker does once before its first call, so that no candidate waits for libraries to load.

A spare that takes over after a fault would else spend seconds on it: the products, float64 and reductions of the right
answers, Triton's launcher, graphs. One tiny candidate goes through a whole first look.
"""

from __future__ import annotations

import contextlib
from typing import Any

SOURCE = """
import torch
import triton
import triton.language as tl

@triton.jit
def copy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)

def rehearse(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), B=128)
    return y
"""
ROWS, COLUMNS = 64, 96


def reference(x: Any) -> Any:
    """The identity, by way of what references are made of."""
    import torch

    square = torch.eye(x.shape[-1], dtype=x.dtype)
    hidden = torch.ones(x.shape, dtype=torch.bool).tril()
    weights = torch.softmax(x.masked_fill(~hidden, float("-inf")), dim=-1)
    return x @ square + 0.0 * weights.nan_to_num()


def job(distribution: str) -> dict[str, Any]:
    tensor = {"dtype": "bf16", "axes": ["r", "c"], "shape": [ROWS, COLUMNS]}
    return {
        "workload": f"rehearsal {distribution}",
        "distribution": distribution,
        "seed": 1,
        "rotate": False,
        "sizes": {"r": ROWS, "c": COLUMNS},
        "given": ["r", "c"],
        "params": {},
        "inputs": [{"name": "x", "index": None, **tensor}],
        "outputs": [{"name": "y", **tensor}],
        "slices": [{}],
        "of": 1,
        "reference": {"module": __name__, "file": __file__, "name": "reference"},
        "make_inputs": None,
    }


def rehearse() -> dict[str, Any]:
    """A first look at SOURCE; its answer, for the tests. What goes wrong here is no reason not to serve."""
    from evaluators import device_tasks
    from evaluators.sustained import LOAD

    jobs = [job(d) for d in ("normal", "outlier_channels", "large_logits", "near_constant")]
    payload = {"arm": {"source": SOURCE, "entry": "rehearse"}, "checks": jobs, "timed": jobs[:1], "pick": 0}
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        LOAD.rehearse()
        # The task itself, not what surrounds it: a spare must not put load on a card that another is timing on.
        found, _ = device_tasks.screen_task.__wrapped__(payload, ())  # type: ignore[attr-defined]
    device_tasks.forget()
    return found
