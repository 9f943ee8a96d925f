"""The Gluon emitter: three functions for one tile program (one for each role, and the kernel that starts them).

Needs a GPU with wgmma (sm_90) and one of `TESTED`; what the module needs is imported at its top.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dsl.hardware import Hardware
from dsl.lowering.gluon import tensor_memory as tensor
from dsl.lowering.gluon.balance import IMPORTS as TABLE_IMPORTS
from dsl.lowering.gluon.balance import SHARED_OUT, table_name, table_source, uneven
from dsl.lowering.gluon.body import DEFINITIONS, REDUCTIONS, RoleBody
from dsl.lowering.gluon.exponent import SHARED
from dsl.lowering.gluon.flags import FLAGS, declared, guard, summed, vote
from dsl.lowering.gluon.heading import IMPORTS, in_tensor_memory
from dsl.lowering.gluon.layouts import Layouts
from dsl.lowering.gluon.plan import ROWS, Channel, NotSpecialised, Plan, make_plan, stored_directly
from dsl.lowering.gluon.rewrite import ahead, per_thread, voted
from dsl.lowering.gluon.roles import Nodes, loading, multiplying
from dsl.lowering.gluon.turns import begin, functions, takes_turns
from dsl.lowering.gluon.turns import end as end_of_turns
from dsl.lowering.launch import Argument, block_length, extents, specialise
from dsl.lowering.lowered import Launch, Params, Sizes
from dsl.lowering.triton import (
    TORCH_TYPES,
    Printed,
    arguments_of,
    block_of,
    decode,
    parameter,
    schedule_lines,
    tile_count,
)
from dsl.tile import TileKernel

TESTED = ("3.6", "3.7", "3.8", "3.9")  # releases of Triton that compile this; it ran on a GPU with 3.6
REGISTERS = 65536  # of one SM
FREE = ("extent", "together")  # arguments that no kernel is compiled anew for: compiling takes seconds


def why_plain(k: TileKernel) -> str:
    """Why a kernel has no form in which warps have roles; "" where it has one."""
    try:
        plan = make_plan(k)
        Layouts(k)
    except NotSpecialised as reason:
        return str(reason)
    if plan.rows != ROWS and k.schedule.rescale[0] == "speculative" and plan.rotated:
        return f"`rescale speculative` needs {ROWS} rows a group"
    return ""


def specialised_kernel(k: TileKernel, hw: Hardware, untried: bool = False) -> Printed:
    """Raises NotSpecialised with the reason where the kernel has no such form. `untried`: sm_100 too."""
    tensor_memory = hw.arch == tensor.ARCH and untried
    if hw.arch != "sm_90" and not tensor_memory:
        raise NotSpecialised(f"warps with roles are lowered for sm_90 alone so far, not {hw.arch}")
    k = stored_directly(k)
    if why := why_plain(k):
        raise NotSpecialised(why)
    if tensor_memory:
        plan = replace(ahead(voted(make_plan(k))), tensor_memory=True)
        tensor.fits(plan)
    else:
        plan = ahead(voted(per_thread(make_plan(k))))
    layouts = tensor.RowLayouts(k) if tensor_memory else Layouts(k)
    work = multiplying(plan)
    load = RoleBody(k, loading(plan), plan.split, layouts)
    mma = tensor.TensorBody(plan, work, layouts) if tensor_memory else RoleBody(k, work, plan.split, layouts)
    for body in (mma, load):
        body.run()
    decoding, extras = ([], [Argument("tiles", "table", "")]) if uneven(plan) else decode(k, mma)
    load.extents |= mma.extents
    both = RoleBody(k, [*_ops(mma), *_ops(load)], plan.split, layouts)
    both.lines, both.extents, both.names = [*mma.lines, *load.lines], load.extents, {**load.names, **mma.names}
    for a in k.grid:
        tile_count(k, a, both.extents)
    arguments = arguments_of(k, both, [*decoding, _tiles(k, both)], extras)
    mma.functions |= load.functions | (set(functions(1)) if takes_turns(plan) else set())
    text = "\n\n\n".join(
        (
            _role(plan, f"{k.name}_load", load, [], decoding, arguments),
            _role(plan, f"{k.name}_mma", mma, layouts.lines(mma.used), decoding, arguments),
            _start(plan, arguments),
        )
    )
    bodies = {
        "any_above": guard(plan.consumers),
        "any_rose": vote(plan.consumers, plan.rows // (128 if tensor_memory else 32), "summed" in mma.functions),
        "summed": summed(plan.consumers),
        **{f: f"def {f}(x):\n{d}" for f, d in DEFINITIONS.items()},
        **SHARED,
        **functions(plan.consumers),
        **REDUCTIONS,
    }
    if clash := [f for f in mma.functions if f not in bodies]:
        raise NotSpecialised(f"`{clash[0]}` has no specialised form")
    definitions = {f: f"@gluon.jit\n{bodies[f]}" for f in mma.functions}
    descriptors = {a.of: _descriptor(plan, a) for a in arguments if a.kind == "descriptor"}
    options = {"num_warps": 4, "maxnreg": _most_registers(plan)}

    def specialised(sizes: Sizes, params: Params) -> Launch:
        return _specialise(plan, arguments, hw, sizes, params, options, "any_above" in mma.functions)

    notes = []
    if k.schedule.rescale[0] == "speculative" and "any_above" not in mma.functions:
        notes.append(
            "`rescale speculative` is lowered as `always`: it needs `issue next_contraction`, stages=2, one maximum, "
            "and `reduce rows=per_thread`"
        )
    said = {d.name for d in k.schedule.directives}
    if "issue" in said and k.schedule.issue == "next_contraction" and not plan.rotated:
        notes.append(
            "`issue next_contraction` has no effect: it needs stages=2 and a block of a product, arithmetic, a product"
        )
    loaded = {op.attr.tensor for op in k.ops() if op.kind == "load"}
    if not plan.rotated and not tensor_memory and any(w == "registers" and t in loaded for t, w in k.schedule.hold):
        notes.append("`hold ... registers` of an input has no effect: it needs `issue next_contraction` and stages=2")
    if k.schedule.sums == "first" and "summed" not in mma.functions:
        notes.append("`reduce sums=first` has no effect: it needs `rescale lazy(N)` and `reduce rows=per_thread`")
    if k.schedule.turns == "ping_pong" and not takes_turns(plan):
        notes.append("`issue turns=ping_pong` has no effect: it needs two groups and `issue next_contraction`")
    constants, table = {"ROWS": plan.rows}, ""
    imports: tuple[str, ...] = IMPORTS
    if tensor_memory:
        imports = in_tensor_memory(tensor.IMPORT)
        notes.append(tensor.LABEL)
    if uneven(plan):
        definitions["shared_out"] = SHARED_OUT
        definitions[table_name(plan)], table = table_source(plan)
        imports = (*TABLE_IMPORTS, *imports)
    return Printed(
        k,
        text,
        arguments,
        definitions,
        descriptors,
        options,
        specialised,
        constants,
        imports,
        table,
        tuple(notes),
        "gluon",
    )


def _ops(body: RoleBody) -> Nodes:
    return list(body.k.body)


def _tiles(k: TileKernel, body: RoleBody) -> str:
    return " * ".join(tile_count(k, a, body.extents) for a in k.grid) or "1"


def _gluon(lines: list[str]) -> list[str]:
    """Gluon's language has Triton's names, but loops are Python's."""
    return [re.sub(r"\btl\.(range\b)?", lambda m: m[1] or "gl.", x) for x in lines]


def _passed(plan: Plan, arguments: tuple[Argument, ...]) -> list[str]:
    """What every role is given: the kernel's own arguments, buffers, barriers."""
    buffers = [f"{t}_s" for c in plan.channels for t in c.tensors] + [f"{t}_s" for t in plan.stored]
    barriers = [f"{c.name}_{x}" for c in plan.channels for x in ("full", "empty")]
    kept = tensor.names(plan) if plan.tensor_memory else ()
    return [*(a.name for a in arguments), *buffers, *barriers, *kept]


def _role(
    plan: Plan, name: str, body: RoleBody, layouts: list[str], decoding: list[str], arguments: tuple[Argument, ...]
) -> str:
    k = plan.kernel
    constant = {a.name for a in arguments if a.kind == "constexpr"} | {"ROWS", "WG"}
    names = [*_passed(plan, arguments), "ROWS", *(["WG"] if name.endswith("_mma") else [])]
    lines = ["@gluon.jit", f"def {name}("]
    lines += [f"    {x}: gl.constexpr," if x in constant else f"    {x}," for x in names]
    lines.append("):")
    lines += [f"    {x}" for x in layouts]
    words = set(re.findall(r"\w+", "\n".join(body.lines)))
    for flag in FLAGS:
        for g in range(plan.consumers if flag in words else 0):
            lines += [f"    if WG == {g}:", f"        {declared(flag, g)}"]
    turns = takes_turns(plan) and name.endswith("_mma")
    if turns:
        lines += [f"    {x}" for x in begin(plan)]
    lines.append("    block = 0  # blocks so far: they go round the buffers")
    inner = [*decoding, *body.lines]
    if k.schedule.persistent:
        if "turn" in words:
            lines.append("    turn = 0  # tiles so far")
            inner.append("turn += 1")
        if uneven(plan):
            head, decoded = _rows(k)
            lines += [f"    {x}" for x in head]
            lines.append("    for place in range(begin, end):  # persistent")
            inner = [*decoded, *inner]
        else:
            count = _tiles(k, body)
            lines.append(f"    for tile in range(gl.program_id(0), {count}, gl.num_programs(0)):  # persistent")
        inner = ["    " + x for x in inner]
    else:
        lines.append("    tile = gl.program_id(0)")
    lines += ["    " + x for x in inner]
    if turns:
        lines += [f"    {x}" for x in end_of_turns()]
    if name.endswith("_mma") and plan.stored:
        lines.append("    tma.store_wait(0)")
    return "\n".join(_gluon(lines))


def _rows(k: TileKernel) -> tuple[list[str], list[str]]:
    """(what stands before the loop over a program's rows of the table, what in it): the next row is read ahead."""
    names = [f"tile_{a}" if a in k.lengths else a for a in k.grid]
    head = [
        "begin = gl.load(tiles + gl.program_id(0))",
        "end = gl.load(tiles + gl.program_id(0) + 1)",
        f"row = tiles + gl.num_programs(0) + 1 + begin * {len(names)}",
        *(f"next_{n} = gl.load(row + {i})" for i, n in enumerate(names)),
    ]
    body = [f"{n} = next_{n}" for n in names]
    body += [f"row += {len(names)}", *(f"next_{n} = gl.load(row + {i})" for i, n in enumerate(names))]
    return head, body


def _start(plan: Plan, arguments: tuple[Argument, ...]) -> str:
    k = plan.kernel
    free = ", ".join(f'"{a.name}"' for a in arguments if a.kind in FREE)
    lines = [f"@gluon.jit(do_not_specialize=[{free}])", f"def {k.name}("]
    lines += [f"    {parameter(a)}," for a in arguments]
    lines += ["    ROWS: gl.constexpr,", "):", *schedule_lines(k)]
    lines += [f"    # {tensor.LABEL}"] if plan.tensor_memory else []
    inner: list[str] = []
    for c in plan.channels:
        for t in c.tensors:
            inner.append(_buffer(t, _slots(plan, c)))
    for t in plan.stored:
        inner.append(_buffer(t, plan.consumers))
    for c in plan.channels:
        for x in ("full", "empty"):
            shape = f"[{_slots(plan, c)}, 1]"
            inner.append(f"{c.name}_{x} = gl.allocate_shared_memory(gl.int64, {shape}, mbarrier.MBarrierLayout())")
    for c in plan.channels:
        inner += [
            f"for i in gl.static_range({_slots(plan, c)}):",
            f"    mbarrier.init({c.name}_full.index(i), count=1)",
            f"    mbarrier.init({c.name}_empty.index(i), count={1 if c.own else plan.consumers})",
        ]
    inner += tensor.allocated(plan) if plan.tensor_memory else []
    inner.append("fence_async_shared()")
    loads, mma = k.schedule.role_registers
    names = [*_passed(plan, arguments), "ROWS"]
    inner += ["gl.warp_specialize(", "    ["]
    roles = [*((f"{k.name}_mma", [*names, str(i)]) for i in range(plan.consumers)), (f"{k.name}_load", names)]
    for role, given in roles:
        inner += ["        (", f"            {role},", "            ("]
        inner += [f"            {x}" for x in _wrapped(given)]
        inner += ["            ),", "        ),"]
    inner.append("    ],")
    warps = [4] * (plan.consumers - 1) + [_load_warps(plan)]
    registers = [mma] * (plan.consumers - 1) + [loads]
    inner += [f"    {warps},", f"    {registers},", ")"]
    return "\n".join(_gluon([*lines, *("    " + x for x in inner)]))


def _wrapped(words: list[str]) -> list[str]:
    lines: list[str] = []
    for w in words:
        if lines and len(lines[-1]) + len(w) < 88:
            lines[-1] += f" {w},"
        else:
            lines.append(f"    {w},")
    return lines


def _load_warps(plan: Plan) -> int:
    assert plan.kernel.schedule.roles is not None
    return plan.kernel.schedule.roles[0]


def _slots(plan: Plan, c: Channel) -> int:
    return plan.buffers(c) if c.streamed else plan.consumers if c.own else 1


def _buffer(tensor: str, slots: int) -> str:
    desc = f"{tensor}_desc"
    return f"{tensor}_s = gl.allocate_shared_memory({desc}.dtype, [{slots}] + {desc}.block_type.shape, {desc}.layout)"


def _most_registers(plan: Plan) -> int:
    """What the compiler may give a thread before the roles share the registers out anew."""
    warps = 4 * plan.consumers + -(-_load_warps(plan) // 4) * 4
    return min(255, REGISTERS // (32 * warps) // 8 * 8)


# -- the launch --------------------------------------------------------------------------------------------------------


def _own_rows(plan: Plan, tensor: str) -> bool:
    """Whether a tensor is moved in the rows of one consumer, not in whole tiles."""
    if tensor in plan.stored:
        return True
    return any(c.own for c in plan.channels if tensor in c.tensors)


def _descriptor(plan: Plan, a: Argument) -> str:
    own = _own_rows(plan, a.of)
    block = ", ".join(str(plan.rows) if own and x == plan.split else block_of(plan.kernel, x) for x in a.block)
    return f"tiles_of({a.of}, {block}, dtype=gl.{GLUON_TYPES[a.dtype]})"


GLUON_TYPES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8e4nv", "e5m2": "float8e5", "int8": "int8",
}  # fmt: skip
ELEMENT = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "int8": 1}
assert set(GLUON_TYPES) <= set(TORCH_TYPES)


def _specialise(
    plan: Plan,
    arguments: tuple[Argument, ...],
    hw: Hardware,
    sizes: Sizes,
    params: Params,
    options: dict[str, int],
    speculative: bool,
) -> Launch:
    """As the plain launch, with each descriptor's layout in its type."""
    k = plan.kernel
    plain = specialise(k, arguments, hw, sizes, params)
    known = extents(k.graph, sizes)
    signature = dict(plain.signature)
    for a in arguments:
        if a.kind == "descriptor":
            own = _own_rows(plan, a.of)
            block = [
                1 if x is None else plan.rows if own and x == plan.split else block_length(k, x, known) for x in a.block
            ]
            kind = signature[a.name].partition("[")[0]
            signature[a.name] = f"{kind}[{', '.join(map(str, block))}],{_shared_layout(block, ELEMENT[a.dtype])}>"
    free = {a.name for a in arguments if a.kind in FREE}
    signature = {n: "i32" if n in free else kind for n, kind in signature.items()} | {"ROWS": "constexpr"}
    constexprs = {n: v for n, v in plain.constexprs.items() if n not in free} | {"ROWS": plan.rows}
    divisible = tuple(n for n in plain.divisible if n not in free)
    return replace(
        plain,
        signature=signature,
        constexprs=constexprs,
        divisible=divisible,
        options=options,
        overlap="speculative" if speculative else "ahead" if plan.rotated else "in_order",
        dealt=uneven(plan),
    )


def _shared_layout(block: list[int], size: int) -> str:
    """The layout of a tile in shared memory, as Gluon chooses it by default and as its types spell it."""
    row = block[-1] * size
    swizzle = next((w for w in (128, 64, 32) if row >= w and row % w == 0), 0)
    outer = 1
    for n in block[:-1]:
        outer *= n
    swizzle = 0 if len(block) < 2 or outer < 8 else swizzle
    return (
        f"NVMMASharedLayout(swizzle_byte_width={swizzle}, element_bitwidth={8 * size}, rank={len(block)}, "
        "transposed=False, fp4_padded=False, cga_layout=[])"
    )
