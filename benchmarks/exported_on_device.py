"""A package of `avo export` on the chip that it is for: does its kernel run there, is it right, how fast beside cuDNN.

python benchmarks/exported_on_device.py FOLDER     a package of attention; run it where avo cannot be imported
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def seconds(f: Callable[[], Any], count: int) -> float:
    import torch

    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    a.record()
    for _ in range(count):
        f()
    b.record()
    b.synchronize()
    return float(a.elapsed_time(b)) / 1e3 / count


def main() -> int:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    folder = Path(sys.argv[1]).resolve()
    (name,) = (x.parent.name for x in folder.glob("*/facts.py"))
    sys.path.insert(0, str(folder))
    package = importlib.import_module(name)
    dispatch, facts = (importlib.import_module(f"{name}.{part}") for part in ("dispatch", "facts"))
    print(f"{name}: kernels for {facts.ARCH}, times {facts.MODE}; avo can be imported: {_avo()}", flush=True)
    compiled = torch.compile(package.attention)
    wrong = 0
    for row in facts.TABLE:
        n, params = row["sizes"], row["params"]
        q, k, v = (
            torch.randn(*(n[a] for a in axes), device="cuda", dtype=torch.bfloat16) for _, axes, _ in facts.INPUTS
        )
        chosen = dispatch.choose([q, k, v], params)

        def theirs(q: Any = q, k: Any = k, v: Any = v, causal: bool = params["causal"]) -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        def ours(q: Any = q, k: Any = k, v: Any = v, causal: bool = params["causal"]) -> Any:
            return package.attention(q, k, v, causal)

        right = theirs().float()
        apart = [float((f(q, k, v, params["causal"]).float() - right).norm() / right.norm()) for f in (ours, compiled)]
        rounds = []
        for r in range(6):
            pair = {f: seconds(f, 12) for f in ((theirs, ours) if r % 2 else (ours, theirs))}
            rounds.append((pair[theirs], pair[ours]))
        mine, library = (statistics.median(x[i] for x in rounds[1:]) for i in (1, 0))
        flops = 4 * n["b"] * n["h"] * n["m"] * n["n"] * n["d"] * (0.5 if params["causal"] else 1)
        good = chosen is not None and max(apart) < 6e-3
        wrong += not good
        print(
            f"{n} {params}: kernel {chosen}, apart from cuDNN {apart[0]:.1e}, through torch.compile {apart[1]:.1e}; "
            f"{flops / mine / 1e12:.0f} TFLOP/s, cuDNN {flops / library / 1e12:.0f} ({library / mine:.3f})"
            f"{'' if good and math.isfinite(mine) else '  <-- not right'}",
            flush=True,
        )
    return bool(wrong)


def _avo() -> bool:
    return importlib.util.find_spec("avo") is not None


if __name__ == "__main__":
    sys.exit(main())
