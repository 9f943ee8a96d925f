"""Every program of docs/examples, and imported PyTorch functions, run on the device as they are emitted.

    python benchmarks/examples_on_device.py --hw h200          # or --dry-run: in the judge's interpreter

Prints for each example the relative L2 distance of each output to the rounded meaning, on ragged sizes; for each
function of tests/avo/plain_functions.py that imports, that of the program's outputs to the function in float64. Fails
where one is further than 2e-2 (4e-2 for an output in e4m3), where a program that lowers for the chip does not run, or
where a function is refused that should import, or imports though it should be refused (`REFUSED` of that file); what
went wrong is printed in full at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
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
    "int4_linear": {"k": 256},
}
FUNCTIONS = ROOT / "tests" / "avo" / "plain_functions.py"
FAR = {"e4m3": 4e-2, "e5m2": 8e-2}  # of an output of this dtype; else
FAR_ELSE = 2e-2
Values = dict[str, Any]


def of_example(name: str, hw: str, dry: bool) -> dict[str, tuple[float, bool]]:
    from dsl.elaborate import elaborate
    from dsl.lowering.launch import extents
    from dsl.meaning import evaluate
    from dsl.parser import parse
    from dsl.rounding import round_to

    program = parse((ROOT / "docs" / "examples" / f"{name}.avo").read_text(encoding="utf-8"))
    graph = elaborate(program)[0]
    axes = {a for t in program.algorithm.inputs for a in t.axes or ()}
    base = {a: OTHERS.get(name, {}).get(a, SIZES.get(a, 64)) for a in axes if graph.axes[a].fine is None or a == "g"}
    known = extents(graph, base)
    rng = np.random.default_rng(0)
    arrays: Values = {}
    for t in program.algorithm.inputs:
        shape, dtype = tuple(known[a] for a in t.axes or ()), t.dtype or "f32"
        if dtype == "i32":
            arrays[t.name] = rng.integers(0, min(known.values()), shape)
        elif dtype in ("int8", "bool"):
            arrays[t.name] = rng.integers(-9, 10, shape) if dtype == "int8" else rng.random(shape) < 0.7
        else:
            arrays[t.name] = round_to(rng.standard_normal(shape), dtype)
    params = {p.name: True if p.dtype == "bool" else 0.5 for p in program.algorithm.params if p.default is None}
    found = ran(program, hw, arrays, params, dry)
    return distances(program, found, evaluate(program, arrays, params, mode="rounded"))


def of_function(name: str, hw: str, dry: bool) -> dict[str, tuple[float, bool]]:
    import torch

    from avo.importing import import_function
    from dsl.hardware import hardware
    from evaluators.inputs import draw_inputs, generator, representable

    imported = import_function(f"{FUNCTIONS}:{name}", hardware(hw))
    program, target = imported.program, imported.target
    arrays = dict(draw_inputs(target, program.algorithm, target.workloads[0], "normal", generator(0, name)))
    for t in program.algorithm.inputs:  # products of values of size 1, as the import's own check has them
        x = arrays[t.name]
        if x.dtype == np.float64 and x.ndim:
            arrays[t.name] = representable(x / max(1, x.shape[-1]) ** 0.25, t.dtype or "f32")
    values = target.reference(*(torch.from_numpy(np.array(arrays[t.name])) for t in program.algorithm.inputs))
    values = values if isinstance(values, tuple) else (values,)
    names = [t.name for t in program.algorithm.outputs]
    wanted = {n: torch.nan_to_num(v.double()).numpy() for n, v in zip(names, values, strict=True)}
    return distances(program, ran(program, hw, arrays, {}, dry), wanted)


def ran(program: Any, hw: str, arrays: Values, params: Values, dry: bool) -> Values:
    """The outputs by name, of the device or of the interpreter."""
    import torch

    from dsl.hardware import hardware
    from dsl.lowering import lower

    lowered = lower(program, hardware(hw))
    names = [t.name for t in program.algorithm.outputs]
    if dry:
        return dict(zip(names, interpreted(program, lowered, arrays, params), strict=True))
    kinds: dict[str, Any] = {
        "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2, "int8": torch.int8, "i32": torch.int32, "bool": torch.bool,
    }  # fmt: skip
    given = [
        torch.from_numpy(np.array(arrays[t.name])).to("cuda").to(kinds[t.dtype or "f32"])
        for t in program.algorithm.inputs
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{lowered.entry}_module.py"
        file.write_text(lowered.source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = getattr(module, lowered.entry)(*given, **params)
    found = found if isinstance(found, tuple) else (found,)
    return {n: x.double().cpu().numpy() for n, x in zip(names, found, strict=True)}


def distances(program: Any, found: Values, wanted: Values) -> dict[str, tuple[float, bool]]:
    """Of each output, its relative L2 distance and whether that is too far."""
    from dsl.elaborate import elaborate

    graph, told = elaborate(program)[0], {}
    for t in program.algorithm.outputs:
        want = wanted[t.name]
        far = float(np.linalg.norm(found[t.name] - want) / max(float(np.linalg.norm(want)), 1e-6))
        told[t.name] = (far, not far < FAR.get(graph.outputs[t.name].dtype, FAR_ELSE))
    return told


def interpreted(program: Any, lowered: Any, arrays: dict[str, Any], params: dict[str, Any]) -> list[Any]:
    from evaluators.cpu import Tensor, interpret
    from evaluators.inputs import decode, encode
    from evaluators.pool import WorkerPool

    given = [(t.name, t.dtype or "f32") for t in program.algorithm.inputs]
    tensors = [Tensor(n, d, arrays[n].shape, encode(arrays[n], d)) for n, d in given]
    with WorkerPool(1) as pool:
        found = interpret(pool, lowered.interpretable, lowered.entry, tensors, params).outputs
    return [np.asarray(decode(x.data, x.dtype, x.shape), dtype=float) for x in found]


def judged(job: tuple[str, str, str, bool]) -> tuple[str, str, str]:
    """What is printed of one, "" or what it fails of, and the whole of an error."""
    from avo.errors import UserMistake
    from avo.importing.tracing import NotImported
    from dsl.diagnostics import ProgramError

    kind, name, hw, dry = job
    expected = kind == "function" and name in plain_functions().REFUSED
    try:
        far = (of_example if kind == "example" else of_function)(name, hw, dry)
    except ProgramError as refused:
        return f"not lowered: {refused.diagnostics[0].message[:80]}", "", ""
    except (NotImported, UserMistake) as refused:
        why = refused.troubles[0].why if isinstance(refused, NotImported) else str(refused)
        told = f"{'refused, as it should be' if expected else 'refused'}: {' '.join(why.split())[:80]}"
        return told, "" if expected else name, "" if expected else str(refused)
    except Exception as wrong:
        return f"{type(wrong).__name__}: {' '.join(str(wrong).split())[:120]}", name, traceback.format_exc()
    text = ", ".join(f"{n} {x:.1e}{' FAR' * wrong}" for n, (x, wrong) in far.items())
    if expected:
        return f"{text}, though it is listed as refused", name, ""
    return text, name * any(wrong for _, wrong in far.values()), ""


def plain_functions() -> Any:
    spec = importlib.util.spec_from_file_location("plain_functions", FUNCTIONS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions() -> list[str]:
    """Those of the file that have inputs of their own: all that import, and those of REFUSED."""
    return [
        x.removesuffix("_inputs")
        for x in vars(plain_functions())
        if x.endswith("_inputs") and x not in ("no_inputs", "example_inputs")
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hw", default="h200")
    parser.add_argument("--dry-run", action="store_true", help="in the judge's interpreter, without a device")
    parser.add_argument("--only", nargs="*", help="names of examples or functions")
    parser.add_argument("--jobs", type=int, default=8, help="processes")
    args = parser.parse_args()
    names = [("example", p.stem) for p in sorted((ROOT / "docs" / "examples").glob("*.avo"))]
    names += [("function", name) for name in functions()]
    jobs = [(kind, n, args.hw, args.dry_run) for kind, n in names if not args.only or n in args.only]
    bad, errors = [], []
    from evaluators.device import held

    own = contextlib.nullcontext() if args.dry_run else held()
    with own, ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        for job, (text, wrong, error) in zip(jobs, pool.map(judged, jobs), strict=True):
            print(f"{'import ' * (job[0] == 'function') + job[1]:32} {text}", flush=True)
            bad += [wrong] * bool(wrong)
            errors += [f"-- {job[0]} {job[1]}\n{error}"] * bool(error)
    print(f"{len(jobs) - len(bad)} of {len(jobs)} right or refused; wrong: {', '.join(bad) or 'none'}", flush=True)
    print("\n".join(errors))
    return bool(bad)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
