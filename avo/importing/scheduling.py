"""Where an imported program is cut into kernels, and a plain schedule for each of them that fits the chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from avo.importing.axes import number_of
from avo.importing.tracing import Traced
from avo.importing.values import NARROW, Builder, Value, is_value
from dsl.anatomy import Anatomy, anatomies
from dsl.check import errors, unlowered
from dsl.diagnostics import Diagnostic
from dsl.edits import explicit
from dsl.hardware import Hardware
from dsl.parser import parse
from dsl.printer import print_program
from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Program, Read, Schedule, Unary

HELD = 256  # an axis up to this length can stay whole in a tile beside a contraction
_ROW = 32768  # elements of a row that one program holds
_KEEPING = ("softmax", "runsum", "runmax")  # they look along an axis and keep it
_TILES = ((64, 32), (64, 16), (32, 32), (16, 16))


def cut(traced: Traced) -> list[Value]:
    """What to store, because a fused kernel would compute it again for every tile of a long axis.

    An operand of a product that is itself the result of a reduction, where the other operand brings axes longer than
    a tile: in attention the head's 128 columns stay in one tile, in an MLP the 4096 outputs do not. And a long product
    that is reduced along one of its own axes and needed again afterwards (a norm of heads after a projection).
    """
    b = traced.builder
    found: list[Value] = []
    for _, x, y, inner in b.products:
        for operand, other in ((x, y), (y, x)):
            source = b.source(operand)
            if source.is_input or b.light(source.expr):
                continue
            mine = {b.axes.find(a) for a in (*b.depends(operand.ref), *inner)}
            again = 1
            for a in b.depends(other.ref):
                again *= 1 if b.axes.find(a) in mine else b.axes.size(a)
            if again > HELD and source not in found:
                found.append(source)
    found += [v for v in _needed_twice(traced) if v not in found]
    read = {t for v in b.values for t in _read(v.expr)}  # by position: from memory
    found += [v for v in b.values if v.ref.id in read and v not in found and not v.is_input and not b.light(v.expr)]
    return sorted(found, key=lambda v: v.id)


def _needed_twice(traced: Traced) -> Iterator[Value]:
    """Results of products over more than a tile holds, of which an output needs a row's reduction and the row too."""
    b = traced.builder
    results = {r.id: r for r, *_ in b.products}
    for result, _, _, inner in b.products:
        length = 1
        for a in inner:
            length *= b.axes.size(a)
        mine = set(b.shape(result))
        ways: set[bool] = set()  # whether it is met within a reduction of one of its axes
        seen: set[tuple[str, bool]] = set()
        left: list[tuple[Expr, bool]] = [(o.ref, False) for o in traced.outputs] if length > HELD else []
        while left:
            e, within = left.pop()
            match e:
                case Name(id) | Read(id) if is_value(id) and (id, within) not in seen:
                    seen.add((id, within))
                    value = b.at(id)
                    if value is result:
                        ways.add(within)
                    elif not value.is_input and value.id not in results:  # what a product multiplies is asked above
                        left.append((value.expr, within))
                case Unary(_, x):
                    left.append((x, within))
                case Binary(_, x, y):
                    left += [(x, within), (y, within)]
                case Call(f, axes, args, _):
                    over = {b.axes.find(number_of(a.axis)) for a in axes or ()} & mine
                    left += [(a, within or bool(over)) for a in args]
                    if f in _KEEPING:
                        left += [(a, within) for a in args]
        if len(ways) == 2:
            yield b.source(result)


def _read(e: Expr) -> Iterator[str]:
    match e:
        case Read(t, indices):
            yield t
            for i in indices:
                yield from _read(i)
        case Unary(_, x):
            yield from _read(x)
        case Binary(_, x, y):
            yield from _read(x)
            yield from _read(y)
        case Call(_, _, args, _):
            for a in args:
                yield from _read(a)


def every_step(traced: Traced) -> list[Value]:
    """Everything that reduces and that something which reduces needs."""
    b = traced.builder
    return [v for v in b.values if not v.is_input and (v.forced or v.named) and not b.light(v.expr)]


def store(b: Builder, values: list[Value]) -> None:
    """Each of them becomes a statement, with the dtype that PyTorch gives it where that is a narrow one."""
    for v in values:
        v.forced = True
        v.declare = v.declare or v.dtype in NARROW
    b.axes.held(())


def scheduled(
    algorithm: Algorithm, stored: list[str], hw: Hardware, sizes: Mapping[str, int]
) -> tuple[Program, list[Diagnostic]]:
    """The program with kernels and schedules, and what is still wrong with it: nothing where one of the tries fits."""
    last = {t.name for t in algorithm.outputs}
    kernels = tuple((n,) for n in stored if n not in last)
    base = Program(algorithm, Schedule(kernels))
    first: tuple[Program, list[Diagnostic]] | None = None
    for program in _tries(base, sizes):
        wrong = [*errors(program, hw, sizes)]
        wrong = wrong or unlowered(program, hw, sizes)
        if not wrong:
            return program, []
        first = first or (program, wrong)
    assert first is not None
    return first


def _tries(base: Program, sizes: Mapping[str, int]) -> Iterator[Program]:
    from dsl.diagnostics import ProgramError

    for rows, inner in _TILES:
        text = print_program(replace(base, schedule=Schedule(base.schedule.kernels)))
        if "\nschedule" not in text:
            text += "\nschedule\n"
        kernels = anatomies(base)
        named, bare = "", ""
        for i, kernel in enumerate(kernels):
            lines = "\n".join(_block(kernel, rows, inner, sizes)) + "\n"
            if i == len(kernels) - 1:
                bare = lines
            else:
                named += f"\nschedule {' '.join(kernel.writes)}\n{lines}"
        try:
            yield parse(text + bare + named)
        except ProgramError:
            continue
    yield explicit(base)


def _block(kernel: Anatomy, rows: int, inner: int, sizes: Mapping[str, int]) -> Iterator[str]:
    """tile, grid, stream and warps of one kernel, as someone would write them before tuning."""

    def size(axis: str) -> int:
        return sizes.get(axis, 1)

    tile: dict[str, int | str] = {}
    stream = ""
    cuttable = [a for a in kernel.outputs if a not in kernel.held and a not in kernel.ordered]
    if kernel.contractions:
        batch, crossed = kernel.batch(), set()
        for x in kernel.contractions:  # one axis of each operand: what a matrix unit takes
            for side in (x.rows, x.columns):
                crossed |= set([a for a in cuttable if a in side and a not in batch][-1:])
        wanted = [a for a in cuttable if a in crossed]
        for place, a in enumerate(reversed(wanted[-2:])):
            if place == 0 and len(wanted) > 1 and size(a) <= HELD // 2:
                tile[a] = "all"
            else:
                tile[a] = rows
        summed = [a for c in kernel.contractions for a in c.inner if a in kernel.streamable]
        summed = summed or [a for a in kernel.streamable if size(a) > HELD]
        stream = max(summed, key=size, default="")
        if stream:
            tile[stream] = rows if any(x.after_exp for x in kernel.contractions) else inner
        if not stream and kernel.streamable:  # the taps of a convolution: one a trip
            stream = kernel.streamable[0]
            free = {a for c in kernel.contractions for a in (*c.rows, *c.columns)}
            tile[stream] = inner if stream in free else 1
        for a in kernel.inner:
            summed_here = any(a in c.inner for c in kernel.contractions)
            if a != stream and (size(a) > HELD or (tile.get(stream) == 1 and not summed_here)):
                tile[a] = inner if summed_here else 1
    else:
        long = [a for a in kernel.streamable if size(a) > _ROW]
        stream = max(long, key=size, default="")
        if stream:
            tile[stream] = 4096
        tile |= dict.fromkeys((a for a in (*kernel.held, *kernel.ordered) if a != stream), "all")
        for a in [a for a in cuttable if not kernel.reduced][-1:]:
            tile[a] = "all" if size(a) <= 4096 else 1024
    for c, length in kernel.blocks:
        if length:
            tile[c] = length
    grid = [a for a in cuttable if tile.get(a) != "all" and a != stream]
    if tile:
        yield "tile " + " ".join(
            f"{a}={tile[a]}" for a in (*kernel.axes, *(tile.keys() - set(kernel.axes))) if a in tile
        )
    if grid:
        yield "grid " + " ".join(grid)
    if stream:
        yield f"stream {stream} stages=1"
    yield "warps 4"
