"""Do the programs of docs/examples, and imported PyTorch functions, give the right values on a device?

    python benchmarks/examples_on_device.py --hw h200 [--out FILE]

Each example that has a lowering runs as it is written, compiled for the chip, at sizes that fill a few tiles, beside
its PyTorch reference in float64; and each function of tests/avo/plain_functions.py is imported, lowered and run beside
the function itself. Printed: the relative L2 distance from the exact values, and the median time of 20 calls with
launch overhead in it (a sign of life, no measurement: `avo bench` measures). `--dry` compiles nothing, it evaluates.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "dsl")]

from example_references import EXAMPLES, REFERENCES, drawn, program  # noqa: E402

import avo  # noqa: E402
import avo.plugins  # noqa: E402
from avo.importing import import_function  # noqa: E402
from dsl.check import errors  # noqa: E402
from dsl.meaning import evaluate  # noqa: E402
from dsl.printer import print_program  # noqa: E402
from evaluators.inputs import draw_inputs, generator, representable  # noqa: E402

_HEADS = {"q": (2, 8, 1024, 128), "k": (2, 4, 1024, 128), "v": (2, 4, 1024, 128)}
_SAME = {"q": (2, 8, 1024, 128), "k": (2, 8, 1024, 128), "v": (2, 8, 1024, 128)}
_LSE = {"o": (2, 8, 1024, 128), "go": (2, 8, 1024, 128), "lse": (2, 8, 1024)}
_SCALED = {"a": (1024, 2048), "sa": (1024,), "b": (1536, 2048), "sb": (1536,)}
LARGE: dict[str, dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(("attention", "attention_sm90", "attention_lse", "softcap"), _HEADS),
    "attention_backward": _HEADS | _LSE,
    "alibi": _HEADS | {"slope": (8,)},
    "attention_sinks": _HEADS | {"sink": (8,)},
    **dict.fromkeys(("numa_attention", "sliding_window", "sage2pp", "linear_attention"), _SAME),
    "sla": _SAME | {"w": (128, 128)},
    "flash_decoding": {"q": (2, 8, 1, 128), "k": (2, 4, 8192, 128), "v": (2, 4, 8192, 128)},
    "batched_gemm": {"a": (4, 512, 1024), "w": (4, 768, 1024)},
    "gemm": {"a": (1024, 2048), "b": (2048, 1536), "bias": (1536,)},
    "fp8_gemm": _SCALED,
    "int8_gemm": _SCALED,
    "split_k_gemm": {"a": (16, 8192), "b": (8192, 1536)},
    "swiglu": {"x": (1024, 2048), "wg": (2048, 1536), "wu": (2048, 1536)},
    "grouped_gemm": {"x": (2048, 1024), "w": (8, 1024, 1536), "ex": (32,)},
    "conv2d": {"x": (8, 56, 56, 64), "w": (3, 3, 64, 128), "bias": (128,)},
    "cross_entropy": {"x": (512, 32000), "t": (512,)},
    "linear_cross_entropy": {"x": (512, 1024), "w": (8192, 1024), "t": (512,)},
    "layernorm": {"x": (2048, 4096), "w": (4096,), "bias": (4096,)},
    "rmsnorm": {"x": (2048, 4096), "w": (4096,)},
    "softmax": {"x": (2048, 4096)},
    "rope": {"x": (2, 1024, 8, 128), "cs": (1024, 128), "sn": (1024, 128)},
}
BELOW = {"cross_entropy": {"t": 32000}, "linear_cross_entropy": {"t": 8192}, "grouped_gemm": {"ex": 8}}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8, "i32": torch.int32}
DTYPES |= {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bool": torch.bool}
# Relative L2 that the narrowest dtype on the way explains. sage2pp quantises to int8 and e4m3 with 16-bit sums, sla
# chooses its blocks by bf16 sums.
MOST = {"sage2pp": 6e-2, "sla": 6e-2, "linear_attention": 2e-2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hw", default="h200")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--only", nargs="*", help="names of examples or functions")
    args = parser.parse_args()
    device = "cpu" if args.dry else "cuda"
    chip = avo.hardware(args.hw)
    rows: list[dict[str, Any]] = []

    def note(name: str, found: dict[str, Any]) -> None:
        rows.append({"name": name, **found})
        shown = found.get("error") or f"{found['distance']:.2e} of {found['most']:.0e}  {found['ms']:.3f} ms"
        print(f"{name:26} {'ok ' if found['ok'] else 'BAD'} {shown[:200]}", flush=True)
        if args.out:
            args.out.write_text(json.dumps({"hw": args.hw, "torch": torch.__version__, "rows": rows}, indent=1))

    for name in [n for n, e in REFERENCES.items() if e.lowers]:
        if not args.only or name in args.only:
            note(name, _tried(lambda n: _example(n, args.hw, chip, device), name))
    functions = ROOT / "tests" / "avo" / "plain_functions.py"
    names = [x.removesuffix("_inputs") for x in vars(avo.plugins.load_file(functions)) if x.endswith("_inputs")]
    for name in [n for n in names if n not in ("example", "no")]:
        if not args.only or name in args.only:
            note("import " + name, _tried(lambda n: _imported(f"{functions}:{n}", args.hw, chip, device), name))
    bad = [r["name"] for r in rows if not r["ok"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} right" + (f"; not: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


def _tried(run: Any, name: str) -> dict[str, Any]:
    try:
        return run(name)
    except Exception as error:  # one that fails must not hide the others
        return {"ok": False, "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def _example(name: str, hw: str, chip: Any, device: str) -> dict[str, Any]:
    example, text = REFERENCES[name], program(name)
    if wrong := errors(text, chip):
        return {"ok": False, "error": wrong[0].message}
    large = type(example)(example.reference, LARGE[name], example.params, BELOW.get(name, {}))
    given = drawn(name, example=large)
    tensors = {n: torch.from_numpy(np.asarray(x)).to(device) for n, x in given.items()}
    exact = {n: x.long() if n in large.below else x.double() for n, x in tensors.items()}
    right = {n: x.detach() for n, x in example.reference(**exact, **example.params).items()}
    params = {p.name: example.params[p.name] for p in text.algorithm.params if p.name in example.params}
    return _compared(name, text, (EXAMPLES / f"{name}.avo").read_text(), hw, given, params, right, device)


def _imported(reference: str, hw: str, chip: Any, device: str) -> dict[str, Any]:
    found = import_function(reference, chip)
    text, target = found.program, found.target
    workload = target.workloads[0]
    given = draw_inputs(target, text.algorithm, workload, "normal", generator(0, reference))
    for t in text.algorithm.inputs:  # products of values of size 1, as the import's own check has them
        x = given[t.name]
        if x.dtype == np.float64 and x.ndim:
            given[t.name] = representable(x / max(1, x.shape[-1]) ** 0.25, t.dtype or "f32")
    exact = [torch.from_numpy(np.array(given[t.name])).to(device) for t in text.algorithm.inputs]
    with torch.device(device):
        values = target.reference(*exact)
    values = values if isinstance(values, tuple) else (values,)
    right = {t.name: torch.nan_to_num(v.double()) for t, v in zip(text.algorithm.outputs, values, strict=True)}
    return _compared(reference.rpartition(":")[2], text, print_program(text), hw, given, {}, right, device)


def _compared(
    name: str,
    text: Any,
    source: str,
    hw: str,
    given: dict[str, Any],
    params: dict[str, Any],
    right: dict[str, Any],
    device: str,
) -> dict[str, Any]:
    ms = 0.0
    if device == "cpu":
        avo.load(source, hw).lowered  # noqa: B018
        small = sum(x.size for x in given.values()) < 1 << 17
        got = evaluate(text, given, params, mode="rounded") if small else {n: x.numpy() for n, x in right.items()}
        results = {n: torch.from_numpy(np.asarray(x)) for n, x in got.items()}
    else:
        inputs = [
            torch.from_numpy(np.array(given[t.name])).to(device).to(DTYPES[t.dtype or "f32"]).contiguous()
            for t in text.algorithm.inputs
        ]
        kernel = avo.load(source, hw)
        outputs = kernel(*inputs, **params)
        torch.cuda.synchronize()
        times = []
        for _ in range(20):
            began = time.perf_counter()
            outputs = kernel(*inputs, **params)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - began) * 1e3)
        ms = float(np.median(times))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        results = {t.name: v for t, v in zip(text.algorithm.outputs, outputs, strict=True)}
    distance = max(float((results[n].double() - r).norm() / r.norm().clamp(min=1e-30)) for n, r in right.items())
    narrow = {t.dtype for t in (*text.algorithm.inputs, *text.algorithm.outputs)} & {"bf16", "f16", "e4m3", "e5m2"}
    most = MOST.get(name, 1.5e-2 if narrow else 1e-3)
    return {"ok": bool(distance <= most), "distance": distance, "most": most, "ms": ms}


if __name__ == "__main__":
    sys.exit(main())
