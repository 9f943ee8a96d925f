"""Tasks that start from a program: change what it computes, or only how."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from task import (
    Task,
    declares,
    directive,
    has_sums_in,
    kernels,
    number_of_kernels,
    quantised,
    same_algorithm,
    scale_in_blocks,
)
from writing import HEADS, MATMUL, softmax

Array = NDArray[Any]

GEMM = """kernel gemm
in a[m k] bf16, b[k n] bf16
out c[m n] bf16
c = sum[k](a * b)

schedule
tile m=64 n=64 k=32
grid m n
stream k
"""
ATTENTION = """kernel attention
in q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16
out o[b h m e] bf16
s[b h m n] = sum[d](q * k) * rsqrt(D)
o = sum[n](softmax[n](s) * v)

schedule
tile m=64 n=64
grid b h m
stream n
"""
INT8_SCORES = """kernel scores
in q[h m d] bf16, k[h n d] bf16
out s[h m n] bf16
q8[h m d], qs[h m] = quantize(q, int8)
k8[h n d], ks[h n] = quantize(k, int8)
s = sum[d](q8 * k8) * qs * ks
"""
NORM_GEMM = """kernel norm_gemm
in x[r c] bf16, w[c f] bf16
out y[r f] bf16
xn[r c] bf16 = x * rsqrt(mean[c](x * x) + 1e-6)
y = sum[c](xn * w)

schedule
kernels xn | y
tile r=64 f=64 c=32
stream c stages=2
"""
HABITS = """kernel attention
in q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16
out o[b h m e] bf16
s[b h m n] = (q @ k.T) / D ** 0.5
s += 0.0
p[b h m n] = softmax(s, axis=n)
o = p @ v
"""
LINEAR = """kernel linear
in x[r c] bf16, w[c f] bf16
out y[r f] bf16
y = sum[c](x * w)
"""
SIGNATURE = "in q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16\nout o[b h m e] bf16"


def scores(i: dict[str, Array]) -> Array:
    k = i["k"]
    k = np.repeat(k, i["q"].shape[1] // k.shape[1], axis=1)
    s: Array = np.einsum("bhmd,bhnd->bhmn", i["q"], k) / math.sqrt(i["q"].shape[-1])
    return s


def attended(i: dict[str, Array], s: Array) -> dict[str, Array]:
    v = np.repeat(i["v"], s.shape[1] // i["v"].shape[1], axis=1)
    return {"o": np.einsum("bhmn,bhne->bhme", softmax(s), v)}


def causal(i: dict[str, Array], causal: bool) -> dict[str, Array]:
    s = scores(i)
    keep = np.tri(*s.shape[2:], dtype=bool) | (not causal)
    return attended(i, np.where(keep, s, -np.inf))


def with_lse(i: dict[str, Array]) -> dict[str, Array]:
    s = scores(i)
    return {**attended(i, s), "lse": np.log(np.exp(s).sum(axis=-1))}


def alibi(i: dict[str, Array]) -> dict[str, Array]:
    s = scores(i)
    m, n = np.arange(s.shape[2])[:, None], np.arange(s.shape[3])[None]
    return attended(i, s - i["slope"][None, :, None, None] * (m - n))


def sinks(i: dict[str, Array]) -> dict[str, Array]:
    s = np.exp(scores(i))
    total = s.sum(axis=-1, keepdims=True) + np.exp(i["sink"])[None, :, None, None]
    return {"o": np.einsum("bhmn,bhne->bhme", s / total, i["v"])}


def gemm(i: dict[str, Array]) -> dict[str, Array]:
    return {"c": i["a"] @ i["b"]}


def int8(i: dict[str, Array]) -> dict[str, Array]:
    return {"s": np.einsum("hmd,hnd->hmn", i["q"], i["k"])}


def norm_gemm(i: dict[str, Array]) -> dict[str, Array]:
    x = i["x"]
    return {"y": x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) @ i["w"]}


LONG = ({"m": 5, "n": 7, "k": 600},)
SCORES = ({"h": 2, "m": 5, "n": 7, "d": 6},)
PLAIN = ({**HEADS, "g": 4},)

EDITING = (
    Task(
        "add_causal_mask",
        "Add a causal mask that a compile-time bool `causal` switches on: then row m sees the keys n <= m only.",
        SIGNATURE,
        causal,
        ({**HEADS, "m": 6, "n": 6},),
        params=({"causal": True}, {"causal": False}),
        given=ATTENTION,
    ),
    Task(
        "grouped_heads",
        "Let groups of heads share k and v: k and v have heads g instead of h, and head h of q uses head h // (H // "
        "G).",
        "in q[b h m d] bf16, k[b g n d] bf16, v[b g n e] bf16\nout o[b h m e] bf16",
        lambda i: attended(i, scores(i)),
        (HEADS,),
        given=ATTENTION,
    ),
    Task(
        "add_logsumexp",
        "Also write lse[b h m], the logarithm over n of the sum of the exponentials of the scores, safe from overflow.",
        f"{SIGNATURE}, lse[b h m] f32",
        with_lse,
        PLAIN,
        given=ATTENTION,
    ),
    Task(
        "add_alibi",
        "Subtract slope[h] * (m - n) from the scores, with an input slope[h] in f32.",
        SIGNATURE.replace("\nout", ", slope[h] f32\nout"),
        alibi,
        PLAIN,
        given=ATTENTION,
    ),
    Task(
        "add_sink",
        "Add an attention sink: an input sink[h] in f32, whose exponential joins the sum of exponentials that each "
        "row is divided by, without a value of its own. It must be safe from overflow.",
        SIGNATURE.replace("\nout", ", sink[h] f32\nout"),
        sinks,
        PLAIN,
        given=ATTENTION,
    ),
    Task(
        "split_k",
        "Make this GEMM split-k: blocks of 256 along k are summed by program instances of their own into a stored "
        "f32 tensor `part`, and a second kernel adds the parts up and writes c.",
        "in a[m k] bf16, b[k n] bf16\nout c[m n] bf16",
        gemm,
        LONG,
        given=GEMM,
        demands=(kernels("part", "c"), number_of_kernels(2)),
    ),
    Task(
        "two_level_sums",
        "Sum within blocks of 64 along k in f16, and add up the blocks in f32.",
        "in a[m k] bf16, b[k n] bf16\nout c[m n] bf16",
        gemm,
        LONG,
        given=GEMM,
        demands=(has_sums_in("f16"),),
    ),
    Task(
        "tune_gemm",
        "Leave what it computes. Tiles of 128 by 256 over m and n, k in blocks of 64 with 3 stages, tiles loaded by "
        "the tensor memory accelerator, persistent, 8 warps.",
        "in a[m k] bf16, b[k n] bf16\nout c[m n] bf16",
        gemm,
        MATMUL,
        given=GEMM,
        demands=(
            same_algorithm(GEMM),
            directive("tile m=128 n=256 k=64"),
            directive("stream k stages=3"),
            directive("load tma"),
            directive("persistent"),
            directive("warps 8"),
        ),
    ),
    Task(
        "tune_for_two_chips",
        "Leave what it computes. Use lazy rescaling with a threshold of 8 and exp2 exponents everywhere; only on "
        "gfx942, ask for 2 waves per EU and keep the tiles of a head on one die.",
        SIGNATURE,
        lambda i: attended(i, scores(i)),
        PLAIN,
        given=ATTENTION,
        demands=(
            same_algorithm(ATTENTION),
            directive("rescale lazy(8)"),
            directive("exponent exp2"),
            directive("waves_per_eu 2", chip="gfx942"),
            directive("swizzle dies", chip="gfx942"),
        ),
    ),
    Task(
        "k_quantised_apart",
        "Move the quantisation of k into a kernel of its own; that of q stays with the scores.",
        "in q[h m d] bf16, k[h n d] bf16\nout s[h m n] bf16",
        int8,
        SCORES,
        given=INT8_SCORES,
        demands=(same_algorithm(INT8_SCORES), kernels("k8 ks", "s"), number_of_kernels(2)),
    ),
    Task(
        "scale_by_blocks",
        "Give the quantised k one scale for each block of 64 along n instead of one a row; q keeps its scales.",
        "in q[h m d] bf16, k[h n d] bf16\nout s[h m n] bf16",
        int8,
        ({"h": 2, "m": 5, "n": 150, "d": 6},),
        given=INT8_SCORES,
        demands=(scale_in_blocks("n", 64),),
    ),
    Task(
        "fuse",
        "Fuse the two kernels into one; what it computes stays.",
        "in x[r c] bf16, w[c f] bf16\nout y[r f] bf16",
        norm_gemm,
        ({"r": 3, "c": 7, "f": 5},),
        given=NORM_GEMM,
        demands=(same_algorithm(NORM_GEMM), number_of_kernels(1)),
    ),
    Task(
        "schedule_the_first_kernel",
        "Leave what it computes, and the last kernel's schedule. Give the kernel that writes xn a schedule: one row "
        "whole in each program instance, 8 warps.",
        "in x[r c] bf16, w[c f] bf16\nout y[r f] bf16",
        norm_gemm,
        ({"r": 3, "c": 7, "f": 5},),
        given=NORM_GEMM,
        demands=(
            same_algorithm(NORM_GEMM),
            directive("tile r=1 c=all", writes="xn"),
            directive("warps 8", writes="xn"),
            directive("tile r=64 f=64 c=32"),
        ),
    ),
    Task(
        "repair_habits",
        "This was written by someone who knows Python. Write it so that it is a program of the language: attention "
        "with scores scaled by one over the root of d.",
        SIGNATURE,
        lambda i: attended(i, scores(i)),
        PLAIN,
        given=HABITS,
    ),
    Task(
        "int8_linear",
        "Compute it in int8: quantise x with one scale a row (names x8, xs) and w with one scale a column f (names "
        "w8, ws), and apply the scales to the sum.",
        "in x[r c] bf16, w[c f] bf16\nout y[r f] bf16",
        lambda i: {"y": i["x"] @ i["w"]},
        ({"r": 3, "c": 7, "f": 5},),
        given=LINEAR,
        demands=(quantised("x8 xs", "w8 ws"),),
    ),
    Task(
        "store_probabilities",
        "Round the probabilities to bf16 under the name p before they meet v, all in one kernel.",
        SIGNATURE,
        lambda i: attended(i, scores(i)),
        PLAIN,
        given=ATTENTION,
        demands=(declares("p", "bf16"), number_of_kernels(1)),
    ),
)
