"""The meaning of every example program equals a plain PyTorch reference in float64; gradients, autograd."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dsl.meaning import evaluate
from dsl.parser import parse
from dsl.rounding import round_to

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def program(name):
    return parse((EXAMPLES / f"{name}.avo").read_text(), name)


def draw(**shapes):
    rng = np.random.default_rng(7)
    return {k: rng.standard_normal(s) for k, s in shapes.items()}


def t(x):
    return torch.from_numpy(np.asarray(x))


def close(found, expected, tolerance=1e-12):
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def sdpa(x, causal=False, groups=1):
    q, k, v = t(x["q"]), t(x["k"]).repeat_interleave(groups, 1), t(x["v"]).repeat_interleave(groups, 1)
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return s.softmax(-1) @ v


@pytest.mark.parametrize("name", ["attention", "attention_sm90"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(name, causal):
    x = draw(q=(2, 6, 35, 8), k=(2, 3, 21, 8), v=(2, 3, 21, 5))
    close(evaluate(program(name), x, {"causal": causal})["o"], sdpa(x, causal, groups=2))


def test_attention_backward_equals_autograd():
    x = draw(q=(2, 6, 20, 8), k=(2, 3, 17, 8), v=(2, 3, 17, 5), go=(2, 6, 20, 5))
    q, k, v = (t(x[n]).requires_grad_() for n in "qkv")
    s = q @ k.repeat_interleave(2, 1).mT / math.sqrt(8)
    o = s.softmax(-1) @ v.repeat_interleave(2, 1)
    o.backward(t(x["go"]))
    x |= {"o": o.detach().numpy(), "lse": s.logsumexp(-1).detach().numpy()}
    found = evaluate(program("attention_backward"), x)
    for name, leaf in (("gq", q), ("gk", k), ("gv", v)):
        close(found[name], leaf.grad)


def test_cross_entropy():
    x = draw(x=(5, 33))
    x["t"] = np.array([0, 32, 7, 7, 1], dtype=np.int32)
    close(evaluate(program("cross_entropy"), x)["loss"], F.cross_entropy(t(x["x"]), t(x["t"]).long(), reduction="none"))


def test_decode_queue():
    x = draw(x=(3, 12), w=(12,), up=(12, 20), gate=(12, 20), down=(20, 12))
    xn = t(x["x"]) * (t(x["x"]).square().mean(-1, keepdim=True) + 1e-6).rsqrt() * t(x["w"])
    a = F.silu(xn @ t(x["gate"])) * (xn @ t(x["up"]))
    close(evaluate(program("decode_queue"), x)["y"], t(x["x"]) + a @ t(x["down"]))


def test_gather_gemm_has_the_rank_axis_on_its_inputs():
    x = draw(a=(3, 7, 5), b=(3, 5, 4))
    found = evaluate(program("gather_gemm"), x)["c"]
    expected = np.stack([np.stack([x["a"][j] @ x["b"][r] for j in range(3)]) for r in range(3)])
    close(found, expected)


def test_gemm():
    x = draw(a=(9, 17), b=(17, 6), bias=(6,))
    close(evaluate(program("gemm"), x)["c"], F.gelu(t(x["a"]) @ t(x["b"]) + t(x["bias"])))


def test_numa_attention():
    x = draw(q=(2, 3, 35, 8), k=(2, 3, 21, 8), v=(2, 3, 21, 5))
    close(evaluate(program("numa_attention"), x)["o"], sdpa(x))


def test_rmsnorm():
    x = draw(x=(4, 30), w=(30,))
    close(evaluate(program("rmsnorm"), x)["y"], F.rms_norm(t(x["x"]), (30,), t(x["w"]), eps=1e-6))


def test_rope():
    x = draw(x=(2, 5, 3, 8), cs=(5, 8), sn=(5, 8))
    halves = t(x["x"]).chunk(2, -1)
    turned = torch.cat((-halves[1], halves[0]), -1)
    expected = t(x["x"]) * t(x["cs"])[None, :, None] + turned * t(x["sn"])[None, :, None]
    close(evaluate(program("rope"), x)["y"], expected)


@pytest.mark.parametrize("m, n", [(300, 200), (128, 64), (5, 131)])
def test_sage2pp_is_softmax_attention_where_quantize_does_not_round(m, n):
    x = draw(q=(1, 2, m, 16), k=(1, 2, n, 16), v=(1, 2, n, 8))
    close(evaluate(program("sage2pp"), x)["o"], sdpa(x), 1e-10)


def test_sage2pp_rounded_is_near_and_not_equal():
    x = {k: round_to(v, "f16") for k, v in draw(q=(1, 2, 300, 64), k=(1, 2, 200, 64), v=(1, 2, 200, 32)).items()}
    found = evaluate(program("sage2pp"), x, mode="rounded")["o"]
    expected = sdpa(x).numpy()
    distance = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 1e-3 < distance < 6e-2
    assert np.array_equal(found, round_to(found, "f16"))


def test_sla_is_the_masked_dense_form():
    rng = np.random.default_rng(3)
    b, h, m, n, d, e = 1, 2, 200, 700, 8, 6
    x = draw(q=(b, h, m, d), k=(b, h, n, d), v=(b, h, n, e), w=(e, e))
    x["k"] += rng.standard_normal((b, h, 1, d))
    found = evaluate(program("sla"), x, want=["crit", "marg"])

    def pool(y):
        return torch.stack([part.mean(-2) for part in t(y).split(64, -2)], -2)

    pc = (pool(x["q"]) @ pool(x["k"]).mT / math.sqrt(d)).softmax(-1)
    blocks = pc.shape[-1]
    crit = torch.zeros(pc.shape, dtype=torch.bool).scatter(-1, pc.topk(max(1, 5 * blocks // 100), -1).indices, True)
    low = torch.zeros(pc.shape, dtype=torch.bool).scatter(-1, (-pc).topk(blocks // 10, -1).indices, True)
    marg = ~crit & ~low
    assert low.any() and np.array_equal(found["crit"], crit) and np.array_equal(found["marg"], marg)

    def dense(mask):
        return mask.repeat_interleave(64, -2)[..., :m, :].repeat_interleave(64, -1)[..., :n]

    q, k, v, w = (t(x[name]) for name in "qkvw")
    s = (q @ k.mT / math.sqrt(d)).masked_fill(~dense(crit), -math.inf)
    sparse = s.softmax(-1) @ v
    weight = (q.softmax(-1) @ k.softmax(-1).mT) * dense(marg)
    lin = weight @ v / (weight.sum(-1, keepdim=True) + 1e-6)
    close(found["o"], sparse + lin @ w)


def test_linear_cross_entropy():
    x = draw(x=(9, 20), w=(31, 20)) | {"t": np.random.default_rng(3).integers(0, 31, 9)}
    found = evaluate(program("linear_cross_entropy"), x)["loss"]
    close(found, F.cross_entropy(t(x["x"]) @ t(x["w"]).T, t(x["t"]), reduction="none"))
