"""What each operator of PyTorch is in the language: one function for each, by its name in ATen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from avo.importing.axes import minus, plus, times
from avo.importing.values import FLOATS, Builder, Cannot, Operand, Value, literal
from dsl.syntax import Binary, Call, Expr, Number, Unary

Result = Value | Sequence[Value] | Expr | int | float | None
Handler = Callable[..., Result]

OPERATORS: dict[str, Handler] = {}

_WIDTH = {"bool": 0, "int8": 1, "i32": 2, "e4m3": 3, "e5m2": 3, "f16": 4, "bf16": 4, "f32": 5, "f64": 6}


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Registers a handler `(builder, result dtype, *arguments of the schema by position)`."""

    def put(f: Handler) -> Handler:
        OPERATORS.update(dict.fromkeys(names, f))
        return f

    return put


def call(f: str, *args: Expr) -> Call:
    return Call(f, None, args)


# Elementwise ----------------------------------------------------------------------------------------------------------


def _unary(name: str, make: Callable[[Expr], Expr]) -> None:
    OPERATORS[name] = lambda b, dtype, x, *_: b.elementwise(make, dtype, x)


for _f in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "abs", "floor"):
    _unary(_f, lambda x, f=_f: call(f, x))  # type: ignore[misc]
_unary("relu", lambda x: call("relu", x))
_unary("silu", lambda x: call("silu", x))
_unary("neg", lambda x: Unary("-", x))
_unary("reciprocal", lambda x: Binary("/", Number(1.0), x))
_unary("square", lambda x: Binary("*", x, x))
_unary("expm1", lambda x: minus(call("exp", x), Number(1.0)))
_unary("log1p", lambda x: call("log", Binary("+", Number(1.0), x)))
_unary("logical_not", lambda x: negated(x))


def negated(x: Expr) -> Expr:
    return x.operand if isinstance(x, Unary) and x.op == "not" else Unary("not", x)


def _binary(op: str, *names: str) -> None:
    for name in names:
        OPERATORS[name] = lambda b, dtype, x, y, *_: b.elementwise(lambda p, q: Binary(op, p, q), dtype, x, y)


for _op, _name in (("==", "eq"), ("!=", "ne"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")):
    _binary(_op, _name)
_binary("*", "mul", "multiply")
_binary("%", "remainder")
_binary("//", "floor_divide")


@operator("add")
def _add(b: Builder, dtype: str, x: Operand, y: Operand, alpha: Operand = 1) -> Result:
    return b.elementwise(lambda p, q: plus(p, times(literal(alpha), q)), dtype, x, y)


@operator("sub")
def _sub(b: Builder, dtype: str, x: Operand, y: Operand, alpha: Operand = 1) -> Result:
    return b.elementwise(lambda p, q: minus(p, times(literal(alpha), q)), dtype, x, y)


@operator("rsub")
def _rsub(b: Builder, dtype: str, x: Operand, y: Operand, alpha: Operand = 1) -> Result:
    return _sub(b, dtype, y, x, alpha)


@operator("div", "divide", "true_divide")
def _div(b: Builder, dtype: str, x: Operand, y: Operand, rounding_mode: str | None = None) -> Result:
    if rounding_mode not in (None, "floor"):
        raise Cannot(f"div with rounding_mode={rounding_mode!r}", "the language has / and //")
    return b.elementwise(lambda p, q: Binary("//" if rounding_mode else "/", p, q), dtype, x, y)


@operator("pow")
def _pow(b: Builder, dtype: str, x: Operand, power: Operand) -> Result:
    if not isinstance(power, (int, float)):
        raise Cannot("a power that is no number", "exp(y * log(x))")
    whole = int(power) if float(power).is_integer() else None
    if power == 0.5:
        return b.elementwise(lambda p: call("sqrt", p), dtype, x)
    if power == -0.5:
        return b.elementwise(lambda p: call("rsqrt", p), dtype, x)
    if whole is None or not 1 <= abs(whole) <= 4:
        raise Cannot(f"the power {power}", "the language has products, sqrt and rsqrt")

    def product(p: Expr) -> Expr:
        e = p
        for _ in range(abs(whole) - 1):
            e = Binary("*", e, p)
        return e if whole > 0 else Binary("/", Number(1.0), e)

    return b.elementwise(product, dtype, x)


@operator("maximum", "minimum")
def extreme(b: Builder, dtype: str, x: Operand, y: Operand, *, name: str = "") -> Result:
    return b.elementwise(lambda p, q: call(name[:3], p, q), dtype, x, y)


@operator("clamp", "clip", "clamp_min", "clamp_max")
def _clamp(b: Builder, dtype: str, x: Operand, low: Any = None, high: Any = None, *, name: str = "") -> Result:
    if name == "clamp_max":
        low, high = None, low
    if low is None:
        return b.elementwise(lambda p, q: call("min", p, q), dtype, x, high)
    if high is None:
        return b.elementwise(lambda p, q: call("max", p, q), dtype, x, low)
    return b.elementwise(lambda p, q, r: call("clamp", p, q, r), dtype, x, low, high)


@operator("logical_and", "bitwise_and", "__and__", "logical_or", "bitwise_or", "__or__")
def _logic(b: Builder, dtype: str, x: Operand, y: Operand, *, name: str = "") -> Result:
    if dtype != "bool":
        raise Cannot(f"{name} of integers", "the language has `and` and `or` of bools")
    return b.elementwise(lambda p, q: Binary(name.strip("_").rpartition("_")[2], p, q), dtype, x, y)


@operator("bitwise_not")
def _not(b: Builder, dtype: str, x: Value) -> Result:
    if dtype != "bool":
        raise Cannot("~ of integers")
    return b.elementwise(negated, dtype, x)


def chosen(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """`where`, with a negated condition turned round."""
    if isinstance(condition, Unary) and condition.op == "not":
        condition, yes, no = condition.operand, no, yes
    return call("where", condition, yes, no)


def select(b: Builder, dtype: str, condition: Operand, yes: Operand, no: Operand) -> Value:
    if isinstance(condition, Value) and not condition.is_input and b.light(condition.expr):
        seen = condition.expr  # so that a `not` in it is seen
        return b.elementwise(lambda c, p, q: chosen(seen if c == condition.ref else c, p, q), dtype, condition, yes, no)
    return b.elementwise(chosen, dtype, condition, yes, no)


@operator("where")
def _where(b: Builder, dtype: str, condition: Operand, yes: Operand, no: Operand) -> Result:
    return select(b, dtype, condition, yes, no)


@operator("masked_fill")
def _masked_fill(b: Builder, dtype: str, x: Value, mask: Value, value: Operand) -> Result:
    return select(b, dtype, mask, value, x)


@operator("softplus")
def _softplus(b: Builder, dtype: str, x: Value, beta: float = 1, threshold: float = 20) -> Result:
    if beta != 1:
        raise Cannot(f"softplus with beta={beta}", "softplus(beta * x) / beta")
    return b.elementwise(lambda p: call("softplus", p), dtype, x)


@operator("gelu")
def _gelu(b: Builder, dtype: str, x: Value, approximate: str = "none") -> Result:
    return b.elementwise(lambda p: call("gelu" if approximate == "none" else "gelu_tanh", p), dtype, x)


@operator("leaky_relu")
def _leaky(b: Builder, dtype: str, x: Value, slope: float = 0.01) -> Result:
    return b.elementwise(
        lambda p: call("where", Binary(">", p, Number(0.0)), p, Binary("*", p, Number(slope))), dtype, x
    )


# Dtypes and copies ----------------------------------------------------------------------------------------------------


@operator("contiguous", "clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "dropout")
def _same(b: Builder, dtype: str, x: Value, *rest: Any, name: str = "") -> Result:
    if name == "dropout" and rest[1] and rest[0]:
        raise Cannot("dropout in training", "call it with training=False; the language has no random numbers")
    return x


def cast(b: Builder, dtype: str, x: Value) -> Value:
    """To another dtype. One that only widens changes no value, so it is left out."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return b.elementwise(lambda p: Binary("!=", p, Number(0)), "bool", x)
    if dtype in ("i32", "int8"):
        if x.dtype in FLOATS:
            raise Cannot(f"a cast of floats to {dtype}", "PyTorch cuts off, the language rounds: floor(x) first")
        return b.make(call("i32", x.ref) if x.dtype == "bool" else x.ref, x.dims, dtype)
    if dtype == "f64":
        raise Cannot("float64", "the widest dtype of a program is f32")
    wider = _WIDTH[dtype] > _WIDTH[x.dtype] and x.dtype in FLOATS
    return b.make(x.ref if wider or x.dtype in ("i32", "int8") else call(dtype, x.ref), x.dims, dtype)


@operator("to", "_to_copy", "type_as")
def _to(b: Builder, dtype: str, x: Value, *_: Any) -> Result:
    return cast(b, dtype, x)
