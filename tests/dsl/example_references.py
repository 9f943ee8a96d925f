"""Every program of docs/examples with a plain PyTorch reference, shapes that are no multiple of any tile, and params.

`reference` takes the inputs as float64 tensors by name and the params, and returns every output by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from dsl.parser import parse
from dsl.rounding import BLOCKS, round_blocks, round_to

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
Tensors = dict[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Example:
    """below: integer inputs, values under this. lowers: whether it has a lowering."""

    reference: Callable[..., Tensors]
    shapes: dict[str, Shape]
    params: dict[str, Any] = field(default_factory=dict)
    below: dict[str, int] = field(default_factory=dict)
    lowers: bool = True


def _heads(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ _heads(k, q).mT / math.sqrt(q.shape[-1])


def _distance(s: torch.Tensor) -> torch.Tensor:
    """n - m."""
    return torch.arange(s.shape[-1])[None, :] - torch.arange(s.shape[-2])[:, None]


def attention(q, k, v, causal=False):
    s = _scores(q, k)
    if causal:
        s = s.masked_fill(_distance(s) > 0, -math.inf)
    return {"o": s.softmax(-1) @ _heads(v, q)}


def attention_lse(q, k, v):
    return attention(q, k, v) | {"lse": _scores(q, k).logsumexp(-1)}


def attention_sinks(q, k, v, sink):
    s = _scores(q, k)
    whole = torch.cat([s, sink[None, :, None, None].expand(*s.shape[:3], 1)], -1)
    return {"o": whole.softmax(-1)[..., :-1] @ _heads(v, q)}


def attention_backward(q, k, v, o, go, lse):
    """Autograd, of the attention whose `o` and `lse` it is given."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    attention(q, k, v)["o"].backward(go)
    return {"gq": q.grad, "gk": k.grad, "gv": v.grad}


def sliding_window(q, k, v, window):
    s = _scores(q, k)
    far = _distance(s)
    return {"o": s.masked_fill((far > 0) | (far <= -window), -math.inf).softmax(-1) @ _heads(v, q)}


def alibi(q, k, v, slope):
    s = _scores(q, k)
    far = _distance(s)
    return {"o": (s + slope[:, None, None] * far).masked_fill(far > 0, -math.inf).softmax(-1) @ _heads(v, q)}


def softcap(q, k, v, cap):
    s = torch.tanh(_scores(q, k) / cap) * cap
    return {"o": s.masked_fill(_distance(s) > 0, -math.inf).softmax(-1) @ _heads(v, q)}


def linear_attention(q, k, v):
    s = q @ k.mT
    return {"o": s.masked_fill(_distance(s) > 0, 0.0) @ v}


def decay_attention(q, k, v, f):
    """Token by token."""
    state, rows = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=q.dtype), []
    for t in range(q.shape[2]):
        state = state * F.sigmoid(f[:, :, t, None, None]) + k[:, :, t, :, None] * v[:, :, t, None]
        rows.append((q[:, :, t, None] @ state)[:, :, 0])
    return {"o": torch.stack(rows, 2)}


def int4_linear(x, w, scale, zero):
    w = w.long()
    w4 = torch.stack((w & 15, w >> 4 & 15), -1).flatten(-2)
    group = torch.arange(w4.shape[-1]) // 128
    return {"y": x @ ((w4 - zero[:, group]) * scale[:, group]).T}


def paged_attention(q, k, v, page, length):
    rows = []
    for at, n, row in zip(page, length, q, strict=True):
        keys, values = (t[at].flatten(0, 1)[:n].transpose(0, 1)[None] for t in (k, v))
        rows.append(attention(row[None, :, None], keys, values)["o"][0, :, 0])
    return {"o": torch.stack(rows)}


def sla(q, k, v, w):
    n = k.shape[2]

    def pool(y):
        return torch.stack([part.mean(-2) for part in y.split(64, -2)], -2)

    pc = (pool(q) @ pool(k).mT / math.sqrt(q.shape[-1])).softmax(-1)
    blocks = pc.shape[-1]
    crit = torch.zeros(pc.shape, dtype=torch.bool).scatter(-1, pc.topk(max(1, 5 * blocks // 100), -1).indices, True)
    low = torch.zeros(pc.shape, dtype=torch.bool).scatter(-1, (-pc).topk(blocks // 10, -1).indices, True)

    def dense(mask):
        return mask.repeat_interleave(64, -2)[..., : q.shape[2], :].repeat_interleave(64, -1)[..., :n]

    s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~dense(crit), -math.inf)
    weight = (q.softmax(-1) @ k.softmax(-1).mT) * dense(~crit & ~low)
    lin = weight @ v / (weight.sum(-1, keepdim=True) + 1e-6)
    return {"o": s.softmax(-1) @ v + lin @ w}


def cross_entropy(x, t):
    return {"loss": F.cross_entropy(x, t, reduction="none")}


def rms(x, w):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w


def decode_queue(x, w, up, gate, down):
    xn = rms(x, w)
    return {"y": x + (F.silu(xn @ gate) * (xn @ up)) @ down}


def gather_gemm(a, b):
    ranks = range(a.shape[0])
    return {"c": torch.stack([torch.stack([a[j] @ b[r] for j in ranks]) for r in ranks])}


def rope(x, cs, sn):
    left, right = x.chunk(2, -1)
    return {"y": x * cs[None, :, None] + torch.cat((-right, left), -1) * sn[None, :, None]}


def conv2d(x, w, bias):
    y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), bias, padding=1)
    return {"y": y.relu().permute(0, 2, 3, 1)}


def grouped_gemm(x, w, ex):
    owner = ex.repeat_interleave(64)[: x.shape[0]]
    return {"y": torch.stack([row @ w[e] for row, e in zip(x, owner, strict=True)])}


_Q, _KV = (2, 6, 35, 16), (2, 3, 21, 16)
_ATTENTION = {"q": _Q, "k": _KV, "v": (2, 3, 21, 8)}
_SAME_HEADS = {"q": (2, 3, 35, 16), "k": (2, 3, 21, 16), "v": (2, 3, 21, 8)}

REFERENCES: dict[str, Example] = {
    "alibi": Example(alibi, _ATTENTION | {"slope": (6,)}),
    "attention": Example(attention, _ATTENTION, {"causal": True}),
    "attention_backward": Example(
        attention_backward, _ATTENTION | {"o": (2, 6, 35, 8), "go": (2, 6, 35, 8), "lse": (2, 6, 35)}
    ),
    "attention_lse": Example(attention_lse, _ATTENTION),
    "attention_sinks": Example(attention_sinks, _ATTENTION | {"sink": (6,)}),
    "attention_sm90": Example(attention, _ATTENTION, {"causal": True}),
    "batched_gemm": Example(lambda a, w: {"y": (a @ w.mT).relu()}, {"a": (3, 33, 70), "w": (3, 41, 70)}),
    "conv2d": Example(conv2d, {"x": (2, 9, 13, 40), "w": (3, 3, 40, 24), "bias": (24,)}),
    "cross_entropy": Example(cross_entropy, {"x": (5, 333), "t": (5,)}, below={"t": 333}),
    "decay_attention": Example(
        decay_attention, {"q": (2, 2, 150, 16), "k": (2, 2, 150, 16), "v": (2, 2, 150, 8), "f": (2, 2, 150)}
    ),
    "decode_queue": Example(
        decode_queue, {"x": (3, 12), "w": (12,), "up": (12, 20), "gate": (12, 20), "down": (20, 12)}, lowers=False
    ),
    "flash_decoding": Example(attention, {"q": (2, 6, 1, 16), "k": (2, 3, 1100, 16), "v": (2, 3, 1100, 8)}),
    "fp8_gemm": Example(
        lambda a, sa, b, sb: {"c": a @ b.T * sa[:, None] * sb}, {"a": (33, 70), "sa": (33,), "b": (41, 70), "sb": (41,)}
    ),
    "gather_gemm": Example(gather_gemm, {"a": (3, 7, 5), "b": (3, 5, 4)}, lowers=False),
    "gemm": Example(lambda a, b, bias: {"c": F.gelu(a @ b + bias)}, {"a": (33, 72), "b": (72, 40), "bias": (40,)}),
    "grouped_gemm": Example(grouped_gemm, {"x": (192, 70), "w": (4, 70, 40), "ex": (3,)}, below={"ex": 4}),
    "int8_gemm": Example(
        lambda a, sa, b, sb: {"c": a @ b.T * sa[:, None] * sb}, {"a": (33, 70), "sa": (33,), "b": (41, 70), "sb": (41,)}
    ),
    "int4_linear": Example(int4_linear, {"x": (5, 256), "w": (19, 128), "scale": (19, 2), "zero": (19, 2)}),
    "layernorm": Example(
        lambda x, w, bias: {"y": F.layer_norm(x, (x.shape[-1],), w, bias)}, {"x": (5, 70), "w": (70,), "bias": (70,)}
    ),
    "linear_attention": Example(linear_attention, {"q": (2, 3, 150, 16), "k": (2, 3, 150, 16), "v": (2, 3, 150, 16)}),
    "linear_cross_entropy": Example(
        lambda x, w, t: cross_entropy(x @ w.T, t), {"x": (9, 70), "w": (131, 70), "t": (9,)}, below={"t": 131}
    ),
    "mxfp4_gemm": Example(lambda a, b: {"c": a @ b.T}, {"a": (9, 70), "b": (11, 70)}, lowers=False),
    "numa_attention": Example(attention, _SAME_HEADS),
    "nvfp4_linear": Example(
        lambda x, w, ws: {"y": x @ w.T * ws}, {"x": (9, 70), "w": (11, 70), "ws": ()}, lowers=False
    ),
    "paged_attention": Example(
        paged_attention,
        {"q": (3, 4, 16), "k": (9, 8, 2, 16), "v": (9, 8, 2, 8), "page": (3, 10), "length": (3,)},
        below={"page": 9, "length": 81},
    ),
    "rmsnorm": Example(lambda x, w: {"y": rms(x, w)}, {"x": (5, 70), "w": (70,)}),
    "rope": Example(rope, {"x": (2, 21, 3, 8), "cs": (21, 8), "sn": (21, 8)}),
    "sage2pp": Example(attention, {"q": (1, 2, 150, 16), "k": (1, 2, 200, 16), "v": (1, 2, 200, 16)}),
    "sla": Example(sla, {"q": (1, 2, 150, 8), "k": (1, 2, 700, 8), "v": (1, 2, 700, 6), "w": (6, 6)}),
    "sliding_window": Example(sliding_window, _SAME_HEADS | {"k": (2, 3, 40, 16), "v": (2, 3, 40, 8)}, {"window": 9}),
    "softcap": Example(softcap, _ATTENTION, {"cap": 3.0}),
    "softmax": Example(lambda x: {"y": x.softmax(-1)}, {"x": (5, 70)}),
    "split_k_gemm": Example(lambda a, b: {"c": a @ b}, {"a": (9, 2100), "b": (2100, 41)}),
    "swiglu": Example(
        lambda x, wg, wu: {"y": F.silu(x @ wg) * (x @ wu)}, {"x": (33, 70), "wg": (70, 41), "wu": (70, 41)}
    ),
}


def drawn(name: str, seed: int = 7, example: Example | None = None) -> dict[str, Any]:
    """Inputs that the declared dtypes can hold, so that the exact and the rounded meaning read the same. example: other
    shapes than its own."""
    example = example or REFERENCES[name]
    rng = np.random.default_rng(seed)
    dtypes = {t.name: t.dtype or "f32" for t in program(name).algorithm.inputs}
    given: dict[str, Any] = {}
    for tensor, shape in example.shapes.items():
        if tensor in example.below:
            given[tensor] = rng.integers(0, example.below[tensor], shape)
        elif dtypes[tensor] == "int8":
            given[tensor] = rng.integers(-127, 128, shape)
        elif dtypes[tensor] in BLOCKS:
            given[tensor] = round_blocks(rng.standard_normal(shape), dtypes[tensor])
        else:
            given[tensor] = round_to(rng.standard_normal(shape), dtypes[tensor])
    if name == "attention_backward":  # o and lse are what the forward pass gave
        done = attention_lse(*(torch.from_numpy(given[n]) for n in "qkv"))
        given |= {n: x.numpy() for n, x in done.items()}
    return given


def expected(name: str, given: dict[str, Any]) -> dict[str, Any]:
    example = REFERENCES[name]
    tensors = {n: torch.from_numpy(np.asarray(x)) for n, x in given.items()}
    tensors = {n: x.long() if n in example.below else x.double() for n, x in tensors.items()}
    return {n: x.detach().numpy() for n, x in example.reference(**tensors, **example.params).items()}


def program(name: str) -> Any:
    return parse((EXAMPLES / f"{name}.avo").read_text(), name)
