"""Everything that is wrong with a program, at once: the algorithm, the kernels it is cut into, and their schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dsl.anatomy import Anatomy, Contraction, Sizes, anatomies, contraction
from dsl.diagnostics import Diagnostic, ProgramError, nearest
from dsl.divisors import zero_divisors
from dsl.edits import explicit
from dsl.elaborate import elaborate
from dsl.hardware import HARDWARE, Hardware
from dsl.lowering import tile_program, without_roles
from dsl.reach import too_large
from dsl.schedule import kernels_of, resolve
from dsl.schedule_form import effective, form
from dsl.schedule_rules import SPECIALISED, fit, lacks
from dsl.syntax import Block, Program, Span
from dsl.terms import BLOCK_DTYPES, Graph, Term


def check(program: Program, hw: Hardware | None = None, sizes: Sizes | None = None) -> list[Diagnostic]:
    """Every diagnostic, in source order; the program is legal where none has severity "error".

    hw: the chip that it shall run on; None: what holds on any chip, and each `for` line on its own chips. sizes: axis
    -> extent of one workload, which makes the limits on memory exact; without them whole axes count as short.
    """
    found = _wrong(program, hw, sizes)
    if not any(d.severity == "error" or d.rule == "open-number" for d in found):
        found += unlowered(program, hw, sizes)
    return sorted(dict.fromkeys(found), key=lambda d: (d.span.line, d.span.column))


def errors(program: Program, hw: Hardware | None = None, sizes: Sizes | None = None) -> list[Diagnostic]:
    """Those that reject the program."""
    found = [d for d in _wrong(program, hw, sizes) if d.severity == "error"]
    return sorted(dict.fromkeys(found), key=lambda d: (d.span.line, d.span.column))


def _wrong(program: Program, hw: Hardware | None, sizes: Sizes | None) -> list[Diagnostic]:
    graph, found = elaborate(program)
    found = [*found, *zero_divisors(program, sizes), *_kernels(program)]
    kernels = anatomies(program) if not any(d.severity == "error" for d in found) else None
    found += _order(program, kernels)
    whole = not any(d.severity == "error" for d in found)
    found += schedule_diagnostics(program, hw, sizes, kernels if whole else None)
    return found + (list(_contractions(graph, hw)) if whole else [])


def unlowered(program: Program, hw: Hardware | None, sizes: Sizes | None) -> list[Diagnostic]:
    """What this version cannot lower yet, by the lowering itself; the program is legal all the same. And errors where
    what it emits cannot run at these sizes."""
    try:
        kernels = tile_program(program, hw or HARDWARE["b200"], sizes)
    except ProgramError as error:
        return [replace(d, severity="warning") for d in error.diagnostics]
    found = too_large(program, kernels, sizes) if sizes is not None else []
    return found + (without_roles(kernels) if hw is not None and hw.arch == SPECIALISED else [])


def schedule_diagnostics(
    program: Program, hw: Hardware | None, sizes: Sizes | None, kernels: tuple[Anatomy, ...] | None
) -> list[Diagnostic]:
    """The schedule half alone, for a caller that has checked the algorithm. `kernels` None: it is wrong, so only form
    is checked."""
    found = list(form(program.schedule.pipeline, "pipeline", program, None))
    for d in program.schedule.pipeline:
        found.append(
            Diagnostic(
                "not-lowered",
                f"`{d.name}` needs a runtime that this version has not: it checks but does not lower",
                d.span,
                severity="warning",
            )
        )
    writes = kernels_of(program)
    if sizes is not None and kernels is not None:
        program = explicit(program)  # whether a kernel that says nothing fits is known once its tiles are
    for block in program.schedule.blocks:
        index = _index(block, writes)
        kernel = kernels[index] if kernels is not None and index is not None else None
        wrong = list(form(block.directives, "kernel", program, kernel))
        found += wrong
        broken = any(d.severity == "error" for d in wrong)
        for chip in _named_chips(block):
            for e in effective([d for d in block.directives if d.chips], chip).values():
                found += lacks(e, chip)
        if kernel is not None and index is not None and not broken:
            chips: tuple[Hardware | None, ...] = (hw,) if hw is not None else (None, *_named_chips(block))
            for target in chips:
                schedule = resolve(program, index, target.arch if target else "", target.name if target else "")
                found += fit(kernel, schedule, effective(block.directives, target), target, sizes)
    return found


def _index(block: Block, writes: tuple[tuple[str, ...], ...]) -> int | None:
    """Which kernel a block schedules: the bare one the last (rule 18)."""
    if not block.writes:
        return len(writes) - 1 if writes else None
    return next((i for i, w in enumerate(writes) if set(w) == set(block.writes)), None)


def _named_chips(block: Block) -> tuple[Hardware, ...]:
    names = {c for d in block.directives for c in d.chips}
    return tuple(hw for hw in HARDWARE.values() if hw.name in names or hw.arch in names)


def _bare(program: Program) -> Span:
    """Where the block that names the kernels stands."""
    return next((b.span for b in program.schedule.blocks if not b.writes), Span())


def _kernels(program: Program) -> Iterator[Diagnostic]:
    """Rules 16 and 18: what the `kernels` line and the heads of blocks name."""
    at = _bare(program)
    assigned = [t.name for s in program.algorithm.statements for t in s.targets]
    place: dict[str, int] = {}
    writes = kernels_of(program)
    for i, names in enumerate(program.schedule.kernels):
        for name in names:
            if name not in assigned:
                near = nearest(name, assigned)
                yield Diagnostic(
                    "kernels-unknown",
                    f"`kernels` names `{name}`, which no line assigns",
                    at,
                    ", ".join(assigned),
                    f"`{near}`" if near else "",
                )
            elif name in place:
                yield Diagnostic(
                    "kernels-twice", f"`kernels` lets two kernels write `{name}`", at, fix="keep one of them"
                )
            place.setdefault(name, i)
    for s in program.algorithm.statements:
        of = {place.get(t.name) for t in s.targets}
        if len(of) > 1:
            pair = " ".join(t.name for t in s.targets)
            yield Diagnostic(
                "kernels-apart",
                f"`{pair}` come from one line and must be written by one kernel",
                at,
                fix=f"`kernels ... | {pair} | ...`",
            )
    seen: set[int] = set()
    for block in program.schedule.blocks:
        index = _index(block, writes)
        if index is None and set(block.writes) <= set(assigned) - {n for w in writes for n in w}:
            yield Diagnostic(
                "block-unused",
                f"`{' '.join(block.writes)}` is computed where it is used: this block schedules nothing",
                block.span,
                fix=f"`{' '.join(block.writes)} |` in `kernels` makes it a kernel again",
                severity="warning",
            )
        elif index is None:
            near = nearest(" ".join(block.writes), [" ".join(w) for w in writes])
            part = next((w for w in writes if set(w) & set(block.writes)), None)
            fix = " ".join(part) if part else near
            yield Diagnostic(
                "no-such-kernel",
                f"no kernel writes exactly `{' '.join(block.writes)}`",
                block.span,
                legal=" | ".join(" ".join(w) for w in writes),
                fix=f"`schedule {fix}`" if fix else "",
            )
        elif index in seen:
            yield Diagnostic(
                "block-twice",
                f"the kernel of `{' '.join(writes[index])}` has two schedule blocks",
                block.span,
                fix="merge them",
            )
        else:
            seen.add(index)


def _order(program: Program, kernels: tuple[Anatomy, ...] | None) -> Iterator[Diagnostic]:
    """A kernel may read only what an earlier one stored. `kernels` None: what they read is not known."""
    writes, at = kernels_of(program), _bare(program)
    place = {name: i for i, names in enumerate(writes) for name in names}
    for i, kernel in enumerate(kernels or ()):
        for name in sorted({load.tensor for load in kernel.loads} & place.keys()):
            if place[name] > i:
                what = " ".join(writes[i])
                yield Diagnostic(
                    "kernels-order",
                    f"the kernel of `{what}` reads `{name}`, which a later kernel writes",
                    at,
                    fix=f"name `{name}` before `{what}` in `kernels`",
                )


def _contractions(graph: Graph, hw: Hardware | None) -> Iterator[Diagnostic]:
    """Rule 11 and the dtypes of the chip's matrix units."""
    said: set[str] = set()
    for out in graph.outputs.values():
        for t in out.walk():
            c = contraction(t)
            if c is None:
                continue
            at = _line(graph, t)
            a, b = c.dtypes
            if a and b and a != b:
                yield Diagnostic(
                    "contraction-dtypes",
                    f"the two operands of this contraction are {a} and {b}",
                    at,
                    legal="two operands of one dtype",
                    fix=f"cast one: {a}(...)" if not {a, b} & BLOCK_DTYPES.keys() else "declare both in one of them",
                )
            if not a and not b:
                yield Diagnostic(
                    "contraction-undeclared",
                    "neither operand of this contraction has a declared dtype: it runs in f32",
                    at,
                    fix="declare one, as in `p[b h m n] bf16 = ...`",
                    severity="hint",
                )
            yield from _blocks(graph, t, c, at)
            for dtype in {a, b} - {"", "f32", "i32", "bool"} - said:
                said.add(dtype)
                if hw is not None:
                    yield from _dtype(dtype, hw, at)


def _blocks(graph: Graph, t: Term, c: Contraction, at: Span) -> Iterator[Diagnostic]:
    """A scale of a block format has to lie along what the product sums over: matrix units take it so."""
    for x in t.args[0].walk():
        axis = graph.tensors[x.attr][0][-1] if x.op == "input" and x.axes else ""
        axis = str(x.attr).partition("[")[2].rstrip("]") if x.op == "cast" else axis
        if x.dtype in BLOCK_DTYPES and axis and axis not in c.inner and set(c.inner) <= set(x.axes):
            name = str(x.attr) if x.op == "input" else next((n for n, y in graph.names.items() if y is x), "an operand")
            inner = " ".join(c.inner)
            yield Diagnostic(
                "block-axis",
                f"the blocks of `{name}` lie along `{axis}`, and this product sums over {inner}: no matrix unit takes "
                f"such scales",
                at,
                legal=f"{c.inner[-1]} as the last axis of `{name}`",
                fix=f"{name}[{' '.join([*(a for a in x.axes if a != c.inner[-1]), c.inner[-1]])}] {x.dtype}",
                severity="warning",
            )


def _line(graph: Graph, term: Term) -> Span:
    """Where a term was written, or the nearest of its operands that was."""
    if term in graph.lines:
        return graph.lines[term]
    return next((graph.lines[t] for t in reversed(list(term.walk())) if t in graph.lines), Span())


def _dtype(dtype: str, hw: Hardware, at: Span) -> Iterator[Diagnostic]:
    legal = ", ".join(sorted(hw.dtypes | {"f32"}))
    if dtype in hw.emulated:
        told = "once it lowers, it will run" if dtype in BLOCK_DTYPES else "it runs"
        yield Diagnostic(
            "dtype-emulated",
            f"{hw.name} has no matrix units for {dtype}: {told} as a wider dtype, without a gain",
            at,
            legal,
            severity="warning",
        )
    elif dtype not in hw.dtypes:
        yield Diagnostic(
            "dtype-lacking", f"{hw.name} ({hw.arch}) cannot contract {dtype}", at, f"on {hw.name}: {legal}"
        )
