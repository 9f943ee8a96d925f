"""Operators that are a whole layer: products of matrices, attention, norms, losses, convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from avo.importing.axes import extent, index, minus, over, plus, times
from avo.importing.operators import Result, call, operator, select
from avo.importing.reductions import logsumexp
from avo.importing.shapes import length, reshape, size_of
from avo.importing.values import Builder, Cannot, Value, literal
from dsl.syntax import Binary, Expr, Number, Unary

_SUGGESTED, _KNOWN = 2, 5


def product(b: Builder, dtype: str, x: Value, y: Value) -> Value:
    """torch.matmul."""
    if len(x.dims) == 1 or len(y.dims) == 1:
        return _with_vector(b, dtype, x, y)
    rows, inner, other, columns = x.dims[-2], x.dims[-1], y.dims[-2], y.dims[-1]
    if inner is None or other is None:
        return b.elementwise(lambda p, q: Binary("*", p, q), dtype, x, y)
    for axis, hint in ((rows, "m"), (columns, "n"), (inner, "k")):
        if axis is not None:
            b.axes.hint(axis, hint, _SUGGESTED)
    if rows is not None and columns is not None and b.axes.same(rows, columns):  # every row with every row
        fresh = b.twin(columns, "n")
        y = b.rename(y, {columns: fresh})
        columns = fresh
    x, y = _one_axis(b, x, -1, y, -2)
    inner, columns, rows = x.dims[-1], y.dims[-1], x.dims[-2]
    assert inner is not None
    left = b.make(x.ref, (*x.dims[:-2], rows, None, inner), x.dtype)
    right = b.make(y.ref, (*y.dims[:-2], None, columns, inner), y.dtype)
    dims, (left, right) = b.broadcast([left, right])
    return b.contract(left, right, [dims[-1]], dims[:-1], dtype)  # type: ignore[list-item]


def _one_axis(b: Builder, x: Value, p: int, y: Value, q: int) -> tuple[Value, Value]:
    """The two values with one axis at these dimensions."""
    a, c = x.dims[p], y.dims[q]
    assert a is not None and c is not None
    if b.axes.unify(a, c):
        return x, y
    if any(d is not None and b.axes.same(a, d) for i, d in enumerate(y.dims) if i != q % len(y.dims)):
        fresh = b.twin(a)
        return b.rename(x, {a: fresh}), b.rename(y, {c: fresh})
    return x, b.rename(y, {c: a})


def _with_vector(b: Builder, dtype: str, x: Value, y: Value) -> Value:
    if len(y.dims) == 1:
        wide, flat = (x, y) if len(x.dims) >= 1 else (y, x)
        scaled = b.elementwise(lambda p, q: Binary("*", p, q), dtype, wide, flat)
        return b.reduce("sum", scaled, [-1], False, dtype)
    turned = b.make(y.ref, (*y.dims[:-2], y.dims[-1], y.dims[-2]), y.dtype)
    return _with_vector(b, dtype, turned, x)


@operator("matmul", "mm", "bmm", "mv", "dot")
def _matmul(b: Builder, dtype: str, x: Value, y: Value) -> Result:
    return product(b, dtype, x, y)


@operator("linear")
def _linear(b: Builder, dtype: str, x: Value, w: Value, bias: Value | None = None) -> Result:
    turned = b.make(w.ref, w.dims[::-1], w.dtype)
    result = product(b, dtype, x, turned)
    return result if bias is None else b.elementwise(plus, dtype, result, bias)


@operator("addmm", "baddbmm")
def _addmm(b: Builder, dtype: str, bias: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Result:
    result = product(b, dtype, x, y)
    return b.elementwise(lambda p, q: plus(times(literal(alpha), p), times(literal(beta), q)), dtype, result, bias)


@operator("outer")
def _outer(b: Builder, dtype: str, x: Value, y: Value) -> Result:
    return b.elementwise(
        lambda p, q: Binary("*", p, q),
        dtype,
        b.make(x.ref, (*x.dims, None), dtype),
        b.make(y.ref, (None, *y.dims), dtype),
    )


@operator("einsum")
def _einsum(b: Builder, dtype: str, equation: str, tensors: Sequence[Value], *_: Any) -> Result:
    given, arrow, result = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if "." in equation or any(len(set(t)) != len(t) for t in terms) or len(terms) > 2:
        raise Cannot(f"einsum {equation!r}", "two operands at most, each letter once in each, no `...`")
    if not arrow:
        letters = "".join(terms)
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    order = [*result, *(c for c in dict.fromkeys("".join(terms)) if c not in result)]
    placed = []
    for term, t in zip(terms, tensors, strict=True):
        for letter, d in zip(term, t.dims, strict=True):
            if d is not None:
                b.axes.hint(d, letter.lower(), _KNOWN)
        placed.append(b.make(t.ref, [t.dims[term.index(c)] if c in term else None for c in order], t.dtype))
    dims, placed = b.broadcast(placed)
    inner = [d for d in dims[len(result) :] if d is not None]
    if len(placed) == 2 and inner and all(d is not None for p in placed for d in p.dims[len(result) :]):
        return b.contract(placed[0], placed[1], inner, dims[: len(result)], dtype)
    whole = b.elementwise(lambda *p: p[0] if len(p) == 1 else Binary("*", *p), dtype, *placed)
    return b.reduce("sum", whole, range(len(result), len(order)), False, dtype) if inner else whole


# Attention ------------------------------------------------------------------------------------------------------------


@operator("scaled_dot_product_attention")
def _attention(
    b: Builder,
    dtype: str,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Result:
    if dropout:
        raise Cannot("attention with dropout", "the language has no random numbers")
    for x, names in ((q, "bhmd"), (k, "bhnd"), (v, "bhne")):
        for d, hint in zip(x.dims[::-1], names[::-1], strict=False):
            if d is not None:
                b.axes.hint(d, hint, _KNOWN)
    if enable_gqa and len(q.dims) >= 3:
        k, v = (_repeated(b, x, q.dims[-3]) for x in (k, v))
    d = q.dims[-1]
    turned = b.make(k.ref, (*k.dims[:-2], k.dims[-1], k.dims[-2]), k.dtype)
    scores = product(b, dtype, q, turned)
    by: Expr = literal(scale) if scale is not None else call("rsqrt", length(b, d))
    scores = b.elementwise(lambda p: Binary("*", p, by), dtype, scores)
    rows, columns = scores.dims[-2:]
    if causal and rows is not None and columns is not None:
        keep = b.make(Binary(">=", index(rows), index(columns)), (rows, columns), "bool")
        scores = select(b, dtype, keep, scores, float("-inf"))
    elif mask is not None and mask.dtype == "bool":
        scores = select(b, dtype, mask, scores, float("-inf"))
    elif mask is not None:
        scores = b.elementwise(plus, dtype, scores, mask)
    scores.named = "s"
    return product(b, dtype, b.along("softmax", scores, -1, dtype), v)


def _repeated(b: Builder, x: Value, heads: int | None) -> Value:
    """Keys or values of grouped heads, along the axis of the query's heads."""
    group = x.dims[-3]
    if heads is None or group is None or b.axes.size(heads) == b.axes.size(group):
        return x
    b.axes.hint(group, "g", _KNOWN + 1)
    dims = (*x.dims[:-3], heads, *x.dims[-2:])
    if b.axes.link(group, heads):
        return b.make(x.ref, dims, x.dtype)
    share = over(extent(heads), extent(group))
    return b.make(b.moved(x.ref, {group: over(index(heads), share)}), dims, x.dtype)


# Norms ----------------------------------------------------------------------------------------------------------------


def _scaled(b: Builder, dtype: str, y: Value, weight: Value | None, bias: Value | None = None) -> Value:
    if weight is not None:
        y = b.elementwise(lambda p, q: Binary("*", p, q), dtype, y, weight)
    return y if bias is None else b.elementwise(plus, dtype, y, bias)


@operator("rms_norm")
def _rms_norm(b: Builder, dtype: str, x: Value, shape: Sequence[Any], weight: Any = None, eps: Any = None) -> Result:
    places = range(-len(shape), 0)
    squares = b.elementwise(lambda p: Binary("*", p, p), "f32", x)
    mean = b.reduce("mean", squares, places, True, "f32")
    tiny = 2.0**-23 if eps is None else eps  # `float64.NORM_EPS`: float32's, for narrower inputs too
    return _scaled(
        b,
        dtype,
        b.elementwise(lambda p, q: Binary("*", p, call("rsqrt", plus(q, literal(tiny)))), dtype, x, mean),
        weight,
    )


@operator("layer_norm", "native_layer_norm")
def _layer_norm(
    b: Builder,
    dtype: str,
    x: Value,
    shape: Sequence[Any],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Result:
    places = range(-len(shape), 0)
    mean = b.reduce("mean", x, places, True, "f32")
    mean.forced, mean.named = True, "mu"
    gap = b.elementwise(minus, "f32", x, mean)
    gap.forced, gap.named = True, "z"
    squares = b.elementwise(lambda p: Binary("*", p, p), "f32", gap)
    spread = b.reduce("mean", squares, places, True, "f32")
    y = b.elementwise(lambda p, q: Binary("*", p, call("rsqrt", plus(q, literal(eps)))), dtype, gap, spread)
    return _scaled(b, dtype, y, weight, bias)


def _per_channel(b: Builder, dtype: str, y: Value, weight: Value | None, bias: Value | None) -> Value:
    """weight * y + bias, both along the second dimension."""
    rest = [None] * (len(y.dims) - 2)
    return _scaled(
        b, dtype, y, *(None if v is None else b.make(v.ref, (*v.dims, *rest), v.dtype) for v in (weight, bias))
    )


@operator("group_norm")
def _group_norm(
    b: Builder, dtype: str, x: Value, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Result:
    shape = [length(b, d) for d in x.dims]
    cut = reshape(b, x, [shape[0], groups, -1])
    mean = b.reduce("mean", cut, [-1], True, "f32")
    mean.forced, mean.named = True, "mu"
    gap = b.elementwise(minus, "f32", cut, mean)
    gap.forced, gap.named = True, "z"
    spread = b.reduce("mean", b.elementwise(lambda p: Binary("*", p, p), "f32", gap), [-1], True, "f32")
    y = b.elementwise(lambda p, q: Binary("*", p, call("rsqrt", plus(q, literal(eps)))), dtype, gap, spread)
    return _per_channel(b, dtype, reshape(b, y, list(shape)), weight, bias)


@operator("batch_norm")
def _batch_norm(
    b: Builder,
    dtype: str,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *_: Any,
) -> Result:
    if training or mean is None or var is None:
        raise Cannot("batch_norm in training", "it changes its running statistics; pass training=False")
    rest = [None] * (len(x.dims) - 2)
    mean, var = (b.make(v.ref, (*v.dims, *rest), v.dtype) for v in (mean, var))
    gap = b.elementwise(minus, dtype, x, mean)
    y = b.elementwise(lambda p, q: Binary("*", p, call("rsqrt", plus(q, literal(eps)))), dtype, gap, var)
    return _per_channel(b, dtype, y, weight, bias)


# Losses ---------------------------------------------------------------------------------------------------------------


@operator("cross_entropy_loss")
def _cross_entropy(
    b: Builder,
    dtype: str,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: Any = -100,
    label_smoothing: float = 0.0,
) -> Result:
    if weight is not None or label_smoothing or target.dtype not in ("i32", "int8"):
        raise Cannot("cross_entropy with weights, label smoothing or targets of probabilities")
    place = 0 if len(x.dims) == 1 else 1
    whole = logsumexp(b, "f32", x, [place], False)
    return _picked(b, dtype, x, target, place, whole, reduction)


@operator("nll_loss", "nll_loss_nd")
def _nll(
    b: Builder, dtype: str, x: Value, target: Value, weight: Any = None, reduction: int = 1, ignore_index: Any = -100
) -> Result:
    if weight is not None:
        raise Cannot("nll_loss with weights")
    return _picked(b, dtype, x, target, 0 if len(x.dims) == 1 else 1, None, reduction)


def _picked(b: Builder, dtype: str, x: Value, target: Value, place: int, whole: Value | None, reduction: int) -> Value:
    """whole - x[target], reduced: the loss of each row."""
    axis = x.dims[place]
    if axis is None:
        raise Cannot("a loss over one class")
    b.note("targets must lie within the classes: ignore_index is not carried over")
    rest = (*x.dims[:place], *x.dims[place + 1 :])
    for d, t in zip(rest, target.dims, strict=True):
        if d is not None and t is not None and not b.axes.unify(d, t):
            raise Cannot("a loss whose targets have other axes than its logits")
    said = b.make(b.moved(x.ref, {axis: target.ref}), rest, dtype)
    if whole is None:
        loss = b.elementwise(lambda p: Unary("-", p), dtype, said)
    else:
        loss = b.elementwise(lambda p, q: Binary("-", p, q), dtype, whole, said)
    if reduction == 0 or not loss.dims:
        return loss
    return b.reduce("mean" if reduction == 1 else "sum", loss, range(len(loss.dims)), False, dtype)


# Convolutions ---------------------------------------------------------------------------------------------------------


@operator("conv1d", "conv2d", "conv3d")
def _conv(
    b: Builder,
    dtype: str,
    x: Value,
    w: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Any = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Result:
    """sum[c u v](x[b c (i * s + u - p) (j * s + v - p)] * w[o c u v]): reads out of range are 0, so padding is free."""
    rank = len(w.dims) - 2
    several = size_of(b, groups)
    apart = several != 1 and w.dims[1] is None and w.dims[0] is not None and b.axes.size(w.dims[0]) == several
    if (several != 1 and not apart) or isinstance(padding, str):
        raise Cannot("a convolution in groups of several channels, or with padding by a word")
    if len(x.dims) != rank + 2:
        raise Cannot("a convolution without a batch dimension", "x[None]")
    strides, paddings, dilations = (list(v) * rank if len(v) == 1 else list(v) for v in (stride, padding, dilation))
    for value, names in ((x, "nc"), (w, "oc")):
        for d, hint in zip(value.dims, names, strict=False):
            if d is not None:
                b.axes.hint(d, "b" if hint == "n" else hint, _KNOWN)
    if x.dims[1] is not None and (apart or w.dims[1] is not None):
        x, w = _one_axis(b, x, 1, w, 0 if apart else 1)
    out, to = _windows(b, x, w.dims[2:], strides, paddings, dilations)
    b.axes.held([x.dims[0], x.dims[1], *out, *w.dims])
    taps = [d for d in w.dims[2:] if d is not None]
    seen = b.make(b.moved(x.ref, to), (x.dims[0], x.dims[1], *out), x.dtype)
    dims = (x.dims[0], w.dims[0], *out)
    if apart:  # each channel for itself
        narrow = b.make(w.ref, (None, w.dims[0], *([None] * rank), *taps), w.dtype)
        wide = b.make(seen.ref, (*seen.dims, *([None] * len(taps))), x.dtype)
        y = b.elementwise(lambda p, q: Binary("*", p, q), dtype, wide, narrow)
        for _ in taps:
            y = b.reduce("sum", y, [-1], False, dtype)
    elif x.dims[1] is None:
        y = b.contract(seen, w, taps, dims, dtype)
    else:  # a product over the channels at each tap: what a matrix unit takes
        y = b.contract(seen, w, [x.dims[1]], (*dims, *taps), dtype)
        for _ in taps:
            y = b.reduce("sum", y, [-1], False, dtype)
    if bias is not None:
        y = b.elementwise(plus, dtype, y, b.make(bias.ref, (*bias.dims, *([None] * rank)), bias.dtype))
    return y


def _windows(
    b: Builder,
    x: Value,
    taps: Sequence[int | None],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int | None], dict[int, Expr]]:
    """The axes of where windows lie along the last dimensions of x, and where each of these is read at a tap."""
    out: list[int | None] = []
    to: dict[int, Expr] = {}
    for i, tap in enumerate(taps):
        axis = x.dims[i + 2]
        if axis is None:
            raise Cannot("windows along a dimension of length 1")
        s, p, e = strides[i], paddings[i], dilations[i]
        reach = times(Number(e), minus(length(b, tap), Number(1)))
        n = plus(over(minus(plus(extent(axis), Number(2 * p)), plus(reach, Number(1))), Number(s)), Number(1))
        made = b.axes.new(size_of(b, n), n)
        if tap is not None:
            b.axes.hint(tap, "uvw"[i], _KNOWN)
        out.append(made)
        at: Expr = times(index(made), Number(s))
        if tap is not None:
            at = plus(at, times(index(tap), Number(e)))
        to[axis] = plus(at, Number(-p))
    return out, to


@operator("max_pool1d", "max_pool2d", "max_pool2d_with_indices", "avg_pool1d", "avg_pool2d")
def _pool(
    b: Builder,
    dtype: str,
    x: Value,
    sizes: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    *more: Any,
    name: str = "",
) -> Result:
    """The largest or the mean of each window, which is read by position."""
    if any(padding) or any(m not in (1, False, True, None) and m != [1] and m != [1, 1] for m in more):
        raise Cannot("pooling with padding or dilation", "pad first, or write where() around the read")
    rank = len(x.dims) - 2
    sizes, stride = (list(v) * rank if len(v) == 1 else list(v) for v in (sizes, stride or sizes))
    taps = [b.axes.new(n, Number(n)) for n in sizes]
    out, to = _windows(b, x, taps, stride, [0] * rank, [1] * rank)
    b.axes.held([*x.dims[:2], *out, *taps])
    seen = b.make(b.moved(x.ref, to), (*x.dims[:2], *out, *taps), dtype)
    kind = "max" if name.startswith("max") else "mean"
    pooled = b.reduce(kind, seen, range(-rank, 0), False, dtype)
    return [pooled] if name.endswith("indices") else pooled
