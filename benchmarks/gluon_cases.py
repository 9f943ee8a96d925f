"""Programs and schedules that `gluon_device.py` checks and times. `NAME@64`: head dim 64; `drawn:7`: a drawn one."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

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
FP8_QK = """
kernel attention
in  q[b h m d] e4m3, k[b g n d] e4m3, v[b g n e] bf16
out o[b h m e] bf16
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(not causal or m >= n, s, -inf)
o = sum[n](softmax[n](c) * v)

schedule
{schedule}"""
INT8_QK = """
kernel attention
in  q[b h m d] int8, k[b g n d] int8, v[b g n e] bf16, qs[b h m] f32, ks[b g n] f32
out o[b h m e] bf16
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * qs * ks
c[b h m n] = where(not causal or m >= n, s, -inf)
o = sum[n](softmax[n](c) * v)

schedule
{schedule}"""
INT8_BLOCKS = """
kernel attention
in  q[b h m d] int8, k[b g n d] int8, v[b g n e] bf16, qs[b h mb] f32, ks[b g nb] f32
out o[b h m e] bf16
axis g = h // (H // G)
axis mb = m // 128
axis nb = n // 128
param causal bool
s[b h m n] = sum[d](q * k) * (qs * ks)
c[b h m n] = where(not causal or m >= n, s, -inf)
o = sum[n](softmax[n](c) * v)

schedule
{schedule}"""
WINDOW = """
kernel window
in  q[b h m d] {t}, k[b g n d] {t}, v[b g n e] {t}
out o[b h m e] {t}
axis g = h // (H // G)
param window int = 150
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(m >= n and m - n < window, s, -inf)
o = sum[n](softmax[n](c) * v)

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


FREE = "reduce rows=per_thread sums=free"
FIRST = "reduce rows=per_thread sums=first"
PING = "issue next_contraction turns=ping_pong"


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
    "lazy_free": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", reduce=FREE)),
    "first_shared": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", reduce=FIRST, hold=None)),
    "across": (ATTENTION, "bf16", edited(SCHEDULE, reduce=None)),
    "n64": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=128 n=64")),
    "stages3": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=128 n=64", stream="stream n stages=3")),
    "one_tile": (ATTENTION, "bf16", edited(SCHEDULE, persistent=None)),
    "one_group": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=64 n=128", roles="roles load=1 mma=1")),
    "spec": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative")),
    "spec_shared": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", hold=None)),
    "spec_n64": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", tile="tile m=128 n=64")),
    "spec_fp16": (ATTENTION, "f16", edited(SCHEDULE, rescale="rescale speculative")),
    "poly4": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", exponent="exponent poly(4)")),
    "poly8": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", exponent="exponent poly(8)")),
    "spec_poly4": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", exponent="exponent poly(4)")),
    "spec_poly8": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", exponent="exponent poly(8)")),
    "ping": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", issue=PING)),
    "ping_always": (ATTENTION, "bf16", edited(SCHEDULE, issue=PING)),
    "ping_spec": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", issue=PING)),
    "ping_shared": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", issue=PING, hold=None)),
    "k3": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", buffers="buffers k 3")),
    "v3": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", buffers="buffers v 3")),
    "v3_shared": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", hold=None, buffers="buffers v 3")),
    "k1": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", buffers="buffers k 1")),
    "k3_spec": (ATTENTION, "bf16", edited(SCHEDULE, rescale="rescale speculative", buffers="buffers k 3")),
    "four_groups": (
        ATTENTION,
        "bf16",
        edited(
            SCHEDULE,
            tile="tile m=256 n=64",
            roles="roles load=1 mma=4",
            registers="registers load=24 mma=112",
            rescale="rescale lazy(8)",
        ),
    ),
    "n256": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=128 n=256", hold=None, rescale="rescale lazy(8)")),
    "n256_spec": (
        ATTENTION,
        "bf16",
        edited(SCHEDULE, tile="tile m=128 n=256", hold=None, rescale="rescale speculative"),
    ),
    "wide_lazy": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=256 n=64", hold=None, rescale="rescale lazy(8)")),
    "fp8_qk": (FP8_QK, "e4m3", edited(SCHEDULE, rescale="rescale lazy(8)")),
    "fp8_qk_spec": (FP8_QK, "e4m3", edited(SCHEDULE, rescale="rescale speculative")),
    "int8_qk": (INT8_QK, "int8", edited(SCHEDULE, rescale="rescale lazy(8)")),
    "int8_blocks": (INT8_BLOCKS, "int8", edited(SCHEDULE, rescale="rescale lazy(8)")),
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
    "lse": (LSE, "bf16", edited(SCHEDULE, hold=None)),
    "lse_fp16": (LSE, "f16", edited(SCHEDULE, hold=None)),
    "window": (WINDOW, "bf16", SCHEDULE),
    "window_lazy": (WINDOW, "bf16", edited(SCHEDULE, rescale="rescale lazy(8)", tile="tile m=128 n=64")),
    "d256": (ATTENTION, "bf16", edited(SCHEDULE, tile="tile m=128 n=64", hold="hold o registers")),
    "d256_lazy": (
        ATTENTION,
        "bf16",
        edited(SCHEDULE, tile="tile m=128 n=64", hold="hold o registers", rescale="rescale lazy(8)"),
    ),
    "d256_spec": (
        ATTENTION,
        "bf16",
        edited(SCHEDULE, tile="tile m=128 n=64", hold="hold o registers", rescale="rescale speculative"),
    ),
    "gemm": (GEMM, "bf16", GEMM_SCHEDULE),
    "gemm_tall": (GEMM, "bf16", edited(GEMM_SCHEDULE, tile="tile m=256 n=128 k=64")),
    "matmul_g4": (MATMUL, "bf16", edited(GEMM_SCHEDULE, order="order grouped(4)")),
    "gemm_g4": (GEMM, "bf16", edited(GEMM_SCHEDULE, order="order grouped(4)")),
    "matmul_g16": (MATMUL, "bf16", edited(GEMM_SCHEDULE, order="order grouped(16)")),
    "gemm_g16": (GEMM, "bf16", edited(GEMM_SCHEDULE, order="order grouped(16)")),
    "matmul_tall": (MATMUL, "bf16", edited(GEMM_SCHEDULE, tile="tile m=256 n=128 k=64")),
    "matmul_row": (MATMUL, "bf16", edited(GEMM_SCHEDULE, order="order row")),
    "matmul_once": (MATMUL, "bf16", edited(GEMM_SCHEDULE, persistent=None)),
    "matmul_k32": (
        MATMUL,
        "bf16",
        edited(GEMM_SCHEDULE, tile="tile m=128 n=256 k=32", stream="stream k stages=6"),
    ),
    "gemm_fp16": (GEMM, "f16", GEMM_SCHEDULE),
    "gemm_128": (GEMM, "bf16", edited(GEMM_SCHEDULE, tile="tile m=128 n=128 k=64", stream="stream k stages=4")),
    "matmul": (MATMUL, "bf16", GEMM_SCHEDULE),
    "fp8": (FP8, "e4m3", edited(GEMM_SCHEDULE, tile="tile m=128 n=256 k=128")),
    "fp8_g4": (FP8, "e4m3", edited(GEMM_SCHEDULE, tile="tile m=128 n=256 k=128", order="order grouped(4)")),
    "fp8_k64": (FP8, "e4m3", edited(GEMM_SCHEDULE, stream="stream k stages=6")),
    "fp8_square": (FP8, "e4m3", edited(GEMM_SCHEDULE, tile="tile m=128 n=128 k=128", stream="stream k stages=5")),
    "fp8_tall": (FP8, "e4m3", edited(GEMM_SCHEDULE, tile="tile m=256 n=128 k=128")),
    "fp8_once": (FP8, "e4m3", edited(GEMM_SCHEDULE, tile="tile m=128 n=256 k=128", persistent=None)),
    "matmul_k128": (MATMUL, "bf16", edited(GEMM_SCHEDULE, tile="tile m=128 n=128 k=128", stream="stream k stages=3")),
}
FIRST = ("attention", "in_order", "shared_q", "lazy", "n64", "one_group", "gemm", "gemm_128")


def case(name: str) -> tuple[str, str, str]:
    """`drawn:7` is attention with a legal schedule drawn from the seed 7."""
    if name.startswith("drawn:"):
        return ATTENTION, "bf16", drawn(int(name.partition(":")[2]))
    return CASES[name.partition("@")[0]]


@functools.cache
def drawn(seed: int) -> str:
    """A schedule after eight legal edits, roles kept."""
    from dsl.hardware import hardware
    from dsl.knobs import knobs, set_knob
    from dsl.parser import parse
    from dsl.printer import print_program

    rng, hw = random.Random(seed), hardware("h200")
    sizes = {"b": 2, "h": 4, "g": 2, "m": 512, "n": 512, "d": 128, "e": 128}  # they bound shared memory
    program = parse(ATTENTION.format(t="bf16", schedule=edited(SCHEDULE, rescale="rescale lazy(8)")).lstrip())
    for _ in range(8):
        knob = rng.choice([k for k in knobs(program, hw, sizes) if k.name not in ("roles mma", "load", "stream")])
        program = set_knob(program, knob, rng.choice(knob.legal))
    return print_program(program).partition("schedule\n")[2]


def dim(name: str) -> int:
    """`lazy@64` is the case `lazy` with head dim 64."""
    return int(name.partition("@")[2] or 128)


def lowered(name: str) -> Any:
    from dsl.hardware import hardware
    from dsl.lowering import lower
    from dsl.parser import parse

    text, dtype, schedule = case(name)
    return lower(
        parse(text.format(t=dtype, schedule=schedule).lstrip()), hardware("h200"), {"d": dim(name), "e": dim(name)}
    )


def build(name: str) -> tuple[Callable[..., Any], str, Any]:
    """(entry, language, module) of a case's program."""
    from evaluators.compiler import load_source

    found = lowered(name)
    for w in found.warnings:
        print(f"  {name}: {w.message}")
    module = load_source(found.source)
    return getattr(module, found.entry), found.language, module
