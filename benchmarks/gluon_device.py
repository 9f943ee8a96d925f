"""The specialised lowering on a Hopper GPU: right on every size and under stress, repeatable, and how fast.

python benchmarks/gluon_device.py [--part gate|check|sizes|sanitizer|sweep] [--cases NAME,...] [--out FOLDER]

`gate`: stress inputs, every size from 1 to 700, memcheck on 12 sizes and racecheck on 3, for every form of the lists
below; about 4 minutes on 16 cores. Each case runs in a process of its own with a time limit, for a kernel with a wrong
barrier never ends; those that check run several at once. `sweep`: cases in turn with cuDNN (cuBLAS for products), alone
on the card, sustained: every arm at least 15 ms untimed and 30 ms timed in each of its rounds, fresh random data for
each workload. Writes gluon_device.json as it goes; ends with 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gluon_cases import FP8, GEMM, PRODUCTS, build, case, dim, lowered
from gluon_checks import given

from evaluators.device import held

GRAPH_BELOW_S, GRAPH_CALLS = 250e-6, 10
EIGHT = ((8, 4096), (4, 8192), (2, 16384), (1, 32768))
CHECKED = (
    "attention,in_order,shared_q,lazy,lazy_shared,across,n64,one_group,one_tile,spec,spec_shared,fp16,spec_fp16,lse,"
)
CHECKED += "lse_fp16,window,window_lazy,direct,lazy@64,spec@64,d256@256,d256_lazy@256,d256_spec@256,gemm,gemm_fp16,"
CHECKED += "fp8_qk,fp8_qk_spec,int8_qk,int8_blocks,ping,ping_spec,k3,v3,k1,poly4,spec_poly8,gemm_128,gemm_direct,"
CHECKED += "matmul,fp8"
SIZED = "attention,lazy,spec,one_tile,spec_fp16,window,lse,spec@64,d256_lazy@256,gemm,fp8"
SANITIZED = "attention,lazy,spec,one_tile,window,lse,spec@64,d256_lazy@256,gemm,gemm_direct,fp8"
RACED = "attention,spec,gemm"
DRAWN = ",".join(f"drawn:{seed}" for seed in range(100, 140))


# -- speed, in the child -----------------------------------------------------------------------------------------------


Seconds = dict[str, float]


def alternating(arms: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, list[float]], Seconds, int]:
    """(seconds a call of each arm in each round, seconds of the host for one, calls a launch).

    A round is a palindrome (ABCCBA) in an order of its own: a drift of clocks cancels, and nobody has one neighbour.
    Where an arm is as short as the host's work for it, all are launched from graphs of so many calls, as `avo bench`
    does: else it is the host that is timed, and whatever else runs on it.
    """
    import torch

    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

    def timed(f: Callable[[], Any], count: int) -> float:
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        for _ in range(count):
            f()
        b.record()
        b.synchronize()
        return a.elapsed_time(b) / 1e3 / count

    def captured(f: Callable[[], Any]) -> Callable[[], Any]:
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            f()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_CALLS):
                f()
        return graph.replay

    counts, host = {}, {}
    for x, f in arms.items():
        f()
        counts[x] = max(2, math.ceil(0.03 / timed(f, 3)))
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            f()
        host[x] = (time.perf_counter() - began) / 20
        torch.cuda.synchronize()
    each = GRAPH_CALLS if 0.03 / max(counts.values()) < GRAPH_BELOW_S else 1
    if each > 1:
        arms = {x: captured(f) for x, f in arms.items()}
        counts = {x: math.ceil(n / each) for x, n in counts.items()}
    found: dict[str, list[float]] = {x: [] for x in arms}
    names = list(arms)
    rng = random.Random(len(names))
    for _ in range(rounds):
        rng.shuffle(names)
        both: dict[str, float] = dict.fromkeys(names, 0.0)
        for x in [*names, *reversed(names)]:
            flush.zero_()
            timed(arms[x], -(-counts[x] // 2))
            both[x] += timed(arms[x], counts[x]) / each / 2
        for x, seconds in both.items():
            found[x].append(seconds)
    return found, host, each


def rising(k: Any) -> Any:
    """Keys whose largest score rises far in one block of ten, in the order in which a walk from the end meets them."""
    import torch

    n = k.shape[2]
    block = torch.arange(n, device=k.device).flip(0) // 128
    factor = torch.where(block % 10 == 9, 1 + 3.0 * (block // 10 + 1), 1.0)
    return (k * factor[None, None, :, None]).to(k.dtype)


def workloads(sets: str) -> list[tuple[str, int, int, int, int, int, bool]]:
    """(label, head dim, batch, heads, heads of keys, length, causal)."""
    found = []
    for causal in (False, True):
        word = "causal" if causal else "full"
        if "eight" in sets:
            found += [(f"{word} {b}x{s}", 128, b, 16, 16, s, causal) for b, s in EIGHT]
        elif "four" in sets:
            found += [(f"{word} {b}x{s}", 128, b, 16, 16, s, causal) for b, s in ((8, 4096), (2, 16384))]
        if "rising" in sets:
            found.append((f"rising {word} 2x16384", 128, 2, 16, 16, 16384, causal))
        if "grouped" in sets:
            found += [(f"grouped {word} 32/{g} 4x4096", 128, 4, 32, g, 4096, causal) for g in (4, 8)]
        if "dims" in sets:
            found += [
                (f"dim{d} {word} {b}x{h}x8192", d, b, h, h, 8192, causal) for d, b, h in ((64, 4, 32), (256, 4, 8))
            ]
    return found


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def child_sweep(names: list[str], rounds: int, sets: str, out: str) -> None:
    """Many cases in turn with the vendor's kernel, in one process; they were checked before. A ratio is the median of
    the rounds' ratios, the second one that of the medians."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kept: list[dict[str, Any]] = []
    regime = f"sustained: {rounds} rounds, each a palindrome of all arms; 15 ms untimed and 30 ms timed a turn"
    geo: dict[str, list[tuple[float, float]]] = {}
    entries = {n: build(n)[0] for n in names}
    products = {n: f for n, f in entries.items() if case(n)[0] in PRODUCTS}
    attentions = {n: f for n, f in entries.items() if n not in products}

    def tell(label: str, flops: float, arms: dict[str, Callable[[], Any]]) -> None:
        found, host, each = alternating(arms, rounds)
        speed = {x: flops / middle(v) / 1e12 for x, v in found.items()}
        ratios = {x: middle([a / b for a, b in zip(found["theirs"], v, strict=True)]) for x, v in found.items()}
        rows = [f"{x} {speed[x]:.0f} ({ratios[x]:.3f}, {speed[x] / speed['theirs']:.3f})" for x in speed]
        for x in speed:
            if x != "theirs":
                family = label.rsplit(" ", 1)[0]
                geo.setdefault(f"{family} {x}", []).append((ratios[x], speed[x] / speed["theirs"]))
        print(f"{label}: " + ", ".join(rows), flush=True)
        if each > 1:
            waits = ", ".join(f"{x} {s * 1e6:.0f}" for x, s in host.items())
            print(f"   graphs of {each} calls; the host's microseconds a call: {waits}", flush=True)
        kept.append({"label": label, "flops": flops, "seconds": found, "host_s": host, "graph_calls": each})
        Path(out, "gluon_rounds.json").write_text(
            json.dumps({"measured": versions(), "regime": regime, "rounds": kept})
        )

    for size in (4096, 8192) if products else ():
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        bias = torch.randn(size, device="cuda")
        arms: dict[str, Callable[[], Any]] = {"theirs": lambda a=a, b=b: a @ b}
        if any(case(n)[0] is GEMM for n in products):
            near = bias.bfloat16()
            arms["theirs_fused"] = lambda a=a, b=b, near=near: torch._addmm_activation(near, a, b)
        if narrow := {n: f for n, f in products.items() if case(n)[0] is FP8}:
            x, y, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones((), device="cuda")

            def scaled(x: Any = x, y: Any = y, one: Any = one) -> Any:
                return torch._scaled_mm(x, y.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

            turns: dict[str, Callable[[], Any]] = {"theirs": scaled}
            for n, f in narrow.items():
                turns[n] = lambda f=f, x=x, y=y: f(x, y)
            tell(f"fp8 {size}", 2 * size**3, turns)
        for n, f in products.items():
            if case(n)[0] is FP8:
                continue
            more = [bias] if case(n)[0] is GEMM else []
            arms[n] = lambda f=f, a=a, b=b, more=more: f(a, b, *more)
        if len(arms) > 1:
            tell(f"product {size}", 2 * size**3, arms)
    for label, d, b, h, g, s, causal in workloads(sets):
        q, k, v = (torch.randn(b, x, s, d, device="cuda", dtype=torch.bfloat16) for x in (h, g, g))
        k = rising(k) if "rising" in label else k

        def theirs(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
            gqa = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **gqa)

        arms = {"theirs": theirs}
        for n, f in attentions.items():
            if dim(n) == d:
                mine, keys, more, _, _ = given(n, q, k)  # as the case has them
                arms[n] = lambda f=f, q=mine, k=keys, v=v, more=more, causal=causal: f(q, k, v, *more, causal)
        if len(arms) > 1:
            tell(label, 4 * b * h * s * s * d * (0.5 if causal else 1), arms)
    for key, pairs in geo.items():
        means = (math.exp(sum(math.log(x[i]) for x in pairs) / len(pairs)) for i in (0, 1))
        print(f"geometric mean {key}: " + ", ".join(f"{x:.3f}" for x in means), flush=True)


# -- the parent --------------------------------------------------------------------------------------------------------

SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: .*")


def sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or next(
        (str(x) for x in Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None
    )


def explained(text: str, name: str) -> tuple[list[str], bool]:
    """(where the racing accesses stand in the source, how often), and whether all are Triton's own dispatch of warps.

    Warps that have a role wait at barrier 1, read from shared memory which function is theirs, and wait at barrier 1
    again; the first four warps write that before the first and, to end them all, behind the last. racecheck takes the
    byte that is read and the words that are written for a race, for it does not see that barrier 1 orders them: all
    warps meet there, from different places of the code. Both accesses belong to the line of the kernel's `def` or of
    its `gl.warp_specialize`. A finding anywhere else is one in what the lowering wrote.
    """
    source = lowered(name).source.splitlines()
    places: dict[str, int] = {}
    for number in re.findall(r"access at \S+ in \S+\.py:(\d+)", text):
        line = source[int(number) - 1].strip() if int(number) <= len(source) else "?"
        places[line] = places.get(line, 0) + 1
    kernel = lowered(name).kernels[0].name
    only = all(x in (f"def {kernel}(", "gl.warp_specialize(") for x in places)
    said = [f"{count} accesses at `{line}`" for line, count in places.items()]
    return [*said, "all of them Triton's dispatch of warps" if only else "not all of them Triton's dispatch"], only


def spawn(name: str, part: str, limit: float, extra: list[str], out: str) -> dict[str, Any]:
    """One case in a process of its own. `part` memcheck and racecheck: under the sanitizer, on few sizes."""
    began = time.time()
    here = Path(__file__).resolve().parent
    command = [sys.executable, str(here / "gluon_checks.py"), name, part, *extra]
    env, log = dict(os.environ), None
    if part == "sweep":
        command = [sys.executable, __file__, "--child", name, *extra]
    if part in ("memcheck", "racecheck"):
        log = Path(out, f"{part}_{name.replace('@', '_')}.txt")
        tool = sanitizer()
        if tool is None:
            return {"case": name, "part": part, "ok": False, "said": ["there is no compute-sanitizer"]}
        command[3] = "twelve" if part == "memcheck" else "three"
        env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        kernel = lowered(name).kernels[0].name
        options = ["--tool", part, "--kernel-name", f"kernel_name={kernel}", "--log-file", str(log)]
        options += ["--error-exitcode", "7", "--print-limit", "30"]
        command = [tool, *options, *command]
    ok = False
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=env)
        lines = done.stdout.splitlines()
        ok = done.returncode == 0 and not any(re.search(r"wrong [1-9]", x) for x in lines)
        if done.returncode:
            words = [x for x in done.stderr.splitlines() if x.strip() and "leak" not in x]
            lines += [f"FAILED ({done.returncode}): {' / '.join(words[-3:])[:400]}"]
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        lines = [*said.splitlines(), f"HUNG: killed after {limit:.0f} s"]
    if log is not None and log.exists():
        text = log.read_text(errors="replace")
        lines += SUMMARY.findall(text)
        log.write_text(text[:20000])
        if part == "memcheck":
            ok = ok and "ERROR SUMMARY: 0 errors" in text
        else:
            told, only = explained(text, name)
            lines += told
            ok = "SUMMARY" in text and only and not any(re.search(r"wrong [1-9]", x) for x in lines)
    return {"case": name, "part": part, "ok": ok, "seconds": round(time.time() - began), "said": lines}


def versions() -> dict[str, str]:
    import torch
    import triton

    p = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
    return {
        "chip": f"{p.name}, {p.multi_processor_count} SMs" if p else "none",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="gate", choices=("gate", "check", "sizes", "sanitizer", "sweep"))
    parser.add_argument("--cases", default="", help="instead of the lists of the parts; of the sweep")
    parser.add_argument("--child", default="")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--limit", type=float, default=150, help="seconds for a case")
    parser.add_argument("--budget", type=float, default=420, help="seconds for all parts")
    parser.add_argument("--sets", default="four,rising", help="of workloads: four, eight, rising, grouped, dims")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and kinds of data")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--out", default=os.environ.get("OUT", "."))
    args = parser.parse_args()
    if args.child:
        child_sweep(args.child.split(","), args.rounds, args.sets, args.out)
        return 0
    if args.part == "sweep" and not args.cases:
        parser.error("--part sweep takes --cases NAME,...: what is timed in turn with the library")
    Path(args.out).mkdir(parents=True, exist_ok=True)
    with held():  # for the children too, which are processes of their own
        return parent(args)


def parent(args: argparse.Namespace) -> int:
    """All parts, each case in a process of its own."""
    began = time.time()
    rows: list[dict[str, Any]] = []
    about = versions()

    def lists(own: str, *parts: str) -> list[tuple[str, str]]:
        return [(n, p) for n in (args.cases or own).split(",") if n for p in parts]

    def one(job: tuple[str, str]) -> dict[str, Any]:
        left = args.budget - (time.time() - began)
        if left < 20:
            return {"case": job[0], "part": job[1], "ok": False, "said": ["left out: no time"]}
        return spawn(*job, min(args.limit, left), ["quick"] if args.quick else [], args.out)

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        mark = "" if row["ok"] else "  <-- not right"
        print(f"{row['part']} {row['case']} [{row.get('seconds', 0)} s]{mark}", *row["said"], sep="\n   ", flush=True)
        text = json.dumps({"measured": about, "seconds": round(time.time() - began), "rows": rows}, indent=1)
        Path(args.out, f"gluon_{args.part}.json").write_text(text)

    jobs: list[tuple[str, str]] = []
    if args.part in ("sanitizer", "gate"):
        jobs += lists(RACED, "racecheck") + lists(SANITIZED, "memcheck")
    if args.part in ("sizes", "gate"):
        jobs += lists(SIZED, "sizes")
    if args.part in ("check", "gate"):
        jobs += lists(f"{CHECKED},{DRAWN}", "check")
    with ThreadPoolExecutor(args.jobs) as pool:
        for job in [pool.submit(one, j) for j in jobs]:
            keep(job.result())
    if args.part == "sweep":
        extra = ["--rounds", str(args.rounds), "--sets", args.sets, "--out", args.out]
        keep(spawn(args.cases, "sweep", args.budget, extra, args.out))
    wrong = [f"{r['part']} {r['case']}" for r in rows if not r["ok"]]
    print(f"{len(rows)} runs in {time.time() - began:.0f} s, {len(wrong)} not right: {', '.join(wrong) or 'none'}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
