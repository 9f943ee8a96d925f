"""How far each elementwise function of the language is off in f32 as emitted, against float64.

    python benchmarks/function_errors.py --hw h200 --json benchmarks/data/function_errors_h200.json

Each function becomes a program, is lowered, and runs over some ten million values of its domain on the device (over
fewer, in Triton's interpreter, with --hw cpu). `relative` is the largest |y - f(x)| / |f(x)|, of results that are
normal numbers; `mixed` the largest |y - f(x)| / max(1, |f(x)|). docs/language.md states them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

LOWEST = 2.0**-126  # the least normal number
# where the result is a normal f32 number, and what people feed in
DOMAINS: dict[str, tuple[float, float]] = {
    "exp": (-87.0, 88.0), "exp2": (-126.0, 127.9), "log": (LOWEST, 2.0**127), "log2": (LOWEST, 2.0**127),
    "sqrt": (LOWEST, 2.0**127), "rsqrt": (LOWEST, 2.0**127), "tanh": (-20.0, 20.0), "sin": (-1000.0, 1000.0),
    "cos": (-1000.0, 1000.0), "sigmoid": (-80.0, 80.0), "silu": (-80.0, 80.0), "softplus": (-80.0, 80.0),
    "erf": (-8.0, 8.0), "gelu": (-20.0, 20.0), "gelu_tanh": (-20.0, 20.0),
}  # fmt: skip
ROW = 1 << 12


def program(function: str) -> str:
    return f"kernel f\nin x[r c] f32\nout y[r c] f32\ny = {function}(x)\n\nschedule\ntile r=1 c=all\ngrid r\n"


def values(function: str, rows: int, torch: Any) -> Any:
    """Half of them even over the domain (or around 1 where it has no bound), half even in their logarithm."""
    low, high = DOMAINS[function]
    wide = high > 1e30
    random = torch.Generator().manual_seed(1)
    even = torch.rand(rows // 2 * ROW, generator=random, dtype=torch.float64)
    even = even * 3.5 + 0.25 if wide else low + even * (high - low)
    powers = torch.rand(rows // 2 * ROW, generator=random, dtype=torch.float64)
    top = 126.9 if wide else math.log2(high)
    spread = torch.exp2(powers * (top + (126 if wide else 30)) - (126 if wide else 30))
    if low < 0:
        spread = spread * torch.sign(torch.rand(spread.shape, generator=random) - 0.5)
        spread = spread.clamp(low, high)
    return torch.cat([even, spread]).reshape(rows // 2 * 2, ROW).float()


def reference(function: str, x: Any, torch: Any) -> Any:
    x = x.double()
    F = torch.nn.functional
    named = {
        "sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu, "erf": torch.erf,
        "gelu_tanh": lambda v: v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)),
        "softplus": lambda v: torch.logaddexp(v, torch.zeros_like(v)),
    }  # fmt: skip
    if function == "gelu":  # the tail as a product: 1 + erf cancels in float64 too
        return 0.5 * x * torch.special.erfc(-x / math.sqrt(2))
    return named.get(function, getattr(torch, function, None))(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hw", default="h200", help="a chip of avo, run on here; cpu: Triton's interpreter")
    parser.add_argument("--rows", type=int, default=0, help=f"rows of {ROW} values")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.hw == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch
    import triton

    from dsl.hardware import hardware
    from dsl.lowering import lower
    from dsl.parser import parse
    from evaluators.device import held

    device = "cpu" if args.hw == "cpu" else "cuda"
    rows = args.rows or (32 if device == "cpu" else 1 << 12)
    found: dict[str, dict[str, float]] = {}
    print(f"{'function':10} {'relative':>10} {'at':>12} {'mixed':>10} {'at':>12}")
    own = held() if device == "cuda" else contextlib.nullcontext()
    with own, tempfile.TemporaryDirectory() as folder:
        for function in DOMAINS:
            lowered = lower(parse(program(function)), hardware("h200" if args.hw == "cpu" else args.hw))
            path = Path(folder) / f"{function}_module.py"
            path.write_text(lowered.source)
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            x = values(function, rows, torch).to(device)
            y, exact = getattr(module, lowered.entry)(x).double(), reference(function, x, torch)
            off, size = (y - exact).abs(), exact.abs()
            assert torch.isfinite(off).all(), function
            relative = torch.where(size >= LOWEST, off / size, 0.0)
            mixed = off / size.clamp(min=1.0)
            i, j = int(relative.argmax()), int(mixed.argmax())
            found[function] = {"relative": float(relative.max()), "mixed": float(mixed.max())}
            f = found[function]
            at, there = float(x.flatten()[i]), float(x.flatten()[j])
            print(f"{function:10} {f['relative']:10.2e} {at:12.4g} {f['mixed']:10.2e} {there:12.4g}", flush=True)
    if args.json:
        where = torch.cuda.get_device_name() if device == "cuda" else "the interpreter"
        facts = {"device": where, "torch": torch.__version__, "triton": triton.__version__, "values": rows * ROW}
        args.json.write_text(json.dumps({**facts, "errors": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
