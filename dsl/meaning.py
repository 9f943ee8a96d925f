"""What a program computes: its algorithm half evaluated in float64 by NumPy, straight from the syntax tree.

This is the oracle that everything else is judged by, so it shares no code with the term DAG of the lowering. Two modes
(rule 13): in `exact` casts and quantize do not round, and the value must equal the target's reference; in `rounded` the
named roundings happen (declared dtypes, casts, quantize) and everything between them is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsl import named_functions as functions
from dsl.diagnostics import Diagnostic, ProgramError, nearest
from dsl.extents import Extents, extents_of
from dsl.named_arrays import Named, blocked, contract, gather, reduced, refine, union
from dsl.rounding import BLOCKS, DTYPES, round_blocks, round_to
from dsl.syntax import (
    AxisIn,
    Binary,
    Bool,
    Call,
    Expr,
    Name,
    Number,
    Program,
    Read,
    Span,
    Statement,
    Tensor,
    Unary,
)
from dsl.wording import counted

__all__ = ["DTYPES", "evaluate", "round_to"]

Mode = Literal["exact", "rounded"]
Rounding: TypeAlias = Callable[[NDArray, str], NDArray]  # float64 values of any shape, dtype -> rounded, as `round_to`
Adding: TypeAlias = Callable[[Callable[[slice], NDArray], int], NDArray]  # see `evaluate`
# What they give is one of their operands, or true or false: no arithmetic that float32 would round.
_CHOICES = ("where", "max", "min", "abs", "not", "and", "or", "==", "!=", "<", "<=", ">", ">=")


def evaluate(
    program: Program,
    inputs: Mapping[str, NDArray],
    params: Mapping[str, int | float | bool] | None = None,
    mode: Mode = "exact",
    want: Collection[str] | None = None,
    rounding: Rounding = round_to,
    adding: Adding | None = None,
    representable: bool = False,
) -> dict[str, NDArray]:
    """Every output, and every name of `want`, as arrays with their axes in declared order.

    `inputs`: one array for each `in` tensor, of any NumPy dtype, one dimension for each axis; under `rank r` the
    sharded ones carry the rank axis. Extents follow from their shapes. `params`: what has no default must be given.
    Values are float64; int64 where the dtype is an integer one and nothing is fractional; bool.
    rounding: in rounded mode, how a computed value becomes one of a named dtype narrower than f32 (block formats
    aside). What is an input, or chosen among inputs, has no error that could matter: `round_to` rounds it.
    adding: how a sum comes about, for whoever asks what another order or dtype of its parts would give: it is handed
    the sum over each slice of the axis that is added along, and that axis's length. Exact where it is None.
    representable: inputs of float dtypes have been through `rounded_inputs`, which takes longer than much else.

    Raises ValueError where inputs or params do not fit the program, ProgramError where the program itself is wrong.
    """
    if mode not in ("exact", "rounded"):
        raise ValueError(f"mode is exact or rounded, not {mode!r}")
    given = _inputs(program, inputs)
    extents = extents_of(program, {k: v.shape for k, v in given.items()}, params)
    with np.errstate(all="ignore"):
        return _Meaning(program, given, extents, mode, rounding, adding, representable).run(set(want or ()))


def rounded_inputs(program: Program, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """The inputs with those of float dtypes rounded to them, for more than one `evaluate` in rounded mode."""
    dtypes = {t.name: t.dtype for t in program.algorithm.inputs if t.dtype and _once(t.dtype)}
    return {name: round_to(x, dtypes[name]) if name in dtypes else x for name, x in inputs.items()}


def _once(dtype: str) -> bool:
    """Whether what is rounded to it need not be rounded again, and is of the same kind as before."""
    return dtype in DTYPES and DTYPES[dtype].kind == "float" and dtype not in BLOCKS


def _inputs(program: Program, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
    names = [t.name for t in program.algorithm.inputs]
    unknown = [n for n in inputs if n not in names]
    if unknown:
        raise ValueError(f"the program has no input `{unknown[0]}`; its inputs are {', '.join(names)}")
    missing = [n for n in names if n not in inputs]
    if missing:
        raise ValueError(f"missing input{'s' * (len(missing) > 1)}: {', '.join(missing)}")
    result = {}
    for name in names:
        x = np.asarray(inputs[name])
        if x.dtype.kind not in "fiub":
            raise ValueError(f"input `{name}` is an array of {x.dtype}, not of numbers")
        result[name] = x if x.dtype == bool else x.astype(np.int64 if x.dtype.kind in "iu" else np.float64, copy=False)
    return result


class _Meaning:
    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, NDArray],
        extents: Extents,
        mode: Mode,
        rounding: Rounding,
        adding: Adding | None = None,
        representable: bool = False,
    ) -> None:
        self.algorithm = program.algorithm
        self.extents = extents
        self.mode = mode
        self.rounding = rounding
        self.adding = adding
        self.computed: set[str] = set()  # names whose values a float32 computation gives with an error of its own
        self.outputs = {t.name: t for t in self.algorithm.outputs}
        self.env: dict[str, Named] = {}
        for t in self.algorithm.inputs:
            known = representable and t.dtype is not None and _once(t.dtype) and inputs[t.name].dtype == np.float64
            given = Named(t.axes or (), inputs[t.name])
            self.env[t.name] = given if known else self.cast(given, t.dtype)
        for p in self.algorithm.params:
            value = Named((), np.asarray(extents.params[p.name]))
            self.env[p.name] = self.cast(value, "f32") if p.dtype == "f32" else value

    def run(self, want: set[str]) -> dict[str, NDArray]:
        wanted = {*self.outputs, *want}
        statements = self.algorithm.statements
        assigned = {t.name for s in statements for t in s.targets}
        for name in wanted - assigned:
            if name in self.outputs:
                raise _wrong("output-missing", f"output `{name}` is never assigned", self.outputs[name].span)
            raise ValueError(f"the program assigns no `{name}`; it assigns {', '.join(sorted(assigned))}")
        last = {name: i for i, s in enumerate(statements) for name in _names(s.value)}
        kept = {}
        for i, s in enumerate(statements):
            self.statement(s)
            for name in {t.name for t in s.targets} & wanted:
                kept[name] = np.ascontiguousarray(self.env[name].data).reshape(self.env[name].data.shape)
            for name in [n for n in self.env if last.get(n, -1) <= i and n in assigned]:
                del self.env[name]  # large intermediates go as soon as nothing reads them
        return kept

    # Statements

    def statement(self, s: Statement) -> None:
        if isinstance(s.value, Call) and s.value.function == "quantize":
            self.quantize(s, s.value)
        else:
            self.bind(s.targets[0], self.value(s.value), self.inexact(s.value))

    def bind(self, target: Tensor, value: Named, inexact: bool = True) -> None:
        declared = self.outputs.get(target.name)
        axes = target.axes if declared is None or declared.axes is None else declared.axes
        if axes is None:
            axes = value.axes
        if set(axes) != set(value.axes) or len(axes) != len(value.axes):
            raise _wrong(
                "axes",
                f"`{target.name}` has axes [{' '.join(axes)}], its right side has [{' '.join(value.axes)}]",
                target.span,
            )
        dtype = target.dtype or (declared.dtype if declared else None)
        self.env[target.name] = self.cast(value.transposed(axes), dtype, inexact)
        if inexact and not _narrow(dtype):
            self.computed.add(target.name)

    def inexact(self, e: Expr) -> bool:
        """Whether a float32 computation of `e` has an error beside those of the roundings that are named."""
        match e:
            case Name(name) | Read(name):
                return name in self.computed
            case Unary(_, operand):
                return self.inexact(operand)
            case Binary(op, left, right):
                return op not in _CHOICES or self.inexact(left) or self.inexact(right)
            case Call(function, _, args):
                if function in DTYPES:
                    return not _narrow(function) and any(map(self.inexact, args))
                return function not in _CHOICES or any(map(self.inexact, args))
        return False

    def cast(self, x: Named, dtype: str | None, inexact: bool = False) -> Named:
        """Rounded to a named dtype; in exact mode only bool and float are told apart."""
        if dtype is None:
            return x
        if dtype not in DTYPES:
            raise _wrong("dtype", f"`{dtype}` is no dtype", Span(), fix=nearest(dtype, list(DTYPES)))
        kind = DTYPES[dtype].kind
        if kind == "bool":
            return Named(x.axes, x.data != 0)
        data = x.data.astype(np.float64) if kind == "float" and x.data.dtype.kind != "f" else x.data
        if dtype in BLOCKS and not x.axes:
            raise _wrong("block-dtype", f"`{dtype}` has a scale for each block of an axis", Span(), fix="give it axes")
        if self.mode == "rounded" and dtype in BLOCKS:
            data = round_blocks(data, dtype)  # along the last axis of the name that declares it
        elif self.mode == "rounded":
            rounding = self.rounding if inexact and _narrow(dtype) and data.dtype.kind == "f" else round_to
            data = rounding(data, dtype)
            if kind == "int" and np.isfinite(data).all():
                data = data.astype(np.int64)
        return Named(x.axes, data)

    def quantize(self, s: Statement, call: Call) -> None:
        """Rule 12."""
        if len(s.targets) != 2 or len(call.args) != 2 or not isinstance(call.args[1], Name):
            raise _wrong("quantize-form", "quantize gives two results from a value and a dtype", s.span)
        dtype = call.args[1].id
        if dtype not in functions.LIMITS:
            known = list(functions.LIMITS)
            raise _wrong("dtype", f"quantize has no dtype `{dtype}`", call.args[1].span, legal=" ".join(known))
        limit = Named((), np.asarray(functions.LIMITS[dtype]))
        for key, e in call.keywords:
            if key != "limit":
                raise _wrong("keyword", f"quantize has no keyword `{key}`", e.span, legal="limit")
            limit = self.value(e)
        (x,) = self.absorb([self.value(call.args[0])])
        q, scale = s.targets
        declared = self.outputs.get(scale.name)
        axes = scale.axes if scale.axes is not None else declared.axes if declared else None
        if axes is None:
            raise _wrong("axes", f"the scale `{scale.name}` needs its axes", scale.span, fix=f"{scale.name}[b h]")
        over = [AxisIn(a, next((c for c in axes if self.extents.ratio(c, a)), None)) for a in x.axes if a not in axes]
        size = self.map(np.abs, x)
        amax = self.reduce("max", size, over, s.span) if over else size
        step = self.map(lambda m, top: np.where(m == 0, 1.0, m / top), amax, limit)
        self.bind(scale, step)
        scaled = self.map(np.divide, x, self.env[scale.name])
        if dtype in BLOCKS:  # whose blocks lie along the last axis of the name
            self.bind(Tensor(q.name, q.axes, dtype, q.span), scaled)
        else:
            self.bind(q, self.cast(scaled, dtype, inexact=True), inexact=False)

    # Expressions

    def value(self, e: Expr) -> Named:
        match e:
            case Number(value) | Bool(value):
                return Named((), np.asarray(value))
            case Name():
                return self.name(e)
            case Read():
                return self.read(e)
            case Unary(op, operand):
                return self.map(functions.OPERATORS[f"unary {op}"], self.value(operand))
            case Binary(op, left, right):
                return self.map(functions.OPERATORS[op], self.value(left), self.value(right))
            case Call():
                return self.call(e)

    def name(self, e: Name) -> Named:
        if e.id in self.env:
            return self.env[e.id]
        if e.id in self.extents.axes:
            return Named((e.id,), np.arange(self.extents.axes[e.id]))
        if e.id.lower() in self.extents.axes and e.id == e.id.upper():
            return Named((), np.asarray(self.extents.axes[e.id.lower()]))
        known = [*self.env, *self.extents.axes, *(a.upper() for a in self.extents.axes)]
        raise _wrong("name", f"`{e.id}` is not defined here", e.span, fix=nearest(e.id, known))

    def read(self, e: Read) -> Named:
        """Rule 7."""
        tensor = self.name(Name(e.tensor, e.span))
        if len(tensor.axes) != len(e.indices):
            axes, indices = counted(len(tensor.axes), "axis", "axes"), counted(len(e.indices), "index", "indices")
            message = f"`{e.tensor}` has {axes}, read with {indices}"
            raise _wrong("read", message, e.span)
        names = [i.id for i in e.indices if isinstance(i, Name) and i.id in self.extents.axes and i.id not in self.env]
        lengths = tuple(self.extents.axes[n] for n in names)
        if len(set(names)) == len(tensor.axes) and lengths == tensor.data.shape and not self._mixed(names):
            return Named(tuple(names), tensor.data)  # no more than a renaming
        return gather(tensor.data, self.absorb([self.value(i) for i in e.indices]))

    def call(self, e: Call) -> Named:
        f, n = e.function, len(e.args)
        if e.axes is None:
            if f in BLOCKS:
                raise _wrong("block-dtype", f"`{f}` is no function: its blocks lie along a name's last axis", e.span)
            if f in DTYPES and n == 1:
                return self.cast(self.value(e.args[0]), f, self.inexact(e.args[0]))
            if f in functions.FUNCTIONS and n == functions.ARITY.get(f, 1):
                return self.map(functions.FUNCTIONS[f], *(self.value(a) for a in e.args))
        elif f in functions.REDUCTIONS and n == 1:
            if f == "sum" and isinstance(e.args[0], Binary) and e.args[0].op == "*":
                return self.contraction(e.args[0], e.axes)
            (x,) = self.absorb([self.value(e.args[0])])
            return self.reduce(f, x, e.axes, e.span)
        elif f in ("softmax", "argmax", "runmax", "runsum") and n == 1:
            (x,) = self.absorb([self.value(e.args[0])])
            return self.along(f, x, e.axes, e.span)
        elif f in ("topk", "bottomk") and n == 2:
            (x,) = self.absorb([self.value(e.args[0])])
            return self.along(f, x, e.axes, e.span, self.value(e.args[1]))
        elif f in ("all_reduce", "reduce_scatter", "all_to_all", "all_gather") and n == 1:
            return self.collective(f, self.value(e.args[0]), [a.axis for a in e.axes], e.span)
        known = [*functions.FUNCTIONS, *functions.BRACKETED, *DTYPES]
        if f in known:
            raise _wrong("call", f"`{f}` is not called so", e.span, legal=functions.form(f))
        raise _wrong("function", f"there is no function `{f}`", e.span, fix=nearest(f, known))

    # Axes

    def map(self, f: functions.Elementwise, *operands: Named) -> Named:
        """`f` element by element; operands broadcast over the union of their axes."""
        operands = tuple(self.absorb(operands))
        axes = union(operands)
        return Named(axes, np.asarray(f(*(x.over(axes) for x in operands))))

    def absorb(self, operands: Sequence[Named]) -> list[Named]:
        """Rule 3: where a coarse axis meets its fine one, it is read at fine // ratio and only the fine one remains."""
        present = union(operands)
        result = []
        for x in operands:
            for coarse in x.axes:
                finer = [f for f in present if self.extents.ratio(coarse, f)]
                if finer:
                    fine = max(finer, key=lambda f: self.extents.ratio(coarse, f) or 0)
                    x = refine(x, coarse, fine, self.extents.axes[fine], self.extents.ratio(coarse, fine) or 1)
            result.append(x)
        return result

    def _mixed(self, axes: Sequence[str]) -> bool:
        return any(self.extents.ratio(c, f) for c in axes for f in axes)

    def cut(self, x: Named, over: Sequence[AxisIn], fill: float | bool, span: Span) -> tuple[Named, list[str]]:
        """`x` with each `f in c` cut into blocks, and the names of the axes to reduce."""
        inner = []
        for a in over:
            if a.axis not in x.axes:
                message = f"the operand has no axis `{a.axis}`; it has [{' '.join(x.axes)}]"
                raise _wrong("axis-absent", message, a.span if a.span.line else span)
            if a.within is None:
                inner.append(a.axis)
                continue
            ratio = self.extents.ratio(a.within, a.axis)
            if ratio is None:
                raise _wrong("not-a-block", f"`{a.within}` is not coarse over `{a.axis}`", a.span)
            inner.append(f"{a.axis} in {a.within}")
            x = blocked(x, a.axis, a.within, inner[-1], ratio, fill)
        return x, inner

    def contraction(self, product: Binary, over: Sequence[AxisIn]) -> Named:
        """sum[over](a * b * ...) without the product ever being in memory."""
        factors, stack = [], [product.right, product.left]
        while stack:
            e = stack.pop()
            if isinstance(e, Binary) and e.op == "*":
                stack += [e.right, e.left]
            else:
                factors.append(self.value(e))
        factors = self.absorb(factors)
        axes = union(factors)
        for a in over:
            ragged = a.within is not None and self.extents.axes[a.axis] % (self.extents.ratio(a.within, a.axis) or 1)
            if a.axis not in axes or (ragged and not all(np.isfinite(f.data).all() for f in factors)):
                whole = self.map(functions.product, *factors)  # an infinity times the filled-up zeros would be NaN
                return self.reduce("sum", whole, over, product.span)
        inner: list[str] = []
        for a in over:
            at = [i for i, f in enumerate(factors) if a.axis in f.axes]
            for i in at:
                factors[i], names = self.cut(factors[i], [a], False, product.span)
            inner += names
        result = contract(factors, inner) if self.adding is None else self.parts(self.adding, factors, inner)
        if all(f.data.dtype.kind != "f" for f in factors):
            return Named(result.axes, np.rint(result.data).astype(np.int64))
        return result

    def reduce(self, kind: str, x: Named, over: Sequence[AxisIn], span: Span) -> Named:
        by, neutral = functions.REDUCTIONS[kind]
        cut, inner = self.cut(x, over, neutral(x.data), span)
        if self.adding is not None and kind in ("sum", "mean") and x.data.dtype.kind == "f":
            result = self.parts(self.adding, [cut], inner)
        else:
            result = reduced(cut, inner, by)
        if kind != "mean":
            return result
        for a in over:  # a short last block counts its real members
            n = self.extents.axes[a.axis]
            if a.within is None:
                result = Named(result.axes, result.data / n)
            else:
                ratio = self.extents.ratio(a.within, a.axis) or 1
                members = np.minimum(ratio, n - np.arange(self.extents.axes[a.within]) * ratio)
                result = self.map(np.divide, result, Named((a.within,), members))
        return result

    def parts(self, adding: Adding, factors: Sequence[Named], inner: Sequence[str]) -> Named:
        """The factors' product summed over `inner`, in slices along the longest of these."""
        lengths = {a: n for f in factors for a, n in zip(f.axes, f.data.shape, strict=True)}
        axis = max(inner, key=lambda a: lengths[a])
        axes = tuple(a for a in union(factors) if a not in inner)

        def part(places: slice) -> NDArray:
            some = [
                Named(f.axes, f.data[(slice(None),) * f.axes.index(axis) + (places,)]) if axis in f.axes else f
                for f in factors
            ]
            return contract(some, inner).transposed(axes).data

        return Named(axes, adding(part, lengths[axis]))

    def along(self, kind: str, x: Named, over: Sequence[AxisIn], span: Span, count: Named | None = None) -> Named:
        """What looks along an axis in order, or keeps it: softmax, argmax, topk, bottomk, runmax, runsum."""
        if kind != "softmax" and len(over) != 1:
            raise _wrong("one-axis", f"`{kind}` takes one axis", span, legal=functions.form(kind))
        lowest = 0 if kind == "runsum" else np.inf if kind == "bottomk" else -np.inf
        cut, inner = self.cut(Named(x.axes, x.data.astype(np.float64)), over, lowest, span)
        whole = x.data.dtype.kind in "ib" and kind in ("runmax", "runsum")
        where = tuple(cut.axes.index(a) for a in inner)
        within = over[0].within
        if kind == "runmax" or kind == "runsum":
            data = cut.data
            axes = cut.axes
            if within is not None:  # the value at the end of each block
                data = (np.max if kind == "runmax" else np.sum)(data, axis=where)
                axes = tuple(a for a in axes if a not in inner)
            step = np.maximum if kind == "runmax" else np.add
            data = step.accumulate(data, axis=axes.index(within or over[0].axis))
            return Named(axes, data.astype(np.int64) if whole else data)
        if kind == "argmax":
            data = np.argmax(cut.data, axis=where[0])
            axes = tuple(a for a in cut.axes if a not in inner)
            if within is None:
                return Named(axes, data)
            start = np.arange(self.extents.axes[within]) * (self.extents.ratio(within, over[0].axis) or 1)
            return self.map(np.add, Named(axes, data), Named((within,), start))
        if kind == "softmax" and self.adding is not None:
            weight = functions.weights(cut.data, where)
            total = np.expand_dims(self.parts(self.adding, [Named(cut.axes, weight)], inner).data, where)
            data = weight / np.where(total == 0.0, 1.0, total)
        elif kind == "softmax":
            data = functions.softmax(cut.data, where)
        else:
            assert count is not None
            members = self.extents.axes[over[0].axis]
            if within is not None:
                ratio = self.extents.ratio(within, over[0].axis) or 1
                members = min(ratio, members - (self.extents.axes[within] - 1) * ratio)
            data = functions.select(kind, cut.data, where[0], count.data, members)
        for a, name in zip(over, inner, strict=True):
            if a.within is not None:  # back from blocks to the fine axis
                i = cut.axes.index(a.within)
                shape = (*data.shape[:i], -1, *data.shape[i + 2 :])
                data = np.take(data.reshape(shape), np.arange(self.extents.axes[a.axis]), axis=i)
                cut = Named(tuple(a.axis if x == a.within else x for x in cut.axes if x != name), data)
        return Named(cut.axes, data)

    def collective(self, kind: str, x: Named, axes: Sequence[str], span: Span) -> Named:
        """Rule 20, with every rank's part in one array."""
        rank = self.algorithm.rank
        if rank is None or not axes or axes[0] != rank or len(axes) != (1 if kind == "all_reduce" else 2):
            raise _wrong("collective", f"`{kind}` is not called so", span, legal=f"rank r, then {functions.form(kind)}")
        needed = axes[:1] if kind in ("all_reduce", "all_gather") else axes
        for a in needed:
            if a not in x.axes:
                raise _wrong("axis-absent", f"{kind}: the operand has no axis `{a}`", span)
        if kind == "all_reduce":
            return reduced(x, [rank], np.sum)
        other = axes[1]
        if self.extents.axes.get(other) != self.extents.axes[rank]:
            message = f"{kind}[{rank} {other}]: `{other}` must be as long as the rank axis"
            raise _wrong("collective", message, span, fix=f"axis {other} = {rank.upper()}")
        if kind == "all_gather":
            return x.renamed({rank: other})
        if kind == "all_to_all":
            return x.renamed({rank: other, other: rank})
        return reduced(x, [rank], np.sum).renamed({other: rank})


def _narrow(dtype: str | None) -> bool:
    return dtype is not None and dtype not in ("f64", "f32", "bool", *BLOCKS)


def _names(e: Expr) -> set[str]:
    """Every name that an expression reads."""
    match e:
        case Name(id):
            return {id}
        case Read(tensor, indices):
            return {tensor}.union(*map(_names, indices))
        case Unary(_, x):
            return _names(x)
        case Binary(_, x, y):
            return _names(x) | _names(y)
        case Call(_, _, args, keywords):
            return set().union(*map(_names, args), *(_names(v) for _, v in keywords))
    return set()


def _wrong(rule: str, message: str, span: Span, legal: str = "", fix: str = "") -> ProgramError:
    return ProgramError([Diagnostic(rule, message, span, legal, fix)])
