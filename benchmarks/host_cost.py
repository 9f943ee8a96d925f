"""What one call of an exported kernel costs the host, layer by layer, as it stood and with what is remembered of it.

python benchmarks/host_cost.py --out DIR [NAME...]   of PACKAGES those named, else all

Sizes are so small that the GPU is never waited for, and each stretch of calls begins with an idle one. Without a GPU
the tensors lie in host memory and Triton launches through a driver that runs nothing (stub_cuda.py): Python, torch's
dispatch and Triton's launcher are as they are, the CUDA driver's share (cuLaunchKernel, cuTensorMapEncode, the
caching allocator) is missing. Microseconds, the median of ROUNDS stretches of CALLS calls; the layers of a
package take turns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CANDIDATES = ROOT / "configs" / "candidates" / "h200.toml"
PACKAGES = {  # name: target, schedule of CANDIDATES
    "rmsnorm": ("rmsnorm", "w8"),
    "matmul_descriptors": ("matmul", "persistent"),
    "matmul_roles": ("matmul", "roles"),
    "attention_descriptors": ("attention", "causal"),
    "attention_roles": ("attention", "roles_lazy"),
}
LIBRARY = {"rmsnorm": "rms_norm", "matmul_descriptors": "matmul"}  # beside these, torch's own call
ROUNDS, CALLS = 101, 20
EXTENT = 128


def us(calls: dict[str, Callable[[], Any]], rest: Callable[[], Any]) -> dict[str, float]:
    """Median microseconds of the host for one call of each, in turns, so that a slow moment of the host is everyone's.

    `rest` waits until the device has nothing to do.
    """
    taken: dict[str, list[float]] = {what: [] for what in calls}
    for turn in range(ROUNDS + 1):
        for what, call in calls.items():
            for _ in range(CALLS if turn == 0 else 3):  # what ran before has the caches
                call()
            rest()
            began = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            taken[what].append((time.perf_counter_ns() - began) / CALLS / 1e3)
            rest()
    return {what: round(statistics.median(those[1:]), 2) for what, those in taken.items()}


def program_text(name: str) -> str:
    """Of one of PACKAGES: the seed's algorithm with a schedule that stays where it is, unlike the best of a table."""
    from evaluators.targets import target

    job, schedule = PACKAGES[name]
    candidates = tomllib.loads(CANDIDATES.read_text(encoding="utf-8"))
    return target(job).seed.partition("schedule")[0] + "schedule\n" + str(candidates[job]["public"][schedule])


def package(name: str, folder: Path) -> Any:
    """The module of an exported package; the times in it are made up and nobody sees them."""
    from avo.export import Variant, build, write
    from dsl.hardware import hardware
    from dsl.parser import parse
    from dsl.printer import digest
    from evaluators.targets import target

    job = target(PACKAGES[name][0])
    program = parse(text := program_text(name))
    variant = Variant(
        text=text, program=program, digest=digest(program), target=job.name, hardware="h200", mode="predicted",
        seconds={w.name: 1e-5 for w in job.workloads}, floors={}, provenance={"program": text},
    )  # fmt: skip
    write(build(job, hardware("h200"), [variant], name=f"host_{name}"), folder)
    sys.path.insert(0, str(folder))
    return importlib.import_module(f"host_{name}")


def layers(name: str, module: Any, device: str, rest: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of: the function as users call it, each thing below it, and the same as it stood."""
    import torch

    from avo.export.calls import quick

    ops, dispatch = (importlib.import_module(f"{module.__name__}.{part}") for part in ("ops", "dispatch"))
    facts = ops.facts
    if device == "cpu":
        dispatch.here = lambda x: True
    function = getattr(module, next(n for n in module.__all__ if n != "set_unseen"))
    sizes = {axis: EXTENT for _, axes, _ in facts.INPUTS for axis in axes}
    sizes |= {a: n for a, n in {"b": 1, "h": 2, "g": 1}.items() if a in sizes}
    rng = torch.Generator(device=device).manual_seed(1)
    inputs = [
        torch.randn([sizes[a] for a in axes], generator=rng, device=device).to(getattr(torch, dtype))
        for _, axes, dtype in facts.INPUTS
    ]
    params = {n: True if kind == "bool" else default for n, kind, default in facts.PARAMS}
    args, entry = (*inputs, *params.values()), ops.KERNELS[0]
    facts.TABLE = (*facts.TABLE, {"sizes": sizes, "params": params, "kernel": 0, "seconds": 1e-5})  # as if judged
    found: dict[str, float] = {}
    calls: dict[str, Callable[[], Any]] = {}

    first = function(*inputs, **params)
    again = function(*inputs, **params)
    (plan,) = ops.CALLS.plans.values()
    found["remembered"] = float(plan is not None)
    found["same_bits"] = float(device == "cpu" or torch.equal(first, again))
    calls["function"] = lambda: function(*inputs, **params)
    calls["forward operator"] = lambda: ops.forward_op(*args)
    calls["below torch's dispatch"] = lambda: ops._run(*args)
    if plan is not None:
        stream, addresses = plan.driver.get_current_stream(plan.device), [x.data_ptr() for x in (*inputs, again)]
        at = plan.at((stream, *addresses))
        calls["launch alone"] = lambda: [launch(*given) for launch, given in at]
    loaded = quick(entry, len(inputs))
    loaded(*inputs, **params)
    calls["loaded"] = lambda: loaded(*inputs, **params)
    calls["output alone"] = lambda: torch.empty(again.shape, dtype=again.dtype, device=again.device)
    calls["with autograd"] = lambda: ops.op(*args)
    spread = [[x.clone() for x in inputs] for _ in range(64)]  # the next addresses, of which some were never seen
    turn = iter(range(10**9))
    calls["64 sets of tensors"] = lambda: function(*spread[next(turn) % 64], **params)

    def as_it_stood(*given: Any) -> Any:
        tensors, values = given[: len(inputs)], dict(zip(params, given[len(inputs) :], strict=True))
        return ops.KERNELS[dispatch.choose(tensors, values)](*(x.contiguous() for x in tensors), **values)

    before = torch.library.custom_op(f"host_cost::{name}", as_it_stood, mutates_args=(), schema=facts.SCHEMA)
    before.register_fake(ops._fake)
    before.register_autograd(lambda ctx, *gradients: None)
    calls["before: function"] = lambda: before(*args)
    calls["before: dispatch"] = lambda: dispatch.choose(inputs, params)
    calls["before: emitted function"] = lambda: entry(*inputs, **params)
    if name in LIBRARY and device != "cpu":
        theirs = {
            "rms_norm": lambda: torch.nn.functional.rms_norm(inputs[0], inputs[0].shape[-1:], inputs[1], 1e-6),
            "matmul": lambda: torch.matmul(*inputs),
        }[LIBRARY[name]]
        calls["the library's"] = theirs
    return found | us(calls, rest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PACKAGES, []], metavar="NAME")
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TRITON_CACHE_DIR", str(Path(folder) / "triton"))
        import torch
        import triton

        if torch.cuda.is_available():
            device, where, rest = "cuda", torch.cuda.get_device_name(), torch.cuda.synchronize
        else:
            import stub_cuda

            stub_cuda.activate(Path(folder))
            device, where, rest = "cpu", "a driver that runs nothing", lambda: None
        rows: dict[str, Any] = {}
        facts = {"on": where, "torch": torch.__version__, "triton": triton.__version__}
        facts |= {"python": platform.python_version(), "processor": _processor(), "rounds": ROUNDS, "calls": CALLS}
        for name in flags.names or PACKAGES:
            rows[name] = layers(name, package(name, Path(folder) / name), device, rest)
            print(name, *(f"    {value:8.2f}  {what}" for what, value in rows[name].items()), sep="\n", flush=True)
            (flags.out / "host_cost.json").write_text(json.dumps({**facts, "us": rows}, indent=1) + "\n")
    return int(any(not (r["remembered"] and r["same_bits"]) for r in rows.values()))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), platform.processor())


if __name__ == "__main__":
    sys.exit(main())
