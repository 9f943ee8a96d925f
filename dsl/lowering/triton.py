"""The Triton emitter: a module that runs alone, one kernel function for each tile program and one launcher.

It prints what the tile program says and adds only the decoding of the program id and the launch.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dsl.hardware import Hardware
from dsl.lowering.body import Body
from dsl.lowering.counts import profile
from dsl.lowering.launch import LEAST_PRODUCT, Argument, host_source, options, specialise, together
from dsl.lowering.lowered import Launch, LoweredKernel, Params, Profile, Sizes
from dsl.lowering.text import DEFINITIONS, PARAMETERS, with_constants, with_needs
from dsl.printer import print_directive, print_expr, print_statement
from dsl.syntax import Program
from dsl.terms import Graph
from dsl.tile import TileKernel
from dsl.tiling import BYTES

TORCH_TYPES = {
    "f32": "torch.float32", "f16": "torch.float16", "bf16": "torch.bfloat16", "e4m3": "torch.float8_e4m3fn",
    "e5m2": "torch.float8_e5m2", "int8": "torch.int8", "i32": "torch.int32", "bool": "torch.bool",
}  # fmt: skip


@dataclass(frozen=True)
class Printed:
    """One kernel's text, and its arguments in the order of its signature.

    definitions: name -> source of the functions that it calls. descriptors: tensor -> the descriptor as the launcher
    makes it. options: of the launch. constants: constexprs beyond the arguments, which come last. imports: lines at
    the top of the module. table: of tiles, as the launcher makes it.
    notes: what of the schedule it does not follow. named: lines that give names to numbers. flat: tensors whose offsets
    reach over all of them in 32 bits.
    """

    kernel: TileKernel
    text: str
    arguments: tuple[Argument, ...]
    definitions: Mapping[str, str]
    descriptors: Mapping[str, str]
    options: Mapping[str, int]
    specialise: Callable[[Sizes, Params], Launch]
    constants: Mapping[str, int] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    table: str = ""
    notes: tuple[str, ...] = ()
    language: Literal["triton", "gluon"] = "triton"
    named: Mapping[str, str] = field(default_factory=dict)
    flat: tuple[str, ...] = ()


def emit(program: Program, printed: list[Printed], hw: Hardware, digest: str) -> str:
    """The module of all kernels of a program, in the order in which they run."""
    entry = program.algorithm.name
    hosts = any("math." in host_source(t)[0] for p in printed for t in p.kernel.hosts)
    needs = "torch and triton" if all(p.language == "triton" for p in printed) else "torch and triton with Gluon"
    head = [
        f'"""{entry} for {hw.arch}: generated from program {digest}; runs alone, needs {needs}.\n',
        *(f"    {print_statement(s)}" for s in program.algorithm.statements),
        '"""\n',
    ]
    known = dict.fromkeys(x for p in printed for x in p.imports)
    own = sorted([x for x in known if x in ("import functools", "import heapq")] + ["import math"] * hosts)
    imports = [*own, *([""] if own else []), "import torch", "import triton", *(x for x in known if x not in own)]
    definitions = {n: d for p in printed for n, d in p.definitions.items()}
    constants = {n: d for p in printed for n, d in p.named.items()}
    parts = ["\n".join(head), "\n".join(imports)]
    parts += ["\n" + "\n".join(constants.values())] * bool(constants)
    parts += ["\n\n" + definitions[n] for n in sorted(definitions)]
    parts += ["\n\n" + p.text for p in printed]
    parts.append("\n\n" + _launcher(program, printed, hw))
    return "\n".join(parts) + "\n"


# The kernel ------------------------------------------------------------------------------------------------


def plain_kernel(k: TileKernel, hw: Hardware) -> Printed:
    body = Body(k).run()
    decoding, extras = decode(k, body)
    arguments = arguments_of(k, body, decoding, extras)
    lines = [f"@triton.jit\ndef {k.name}("]
    lines += [f"    {parameter(a)}," for a in arguments]
    lines.append("):")
    lines += schedule_lines(k)
    inner = [*decoding, *body.lines]
    if k.schedule.persistent:
        count = " * ".join(tile_count(k, a, body.extents) for a in k.grid) or "1"
        inner = [
            f"for tile in tl.range(tl.program_id(0), {count}, tl.num_programs(0)):  # persistent",
            *("    " + x for x in inner),
        ]
    else:
        single = f"{decoding[-1].split(' = ')[0]} = tile" if decoding else ""
        inner = (
            [single.replace("= tile", "= tl.program_id(0)"), *inner[inner.index(single) + 1 :]]
            if single in inner[:2]
            else ["tile = tl.program_id(0)", *inner]
        )
    lines += ["    " + x for x in inner]
    definitions = {
        f: f"@triton.jit\ndef {f}({PARAMETERS.get(f, 'x')}):\n{DEFINITIONS[f]}" for f in with_needs(set(body.functions))
    }
    descriptors = {
        a.of: f"TensorDescriptor.from_tensor({a.of}, [{', '.join(block_of(k, x) for x in a.block)}])"
        for a in arguments
        if a.kind == "descriptor"
    }
    imports = ["import triton.language as tl"]
    if descriptors:
        imports.append("from triton.tools.tensor_descriptor import TensorDescriptor")

    def specialised(sizes: Sizes, params: Params) -> Launch:
        return specialise(k, arguments, hw, sizes, params)

    text, named = with_constants("\n".join(lines))
    return Printed(
        k,
        text,
        arguments,
        definitions,
        descriptors,
        options(k, hw),
        specialised,
        imports=tuple(imports),
        named=named,
        flat=tuple(body.flat),
    )


def lowered(p: Printed) -> LoweredKernel:
    found: dict[object, Profile] = {}  # a judgement asks for each size several times

    def counted(sizes: Sizes, params: Params) -> Profile:
        key = (tuple(sorted(sizes.items())), tuple(sorted(params.items())))
        if key not in found:
            found[key] = profile(p.kernel, sizes, params)
        return found[key]

    return LoweredKernel(p.kernel.name, p.kernel.schedule, p.specialise, counted)


def schedule_lines(k: TileKernel) -> list[str]:
    """The schedule as a comment, a directive never broken over two lines."""
    lines: list[str] = []
    for text in (print_directive(d) for d in k.schedule.directives):
        if lines and len(lines[-1]) + len(text) < 108:
            lines[-1] += f"; {text}"
        else:
            lines.append(f"    # {'' if lines else 'schedule: '}{text}")
    return lines


def parameter(a: Argument) -> str:
    return f"{a.name}: tl.constexpr" if a.kind == "constexpr" else a.name


def tile_count(k: TileKernel, axis: str, extents: set[str]) -> str:
    extents.add(axis)
    return f"tl.cdiv({axis.upper()}, BLOCK_{axis.upper()})" if axis in k.lengths else axis.upper()


def decode(k: TileKernel, body: Body) -> tuple[list[str], list[Argument]]:
    """Lines that turn `tile` into grid coordinates, slowest axis first, under the order and swizzle of the schedule."""
    lines: list[str] = []
    extras: list[Argument] = []
    order, args = k.schedule.order
    count = {a: tile_count(k, a, body.extents) for a in k.grid}
    name = {a: f"tile_{a}" if a in k.lengths else a for a in k.grid}
    pid = "tile"
    if k.schedule.swizzle == "dies":
        extras.append(Argument("DIES", "constexpr", "dies"))
        lines += [
            f"tiles = {' * '.join(count[a] for a in k.grid) or '1'}",
            "die = tile % DIES  # the hardware deals programs to the dies in turn; each die gets one stretch of tiles",
            "pid = die * (tiles // DIES) + tl.minimum(die, tiles % DIES) + tile // DIES",
        ]
        pid = "pid"
    for a in k.grid:
        if a in k.lengths:
            lines.append(f"tiles_{a} = {count[a]}")
            count[a] = f"tiles_{a}"
    done: list[str] = []  # axes decoded so far, fastest first
    if order == "grouped" and len(k.grid) >= 2:
        slow, fast = k.grid[-2:]
        extras.append(Argument("GROUP", "constexpr", str(args[0])))
        plane = pid
        if len(k.grid) > 2:
            lines.append(f"plane = {pid} % ({count[slow]} * {count[fast]})")
            plane = "plane"
        lines += [
            f"group = {plane} // (GROUP * {count[fast]})  # a group of rows shares the columns that it reads",
            f"rows = tl.minimum({count[slow]} - group * GROUP, GROUP)",
            f"{name[slow]} = group * GROUP + {plane} % (GROUP * {count[fast]}) % rows",
            f"{name[fast]} = {plane} % (GROUP * {count[fast]}) // rows",
        ]
        done = [fast, slow]
    if shared := together(k):
        inner, outer = k.grid[-1], k.grid[:-1]
        extras.append(Argument("TOGETHER", "together", ""))
        lines += [
            f"group = {pid} // (TOGETHER * {count[inner]})  # what shares {', '.join(shared)} in L2 runs at one time",
            f"members = tl.minimum({' * '.join(count[a] for a in outer)} - group * TOGETHER, TOGETHER)",
            f"place = {pid} % (TOGETHER * {count[inner]})",
            f"{name[inner]} = place // members",
            "outer = group * TOGETHER + place % members",
        ]
        for i, a in enumerate(reversed(outer)):
            below = " * ".join(count[x] for x in outer[len(outer) - i :])
            index = "outer" if not below else f"outer // ({below})" if i > 1 else f"outer // {below}"
            lines.append(f"{name[a]} = {index}" if a == outer[0] else f"{name[a]} = {index} % {count[a]}")
        done = list(k.grid)
    for a in reversed(k.grid):
        if a in done:
            continue
        below = " * ".join(count[x] for x in reversed(done))
        index = pid if not done else f"{pid} // ({below})" if len(done) > 1 else f"{pid} // {below}"
        done.append(a)
        lines.append(f"{name[a]} = {index}" if len(done) == len(k.grid) else f"{name[a]} = {index} % {count[a]}")
    backwards = {str(x) for x in args} if order == "reverse" else set()
    if order == "longest_first" and k.reversed_axis:
        backwards = {k.reversed_axis}
    for a in k.grid:
        if a in backwards:
            note = "  # longest rows first" if order == "longest_first" else ""
            lines.append(f"{name[a]} = {count[a]} - 1 - {name[a]}{note}")
    return lines, extras


def arguments_of(k: TileKernel, body: Body, decode: list[str], extras: list[Argument]) -> tuple[Argument, ...]:
    by_descriptor: dict[tuple[str, bool], tuple[str | None, ...]] = {}
    pointers: dict[str, None] = {}
    for op in k.ops():
        if op.kind in ("load", "store"):
            if op.attr.tma:
                by_descriptor[op.attr.tensor, op.kind == "store"] = tuple(c.axis for c in op.attr.coordinates)
            else:
                pointers[op.attr.tensor] = None
    found: list[Argument] = []
    reads, writes = k.tensors()
    for t in (*reads, *(w for w in writes if w not in reads)):
        dtype = k.graph.tensors[t][1]
        blocks = [b for (n, _), b in by_descriptor.items() if n == t]
        if blocks:
            found.append(Argument(f"{t}_desc", "descriptor", t, dtype, blocks[0]))
        if t in pointers:
            found.append(Argument(f"{t}_ptr", "pointer", t, dtype))
    used = {op.attr for op in k.ops() if op.kind == "param"}
    found += [Argument(body.name(v), "host", body.name(v)) for v in k.hosts.values()]
    found += [Argument(p, "param", p) for p in k.graph.params if p in used and k.graph.params[p].dtype == "f32"]
    text = "\n".join([*decode, *body.lines])
    if k.schedule.persistent:
        text += " * ".join(tile_count(k, a, body.extents) for a in k.grid)
    words = set(re.findall(r"\w+", text))
    axes = [a for a in k.graph.axes if a in body.extents and a.upper() in words]
    found += [Argument(a.upper(), "extent", a) for a in axes if a not in k.whole]
    found += [Argument(a.upper(), "constexpr", a) for a in axes if a in k.whole]
    found += [
        Argument(p.upper(), "constexpr", p) for p in k.graph.params if p in used and k.graph.params[p].dtype != "f32"
    ]
    found += [Argument(f"TAIL_{a.upper()}", "constexpr", a) for a in k.loops if f"TAIL_{a.upper()}" in words]
    found += [
        Argument(f"BLOCK_{a.upper()}", "constexpr", a) for a in (*k.lengths, *k.padded) if f"BLOCK_{a.upper()}" in words
    ]
    found += extras
    return tuple(sorted(found, key=lambda a: a.kind == "constexpr"))


# The launcher ----------------------------------------------------------------------------------------------


def _launcher(program: Program, printed: list[Printed], hw: Hardware) -> str:
    a = program.algorithm
    params = [p.name if p.default is None else f"{p.name}={p.default!r}" for p in a.params]
    required = [p for p in params if "=" not in p]
    signature = ", ".join([*(t.name for t in a.inputs), *required, *(p for p in params if "=" in p)])
    shapes = [f"{t.name} [{' '.join(t.axes or ())}] {t.dtype}" for t in a.inputs]
    said = f'"""{"; ".join(shapes)}: contiguous tensors on one device."""'
    lines = [f"def {a.name}({signature}):", *textwrap.wrap(said, 116, initial_indent="    ", subsequent_indent="    ")]
    graph = printed[-1].kernel.graph
    lines += ["    " + x for x in _shapes(program, graph)]
    stored = {n: p.kernel.graph.tensors[n] for p in printed for n in p.kernel.tensors()[1]}
    first = a.inputs[0].name
    for name, (axes, dtype) in stored.items():
        shape = ", ".join(x.upper() for x in axes)
        comma = "," * (len(axes) == 1)
        lines.append(f"    {name} = torch.empty(({shape}{comma}), device={first}.device, dtype={TORCH_TYPES[dtype]})")
    lines += ["    " + x for x in _alignment(printed)]
    flat = dict.fromkeys(n for p in printed for n in p.flat)
    if flat:
        most = f"max(x.numel() for x in ({', '.join(flat)}{',' * (len(flat) == 1)})) < 2**31"
        lines.append(f'    assert {most}, "offsets within a tensor are of 32 bits"')
    known: dict[str, str] = {}
    for p in printed:
        lines += _launch(p, hw, first, known)
    lines.append(f"    return {', '.join(t.name for t in a.outputs)}")
    return "\n".join(lines)


def _shapes(program: Program, graph: Graph) -> list[str]:
    lines: list[str] = []
    known: set[str] = set()
    for t in program.algorithm.inputs:
        axes = t.axes or ()
        fresh = [x.upper() if x not in known else "_" for x in axes]
        if any(f != "_" for f in fresh):
            lines.append(f"{', '.join(fresh)}{',' * (len(axes) == 1)} = {t.name}.shape")
        if any(f == "_" for f in fresh):
            shape = ", ".join(x.upper() for x in axes)
            lines.append(
                f'assert {t.name}.shape == ({shape}{"," * (len(axes) == 1)}), f"{t.name} is {{tuple({t.name}.shape)}}"'
            )
        dtype = t.dtype or "f32"
        right = f"{t.name}.dtype == {TORCH_TYPES[dtype]} and {t.name}.is_contiguous()"
        lines.append(f'assert {right}, "{t.name}: contiguous {dtype}"')
        known |= set(axes)
    for axis in graph.axes.values():
        if axis.fine is not None and axis.ratio is not None:
            count = f"triton.cdiv({axis.fine.upper()}, {print_expr(axis.ratio)})"
            if axis.name in known:
                lines.append(f'assert {axis.extent} == {count}, "{axis.fine.upper()} and {axis.extent} do not agree"')
            else:
                lines.append(f"{axis.extent} = {count}")
        elif axis.free is not None and axis.name not in known:
            lines.append(f"{axis.extent} = {print_expr(axis.free)}")
    return lines


def _alignment(printed: list[Printed]) -> list[str]:
    """A descriptor needs rows of a multiple of 16 bytes; said before it says so less clearly."""
    rows: dict[tuple[str, int], list[str]] = {}
    for p in printed:
        for a in p.arguments:
            if a.kind == "descriptor":
                axis = p.kernel.graph.tensors[a.of][0][-1]
                names = rows.setdefault((axis.upper(), 16 // BYTES[a.dtype]), [])
                names += [a.of] * (a.of not in names)
    return [
        f'assert {extent} % {step} == 0, "tma loads need {extent} % {step} == 0 (rows of {", ".join(names)})"'
        for (extent, step), names in rows.items()
        if step > 1
    ]


def _launch(p: Printed, hw: Hardware, first: str, known: dict[str, str]) -> list[str]:
    """`known`: the scalars that earlier launches have computed, by name; they are not computed again."""
    k = p.kernel
    lines: list[str] = []
    grid = " * ".join(tile_number(k, a) for a in k.grid) or "1"
    if k.schedule.persistent:
        lines += [
            f"device = torch.cuda.get_device_properties({first}.device) if {first}.is_cuda else None",
            f"programs = min(device.multi_processor_count if device else 4, {grid})",
        ]
        grid = "programs"
    for v, t in zip(k.hosts.values(), k.hosts, strict=True):
        name = next(a.name for a in p.arguments if (a.kind == "host" and a.of == v.name) or a.name == v.name)
        source = host_source(t)[0]
        if known.get(name) != source:
            known[name] = source
            lines.append(f"{name} = {source[1:-1] if source.startswith('(') and source.count('(') == 2 else source}")
    args: list[str] = []
    for a in p.arguments:
        match a.kind:
            case "pointer":
                args.append(a.of)
            case "descriptor":
                args.append(p.descriptors[a.of])
            case "host" | "param":
                args.append(a.of if a.kind == "param" else a.name)
            case "extent":
                args.append(a.name)
            case "table":
                args.append(p.table)
            case "together":
                outer = " * ".join(tile_number(k, x) for x in k.grid[:-1])
                held = " + ".join(f"{t}.nbytes" for t in together(k))
                args.append(f"max(1, {k.schedule.l2_bytes} * {outer} // ({held}))")
            case "constexpr":
                args.append(f"{a.name}={_constant(k, a, hw)}")
    args += [f"{n}={v}" for n, v in (*p.constants.items(), *p.options.items())]
    lines.append(f"{k.name}[({grid},)](")
    lines += [f"    {x}," for x in args]
    lines.append(")")
    return ["    " + x for x in lines]


def tile_number(k: TileKernel, axis: str) -> str:
    """How many tiles an axis has, as the launcher computes it."""
    return f"triton.cdiv({axis.upper()}, {k.lengths[axis]})" if axis in k.lengths else axis.upper()


def block_of(k: TileKernel, axis: str | None) -> str:
    if axis is None:
        return "1"
    if axis in k.lengths:
        return str(k.lengths[axis])
    if axis not in k.padded:
        return axis.upper()
    padded = f"triton.next_power_of_2({axis.upper()})"
    return f"max({LEAST_PRODUCT}, {padded})" if axis in k.multiplied else padded


def _constant(k: TileKernel, a: Argument, hw: Hardware) -> str:
    if a.name == "DIES":
        return str(hw.dies)
    if a.name == "GROUP":
        return a.of
    if a.name.startswith("BLOCK_"):
        return block_of(k, a.of)
    if a.name.startswith("TAIL_"):
        return f"{a.of.upper()} % {k.lengths[a.of]} != 0"
    return a.of if a.of in k.graph.params else a.name
