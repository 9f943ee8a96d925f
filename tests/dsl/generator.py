"""Whole programs at random, by plans: what a plan fixes is the kind of program, all else is drawn.

`generate` writes a program that is meant to be right; what `check` rejects all the same is counted by its user.
"""

from __future__ import annotations

import random
from dataclasses import replace

from program_writer import CLOSE, EXACT, ROUGH, Case, V, Writer

from dsl.hardware import hardware
from dsl.knobs import knobs, set_knob
from dsl.parser import parse
from dsl.syntax import Program


def generate(seed: object) -> Case:
    """The program of a seed; the same one every time."""
    w = Writer(random.Random(f"program {seed}"))
    plan = w.rng.choice(PLANS)
    return w.finish(plan(w), plan.__name__)


def rows(w: Writer) -> list[V]:
    """A row at a time: norms, softmax, log-sum-exp, cumulative and selected values, in one pass or several."""
    lead = (*w.batch(), w.axis("r", 3, 40))
    c = w.axis("c", 5, 150)
    x = w.dress(w.input((*lead, c)), 1)
    results = []
    for _ in range(w.rng.randint(1, 3)):
        kind = w.rng.choice(("norm", "softmax", "reduce", "dress", "lse", "centre", "scan", "argmax", "topk", "pair"))
        x = w.tamed(x)
        if kind == "norm":
            x = w.let(x)
            mean = f"{w.rng.choice(('mean', 'sum'))}[{c}]({x.text} * {x.text})"
            mean = mean if mean.startswith("mean") else f"{mean} / {c.upper()}"
            x = replace(x, text=f"{x.text} * rsqrt({mean} + 1e-3)", dtype="f32", declared=False, level=max(x.level, 1))
        elif kind == "softmax":
            if w.chance(0.75):
                x = masked(w, x, w.rng.choice(lead[-1:]), c, lead[:-1])[0]
            x = V(f"softmax[{c}]({x.text}) * {w.extents[c]}", x.axes, level=max(x.level, CLOSE), size=20)
        elif kind == "reduce":
            y = w.let(w.reduced(x, (c,)))
            if w.chance(0.5):
                results.append(y)
            x = w.binary(x, y)
        elif kind == "dress":
            x = w.dress(x, 3)
        elif kind == "lse":
            x = w.let(x)
            top = w.let(V(f"max[{c}]({x.text})", tuple(a for a in x.axes if a != c), level=x.level))
            lse = V(
                f"{top.text} + log(sum[{c}](exp({x.text} - {top.text})))", top.axes, level=max(x.level, CLOSE), size=8
            )
            results.append(w.dress(lse, 1))
        elif kind == "centre":
            x = w.let(x)
            x = V(f"{x.text} - mean[{c}]({x.text})", x.axes, level=max(x.level, CLOSE), size=2 * x.size)
        elif kind == "scan":
            f = w.rng.choice(("runmax", "runsum"))
            scale = "" if f == "runmax" else " * 0.1"
            x = V(f"{f}[{c}]({x.text}){scale}", x.axes, level=max(x.level, CLOSE), size=10)
        elif kind == "argmax":
            x0 = w.input((*lead, c))
            results.append(V(f"argmax[{c}]({x0.text})", lead, "i32", level=EXACT))
        elif kind == "topk":
            x0 = w.input((*lead, c), "f32")
            k = w.rng.randint(0, w.extents[c])
            f = w.rng.choice(("topk", "bottomk"))
            x = V(f"where({f}[{c}]({x0.text}, {k}), {w.ref(x)}, 0)", (*lead, c), level=max(x.level, CLOSE), size=x.size)
        else:
            results.append(w.dress(w.reduced(w.let(x), (c,)), 1))
    if not results or w.chance(0.6):
        results.append(w.dress(x, 1))
    return results[-2:]


def masked(w: Writer, x: V, m: str, n: str, batch: tuple[str, ...]) -> tuple[V, bool]:
    """x under a random mask, and whether no row is empty."""
    condition, full = w.mask(m, n, batch)
    if not condition.isidentifier() and w.chance(0.3):
        condition = w.let(V(condition, _axes(w, condition), "bool", level=EXACT)).text
    return V(f"where({condition}, {w.ref(x)}, -inf)", w.union(x, V("", (*batch, m, n))), level=max(x.level, 1)), full


def _axes(w: Writer, text: str) -> tuple[str, ...]:
    """The axes of a mask: those that it names, and those of the inputs that it names."""
    words = text.replace("(", " ").replace(")", " ").split()
    found = [V("", (a,) if a in w.extents else w.inputs.get(a, ((), ""))[0]) for a in words]
    return w.union(*found)


def product(w: Writer, a: V, b: V, k: tuple[str, ...]) -> V:
    """sum[k](a * b), scaled to a few units; operands of two dtypes become one."""
    if a.declared and b.declared and a.dtype != b.dtype:
        b = w.let(replace(b, text=f"{b.text}", level=ROUGH), a.dtype)
    level = CLOSE if a.level == b.level == EXACT and a.dtype == b.dtype else ROUGH
    axes = tuple(x for x in w.union(a, b) if x not in k)
    scale = "" if a.dtype == "int8" else f" * rsqrt({' * '.join(x.upper() for x in k)})"
    if scale and w.chance(0.3):
        scale = f" / {max(2, int(_count(w, k) ** 0.5))}"
    size = 4.0 if scale else 81 * _count(w, k) ** 0.5
    left, right = (a.text, b.text) if w.chance(0.8) else (b.text, a.text)
    return V(f"sum[{' '.join(k)}]({left} * {right}){scale}", axes, level=level, size=size)


def _count(w: Writer, axes: tuple[str, ...]) -> int:
    count = 1
    for a in axes:
        count *= w.extents[a]
    return count


def gemm(w: Writer) -> list[V]:
    """Products with prologues and epilogues: batched, gated, over two axes, quantised, of the narrow dtypes."""
    batch = w.batch()
    m, n, k = w.axis("m", 17, 45), w.axis("n", 17, 55), w.axis("k", 17, 75)
    dtype = w.rng.choice(("bf16", "f16", "f32", "e4m3", "int8", "bf16", "f16", "e5m2"))
    inner = (k,) if w.chance(0.85) else (k, w.axis("j", 2, 3))
    a, b = w.input((*batch, m, *inner), dtype), w.input((*batch[: w.rng.randint(0, 1)], *inner, n), dtype)
    if dtype != "int8" and w.chance(0.35):
        a = w.dress(a, 2)
        if w.chance(0.4):
            a = w.let(a, dtype)
        elif not a.named:
            a = replace(a, text=f"({a.text})")
    if dtype == "int8" and w.chance(0.3):
        scale = w.input((m,), "f32")
        y = w.binary(product(w, a, b, inner), V(f"(0.01 * {scale.text})", (m,), size=0.04))
    else:
        y = product(w, a, b, inner)
    if y.size > 12:
        y = V(f"({y.text}) * 0.004", y.axes, level=y.level)
    if w.chance(0.25) and dtype != "int8":
        b2 = w.input((*inner, n), b.dtype if b.declared else dtype)
        y = w.binary(w.dress(y, 1), product(w, a, b2, inner))
    y = w.dress(y, 2)
    if w.chance(0.25):  # a second product on top of the first
        e = w.axis("e", 16, 40)
        y = product(w, w.let(y, w.rng.choice(("bf16", "f16"))), w.input((n, e), "bf16"), (n,))
    elif w.chance(0.2):
        axis = w.rng.choice((m, n))
        y = w.reduced(w.let(y), (axis,))
    return [w.dress(y, 1)]


def attention(w: Writer) -> list[V]:
    """Scores, masks, weights, a weighted sum: online softmax in all the ways of writing it."""
    batch = tuple(w.axis(a, 1, 2) for a in ("b", "h")[: w.rng.randint(0, 2)])
    m, n = w.axis("m", 17, 45), w.axis("n", 17, 90)
    d, e = w.axis("d", 16, 40), w.axis("e", 16, 40)
    keys = batch
    if "h" in batch and w.chance(0.4):
        w.extents["h"], w.extents["hg"] = (heads := w.rng.choice((2, 3))) * (groups := w.rng.choice((1, 2))), groups
        w.axis_lines.append(f"axis hg = h // {heads}" if w.chance(0.5) else "axis hg = h // (H // HG)")
        keys = (*(a for a in batch if a != "h"), "hg")
    dtype = w.rng.choice(("bf16", "f16", "bf16", "f32"))
    q, k, v = w.input((*batch, m, d), dtype), w.input((*keys, n, d), dtype), w.input((*keys, n, e), dtype)
    s = product(w, q, k, (d,))
    s = replace(s, text=f"({s.text}) * {w.param('scale', 'f32', 0.75)}") if w.chance(0.2) else s
    kind = w.rng.random()
    if kind < 0.15:
        s = V(f"4 * tanh({w.ref(s)} / 4)", s.axes, level=ROUGH, size=4)
    elif kind < 0.3:
        s = V(f"{w.ref(s)} - 0.05 * abs({m} - {n})", s.axes, level=ROUGH, size=8)
    elif kind < 0.4:
        s = V(f"{w.ref(s)} + {w.input((m, n)).text}", s.axes, level=ROUGH, size=8)
    full = True
    for _ in range(w.rng.choice((0, 1, 2, 2))):
        s, kept = masked(w, w.let(s), m, n, batch)
        full = full and kept and s.level == ROUGH
    if len(w.masks) > 1 and "suffix" in w.masks:  # it keeps other columns than the rest
        full = False
    if w.chance(0.2):
        crit = top_blocks(w, m, n, batch)
        s, full = V(f"where({crit.text}, {w.ref(s)}, -inf)", w.union(s, V("", (m, n))), level=ROUGH), False
    s = w.let(s)
    rest = tuple(a for a in s.axes if a != n)
    results: list[V] = []
    if not full or w.chance(0.5):
        p = V(f"softmax[{n}]({s.text})", s.axes, level=s.level, size=1)
        p = w.let(p, dtype) if w.chance(0.2) else w.let(p) if w.chance(0.3) else p
        o = product_of_weights(w, p, v, n)
    else:
        x = w.let(V(f"max[{n}]({s.text})", rest, level=s.level))
        p = w.let(V(f"exp({s.text} - {x.text})", s.axes, level=s.level, size=1))
        total = f"sum[{n}]({p.text})"
        if w.chance(0.3):
            total += f" + exp({w.input(batch[-1:], 'f32').text} - {x.text})"
        total_v = w.let(V(total, rest, level=s.level, size=90))
        narrow = f"e4m3({p.text} * 448)" if w.chance(0.15) else ""
        if narrow:
            v8 = w.let(v, "e4m3")
            o = V(
                f"sum[{n}]({narrow} * {v8.text}) / (448 * {total_v.text})",
                w.union(V("", rest), V("", ("e",))),
                level=ROUGH,
            )
            o = replace(o, axes=tuple(a for a in w.union(V("", rest), v8) if a != n))
        else:
            top = product_of_weights(w, p, v, n)
            o = V(f"{top.text} / {total_v.text}", top.axes, level=ROUGH)
        if w.chance(0.5):
            results.append(V(f"{x.text} + log({total_v.text})", rest, level=ROUGH, size=8))
    o = w.dress(o, 2)
    if not w.schedule and w.chance(0.15):  # the head dim by blocks, in a loop of its own
        w.schedule += [f"tile {m}={w.rng.choice((16, 32))} {n}={w.rng.choice((32, 64))} {d}=16"]
        w.schedule += [f"grid {' '.join((*batch, m))}", f"stream {n} stages=2"]
    return [*results, o]


def product_of_weights(w: Writer, p: V, v: V, n: str) -> V:
    axes = tuple(a for a in w.union(p, v) if a != n)
    return V(f"sum[{n}]({p.text} * {v.text})", axes, level=ROUGH, size=4)


def top_blocks(w: Writer, m: str, n: str, batch: tuple[str, ...]) -> V:
    """A selection of blocks of n for each block of m."""
    r = w.rng.choice((16, 32))
    mb, nb = w.blocks(m, r), w.blocks(n, r)
    x = w.input((*batch, mb, nb), "f32")
    w.masks.append("top blocks")
    count = w.rng.choice(("1", nb.upper(), f"max(1, {nb.upper()} // 2)"))
    crit = w.let(V(f"{w.rng.choice(('topk', 'bottomk'))}[{nb}]({x.text}, {count})", x.axes, "bool", level=EXACT))
    if w.chance(0.85):
        w.cut.append(crit.text)
    if w.chance(0.7):
        w.schedule += [f"tile {m}={r} {n}={r}", f"grid {' '.join((*batch, m))}", f"stream {n} stages=2"]
        w.schedule += [f"skip {crit.text}"] * w.chance(0.8)
    return crit


def backward(w: Writer) -> list[V]:
    """Sums of one set of values over several axes: gradients, each by a kernel of its own."""
    m, n, d = w.axis("m", 17, 45), w.axis("n", 17, 45), w.axis("d", 16, 40)
    batch = tuple(w.axis(a, 1, 2) for a in ("b",)[: w.rng.randint(0, 1)])
    dtype = w.rng.choice(("bf16", "f16"))
    q, k, g = w.input((*batch, m, d), dtype), w.input((*batch, n, d), dtype), w.input((*batch, m, n), dtype)
    s = w.let(w.dress(product(w, q, k, (d,)), 1))
    p = w.let(V(f"sigmoid({s.text})", s.axes, level=ROUGH, size=1))
    gs = (
        w.let(w.binary(p, g))
        if w.chance(0.5)
        else w.let(replace(p, text=f"{p.text} * (1 - {p.text}) * {g.text}", size=1))
    )
    return [product(w, gs, k, (n,)), product(w, gs, q, (m,))][:: w.rng.choice((1, -1))]


def blocks(w: Writer) -> list[V]:
    """Sums, means and extremes within blocks; scales and gates over blocks; two-level sums; running maxima."""
    lead = (*w.batch(), w.axis("m", 3, 40))
    n = w.axis("n", 17, 100)
    r = w.rng.choice((8, 16, 32, 64))
    nb = w.blocks(n, r)
    x = w.dress(w.input((*lead, n)), 1)
    x = w.let(w.tamed(x))
    kind = w.rng.choice(
        ("mean", "sum", "scale", "quantize", "both", "running", "normed", "chain", "quantize", "quantize", "running")
    )
    if kind in ("mean", "sum", "scale", "normed"):
        f = {"mean": "mean", "sum": "sum", "normed": "max"}.get(kind, w.rng.choice(("mean", "min", "max")))
        over = (*lead, nb)
        y = w.let(V(f"{f}[{n} in {nb}]({x.text})" + f" / {r}" * (f == "sum"), over, level=max(x.level, 1), size=x.size))
        if kind in ("mean", "sum"):
            return [w.dress(y, 2)]
        return [w.dress(w.binary(x, y), 1)] + [w.reduced(y, (nb,))] * w.chance(0.3)
    if kind == "quantize":
        return quantised(w, x, lead, n, nb)
    if kind == "both":
        dtype = w.rng.choice(("", "f16"))
        first = V(f"sum[{n} in {nb}]({x.text})", (*lead, nb), level=x.level, size=x.size)
        scaled = w.binary(w.let(first, dtype), w.input((nb,), "f32"))
        return [w.dress(w.reduced(scaled, (nb,), "sum"), 1)]
    if kind == "running":
        f, inner = w.rng.choice((("runmax", "max"), ("runsum", "sum")))
        level = max(1, x.level)
        if w.chance(0.3):  # in one line
            y = V(f"{f}[{n} in {nb}]({x.text})" + " / 40" * (f == "runsum"), (*lead, nb), level=level, size=8)
        else:
            z = w.let(V(f"{inner}[{n} in {nb}]({x.text})", (*lead, nb), level=level, size=8))
            w.cut.append(z.text)
            y = V(f"{f}[{nb}]({z.text})" + " / 40" * (f == "runsum"), (*lead, nb), level=level, size=8)
        return [w.dress(y, 1)]
    nc = w.blocks(n, 2 * r)
    y = w.let(
        V(f"{w.rng.choice(('mean', 'max'))}[{n} in {nb}]({x.text})", (*lead, nb), level=max(1, x.level), size=x.size)
    )
    return [w.dress(w.binary(w.binary(x, y), w.input((nc,), "f32")), 1)]


def quantised(w: Writer, x: V, lead: tuple[str, ...], n: str, nb: str) -> list[V]:
    """q, s = quantize(x, t): read back, or an operand of a scaled product."""
    dtype = w.rng.choice(("int8", "e4m3", "e5m2", "int8", "e4m3"))
    axes = w.rng.choice((lead, (*lead, nb), (*lead[:-1], nb), (*lead[:-1],)))
    limit = w.rng.choice(("", "", ", limit=100", f", limit={'2.25' if dtype != 'int8' else '63'}"))
    q = V(f"v{len(w.lines)}q", x.axes, dtype, True, ROUGH, 100)
    s = V(f"v{len(w.lines)}s", axes, "f32", False, ROUGH, 1)
    w.lines.append(((q, s), f"quantize({x.text}, {dtype}{limit})"))
    if dtype == "e5m2" or w.chance(0.4) or (nb in axes and w.extents[nb] * 64 > 4096):
        return [w.dress(V(f"{q.text} * {s.text}", x.axes, level=ROUGH), 1)]
    e = w.axis("e", 17, 50)
    b = w.input((n, e), dtype)
    if nb in axes:
        p = w.let(V(f"sum[{n} in {nb}]({q.text} * {b.text})", (*lead, e, nb), level=ROUGH))
        return [V(f"sum[{nb}]({p.text} * {s.text}) / 40", (*lead, e), level=ROUGH)]
    return [V(f"sum[{n}]({q.text} * {b.text}) * {s.text} / 40", (*lead, e), level=ROUGH)]


def reads(w: Writer) -> list[V]:
    """By position: shifts, convolutions, gathers, rotations, transposed and single elements."""
    lead = w.batch()
    c, d = w.axis("c", 4, 30), w.axis("d", 6, 40)
    x = w.input((*lead, c, d))
    at = " ".join(lead)
    half = f"{w.extents[d] // 2}"
    kind = w.rng.choice(("shift", "rotate", "gather", "conv", "element", "pick", "reverse", "renamed", "conv2"))
    if kind == "shift":
        y = V(f"{x.text}[{at} {c} ({d} {w.rng.choice('+-')} {w.rng.randint(1, 9)})]", x.axes)
        y = w.binary(y, x)
    elif kind == "rotate":
        cs, sn = w.input((d,), "f32"), w.input((d,), "f32")
        turned = f"where({d} < {half}, -{x.text}[{at} {c} ({d} + {half})], {x.text}[{at} {c} ({d} - {half})])"
        y = V(f"{x.text} * {cs.text} + {turned} * {sn.text}", x.axes, size=6)
    elif kind == "gather":
        t = w.input(((r := w.axis("r", 3, 30)),), below=c)
        y = V(f"{x.text}[{at} {t.text} {d}]", (*lead, r, d))
    elif kind == "conv":
        u = w.axis("u", 2, 4)
        k = w.input((c, u))
        y = V(f"sum[{u}]({x.text}[{at} {c} ({d} + {u} - 1)] * {k.text}) / 2", x.axes, level=ROUGH)
    elif kind == "conv2":
        u, e = w.axis("u", 2, 3), w.axis("e", 16, 30)
        w.extents[c] = w.rng.randint(16, 30)
        w.inputs[x.text] = (x.axes, "bf16")
        k = w.input((c, u, e), "bf16")
        y = V(f"sum[{c} {u}]({x.text}[{at} {c} ({d} + {u} - 1)] * {k.text}) / 6", (*lead, d, e), level=ROUGH)
    elif kind == "element":
        y = V(
            f"{x.text} - {x.text}[{at} {c} {w.rng.randint(0, 5)}] * {x.text}[{at} {c} ({d.upper()} - 1)]",
            x.axes,
            size=12,
        )
    elif kind == "pick":
        t = w.input((*lead, c), below=d)
        x = w.let(x)
        y = V(f"log(sum[{d}](exp({x.text}))) - {x.text}[{at} {c} {t.text}]", (*lead, c), size=8)
    elif kind == "reverse":
        y = V(f"{x.text}[{at} {c} ({d.upper()} - 1 - {d})] + 0.5 * {x.text}", x.axes)
    else:
        j = w.axis("j", w.extents[d], w.extents[d])
        w.axis_lines.append(f"axis {j} = D")
        z = w.let(w.dress(x, 1))
        order = " ".join(j if a == d else a for a in z.axes)
        y = V(f"{z.text}[{order}] * sigmoid({w.input((j,)).text})", tuple(j if a == d else a for a in z.axes))
    y = w.dress(y, 2)
    return [w.reduced(w.let(y), y.axes[-1:])] if w.chance(0.25) and y.axes else [y]


def wild(w: Writer) -> list[V]:
    """Any operation on any value so far."""
    axes = tuple(w.axis(a, lo, hi) for a, lo, hi in (("b", 1, 2), ("m", 5, 24), ("n", 17, 45), ("k", 16, 40)))
    pool = [w.input(tuple(a for a in axes if w.chance(0.6)) or axes[:2]) for _ in range(w.rng.randint(2, 3))]
    for _ in range(w.rng.randint(2, 5)):
        v = w.rng.choice(pool)
        kind = w.rng.random()
        if kind < 0.3:
            v = w.binary(v, w.rng.choice(pool))
        elif kind < 0.5:
            v = w.dress(v, 2)
        elif kind < 0.75 and len(v.axes) > 1:
            v = w.reduced(v, tuple(w.rng.sample(v.axes, 1 + (len(v.axes) > 2 and w.chance(0.2)))))
        elif kind < 0.9:
            both = [(x, y, k) for x in pool for y in pool for k in x.axes if k in y.axes and _crossed(x, y, k)]
            v = product(w, *(both := w.rng.choice(both))[:2], (both[2],)) if both else w.unary(v)
        else:
            v = V(f"softmax[{v.axes[-1]}]({v.text}) * 8", v.axes, level=max(v.level, 1), size=8) if v.axes else v
        pool.append(w.let(v))
    return [pool[-1]]


def _crossed(x: V, y: V, k: str) -> bool:
    return bool(set(x.axes) - set(y.axes)) and bool(set(y.axes) - set(x.axes)) and x is not y


# attention often: it alone draws masks, of which there are many kinds
PLANS = (rows, gemm, attention, backward, blocks, reads, wild, attention, gemm, wild, attention, attention)


def scheduled(case: Case, edits: int | None = None) -> Program:
    """The program of a case after random legal edits of its schedule: tiles first, then anything."""
    rng = random.Random(f"schedule {case.text}")
    program, hw = parse(case.text), hardware(case.chip)
    for knob in [k for k in knobs(program, hw, case.extents) if k.directive == "tile" and k.number]:
        if knob.legal and rng.random() < 0.9:  # a tile of 1 takes the interpreter longest and shows least
            now = next(iter(knobs(program, hw, case.extents, only=knob.name)), None)
            if now is not None:
                program = set_knob(program, now, rng.choice(now.legal[1:5] or now.legal))
    for _ in range(rng.choice((0, 1, 2, 4)) if edits is None else edits):
        found = [k for k in knobs(program, hw, case.extents) if k.legal]
        if found:
            knob = rng.choice(found)
            program = set_knob(program, knob, rng.choice(knob.legal))
    return program
