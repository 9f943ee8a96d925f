"""Every program of docs/examples, run on the device as it is emitted, held against its meaning.

    python benchmarks/examples_on_device.py --hw h200          # or --dry-run: in the judge's interpreter

Prints for each the relative L2 distance of each output to the rounded meaning, on ragged sizes. Fails where one is
further than 2e-2, or where a program that lowers for the chip does not run.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# multiples of 8, which descriptors need, and of no tile
SIZES = {
    "b": 2, "h": 4, "g": 2, "m": 136, "n": 200, "d": 64, "e": 64, "f": 64, "r": 40, "c": 1000, "k": 264, "v": 1000,
    "s": 72,
}  # fmt: skip
OTHERS: dict[str, dict[str, int]] = {
    "conv2d": {"i": 14, "j": 16, "u": 3, "v": 3, "c": 24, "o": 40},
    "grouped_gemm": {"t": 256, "e": 4},
}
FAR = 2e-2


def run(path: Path, hw: str, folder: Path, dry: bool) -> dict[str, float]:
    import torch

    from dsl.elaborate import elaborate
    from dsl.hardware import hardware
    from dsl.lowering import lower
    from dsl.lowering.launch import extents
    from dsl.parser import parse
    from dsl.rounding import round_to

    program = parse(path.read_text(encoding="utf-8"))
    lowered = lower(program, hardware(hw))
    graph = elaborate(program)[0]
    axes = {a for t in program.algorithm.inputs for a in t.axes or ()}
    base = {
        a: OTHERS.get(path.stem, {}).get(a, SIZES.get(a, 64)) for a in axes if graph.axes[a].fine is None or a == "g"
    }
    known = extents(graph, base)
    rng, arrays, given = np.random.default_rng(0), {}, {}
    device = "cpu" if dry else "cuda"
    kinds: dict[str, Any] = {
        "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2, "int8": torch.int8, "i32": torch.int32, "bool": torch.bool,
    }  # fmt: skip
    for t in program.algorithm.inputs:
        shape, dtype = tuple(known[a] for a in t.axes or ()), t.dtype or "f32"
        if dtype == "i32":
            x = rng.integers(0, min(known.values()), shape)
        elif dtype in ("int8", "bool"):
            x = rng.integers(-9, 10, shape) if dtype == "int8" else rng.random(shape) < 0.7
        else:
            x = round_to(rng.standard_normal(shape), dtype)
        arrays[t.name] = x
        given[t.name] = torch.from_numpy(np.asarray(x)).to(device).to(kinds[dtype])
    params = {p.name: True if p.dtype == "bool" else 0.5 for p in program.algorithm.params if p.default is None}
    if dry:
        return distances(program, arrays, params, interpreted(program, lowered, arrays, params))
    file = folder / f"{path.stem}_module.py"
    file.write_text(lowered.source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, lowered.entry)(*given.values(), **params)
    found = found if isinstance(found, tuple) else (found,)
    return distances(program, arrays, params, [x.double().cpu().numpy() for x in found])


def distances(program: Any, arrays: dict[str, Any], params: dict[str, Any], found: list[Any]) -> dict[str, float]:
    from dsl.meaning import evaluate

    wanted = evaluate(program, arrays, params, mode="rounded")
    return {
        t.name: float(np.linalg.norm(got - wanted[t.name]) / max(float(np.linalg.norm(wanted[t.name])), 1e-6))
        for t, got in zip(program.algorithm.outputs, found, strict=True)
    }


def interpreted(program: Any, lowered: Any, arrays: dict[str, Any], params: dict[str, Any]) -> list[Any]:
    from evaluators.cpu import Tensor, interpret
    from evaluators.inputs import decode, encode
    from evaluators.pool import WorkerPool

    given = [(t.name, t.dtype or "f32") for t in program.algorithm.inputs]
    tensors = [Tensor(n, d, arrays[n].shape, encode(arrays[n], d)) for n, d in given]
    with WorkerPool(1) as pool:
        found = interpret(pool, lowered.interpretable, lowered.entry, tensors, params).outputs
    return [np.asarray(decode(x.data, x.dtype, x.shape), dtype=float) for x in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hw", default="h200")
    parser.add_argument("--dry-run", action="store_true", help="in the judge's interpreter, without a device")
    args = parser.parse_args()
    from dsl.diagnostics import ProgramError

    bad = []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((ROOT / "docs" / "examples").glob("*.avo")):
            try:
                far = run(path, args.hw, Path(folder), args.dry_run)
            except ProgramError as refused:
                print(f"{path.stem:24} not lowered: {refused.diagnostics[0].message[:80]}", flush=True)
                continue
            except Exception as wrong:
                print(f"{path.stem:24} {type(wrong).__name__}: {str(wrong)[:300]}", flush=True)
                bad.append(path.stem)
                continue
            print(f"{path.stem:24} " + ", ".join(f"{n} {x:.1e}" for n, x in far.items()), flush=True)
            bad += [path.stem] * any(not x < FAR for x in far.values())
    print(f"wrong: {', '.join(bad) or 'none'}")
    return bool(bad)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
