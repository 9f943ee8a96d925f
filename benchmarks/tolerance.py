"""Calibrates `evaluators.tolerance`: honest kernels must all pass, and each planted error must be caught.

    python benchmarks/tolerance.py [--draws 1000] [--target attention]

An honest draw is a float32 computation in NumPy as a kernel would do it, written apart from the judge: blocks of random
length in random order, a random stale reference for the exponentials, operands of a contraction rounded to bf16, one
rounding at the end. A fault is the same computation with one line wrong. Inputs, sizes and distributions are the
targets' own checks. Two programs more name a dtype between their inputs and outputs, as no built-in one does: sums in
float32 then fall on another side of a rounding's boundary here and there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products: more threads only get in each other's way

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from dsl.parser import parse
from dsl.rounding import round_to
from evaluators.inputs import Array, draw_inputs, generator, pairings
from evaluators.oracle import answers
from evaluators.target import Target, Workload
from evaluators.targets import BUILTIN, target
from evaluators.tolerance import Verdict, verdict

FAULTS = {
    "drop_last_tile": "the ragged tail of the reduction is left out",
    "no_rescale": "sums are not rescaled when the running maximum moves",
    "bf16_sums": "partial sums are kept in bf16",
    "wrong_row": "one row is 3% too large",
    "wrong_block": "four rows are computed from the next rows' data",
    "scale_1_percent": "everything is 1% too large",
    "scale_half_percent": "everything is 0.5% too large",
    "truncated": "the output is cut, not rounded",
    "zeros": "the output is zero",
}
ROTATED = """kernel rotated
in  x[t c] bf16, w[c h d] bf16, g[d] f32, cs[t d] f32, sn[t d] f32
out y[t h d] bf16
q[t h d] bf16 = sum[c](x * w)
n[t h] = rsqrt(mean[d](q * q) + 1e-6)
p[t h d] = q * n * g
y = p * cs + where(d < D // 2, -p[t h (d + D // 2)], p[t h (d - D // 2)]) * sn
"""
TWO_LAYERS = """kernel two_layers
in  x[r c] bf16, wa[c f] bf16, wb[f e] bf16
out y[r e] f32
s[r f] f32 = sum[c](x * wa)
z[r f] bf16 = max(s, 0)
y = sum[f](z * wb)
"""


def _unasked(*inputs: object) -> object:
    raise NotImplementedError("what the program means is not asked here")


OWN = {
    "rotated": Target(
        "rotated",
        _unasked,
        ROTATED,
        (Workload({"t": 4096, "c": 4096, "h": 32, "d": 128}),),
        checks=(Workload({"t": 70, "c": 256, "h": 16, "d": 64}), Workload({"t": 17, "c": 300, "h": 5, "d": 128})),
    ),
    "two_layers": Target(
        "two_layers",
        _unasked,
        TWO_LAYERS,
        (Workload({"r": 4096, "c": 4096, "f": 4096, "e": 4096}),),
        checks=(Workload({"r": 70, "c": 256, "f": 320, "e": 96}), Workload({"r": 37, "c": 130, "f": 77, "e": 50})),
    ),
}
ONLINE = ("attention", "cross_entropy", "softmax")  # those with a running maximum


def faults(name: str) -> list[str]:
    """The planted errors that change this target's kernel."""
    without = ["truncated"] if name in ("cross_entropy", "matmul_f16") else []  # cut as bf16 is: theirs is not
    without += ["truncated"] if name == "two_layers" else []
    return [f for f in FAULTS if f not in without and (f != "no_rescale" or name in ONLINE)]


F32 = np.float32
Inputs = dict[str, Array]


def f32(x: Array) -> Array:
    return np.asarray(x, dtype=F32)


def bf16(x: Array) -> Array:
    return f32(round_to(x, "bf16"))


def blocks(length: int, rng: np.random.Generator, fault: str, shuffled: bool = True) -> list[slice]:
    step = int(rng.choice([16, 32, 64] if fault == "bf16_sums" else [16, 32, 64, 128]))
    cut = [slice(i, min(i + step, length)) for i in range(0, length, step)]
    if fault == "drop_last_tile":
        return cut[:-1]
    if shuffled and fault != "no_rescale":
        rng.shuffle(cut)  # type: ignore[arg-type]
    return cut


def matmul(a: Array, b: Array, rng: np.random.Generator, fault: str) -> Array:
    """a[m k] b[k n] with float32 sums over blocks of k."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for s in blocks(a.shape[1], rng, fault):
        total = total + f32(a[:, s]) @ f32(b[s])
        if fault == "bf16_sums":
            total = bf16(total)
    return total


def online(scores: Array, values: Array | None, rng: np.random.Generator, fault: str) -> tuple[Array, Array, Array]:
    """(reference, sum of weights, weighted values) of exp over the last axis in blocks, with a stale reference."""
    lazy = float(rng.choice([0.0, 8.0])) * float(np.log(2.0))
    lead = scores.shape[:-1]
    reference = np.full((*lead, 1), -np.inf, F32)
    total = np.zeros((*lead, 1), F32)
    out = np.zeros((*lead, values.shape[-1] if values is not None else 0), F32)
    for s in blocks(scores.shape[-1], rng, fault, shuffled=False):
        part = scores[..., s]
        top = np.maximum(reference, part.max(-1, keepdims=True))
        new = np.where(top > reference + lazy, top, reference)
        stale = np.where(np.isneginf(new), F32(0), new)
        with np.errstate(over="ignore", invalid="ignore"):
            keep = np.exp(np.where(np.isneginf(reference), F32(-np.inf), reference - stale))
            weights = np.exp(part - stale)
        if fault == "no_rescale":
            keep = np.where(np.isneginf(reference), F32(0), F32(1))
        total = total * keep + weights.sum(-1, keepdims=True, dtype=F32)
        if values is not None:
            out = out * keep + bf16(weights) @ values[..., s, :]
        if fault == "bf16_sums":
            total, out = bf16(total), bf16(out)
        reference = new
    return reference, total, out


def attention(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    q, k, v = (f32(x[n]) for n in "qkv")
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = (q @ np.swapaxes(k, -1, -2)) * F32(q.shape[-1] ** -0.5)
    if params.get("causal"):
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, F32(-np.inf))
    _, total, out = online(scores, v, rng, fault)
    with np.errstate(invalid="ignore", divide="ignore"):
        return out / total


def gemm(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    from math import erf

    z = matmul(x["a"], x["b"], rng, fault) + f32(x["bias"])
    return f32(0.5) * z * (1 + f32(np.vectorize(erf)(z * F32(2**-0.5))))


def plain(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    return matmul(x["a"], x["b"], rng, fault)


def swiglu(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    gate, up = (matmul(x["x"], x[w], rng, fault) for w in ("wg", "wu"))
    with np.errstate(over="ignore"):
        return gate / (1 + np.exp(-gate)) * up


def rotated(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    t, c = x["x"].shape
    h, d = x["w"].shape[1:]
    q = bf16(matmul(x["x"], x["w"].reshape(c, h * d), rng, fault)).reshape(t, h, d)
    p = q / np.sqrt((q * q).mean(-1, keepdims=True, dtype=F32) + F32(1e-6)) * f32(x["g"])
    turned = np.concatenate([-p[..., d // 2 :], p[..., : d // 2]], -1)
    return p * f32(x["cs"])[:, None] + turned * f32(x["sn"])[:, None]


def two_layers(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    return matmul(bf16(np.maximum(matmul(x["x"], x["wa"], rng, fault), 0)), x["wb"], rng, fault)


def rmsnorm(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    rows = f32(x["x"])
    total = np.zeros((rows.shape[0], 1), F32)
    for s in blocks(rows.shape[1], rng, fault):
        total = total + (rows[:, s] * rows[:, s]).sum(-1, keepdims=True, dtype=F32)
        if fault == "bf16_sums":
            total = bf16(total)
    return rows / np.sqrt(total / F32(rows.shape[1]) + F32(1e-6)) * f32(x["w"])


def layernorm(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    rows = f32(x["x"])
    cut = blocks(rows.shape[1], rng, fault)

    def mean(values: Array) -> Array:
        total = np.zeros((rows.shape[0], 1), F32)
        for s in cut:
            total = total + values[:, s].sum(-1, keepdims=True, dtype=F32)
            if fault == "bf16_sums":
                total = bf16(total)
        return total / F32(rows.shape[1])

    z = rows - mean(rows)
    return z / np.sqrt(mean(z * z) + F32(1e-5)) * f32(x["w"]) + f32(x["bias"])


def scaled(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    return matmul(x["a"], x["b"].T, rng, fault) * f32(x["sa"])[:, None] * f32(x["sb"])


def softmax(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    rows = f32(x["x"])
    reference, total, _ = online(rows, None, rng, fault)
    return np.exp(rows - reference) * (1 / total)


def cross_entropy(x: Inputs, params: dict[str, object], rng: np.random.Generator, fault: str) -> Array:
    rows = f32(x["x"])
    reference, total, _ = online(rows, None, rng, fault)
    chosen = np.take_along_axis(rows, x["t"][:, None], axis=1)
    return (reference + np.log(total) - chosen)[:, 0]


KERNELS: dict[str, Callable[[Inputs, dict[str, object], np.random.Generator, str], Array]] = {
    "attention": attention,
    "cross_entropy": cross_entropy,
    "gemm": gemm,
    "layernorm": layernorm,
    "matmul": plain,
    "matmul_f16": plain,
    "matmul_fp8": scaled,
    "rmsnorm": rmsnorm,
    "rotated": rotated,
    "softmax": softmax,
    "swiglu": swiglu,
    "two_layers": two_layers,
}


def kernel(name: str, x: Inputs, params: dict[str, object], rng: np.random.Generator, dtype: str, fault: str) -> Array:
    """The output of the honest kernel, or of one with a fault, rounded to the dtype."""
    out = KERNELS[name](x, params, rng, fault)
    match fault:
        case "scale_1_percent":
            out = out * F32(1.01)
        case "scale_half_percent":
            out = out * F32(1.005)
        case "zeros":
            out = np.zeros_like(out)
        case "wrong_row":
            row = tuple(int(rng.integers(n)) for n in (out.shape[:-1] or out.shape))
            out[row] *= F32(1.03)
        case "wrong_block" if out.ndim >= 2:
            start = int(rng.integers(max(1, out.shape[-2] - 8)))
            out[..., start : start + 4, :] = out[..., start + 4 : start + 8, :].copy()
        case "wrong_block":
            out[:4] = out[-4:].copy()
        case "truncated" if dtype == "bf16":
            return (np.ascontiguousarray(out).view(np.uint32) & np.uint32(0xFFFF0000)).view(F32).astype(np.float64)
    return round_to(out, dtype)


def job(name: str) -> Target:
    """A built-in target, or one of `OWN`."""
    return OWN.get(name) or target(name)


def judgements(
    job: Target, count: int, fault: str = "", seed: int = 0
) -> Iterator[list[tuple[Workload, str, Verdict]]]:
    """`count` candidates judged as the correctness gate does it: every check, each with one of the distributions."""
    program = parse(job.seed)
    for i in range(count):
        rng = generator(seed, job.name, i, fault)
        found = []
        for workload, distribution in pairings(job.checks, rng):
            inputs = draw_inputs(job, program.algorithm, workload, distribution, rng)
            params = dict(workload.params)
            for answer in answers(program, inputs, params).values():
                got = kernel(job.name, inputs, params, rng, answer.dtype, fault)  # type: ignore[arg-type]
                found.append((workload, distribution, verdict(got, answer.oracle, answer.honest, answer.dtype)))
        yield found


def tightest(evidence: dict[str, object]) -> dict[str, float]:
    """Per question the value over its limit: 1 would be a rejection."""
    found = {}
    for name, e in evidence.items():
        if isinstance(e, dict):
            found[name] = e["value"] / e["limit"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=50, help="candidates with each planted error")
    parser.add_argument("--target", choices=sorted([*BUILTIN, *OWN]), action="append")
    args = parser.parse_args()
    rejected = missed = 0
    for name in args.target or (*BUILTIN, *OWN):
        worst: Counter[str] = Counter()
        bad = 0
        candidates = -(-args.draws // len(job(name).checks))
        honest = [one for all_checks in judgements(job(name), candidates) for one in all_checks]
        for workload, distribution, found in honest:
            for question, share in tightest(found.evidence).items():
                worst[question] = max(worst[question], share)  # type: ignore[assignment]
            if not found.passed:
                bad += 1
                print(f"  rejected: {name} {workload.name} {distribution}: {'; '.join(found.reasons)}")
        rejected += bad
        shares = ", ".join(f"{q} {s:.2f}" for q, s in worst.items())
        print(f"{name}: {bad} of {len(honest)} honest draws rejected; nearest to the limit: {shares}", flush=True)
        for fault in faults(name):
            caught = [
                any(not v.passed for _, _, v in all_checks) for all_checks in judgements(job(name), args.faults, fault)
            ]
            missed += len(caught) - sum(caught)
            print(f"  {fault}: {sum(caught)} of {len(caught)} candidates caught", flush=True)
    return 1 if rejected or missed else 0


if __name__ == "__main__":
    sys.exit(main())
