"""Tasks that ask for a program from words alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from task import Task, declares, directive, kernels, number_of_kernels, quantised

Array = NDArray[Any]
_ERF = np.vectorize(math.erf, otypes=[np.float64])


def softmax(x: Array, axis: int = -1) -> Array:
    weight = np.exp(x - x.max(axis=axis, keepdims=True))
    return weight / weight.sum(axis=axis, keepdims=True)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x * (1 + _ERF(x / math.sqrt(2))) / 2


def rms(x: Array) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def layernorm(i: dict[str, Array]) -> dict[str, Array]:
    z = i["x"] - i["x"].mean(axis=1, keepdims=True)
    return {"y": z / np.sqrt((z * z).mean(axis=1, keepdims=True) + 1e-5) * i["w"] + i["bias"]}


def window(i: dict[str, Array], window: int) -> dict[str, Array]:
    s = np.einsum("bhmd,bhnd->bhmn", i["q"], i["k"]) / math.sqrt(i["q"].shape[-1])
    m, n = np.arange(s.shape[2])[:, None], np.arange(s.shape[3])[None]
    s = np.where((m >= n) & (m - n < window), s, -np.inf)
    return {"o": np.einsum("bhmn,bhne->bhme", softmax(s), i["v"])}


def rope(i: dict[str, Array]) -> dict[str, Array]:
    half = i["x"].shape[-1] // 2
    turned = np.concatenate([-i["x"][..., half:], i["x"][..., :half]], axis=-1)
    return {"y": i["x"] * i["cs"][None, :, None] + turned * i["sn"][None, :, None]}


def convolution(i: dict[str, Array]) -> dict[str, Array]:
    x, w = np.pad(i["x"], ((0, 0), (1, 1))), i["w"]
    return {"y": sum(x[:, j : j + i["x"].shape[1]] * w[:, j : j + 1] for j in range(3))}


def cross_entropy(i: dict[str, Array]) -> dict[str, Array]:
    top = i["x"].max(axis=1)
    total = np.log(np.exp(i["x"] - top[:, None]).sum(axis=1)) + top
    return {"loss": total - i["x"][np.arange(len(top)), i["t"]]}


def best(i: dict[str, Array]) -> dict[str, Array]:
    p = softmax(i["x"])
    order = np.argsort(-p, axis=1, kind="stable")[:, :2]
    keep = np.zeros(p.shape, bool)
    np.put_along_axis(keep, order, True, axis=1)
    return {"y": np.where(keep, p, 0)}


def blocks_of(x: Array, size: int) -> list[Array]:
    return [x[:, at : at + size] for at in range(0, x.shape[1], size)]


def e4m3_blocks(i: dict[str, Array]) -> dict[str, Array]:
    scale = np.stack([np.abs(b).max(axis=1) / 448 for b in blocks_of(i["x"], 128)], axis=1)
    return {"q": i["x"] / np.repeat(scale, 128, axis=1)[:, : i["x"].shape[1]], "s": scale}


ROWS = ({"r": 3, "c": 7}, {"r": 5, "c": 4})
HEADS = {"b": 2, "h": 4, "g": 2, "m": 5, "n": 7, "d": 6, "e": 3}
MATMUL = ({"m": 5, "n": 7, "k": 11},)

WRITING = (
    Task(
        "softmax_rows",
        "Softmax over each row: y[r c] = exp(x[r c]) / sum over c of exp(x[r c]).",
        "in x[r c] bf16\nout y[r c] bf16",
        lambda i: {"y": softmax(i["x"])},
        ROWS,
    ),
    Task(
        "rmsnorm_weight",
        "RMSNorm with a weight: each row of x divided by the root of (the mean of its squares + 1e-6), times w.",
        "in x[r c] bf16, w[c] bf16\nout y[r c] bf16",
        lambda i: {"y": rms(i["x"]) * i["w"]},
        ROWS,
    ),
    Task(
        "layernorm",
        "LayerNorm over rows: subtract the row's mean, divide by the root of (its variance + 1e-5), times w, plus "
        "bias.",
        "in x[r c] bf16, w[c] f32, bias[c] f32\nout y[r c] bf16",
        layernorm,
        ROWS,
    ),
    Task(
        "gemm_transposed",
        "The product of a and the transpose of b, where b is stored with its rows along n, plus a bias, through "
        "GELU (the exact form with erf). Schedule: tiles of 128 by 128 over m and n, k streamed in blocks of 64 "
        "with 3 stages.",
        "in a[m k] bf16, b[n k] bf16, bias[n] f32\nout c[m n] bf16",
        lambda i: {"c": gelu(i["a"] @ i["b"].T + i["bias"])},
        MATMUL,
        demands=(directive("tile m=128 n=128 k=64"), directive("stream k stages=3")),
    ),
    Task(
        "batched_gemm_relu",
        "For each b the matrix product of x and w, negative results set to 0.",
        "in x[b m k] f16, w[b k n] f16\nout y[b m n] f16",
        lambda i: {"y": np.maximum(np.einsum("bmk,bkn->bmn", i["x"], i["w"]), 0)},
        ({"b": 2, "m": 3, "n": 5, "k": 4},),
    ),
    Task(
        "swiglu",
        "silu(x times gate) times (x times up), the two products being matrix products over c.",
        "in x[r c] bf16, up[c f] bf16, gate[c f] bf16\nout y[r f] bf16",
        lambda i: {"y": silu(i["x"] @ i["gate"]) * (i["x"] @ i["up"])},
        ({"r": 3, "c": 7, "f": 5},),
    ),
    Task(
        "mlp_in_two_kernels",
        "relu(x times up) times down, two matrix products, as two kernels: the first stores the hidden values as "
        "bf16 under the name hidden, the second writes y.",
        "in x[r c] bf16, up[c f] bf16, down[f o] bf16\nout y[r o] bf16",
        lambda i: {"y": np.maximum(i["x"] @ i["up"], 0) @ i["down"]},
        ({"r": 3, "c": 7, "f": 5, "o": 4},),
        demands=(kernels("hidden", "y"), number_of_kernels(2), declares("hidden", "bf16")),
    ),
    Task(
        "window_attention",
        "Attention of q on k and v, scores scaled by one over the root of d, in which row m sees only the keys n "
        "with n <= m and m - n < window. `window` is an int that is fixed at compile time.",
        "in q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16\nout o[b h m e] bf16",
        window,
        ({**HEADS, "m": 9, "n": 9},),
        params=({"window": 3}, {"window": 20}),
    ),
    Task(
        "rope",
        "Rotary embedding by halves: y = x * cs + t * sn, where t at position d of the head is -x at d + D/2 for "
        "the first half of d, and x at d - D/2 for the second.",
        "in x[b s h d] bf16, cs[s d] f32, sn[s d] f32\nout y[b s h d] bf16",
        rope,
        ({"b": 2, "s": 3, "h": 2, "d": 8},),
    ),
    Task(
        "cross_entropy",
        "Cross-entropy of rows of logits: the logarithm of the sum of exponentials of the row, computed without "
        "overflow, minus the logit at the row's target t.",
        "in x[r c] bf16, t[r] i32\nout loss[r] f32",
        cross_entropy,
        ROWS,
        below={"t": 4},
    ),
    Task(
        "embedding",
        "For each token the row of the table that its id names.",
        "in id[t] i32, table[v c] bf16\nout y[t c] bf16",
        lambda i: {"y": i["table"][i["id"]]},
        ({"t": 5, "v": 4, "c": 3},),
        below={"id": 4},
    ),
    Task(
        "convolution",
        "A depthwise convolution of width 3 along t, zero outside: y at t = sum over j = 0, 1, 2 of x at t + j - 1 "
        "times w at j. The axis j comes from w.",
        "in x[c t] bf16, w[c j] f32\nout y[c t] bf16",
        convolution,
        ({"c": 2, "t": 7, "j": 3},),
    ),
    Task(
        "argmax_and_max",
        "Of each row the largest value, and the index where it stands first.",
        "in x[r c] f32\nout i[r] i32, v[r] f32",
        lambda i: {"i": i["x"].argmax(axis=1), "v": i["x"].max(axis=1)},
        ROWS,
    ),
    Task(
        "keep_best_two",
        "Softmax over each row, of which only the two largest values are kept and the others set to 0.",
        "in x[r c] f32\nout y[r c] f32",
        best,
        ROWS,
    ),
    Task(
        "running_sum",
        "The running sum along each row: y at c is the sum of x from the start up to and with c.",
        "in x[r c] f32\nout y[r c] f32",
        lambda i: {"y": np.cumsum(i["x"], axis=1)},
        ROWS,
    ),
    Task(
        "block_max",
        "The maximum within each block of 4 along c; the last block may be short.",
        "in x[r c] f32\nout y[r cb] f32",
        lambda i: {"y": np.stack([b.max(axis=1) for b in blocks_of(i["x"], 4)], axis=1)},
        ({"r": 3, "c": 14}, {"r": 2, "c": 8}),
    ),
    Task(
        "column_statistics",
        "Over all rows r, the mean of each column and its variance (the mean of the squared distance from the mean).",
        "in x[r c] bf16\nout mean_c[c] f32, var_c[c] f32",
        lambda i: {"mean_c": i["x"].mean(axis=0), "var_c": i["x"].var(axis=0)},
        ROWS,
    ),
    Task(
        "quantise_blocks",
        "Quantise x to e4m3 in blocks of 128 along k: one scale s for each row and block, the largest magnitude of "
        "the block over 448, and q = x / s.",
        "in x[m k] bf16\nout q[m k] e4m3, s[m kb] f32",
        e4m3_blocks,
        ({"m": 3, "k": 300},),
    ),
    Task(
        "softmax_scheduled",
        "Softmax over each row, scheduled so that one program instance takes one row whole, with 8 warps; on gfx942 "
        "with 16 warps.",
        "in x[r c] bf16\nout y[r c] bf16",
        lambda i: {"y": softmax(i["x"])},
        ROWS,
        demands=(directive("tile r=1 c=all"), directive("warps 8"), directive("warps 16", chip="gfx942")),
    ),
    Task(
        "mxfp4_product",
        "The product of x and the transpose of w, both in mxfp4 (4-bit numbers with a scale for each block of 32 along "
        "k): w comes so; x is rounded to mxfp4 under the name xq. Schedule: tiles of 128 by 128 over m and n, k "
        "streamed in blocks of 256.",
        "in x[m k] bf16, w[n k] mxfp4\nout y[m n] bf16",
        lambda i: {"y": i["x"] @ i["w"].T},
        MATMUL,
        demands=(declares("xq", "mxfp4"), directive("tile m=128 n=128 k=256")),
    ),
    Task(
        "nvfp4_two_scales",
        "The weight is w * ws, w in nvfp4, ws a number. x is quantised to nvfp4 with one scale of the whole tensor "
        "beside those of the blocks, its largest magnitude over 2688 (names xq, xs). y is x times the transpose of "
        "the weight, from xq, xs, w and ws.",
        "in x[m k] bf16, w[n k] nvfp4, ws[] f32\nout y[m n] bf16",
        lambda i: {"y": i["x"] @ i["w"].T * i["ws"]},
        MATMUL,
        demands=(quantised("xq xs", dtype="nvfp4"),),
    ),
)
