"""From the pieces that the lines of a program say to the Program.

Knows what a program must be beyond the grammar and without looking at meaning: the order of its parts, lower-case axes,
known dtypes, the keywords of a call. What needs axes and types inferred is the checker's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dsl.builder import Piece
from dsl.diagnostics import Diagnostic, nearest
from dsl.printer import DIRECTIVES, PIPELINE_DIRECTIVES, print_expr
from dsl.syntax import (
    Algorithm,
    AxisDecl,
    Binary,
    Block,
    Call,
    Directive,
    Expr,
    Name,
    Param,
    Program,
    Read,
    Schedule,
    Span,
    Statement,
    Tensor,
    Unary,
)

DTYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "int8", "i32", "bool", "mxfp4", "nvfp4", "f64")
PARAM_DTYPES = ("bool", "int", "f32")
MAX_DEPTH = 100
_KEYWORDS = {"quantize": ("limit",)}
_AXIS_KEYWORDS = ("axis", "axes", "dim", "dims")
_PYTHON_NAMES = {
    "True": "true",
    "False": "false",
    "None": "a `param NAME bool` that says whether it applies",
    "Inf": "inf",
    "Infinity": "inf",
    "nan": "",
    "NaN": "",
}


@dataclass
class Parts:
    """What the lines seen so far add up to."""

    name: str | None = None
    rank: str | None = None
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    axes: list[AxisDecl] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    kernels: tuple[tuple[str, ...], ...] = ()
    pipeline: list[Directive] = field(default_factory=list)
    blocks: dict[tuple[str, ...], Block] = field(default_factory=dict)


# Pieces to a program ------------------------------------------------------------------------------


def assemble(pieces: list[Piece], broken: bool = False) -> tuple[Program | None, list[Diagnostic]]:
    """The program, or None, and all that is wrong. `broken`: some lines did not parse, so none is called missing."""
    found: list[Diagnostic] = []
    parts = Parts()
    block: tuple[str, ...] | None = None
    for piece in pieces:
        if piece.kind == "schedule":
            block = piece.value
            if block in parts.blocks:
                of = f"`{' '.join(block)}`" if block else "the last kernel"
                found.append(
                    Diagnostic(
                        "second-block",
                        f"a second schedule block for {of}",
                        piece.span,
                        fix="put its lines in the first",
                    )
                )
            parts.blocks.setdefault(block, Block(block, (), piece.span))
        elif block is None:
            _algorithm_piece(parts, piece, found)
        else:
            _schedule_piece(parts, block, piece, found)
    if parts.name is not None and pieces[0].kind != "kernel" and not broken:
        found.append(Diagnostic("no-kernel", f"`kernel {parts.name}` is the first line of a program", pieces[0].span))
    if parts.name is None and not broken:
        found.append(Diagnostic("no-kernel", "a program starts with `kernel NAME`", Span(1, 1, 2)))
    params = {p.name for p in parts.params}
    axes = tuple(_axis(p, params, found) for p in pieces if p.kind == "axis")
    if parts.name is None or found:
        return None, found
    algorithm = Algorithm(
        parts.name,
        parts.rank,
        tuple(parts.inputs),
        tuple(parts.outputs),
        axes,
        tuple(parts.params),
        tuple(parts.statements),
        next(p.span for p in pieces if p.kind == "kernel"),
    )
    return Program(algorithm, Schedule(parts.kernels, tuple(parts.pipeline), tuple(parts.blocks.values()))), found


def _algorithm_piece(parts: Parts, piece: Piece, found: list[Diagnostic]) -> None:
    match piece.kind:
        case "kernel":
            if parts.name is not None:
                message = f"a second `kernel` line; a program is one kernel, here `{parts.name}`"
                found.append(
                    Diagnostic("second-kernel", message, piece.span, fix="`kernels a | b` in the schedule cuts it up")
                )
            parts.name = parts.name or piece.value
        case "rank":
            if parts.rank is not None:
                found.append(Diagnostic("second-rank", "a second `rank` line", piece.span, legal="one rank axis"))
            _lower_case(piece.value, piece.span, found)
            parts.rank = piece.value
        case "in" | "out":
            for t in piece.value:
                _tensor(t, found)
            (parts.inputs if piece.kind == "in" else parts.outputs).extend(piece.value)
        case "param":
            _param(piece, found)
            parts.params.append(piece.value)
        case "statement":
            _statement(piece.value, found)
            parts.statements.append(piece.value)


def _schedule_piece(parts: Parts, block: tuple[str, ...], piece: Piece, found: list[Diagnostic]) -> None:
    if piece.kind == "kernels":
        if block:
            message = "`kernels` stands in the bare `schedule` block: it cuts up the whole program"
            found.append(Diagnostic("kernels-line", message, piece.span))
        elif parts.kernels:
            found.append(Diagnostic("kernels-line", "a second `kernels` line", piece.span, fix="join them by `|`"))
        parts.kernels = piece.value
        return
    for d in piece.value:
        if d.name in PIPELINE_DIRECTIVES and block:
            message = f"`{d.name}` stands in the bare `schedule` block: it is a matter of the whole program"
            found.append(Diagnostic("pipeline-directive", message, d.span))
        if d.name in PIPELINE_DIRECTIVES:
            parts.pipeline.append(d)
        else:
            b = parts.blocks[block]
            parts.blocks[block] = Block(b.writes, (*b.directives, d), b.span)


def _lower_case(axis: str, at: Span, found: list[Diagnostic]) -> None:
    if axis != axis.lower():
        message = f"axes are lower case: `{axis}` is the extent of an axis `{axis.lower()}`"
        found.append(Diagnostic("axis-case", message, at, fix=axis.lower()))


def _dtype(dtype: str, at: Span, known: tuple[str, ...], found: list[Diagnostic]) -> None:
    if dtype not in known:
        found.append(
            Diagnostic(
                "dtype",
                f"`{dtype}` is no dtype",
                at,
                legal=" ".join(known),
                fix=_PACKED.get(dtype) or _meant(dtype, known),
            )
        )


def _meant(dtype: str, known: tuple[str, ...]) -> str:
    habit = _DTYPE_HABITS.get(dtype, dtype)
    habit = "int" if habit == "i32" and "i32" not in known else habit  # of a param
    return habit if habit in known else nearest(dtype, known)


_FOUR_BITS = "int8 holds two, of w[n j] with axis j = k // 2: where(k % 2 == 0, w % 16, w // 16 % 16)"
_PACKED = dict.fromkeys(("int4", "uint4", "i4", "u4"), _FOUR_BITS)
_PACKED |= dict.fromkeys(("uint8", "u8"), "int8; w % 256 is the byte without its sign")
_DTYPE_HABITS = {
    "float32": "f32",
    "float": "f32",
    "fp32": "f32",
    "float16": "f16",
    "half": "f16",
    "fp16": "f16",
    "bfloat16": "bf16",
    "fp8": "e4m3",
    "float8_e4m3": "e4m3",
    "f8e4m3": "e4m3",
    "fp8e4m3": "e4m3",
    "float8_e5m2": "e5m2",
    "fp8e5m2": "e5m2",
    "i8": "int8",
    "s8": "int8",
    "int": "i32",
    "int32": "i32",
    "int64": "i32",
    "i64": "i32",
    "long": "i32",
    "boolean": "bool",
    "float64": "f64",
    "double": "f64",
    "f64": "f32",
    "f16": "f32",
    "bf16": "f32",
}


def _tensor(t: Tensor, found: list[Diagnostic]) -> None:
    for axis in t.axes or ():
        _lower_case(axis, t.span, found)
    if t.dtype is not None:
        _dtype(t.dtype, t.span, DTYPES, found)


def _param(piece: Piece, found: list[Diagnostic]) -> None:
    p: Param = piece.value
    _dtype(p.dtype, piece.span, PARAM_DTYPES, found)
    legal = {"bool": (bool,), "int": (int,), "f32": (int, float)}.get(p.dtype)
    if p.default is not None and legal is not None:
        right = isinstance(p.default, legal) and (p.dtype == "bool") == isinstance(p.default, bool)
        if not right:
            message = f"the default of `{p.name}` is no {p.dtype}"
            legal_text = {"bool": "true or false", "int": "a whole number", "f32": "a number"}[p.dtype]
            found.append(Diagnostic("default", message, p.span, legal=legal_text))


def _axis(piece: Piece, params: set[str], found: list[Diagnostic]) -> AxisDecl:
    """`fine // ratio` is coarse over an axis; anything else is the extent of a free axis."""
    name, value = piece.value
    _lower_case(name, piece.span, found)
    found += _expression(value)
    match value:
        case Binary("//", Name(fine), ratio) if fine == fine.lower() and fine not in params:
            return AxisDecl(name, fine, ratio, piece.span)
    for e in walk(value):
        if isinstance(e, Name) and e.id == e.id.lower() and e.id not in params:
            message = f"`axis {name} = {print_expr(value)}`: an axis is `fine // ratio` or an extent"
            fix = f"axis {name} = {e.id} // 64, or axis {name} = {e.id.upper()}"
            found.append(Diagnostic("axis-form", message, value.span, fix=fix))
            break
    return AxisDecl(name, None, value, piece.span)


def _statement(s: Statement, found: list[Diagnostic]) -> None:
    for t in s.targets:
        if t.axes is None and t.dtype is not None and t.dtype not in DTYPES:
            found.append(_odd_target(t))
        else:
            _tensor(t, found)
    quantize = isinstance(s.value, Call) and s.value.function == "quantize"
    if len(s.targets) != (2 if quantize else 1):
        if quantize:
            message, fix = (
                "`quantize` gives two results: the values and their scale",
                "q8[m d], qs[m] = quantize(q, int8)",
            )
        else:
            message, fix = f"{len(s.targets)} names on the left; only `quantize` gives two results", "one name a line"
            if isinstance(s.value, Call) and s.value.function in ("topk", "bottomk"):
                chosen = s.value.function
                message = f"`{chosen}` has one result, a bool that marks the chosen; neither values nor places in order"
                fix = f"keep[r n] = {chosen}[n](x, k), then where(keep, x, 0.0)"
        found.append(Diagnostic("results", message, s.targets[0].span, fix=fix))
    found += _expression(s.value)


def _odd_target(t: Tensor) -> Diagnostic:
    """`tile m=128`, `let y = x`, `float y = x`: two words before the `=`, and the second is no dtype."""
    if t.name in DIRECTIVES:
        message = f"`{t.name}` is a directive; directives stand below a line `schedule`"
        return Diagnostic("half", message, t.span, fix="put a line `schedule` above it")
    if t.name in ("let", "var", "const", "auto"):
        return Diagnostic("habit", "names are not declared", t.span, fix=f"{t.dtype} = ...")
    if t.name in (*DTYPES, *_DTYPE_HABITS):
        dtype = t.name if t.name in DTYPES else _DTYPE_HABITS[t.name]
        return Diagnostic("habit", "the dtype stands after the name", t.span, fix=f"{t.dtype}[m n] {dtype} = ...")
    legal = " ".join(DTYPES)
    return Diagnostic("dtype", f"`{t.dtype}` is no dtype", t.span, legal=legal, fix=nearest(t.dtype or "", DTYPES))


def _expression(e: Expr) -> list[Diagnostic]:
    if depth_of(e) > MAX_DEPTH:
        fix = "name a part of the expression on a line of its own"
        return [Diagnostic("too-deep", f"the expression nests deeper than {MAX_DEPTH} operators", e.span, fix=fix)]
    found = []
    for x in walk(e):
        if isinstance(x, Name) and x.id in _PYTHON_NAMES:
            fix = _PYTHON_NAMES[x.id]
            found.append(Diagnostic("habit", f"`{x.id}` is not a word of the language", x.span, fix=fix))
        elif isinstance(x, Call):
            found += _keywords(x)
    return found


def _keywords(call: Call) -> Iterator[Diagnostic]:
    for key, value in call.keywords:
        if key in _KEYWORDS.get(call.function, ()):
            continue
        if key in _AXIS_KEYWORDS:
            axis = print_expr(value) if isinstance(value, Name) else "n"
            inside = ", ".join(print_expr(a) for a in call.args)
            yield Diagnostic(
                "habit",
                f"`{call.function}(..., {key}=...)`: the axis of a reduction stands in brackets",
                call.span,
                fix=f"{call.function}[{axis}]({inside})",
                repair=f"{call.function}[{axis}]({inside})" if isinstance(value, Name) else None,
            )
        else:
            known = " ".join(_KEYWORDS.get(call.function, ()))
            legal = f"its keywords: {known}" if known else ""
            fix = nearest(key, _KEYWORDS.get(call.function, ())) or f"`{key} == {print_expr(value)}` compares"
            message = f"`{call.function}` has no keyword `{key}`"
            yield Diagnostic("keyword", message, value.span, legal, fix)


def children(e: Expr) -> tuple[Expr, ...]:
    """The operands of an expression, left to right."""
    match e:
        case Unary(_, x):
            return (x,)
        case Binary(_, x, y):
            return (x, y)
        case Read(_, indices):
            return indices
        case Call(_, _, args, keywords):
            return (*args, *(v for _, v in keywords))
    return ()


def walk(e: Expr) -> Iterator[Expr]:
    """Every sub-expression, left to right, without recursion."""
    stack = [e]
    while stack:
        x = stack.pop()
        yield x
        stack.extend(reversed(children(x)))


def depth_of(e: Expr) -> int:
    """How deep the tree is, without recursion."""
    deepest, stack = 0, [(e, 1)]
    while stack:
        x, depth = stack.pop()
        deepest = max(deepest, depth)
        stack.extend((c, depth + 1) for c in children(x))
    return deepest
