"""What the check says of shared memory, beside what Triton allocates, over random schedules of every example.

    python benchmarks/shared_memory.py --hw h200 --programs 400 [--seed 0] [--out FILE]

A random walk over the knobs of an example, on a chip without a limit, gives schedules that fit and that do not. Each is
compiled as far as Triton places its buffers. Printed: how many kernels the check lets through that do not fit the real
chip (under), how many it rejects that do (over), and each of them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dsl.anatomy import anatomies  # noqa: E402
from dsl.check import errors  # noqa: E402
from dsl.diagnostics import ProgramError  # noqa: E402
from dsl.edits import explicit, set_knob  # noqa: E402
from dsl.elaborate import elaborate  # noqa: E402
from dsl.hardware import Hardware, hardware  # noqa: E402
from dsl.knobs import knob_named, settings  # noqa: E402
from dsl.lowering import lower  # noqa: E402
from dsl.lowering.launch import extents  # noqa: E402
from dsl.parser import parse  # noqa: E402
from dsl.printer import print_program  # noqa: E402
from dsl.schedule import resolve  # noqa: E402
from dsl.shared_memory import allocated_bytes  # noqa: E402
from dsl.syntax import Program  # noqa: E402
from evaluators import compiler  # noqa: E402

SIZES = {"b": 2, "h": 8, "g": 4, "m": 1024, "n": 1024, "d": 128, "e": 128, "f": 1024, "r": 2048, "c": 2048, "k": 2048}
SIZES |= {"v": 4096, "s": 512}
OTHERS: dict[str, dict[str, int]] = {
    "conv2d": {"i": 14, "j": 16, "u": 3, "v": 3, "c": 64, "o": 128},
    "grouped_gemm": {"t": 256, "e": 4},
    "gemm": {"m": 4096, "n": 4096, "k": 4096},
    "linear_cross_entropy": {"r": 512, "c": 1024, "v": 4096},
    "paged_attention": {"p": 256, "s": 16, "t": 64},
    "sla": {"f": 128},
}


class Placed(Exception):
    """Carries the bytes out of the compiler, which need go no further."""


def stop_where_buffers_are_placed() -> None:
    from triton._C.libtriton import amd, ir, nvidia, passes
    from triton.backends.amd.compiler import HIPBackend
    from triton.backends.nvidia.compiler import CUDABackend, get_ptx_version_from_options

    def on_nvidia(self: Any, source: Any, metadata: Any, options: Any, capability: int) -> None:
        ptx, manager = get_ptx_version_from_options(options, self.target.arch), ir.pass_manager(source.context)
        passes.ttgpuir.add_combine_tensor_select_and_if(manager)
        _either(passes.ttgpuir.add_allocate_warp_groups, manager, False)
        passes.convert.add_scf_to_cf(manager)
        passes.gluon.add_inliner(manager)
        nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, capability, ptx)
        manager.run(source, "make_llir")
        raise Placed(source.get_int_attr("ttg.shared"))

    def on_amd(source: Any, metadata: Any, options: Any) -> None:
        manager = ir.pass_manager(source.context)
        amd.passes.ttgpuir.add_update_async_wait_count(manager, options.arch)
        _either(amd.passes.ttgpuir.add_warp_pipeline_conversion, manager, options.arch)
        passes.convert.add_scf_to_cf(manager)
        passes.gluon.add_inliner(manager)
        passes.convert.add_index_to_llvmir(manager)
        _either(amd.passes.ttgpuir.add_allocate_shared_memory, manager, options.arch)
        manager.run(source, "make_llir")
        raise Placed(source.get_int_attr("ttg.shared"))

    CUDABackend.make_llir = on_nvidia
    HIPBackend.make_llir = staticmethod(on_amd)


def _either(add: Any, manager: Any, more: Any) -> None:
    """Adds a pass that takes one argument more in later versions of Triton."""
    try:
        add(manager)
    except TypeError:
        add(manager, more)


def allocated(lowered: Any, kernel: Any, hw: Hardware, known: dict[str, int], params: dict[str, Any]) -> int | str:
    """Bytes, or what the compiler refuses."""
    request = compiler.compile_request(lowered.source, kernel.name, kernel.specialise(known, params), hw)
    try:
        compiler._build(request)
    except compiler.CandidateError as refused:
        cause: BaseException | None = refused
        while cause is not None:
            if isinstance(cause, Placed):
                return int(cause.args[0])
            cause = cause.__cause__ or cause.__context__
        return str(refused)
    raise AssertionError("the compiler went on")


def walk(program: Program, hw: Hardware, known: dict[str, int], rng: random.Random) -> Program:
    """Up to seven knobs set at random, block lengths and stages more often than others."""
    for _ in range(rng.randint(0, 7)):
        names = list(settings(program, hw))
        sized = [n for n in names if "tile" in n or "stream" in n]
        knob = knob_named(program, hw, rng.choice(sized if sized and rng.random() < 0.6 else names))
        if knob.scale:
            changed = set_knob(program, knob, rng.choice(knob.scale))
            program = program if errors(changed, hw, known) else changed
    return program


def sizes_of(name: str, program: Program) -> dict[str, int]:
    graph = elaborate(program)[0]
    axes = {a for t in program.algorithm.inputs for a in t.axes or ()}
    given = SIZES | OTHERS.get(name, {})
    return extents(graph, {a: given.get(a, 64) for a in axes if graph.axes[a].fine is None or a == "g"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hw", default="h200")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a line of JSON for each kernel")
    args = parser.parse_args()
    stop_where_buffers_are_placed()
    real = hardware(args.hw)
    wide = replace(real, shared_bytes=1 << 40)
    texts = sorted((ROOT / "docs" / "examples").glob("*.avo"))
    programs = {p.stem: parse(p.read_text(encoding="utf-8"), p.name) for p in texts}
    rows: list[dict[str, Any]] = []
    for seed in range(args.seed, args.seed + args.programs):
        rng = random.Random(seed)
        name = rng.choice(list(programs))
        known = sizes_of(name, programs[name])
        try:
            program = walk(programs[name], wide, known, rng)
            if errors(program, wide, known):  # the chip lacks what the example's own schedule asks for
                continue
            lowered = lower(program, wide)
        except ProgramError:  # a program that has no lowering
            continue
        params = {
            p.name: {"bool": True, "f32": 0.5}.get(p.dtype, 128) for p in program.algorithm.params if p.default is None
        }
        full = explicit(program)
        for k, (kernel, anatomy) in enumerate(zip(lowered.kernels, anatomies(full), strict=True)):
            told = allocated_bytes(anatomy, resolve(full, k, real.arch, real.name), real, known)
            got = allocated(lowered, kernel, wide, known, params)
            row = {"name": name, "seed": seed, "kernel": k, "told": told, "allocated": got}
            rows.append(row)
            if args.out:
                with args.out.open("a") as file:
                    file.write(json.dumps(row | {"hw": args.hw, "program": print_program(program)}) + "\n")
    compiled = [r for r in rows if isinstance(r["allocated"], int)]
    under = [r for r in compiled if r["told"] <= real.shared_bytes < r["allocated"]]
    over = [r for r in compiled if r["told"] > real.shared_bytes >= r["allocated"]]
    near = [r for r in compiled if abs(r["told"] - r["allocated"]) <= max(4096, 0.05 * r["allocated"])]
    print(f"{args.hw}: {len(compiled)} kernels compiled of {len(rows)}; {len(near)} within 5% or 4 KiB")
    for what, found in (("let through, does not fit", under), ("rejected, fits", over)):
        print(f"{what}: {len(found)}")
        for r in found:
            print(f"  {r['name']} kernel {r['kernel']} seed {r['seed']}: told {r['told']}, allocated {r['allocated']}")
    return 1 if under or over else 0


if __name__ == "__main__":
    sys.exit(main())
