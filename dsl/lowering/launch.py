"""How a kernel is launched: its arguments in order, its grid, and what a workload makes of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dsl.hardware import Hardware
from dsl.lowering.lowered import Launch, Params, Sizes
from dsl.syntax import Binary, Expr, Name, Number, Unary
from dsl.terms import Graph, Term
from dsl.tile import TileKernel
from dsl.tiling import BYTES

POINTERS = {
    "f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "int8": "*i8", "i32": "*i32",
    "bool": "*i1",
}  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """One parameter of the emitted kernel. kind: pointer, descriptor, host (f32), param (f32), extent, constexpr,
    together (how many slow indices of the grid share the L2), table (which program computes which tiles)."""

    name: str
    kind: str
    of: str  # tensor, axis, param
    dtype: str = ""
    block: tuple[str | None, ...] = ()  # of a descriptor: the axis of each dimension, None where it holds one index


def extents(graph: Graph, sizes: Sizes) -> dict[str, int]:
    """Every axis' extent: given ones, then coarse axes by their ratio and free ones by their expression."""
    known = dict(sizes)
    pending = [a for a in graph.axes.values() if a.name not in known]
    for _ in range(len(pending) + 1):
        for a in list(pending):
            expr = a.ratio if a.fine is not None else a.free
            if expr is None:
                continue
            try:
                value = integer(expr, known)
            except KeyError:
                continue
            if a.fine is None:
                known[a.name] = value
            elif a.fine in known:
                known[a.name] = -(-known[a.fine] // value)
            else:
                continue
            pending.remove(a)
    if pending:
        raise ValueError(f"the extent of axis {', '.join(a.name for a in pending)} is not known")
    return known


def ratio(graph: Graph, coarse: str, known: Mapping[str, int]) -> int:
    expr = graph.axes[coarse].ratio
    assert expr is not None
    return integer(expr, known)


def integer(e: Expr, known: Mapping[str, int]) -> int:
    """An integer expression in extents (names in capitals)."""
    match e:
        case Number(value=value):
            return int(value)
        case Name(id=name):
            return known[name.lower()]
        case Unary(op="-", operand=operand):
            return -integer(operand, known)
        case Binary(op=op, left=left, right=right):
            a, b = integer(left, known), integer(right, known)
            return {"+": a + b, "-": a - b, "*": a * b, "//": a // b if b else 0, "%": a % b if b else 0}[op]
    raise ValueError("an axis' ratio or extent is integer arithmetic in extents")


def host_value(t: Term, known: Mapping[str, int], params: Params) -> float:
    """A scalar term in float64, as the launcher computes it."""
    match t.op:
        case "const":
            return float(t.attr)
        case "extent":
            return float(known[t.attr])
        case "param":
            return float(params[t.attr])
    a = [host_value(x, known, params) for x in t.args]
    return {
        "+": lambda: a[0] + a[1], "-": lambda: a[0] - a[1], "*": lambda: a[0] * a[1], "/": lambda: a[0] / a[1],
        "//": lambda: a[0] // a[1], "%": lambda: a[0] % a[1], "neg": lambda: -a[0], "sqrt": lambda: math.sqrt(a[0]),
        "rsqrt": lambda: 1 / math.sqrt(a[0]), "exp": lambda: math.exp(a[0]), "exp2": lambda: 2.0 ** a[0],
        "log": lambda: math.log(a[0]), "log2": lambda: math.log2(a[0]), "max": lambda: max(a), "min": lambda: min(a),
        "abs": lambda: abs(a[0]), "tanh": lambda: math.tanh(a[0]),
    }[t.attr]()  # fmt: skip


def host_source(t: Term) -> tuple[str, int]:
    """The same as Python source, with its precedence (2 atoms, 1 products, 0 sums)."""
    match t.op:
        case "const":
            return repr(t.attr), 2
        case "extent":
            return t.attr.upper(), 2
        case "param":
            return t.attr, 2
    parts = [host_source(x) for x in t.args]
    level = {"+": 0, "-": 0, "*": 1, "/": 1, "//": 1, "%": 1}.get(t.attr)
    if level is not None:
        (a, la), (b, lb) = parts
        return f"{a if la >= level else f'({a})'} {t.attr} {b if lb > level else f'({b})'}", level
    args = ", ".join(p for p, _ in parts)
    if t.attr == "rsqrt":
        return f"(1.0 / math.sqrt({args}))", 2
    if t.attr == "neg":
        return f"(-{args})", 2
    if t.attr in ("max", "min", "abs"):
        return f"{t.attr}({args})", 2
    return f"math.{t.attr}({args})", 2


# Whole axes of matrix products are padded to this. 16 would do, but triton 3.6 computes wrong values for some products
# with 16 columns on sm_90 (measured: 128 x 128 times 128 x 16 with 4 warps, where the left operand is computed).
LEAST_PRODUCT = 32


def block_length(kernel: TileKernel, axis: str, known: Mapping[str, int]) -> int:
    """The length of a held axis in the tile: its block, or its extent padded to a power of two."""
    if axis in kernel.lengths:
        return kernel.lengths[axis]
    least = LEAST_PRODUCT if axis in kernel.multiplied else 1
    return max(least, 1 << (known[axis] - 1).bit_length())


def tiles(kernel: TileKernel, known: Mapping[str, int]) -> int:
    return math.prod(-(-known[a] // kernel.lengths.get(a, 1)) for a in kernel.grid)


def together(kernel: TileKernel) -> tuple[str, ...]:
    """The tensors that all tiles of one slow grid index read, where the order keeps such tiles together in L2."""
    s = kernel.schedule
    if not s.l2_bytes or len(kernel.grid) < 2 or s.order[0] not in ("row", "longest_first"):
        return ()
    reads = [op for op in kernel.ops() if op.kind == "load"]
    walked = [op.attr.tensor for op in reads if any(c.axis in kernel.loops for c in op.attr.coordinates)]
    return tuple(dict.fromkeys(walked))


def shared_indices(kernel: TileKernel, known: Mapping[str, int]) -> int:
    """How many slow indices of the grid have their walked tensors in the schedule's share of L2 at one time."""
    outer = math.prod(-(-known[a] // kernel.lengths.get(a, 1)) for a in kernel.grid[:-1])
    size = 0
    for t in together(kernel):
        axes, dtype = kernel.graph.tensors[t]
        size += math.prod(known[a] for a in axes) * BYTES[dtype]
    return max(1, (kernel.schedule.l2_bytes or 0) * outer // max(1, size))


def specialise(
    kernel: TileKernel, arguments: tuple[Argument, ...], hw: Hardware, sizes: Sizes, params: Params
) -> Launch:
    """Signature, constants and grid for one workload, as Triton's JIT would choose them."""
    known = extents(kernel.graph, sizes)
    given = {p.name: p.default for p in kernel.graph.params.values() if p.default is not None} | dict(params)
    signature: dict[str, str] = {}
    constexprs: dict[str, int | float | bool] = {}
    divisible: list[str] = []
    small: list[str] = []
    for a in arguments:
        match a.kind:
            case "pointer":
                signature[a.name] = POINTERS[a.dtype]
                divisible.append(a.name)
                axes, dtype = kernel.graph.tensors[a.of]
                if hw.vendor == "amd" and math.prod(known[x] for x in axes) * BYTES[dtype] < 2**31:
                    small.append(a.name)
            case "descriptor":
                shape = ", ".join(str(block_length(kernel, x, known)) if x else "1" for x in a.block)
                signature[a.name] = f"tensordesc<{POINTERS[a.dtype][1:]}[{shape}]>"
            case "table":
                signature[a.name] = "*i32"
                divisible.append(a.name)
            case "host" | "param":
                signature[a.name] = "fp32"
            case "extent" | "together":
                value = known[a.of] if a.kind == "extent" else shared_indices(kernel, known)
                signature[a.name] = "constexpr" if value == 1 else "i32" if value < 2**31 else "i64"
                if value == 1:
                    constexprs[a.name] = 1
                elif value % 16 == 0:
                    divisible.append(a.name)
            case "constexpr":
                signature[a.name] = "constexpr"
                if a.of in given:
                    kind = kernel.graph.params[a.of].dtype
                    constexprs[a.name] = bool(given[a.of]) if kind == "bool" else int(given[a.of])
                elif a.name.startswith("BLOCK_"):
                    constexprs[a.name] = block_length(kernel, a.of, known)
                elif a.name.startswith("TAIL_"):
                    constexprs[a.name] = known[a.of] % kernel.lengths[a.of] != 0
                elif a.name == "DIES":
                    constexprs[a.name] = hw.dies
                elif a.name == "GROUP":
                    constexprs[a.name] = int(a.of)
                else:
                    constexprs[a.name] = known[a.of]
    programs = tiles(kernel, known)
    if kernel.schedule.persistent:
        programs = min(programs, hw.sms)
    return Launch(signature, constexprs, tuple(divisible), programs, options(kernel, hw), small=tuple(small))


def options(kernel: TileKernel, hw: Hardware) -> dict[str, int]:
    s = kernel.schedule
    found = {"num_warps": s.warps, "num_stages": s.stages}
    if hw.vendor == "amd":
        if s.waves_per_eu:
            found["waves_per_eu"] = s.waves_per_eu
        if s.matrix_instr:
            found["matrix_instr_nonkdim"] = s.matrix_instr
    return found
