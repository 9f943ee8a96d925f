"""The specialised lowering on a Hopper GPU: right on every size and under stress, repeatable, and how fast.

python benchmarks/gluon_device.py [--part check|sizes|speed|sweep|all] [--cases NAME,...] [--out FOLDER]

Each case runs in a process of its own with a time limit, for a kernel with a wrong barrier never ends. Cases that check
run several at once; speed runs alone, alternating with cuDNN (cuBLAS for GEMM), sustained: every arm at least 15 ms
untimed and 30 ms timed in each of its rounds, fresh random data for each workload.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

HEADS = 16
EIGHT = ((8, 4096), (4, 8192), (2, 16384), (1, 32768))
ATTENTION = """
kernel attention
in  q[b h m d] {t}, k[b g n d] {t}, v[b g n e] {t}
out o[b h m e] {t}
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(not causal or m >= n, s, -inf)
o = sum[n](softmax[n](c) * v)

schedule
{schedule}"""
LSE = """
kernel lse
in  q[b h m d] {t}, k[b g n d] {t}, v[b g n e] {t}
out o[b h m e] {t}, lse[b h m] f32
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(not causal or m >= n, s, -inf)
top[b h m] = max[n](c)
total[b h m] = sum[n](exp(c - top))
lse = log(total) + top
o = sum[n](exp(c - top) * v) / total

schedule
{schedule}"""
SCHEDULE = """tile m=128 n=128
grid b h m
order longest_first l2=8MiB
persistent
stream n stages=2
split masked
load tma
roles load=1 mma=2
registers load=24 mma=240
hold q registers
issue next_contraction
rescale always
reduce rows=per_thread
exponent exp2
"""
GEMM = """
kernel gemm
in  a[m k] {t}, b[k n] {t}, bias[n] f32
out c[m n] {t}
c = relu(sum[k](a * b) + bias)

schedule
{schedule}"""
GEMM_SCHEDULE = """tile m=128 n=256 k=64
grid m n
order grouped(8)
persistent
stream k stages=3
load tma
roles load=1 mma=2
registers load=24 mma=240
"""
MATMUL = """
kernel matmul
in  a[m k] {t}, b[k n] {t}
out c[m n] {t}
c = sum[k](a * b)

schedule
{schedule}"""


FP8 = """
kernel matmul
in  a[m k] {t}, b[n k] {t}
out c[m n] bf16
c = sum[k](a * b)

schedule
{schedule}"""
PRODUCTS = (GEMM, MATMUL, FP8)


def edited(schedule: str, **changes: str | None) -> str:
    """The schedule with the lines of some directives replaced, or left out (None)."""
    lines = [x for x in schedule.splitlines() if x.split()[0] not in changes]
    return "\n".join([*lines, *(v for v in changes.values() if v)]) + "\n"


# name -> (program, dtype, schedule, what is checked)
CASES: dict[str, tuple[str, str, str]] = {
    "attention": (ATTENTION, "bf16", SCHEDULE),
    "fp16": (ATTENTION, "f16", SCHEDULE),
    "in_order": (ATTENTION, "bf16", edited(SCHEDULE, issue=None, hold=None)),
    "shared_q": (ATTENTION, "bf16", edited(SCHEDULE, hold=None)),
    "lazy": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)")),
    "across": (ATTENTION, "bf16", edited(SCHEDULE, reduce=None)),
    "n64": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=128 n=64")),
    "stages3": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=128 n=64", stream="stream n stages=3")),
    "one_tile": (ATTENTION, "bf16", edited(SCHEDULE, persistent=None)),
    "one_group": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=64 n=128", roles="roles load=1 mma=1")),
    "spec": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative")),
    "spec_shared": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", hold=None)),
    "spec_n64": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", tile="tile m=128 n=64")),
    "spec_fp16": (ATTENTION, "f16", edited(SCHEDULE, rescale="rescale speculative")),
    "l2_4": (ATTENTION, "bf16", edited(SCHEDULE, order="order longest_first l2=4MiB")),
    "l2_16": (ATTENTION, "bf16", edited(SCHEDULE, order="order longest_first l2=16MiB")),
    "l2_32": (ATTENTION, "bf16", edited(SCHEDULE, order="order longest_first l2=32MiB")),
    "row": (ATTENTION, "bf16", edited(SCHEDULE, order="order longest_first")),
    "n64_4": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=128 n=64", stream="stream n stages=4")),
    "wide": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=256 n=64", hold=None)),
    "lazy_shared": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", hold=None)),
    "direct_n64": (ATTENTION, "bf16", edited(SCHEDULE, hold="hold o registers", tile="tile m=128 n=64")),
    "direct_n64_lazy": (
        ATTENTION,
        "bf16",
        edited(SCHEDULE, hold="hold o registers", tile="tile m=128 n=64", rescale="rescale lazy(8)"),
    ),
    "direct_n64_spec": (
        ATTENTION,
        "bf16",
        edited(SCHEDULE, hold="hold o registers", tile="tile m=128 n=64", rescale="rescale speculative"),
    ),
    "gemm_direct": (GEMM, "bf16", edited(GEMM_SCHEDULE, stream="stream k stages=4", hold="hold c registers")),
    "direct": (ATTENTION, "bf16", edited(SCHEDULE, hold="hold o registers")),
    "lse": (LSE, "bf16", SCHEDULE),
    "gemm": (GEMM, "bf16", GEMM_SCHEDULE),
    "gemm_tall": (GEMM, "bf16", edited(GEMM_SCHEDULE, tile="tile m=256 n=128 k=64")),
    "gemm_g4": (GEMM, "bf16", edited(GEMM_SCHEDULE, order="order grouped(4)")),
    "gemm_g16": (GEMM, "bf16", edited(GEMM_SCHEDULE, order="order grouped(16)")),
    "gemm_fp16": (GEMM, "f16", GEMM_SCHEDULE),
    "gemm_128": (GEMM, "bf16", edited(GEMM_SCHEDULE, tile="tile m=128 n=128 k=64", stream="stream k stages=4")),
    "matmul": (MATMUL, "bf16", GEMM_SCHEDULE),
    "fp8": (FP8, "e4m3", edited(GEMM_SCHEDULE, tile="tile m=128 n=256 k=128")),
    "matmul_k128": (MATMUL, "bf16", edited(GEMM_SCHEDULE, tile="tile m=128 n=128 k=128", stream="stream k stages=3")),
}
FIRST = ("attention", "in_order", "shared_q", "lazy", "n64", "one_group", "gemm", "gemm_128")


def case(name: str) -> tuple[str, str, str]:
    return CASES[name.partition("@")[0]]


def dim(name: str) -> int:
    """`lazy@64` is the case `lazy` with head dim 64."""
    return int(name.partition("@")[2] or 128)


def build(name: str) -> tuple[Callable[..., Any], str]:
    """(entry, language) of a case's program."""
    from dsl.hardware import hardware
    from dsl.lowering import lower
    from dsl.parser import parse
    from evaluators.compiler import load_source

    text, dtype, schedule = case(name)
    program = parse(text.format(t=dtype, schedule=schedule).lstrip())
    found = lower(program, hardware("h200"), {"d": dim(name), "e": dim(name)})
    for w in found.warnings:
        print(f"  {name}: {w.message}")
    return getattr(load_source(found.source), found.entry), found.language


# -- correctness, in the child -----------------------------------------------------------------------------------------


def attended(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """(output, log-sum-exp) in float64."""
    import torch

    r = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(r, 1) for x in (k, v))
    s = q.double() @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        keep = torch.arange(q.shape[2], device=q.device)[:, None] >= torch.arange(k.shape[2], device=q.device)
        s = s.masked_fill(~keep, -float("inf"))
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def stressed(kind: str, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    import torch

    n = k.shape[2]
    ramp = torch.linspace(0.1, 12, n, device=q.device)[None, None, :, None]
    if kind == "rising":
        return q.abs(), (k.abs() * ramp).to(k.dtype), v
    if kind == "falling":
        return q.abs(), (k.abs() * ramp.flip(2)).to(k.dtype), v
    if kind == "negative":
        return (q.abs() * 6).to(q.dtype), -(k.abs() * 2).to(k.dtype), v
    if kind == "last":
        k = k.clone()
        k[:, :, -1] = q[:, : k.shape[1], -1] * 20
        return q, k, v
    if kind == "large":
        return (q * 6).to(q.dtype), k, v
    if kind in ("nan", "inf"):
        v, k = v.clone(), k.clone()
        # every row sees the first key: what a weight of 0 makes of an infinity is free
        (k if kind == "nan" else v)[:, :, n // 2 if kind == "nan" else 0, 3] = float(kind)
        return q, k, v
    return q, k, v


def same(a: Any, b: Any) -> float:
    """The relative L2 error; infinite where NaN or infinities stand in other places."""
    import torch

    a, b = a.double(), b.double()
    odd = ~torch.isfinite(b)
    if bool((odd != ~torch.isfinite(a)).any()):
        return float("inf")
    a, b = a.masked_fill(odd, 0), b.masked_fill(odd, 0)
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def check_attention(name: str, run: Callable[..., Any], sizes: list[tuple[int, ...]], kinds: list[str]) -> list[str]:
    import torch

    dtype = torch.bfloat16 if case(name)[1] == "bf16" else torch.float16
    worst: dict[str, float] = {}
    said = []
    for causal in (False, True):
        for b, h, g, m, n in sizes:
            for kind in kinds:
                q, k, v = (
                    torch.randn(b, x, y, dim(name), device="cuda").to(dtype) for x, y in ((h, m), (g, n), (g, n))
                )
                q, k, v = stressed(kind, q, k, v)
                got = run(q, k, v, causal)
                again = run(q, k, v, causal)
                both = (got,) if torch.is_tensor(got) else got
                more = (again,) if torch.is_tensor(again) else again
                right = attended(q, k, v, causal)
                for i, (x, y) in enumerate(zip(both, more, strict=True)):
                    error = same(x, right[i])
                    key = f"{kind}{' lse' if i else ''}"
                    worst[key] = max(worst.get(key, 0.0), error)
                    repeats = torch.equal(x.view(torch.uint8), y.view(torch.uint8))
                    if error > (1e-5 if i else 6e-3) or not repeats:
                        at = f"{kind} causal={causal} {(b, h, g, m, n)} output {i}"
                        said.append(f"{at}: {error:.1e} repeats={repeats}")
    return [*said[:6], f"wrong {len(said)}; worst " + " ".join(f"{k} {e:.1e}" for k, e in worst.items())]


def check_gemm(name: str, run: Callable[..., Any], sizes: list[tuple[int, ...]]) -> list[str]:
    import torch

    dtype = torch.bfloat16 if case(name)[1] == "bf16" else torch.float16
    worst, said = 0.0, []
    for m, n, k in sizes:
        narrow = case(name)[0] is FP8
        dtype = torch.float8_e4m3fn if narrow else dtype
        m, n, k = (m, 16 * -(-n // 16), 16 * -(-k // 16)) if narrow else (m, n, k)
        a = torch.randn(m, k, device="cuda").to(dtype)
        b = torch.randn(*((n, k) if narrow else (k, n)), device="cuda").to(dtype)
        bias = [torch.randn(n, device="cuda")] if case(name)[0] is GEMM else []
        got, again = run(a, b, *bias), run(a, b, *bias)
        right = a.double() @ (b.double().T if narrow else b.double())
        right = torch.relu(right + bias[0].double()) if bias else right
        error = same(got, right)
        worst = max(worst, error)
        if error > 4e-3 or not torch.equal(got, again):
            said.append(f"{(m, n, k)}: {error:.1e} repeats={torch.equal(got, again)}")
    return [*said[:6], f"wrong {len(said)}; worst {worst:.1e}"]


def child_check(name: str, part: str, quick: bool) -> list[str]:
    run, language = build(name)
    if language != "gluon":
        return ["not specialised"]
    if case(name)[0] in PRODUCTS:
        sizes = [(1, 8, 8), (128, 256, 64), (127, 264, 72), (129, 248, 200), (300, 520, 1000), (1000, 2048, 512)]
        if part == "sizes":
            sizes = [(m, 8 * -(-m // 8), 8 * (1 + m % 40)) for m in range(1, 701, 3)]
        return check_gemm(name, run, sizes)
    if part == "sizes":
        every = [(1, 2, 1, m, m) for m in range(1, 701)] + [(3, 6, 2, m, 701 - m) for m in range(1, 700, 13)]
        return check_attention(name, run, every, ["plain"])
    sizes = [(1, 1, 1, 1, 1), (2, 4, 2, 128, 128), (1, 3, 3, 65, 200), (3, 2, 1, 255, 129), (1, 2, 2, 700, 700)]
    sizes += [(2, 16, 16, 1024, 1024), (1, 4, 4, 300, 900)]
    kinds = ["plain", "rising", "falling", "negative", "last", "large", "nan", "inf"]
    if quick:
        sizes, kinds = [*sizes[1:5], (1, 4, 4, 1024, 1024)], ["plain", "rising", "falling", "last", "nan"]
    return check_attention(name, run, sizes, kinds)


# -- speed, in the child -----------------------------------------------------------------------------------------------


def alternating(arms: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds a call of each arm in each round."""
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

    counts = {}
    for x, f in arms.items():
        f()
        counts[x] = max(2, math.ceil(0.03 / timed(f, 3)))
    found: dict[str, list[float]] = {x: [] for x in arms}
    for r in range(rounds):
        for x in list(arms)[:: 1 if r % 2 else -1]:
            flush.zero_()
            timed(arms[x], -(-counts[x] // 2))
            found[x].append(timed(arms[x], counts[x]))
    return found


def child_speed(name: str, rounds: int, wide: bool) -> list[str]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    run, language = build(name)
    if language != "gluon":
        return ["not specialised"]
    said: list[str] = []
    geo: dict[Any, list[float]] = {}
    if case(name)[0] in PRODUCTS:
        for size in (4096, 8192):
            a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            bias = [torch.randn(size, device="cuda")] if case(name)[0] is GEMM else []
            arms = {"theirs": lambda a=a, b=b: a @ b, "ours": lambda a=a, b=b, bias=bias: run(a, b, *bias)}
            said.append(_row(f"{size}", 2 * size**3, alternating(arms, rounds), geo, "gemm"))
    else:
        shapes = ((8, 4096), (4, 8192), (2, 16384), (1, 32768)) if wide else ((8, 4096), (2, 16384))
        for causal in (False, True):
            for b, s in shapes:
                q, k, v = (torch.randn(b, HEADS, s, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))

                def theirs(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
                    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

                def ours(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
                    return run(q, k, v, causal)

                x, y = ours(), theirs()
                x = x if torch.is_tensor(x) else x[0]
                apart = float((x.float() - y.float()).norm() / y.float().norm())
                del x, y
                flops = 4 * b * HEADS * s * s * 128 * (0.5 if causal else 1)
                label = f"{'causal' if causal else 'full'} {b}x{s} apart {apart:.1e}"
                said.append(_row(label, flops, alternating({"theirs": theirs, "ours": ours}, rounds), geo, causal))
    for key, values in geo.items():
        said.append(f"geometric mean {key}: {math.exp(sum(map(math.log, values)) / len(values)):.3f}")
    return said


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


def child_sweep(names: list[str], rounds: int, sets: str) -> list[str]:
    """Many cases in turn with the vendor's kernel, in one process; they were checked before."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    said: list[str] = []
    geo: dict[str, list[float]] = {}
    entries = {n: build(n)[0] for n in names}
    products = {n: f for n, f in entries.items() if case(n)[0] in PRODUCTS}
    attentions = {n: f for n, f in entries.items() if n not in products}

    def tell(label: str, flops: float, arms: dict[str, Callable[[], Any]]) -> None:
        found = alternating(arms, rounds)
        speed = {x: flops / sorted(v)[len(v) // 2] / 1e12 for x, v in found.items()}
        ratios = {x: sorted(a / b for a, b in zip(found["theirs"], v, strict=True)) for x, v in found.items()}
        rows = [f"{x} {speed[x]:.0f} ({ratios[x][len(ratios[x]) // 2]:.3f})" for x in speed]
        for x in speed:
            if x != "theirs":
                geo.setdefault(f"{label.rsplit(' ', 1)[0]} {x}", []).append(ratios[x][len(ratios[x]) // 2])
        said.append(f"{label}: " + ", ".join(rows))
        print(said[-1], flush=True)

    for size in (4096, 8192) if products else ():
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        bias = torch.randn(size, device="cuda")
        arms: dict[str, Callable[[], Any]] = {"theirs": lambda a=a, b=b: a @ b}
        if narrow := [f for n, f in products.items() if case(n)[0] is FP8]:
            x, y, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones((), device="cuda")

            def scaled(x: Any = x, y: Any = y, one: Any = one) -> Any:
                return torch._scaled_mm(x, y.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

            tell(f"fp8 {size}", 2 * size**3, {"theirs": scaled, "fp8": lambda x=x, y=y, f=narrow[0]: f(x, y)})
        for n, f in products.items():
            if case(n)[0] is FP8:
                continue
            more = [bias] if case(n)[0] is GEMM else []
            arms[n] = lambda f=f, a=a, b=b, more=more: f(a, b, *more)
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
                arms[n] = lambda f=f, q=q, k=k, v=v, causal=causal: f(q, k, v, causal)
        if len(arms) > 1:
            tell(label, 4 * b * h * s * s * d * (0.5 if causal else 1), arms)
    for key, values in geo.items():
        said.append(f"geometric mean {key}: {math.exp(sum(map(math.log, values)) / len(values)):.3f}")
        print(said[-1], flush=True)
    return []


def _row(label: str, flops: float, found: dict[str, list[float]], geo: dict[Any, list[float]], key: Any) -> str:
    middle = {x: sorted(v)[len(v) // 2] for x, v in found.items()}
    ratios = sorted(a / b for a, b in zip(found["theirs"], found["ours"], strict=True))
    ratio = ratios[len(ratios) // 2]
    geo.setdefault(key, []).append(ratio)
    speeds = " ".join(f"{x} {flops / s / 1e12:.0f}" for x, s in middle.items())
    return f"{label}: {speeds} TFLOPS, ratio {ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"


# -- the parent --------------------------------------------------------------------------------------------------------


def spawn(name: str, part: str, limit: float, extra: list[str]) -> tuple[str, str, list[str]]:
    began = time.time()
    command = [sys.executable, __file__, "--child", name, "--part", part, *extra]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        lines = done.stdout.splitlines()
        if done.returncode:
            words = [x for x in done.stderr.splitlines() if x.strip() and "leak" not in x]
            lines += [f"FAILED ({done.returncode}): {' / '.join(words[-3:])[:400]}"]
    except subprocess.TimeoutExpired as late:
        out = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        lines = [*out.splitlines(), f"HUNG: killed after {limit:.0f} s"]
    return name, part, [*lines, f"[{time.time() - began:.0f} s]"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="all", choices=("check", "sizes", "speed", "sweep", "all"))
    parser.add_argument("--cases", default=",".join(FIRST))
    parser.add_argument("--speed", default="attention,gemm")
    parser.add_argument("--sizes", default="attention")
    parser.add_argument("--child", default="")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--wide", action="store_true", help="all eight workloads, not four")
    parser.add_argument("--limit", type=float, default=75)
    parser.add_argument("--sets", default="four,rising", help="of workloads: four, eight, rising, grouped, dims")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and kinds of data")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--out", default=os.environ.get("OUT", "."))
    args = parser.parse_args()
    extra = ["--rounds", str(args.rounds), *(["--wide"] if args.wide else []), *(["--quick"] if args.quick else [])]
    extra += ["--sets", args.sets]
    if args.child:
        if args.part == "sweep":
            said = child_sweep(args.child.split(","), args.rounds, args.sets)
        elif args.part == "speed":
            said = child_speed(args.child, args.rounds, args.wide)
        else:
            said = child_check(args.child, args.part, args.quick)
        print("\n".join(said))
        return
    rows: list[tuple[str, str, list[str]]] = []

    def keep(row: tuple[str, str, list[str]]) -> None:
        rows.append(row)
        print(f"{row[1]} {row[0]}\n   " + "\n   ".join(row[2]), flush=True)
        Path(args.out, "gluon_device.json").write_text(json.dumps(rows, indent=1))

    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = []
        if args.part in ("check", "all"):
            jobs += [pool.submit(spawn, n, "check", args.limit, extra) for n in args.cases.split(",") if n]
        if args.part in ("sizes", "all"):
            jobs += [pool.submit(spawn, n, "sizes", args.limit, extra) for n in args.sizes.split(",") if n]
        for job in jobs:
            keep(job.result())
    if args.part == "sweep":
        keep(spawn(args.cases, "sweep", args.limit, extra))
    if args.part in ("speed", "all"):
        for name in (n for n in args.speed.split(",") if n):
            keep(spawn(name, "speed", args.limit, extra))


if __name__ == "__main__":
    main()
