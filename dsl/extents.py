"""How long each axis is: from the shapes of the inputs, coarse and free axes derived (rules 1, 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsl.diagnostics import Diagnostic, ProgramError, nearest
from dsl.syntax import AxisDecl, Binary, Bool, Call, Expr, Name, Number, Program, Unary

ParamValue = int | float | bool


@dataclass(frozen=True)
class Extents:
    """`axes`: axis -> length. `coarse`: coarse axis -> (the axis that it lies over, ratio). `params`: with defaults."""

    axes: dict[str, int]
    coarse: dict[str, tuple[str, int]]
    params: dict[str, ParamValue]

    def ratio(self, coarse: str, fine: str) -> int | None:
        """How many indices of `fine` share one of `coarse`, also through chains; None if it is not coarse over it."""
        ratio, axis = 1, coarse
        while axis in self.coarse:
            axis, step = self.coarse[axis]
            ratio *= step
            if axis == fine:
                return ratio
        return None


def extents_of(
    program: Program, shapes: Mapping[str, tuple[int, ...]], params: Mapping[str, ParamValue] | None = None
) -> Extents:
    """The extents that the input shapes (name -> shape) and params fix.

    Raises ValueError where shapes disagree with each other or with the program, ProgramError where an `axis` line
    cannot be evaluated.
    """
    a = program.algorithm
    values = _params(program, params or {})
    axes: dict[str, int] = {}
    source: dict[str, str] = {}
    for t in a.inputs:
        shape, names = shapes[t.name], t.axes or ()
        if len(shape) != len(names):
            raise ValueError(f"input `{t.name}` has axes [{' '.join(names)}] and shape {tuple(shape)}")
        for axis, n in zip(names, shape, strict=True):
            if axes.setdefault(axis, n) != n:
                raise ValueError(f"axis `{axis}` is {axes[axis]} long in `{source[axis]}` and {n} in `{t.name}`")
            source.setdefault(axis, t.name)
    coarse: dict[str, tuple[str, int]] = {}
    for d in _ordered(a.axes, axes):
        n = _integer(d, axes, values)
        if d.fine is None:
            if n < 0:
                raise ValueError(f"axis `{d.name}` is {n} long")
            derived, what = n, f"axis {d.name}"
        else:
            if n < 1:
                raise ValueError(f"axis `{d.name}`: the ratio over `{d.fine}` is {n}; it must be 1 or more")
            coarse[d.name] = (d.fine, n)
            derived, what = -(-axes[d.fine] // n), f"axis {d.name} = {d.fine} // {n}"
        given = axes.setdefault(d.name, derived)
        if d.name in source and d.fine is not None and axes[d.fine] % n:
            raise ValueError(
                f"{what}: {n} does not divide {d.fine.upper()} = {axes[d.fine]} (`{source[d.name]}` fixes it)"
            )
        if given != derived:
            raise ValueError(f"{what} is {derived} long, but {given} in `{source.get(d.name, d.name)}`")
    return Extents(axes, coarse, values)


def _params(program: Program, given: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    declared = {p.name: p for p in program.algorithm.params}
    for name in given:
        if name not in declared:
            hint = nearest(name, list(declared))
            raise ValueError(f"the program has no param `{name}`" + (f"; is it `{hint}`?" if hint else ""))
    values: dict[str, ParamValue] = {}
    for p in declared.values():
        value = given.get(p.name, p.default)
        if value is None:
            raise ValueError(f"param `{p.name}` has no default and no value was given")
        if p.dtype == "bool":
            if value not in (0, 1):
                raise ValueError(f"param `{p.name}` is bool, not {value!r}")
            value = bool(value)
        elif p.dtype == "int":
            if value != int(value):
                raise ValueError(f"param `{p.name}` is int, not {value!r}")
            value = int(value)
        else:
            value = float(value)
        values[p.name] = value
    return values


def _ordered(declared: tuple[AxisDecl, ...], known: Mapping[str, int]) -> list[AxisDecl]:
    """Declarations in an order in which each needs only what stands before it."""
    done, ordered, rest = set(known), [], list(declared)
    while rest:
        ready = [d for d in rest if (d.fine is None or d.fine in done) and _needs(d.value) <= done]
        if not ready:
            d = rest[0]
            missing = sorted(({d.fine} if d.fine else set()) | _needs(d.value) - done)
            names = ", ".join(f"`{m}`" for m in missing if m not in done)
            message = f"axis `{d.name}` needs the length of {names}, which nothing fixes"
            raise ProgramError([Diagnostic("axis-extent", message, d.span)])
        ordered += ready
        done |= {d.name for d in ready}
        rest = [d for d in rest if d not in ready]
    return ordered


def _needs(e: Expr) -> set[str]:
    """The axes whose extents an expression reads (a name in capitals)."""
    match e:
        case Name(id):
            return {id.lower()} if id == id.upper() else set()
        case Unary(_, x):
            return _needs(x)
        case Binary(_, x, y):
            return _needs(x) | _needs(y)
        case Call(_, _, args, _):
            return set().union(*map(_needs, args))
    return set()


def _integer(d: AxisDecl, axes: Mapping[str, int], params: Mapping[str, ParamValue]) -> int:
    def value(e: Expr) -> int:
        match e:
            case Number(v) if isinstance(v, int):
                return v
            case Name(id) if id in params and isinstance(params[id], int):
                return int(params[id])
            case Name(id) if id == id.upper() and id.lower() in axes:
                return axes[id.lower()]
            case Unary("-", x):
                return -value(x)
            case Binary(op, x, y) if op in ("+", "-", "*", "//", "%"):
                left, right = value(x), value(y)
                if op in ("//", "%") and right == 0:
                    raise ValueError(f"axis `{d.name}`: division by zero")
                return {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__}[
                    op
                ](left, right)
            case Call("min" | "max" as f, None, (x, y), ()):
                return (min if f == "min" else max)(value(x), value(y))
        at = e.span if e.span.line else d.span
        message = f"axis `{d.name}`: an extent or ratio is a whole number"
        raise ProgramError(
            [Diagnostic("axis-form", message, at, legal="numbers, extents, int params, + - * // % min max")]
        )

    assert not isinstance(d.value, Bool)
    return value(d.value)
