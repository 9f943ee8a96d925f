"""The decisions of a schedule: each with its legal values on a chip, its neighbours, and an edit that changes it.

What is legal is what `dsl.check` accepts, so any chain of these edits stays legal. The table of directives is in
`dsl.directives`; here it meets a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsl.anatomy import Anatomy, Sizes, anatomies
from dsl.directives import DIRECTIVES
from dsl.edits import directives_of, explicit, plain, set_knob, spelt
from dsl.elaborate import elaborate
from dsl.footprint import grid_of
from dsl.hardware import Hardware
from dsl.schedule import KernelSchedule, held_blocks, resolve
from dsl.schedule_form import OPEN, Effective, effective, form
from dsl.schedule_rules import SPECIALISED, fit
from dsl.syntax import Item, Number, Program, Word
from dsl.tiling import NotLowered, tile_kernel

__all__ = ["Knob", "Value", "explicit", "fill", "knob_named", "knobs", "neighbours", "plain", "set_knob", "settings"]

Value = int | str


BREAKING = ("tile", "load", "exponent")  # with some of their values a kernel has no form with roles


@dataclass(frozen=True)
class Knob:
    """One decision of one kernel on one chip.

    key: "" for the item by position, else as in `stream n stages=2` or `tile m=128`; `stream` with key "" chooses the
    streamed axis ("none": whole). value: as it stands, the default where nothing is said, "?" where left open. legal:
    what may be set with all else as it is, in ascending order or as the table lists. number: legal values are a scale.
    scale: all values that are worth trying, legal here or not.
    chips: of the `for` line that decides it on this chip; empty where a common line does, or none.
    """

    kernel: int
    directive: str
    key: str
    value: Value
    legal: tuple[Value, ...]
    doc: str
    number: bool
    chips: tuple[str, ...] = ()
    scale: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        """`tile m`, `stream stages`, `load`; with the kernel's number where it is not the first."""
        name = f"{self.directive} {self.key}".strip()
        return f"{self.kernel}: {name}" if self.kernel else name


def neighbours(knob: Knob) -> tuple[Value, ...]:
    """The legal values one step away: the next smaller and larger of a scale, every other choice else."""
    if not knob.number:
        return tuple(v for v in knob.legal if v != knob.value)
    if knob.value not in knob.legal:
        return knob.legal
    at = knob.legal.index(knob.value)
    return tuple(knob.legal[i] for i in (at - 1, at + 1) if 0 <= i < len(knob.legal))


def knobs(program: Program, hw: Hardware, sizes: Sizes | None = None, only: str = "") -> list[Knob]:
    """Every decision that a search may change, for each kernel, with the values that `check` accepts on this chip.

    The algorithm must be free of errors. `sizes`: extents of the workload, which bound what fits in shared memory.
    only: the name of the one knob that is asked for; the values of the others are then not looked at.
    """
    program = explicit(program)
    found = []
    for index, kernel in enumerate(anatomies(program)):
        schedule = resolve(program, index, hw.arch, hw.name)
        lowers: bool | None = None  # not asked yet
        found_on = effective(directives_of(program, index), hw)
        for directive, key, value, values, number in _decisions(kernel, schedule, hw):
            knob = Knob(
                index,
                directive,
                key,
                _current(found_on, directive, key, value),
                (),
                _doc(directive, key),
                number,
                _deciding(found_on, directive, key),
                values,
            )
            if only not in ("", knob.name):
                continue
            legal = tuple(v for v in values if _accepted(program, knob, v, hw, sizes, kernel))
            if directive == "roles" or (schedule.roles and directive in BREAKING and hw.arch == SPECIALISED):
                # a value that takes the roles away again is no choice of its own: `roles mma` is
                legal = tuple(v for v in legal if _keeps_roles(program, knob, v, index, hw))
            if directive in ("tile", "stream"):
                if lowers is None:
                    lowers = (_blocky(kernel) or bool(kernel.ordered)) and _lowers(program, index, hw)
                if lowers:  # as it stands it does
                    legal = tuple(v for v in legal if v == knob.value or _lowers(set_knob(program, knob, v), index, hw))
            if len(legal) > 1 or knob.value == OPEN:
                found.append(replace(knob, legal=legal))
    return found


def settings(program: Program, hw: Hardware) -> dict[str, Value]:
    """Knob name -> value as it stands, of every decision that `knobs` may offer; without asking what is legal."""
    program = explicit(program)
    found: dict[str, Value] = {}
    for index, kernel in enumerate(anatomies(program)):
        schedule = resolve(program, index, hw.arch, hw.name)
        for directive, key, value, _, _ in _decisions(kernel, schedule, hw):
            found[Knob(index, directive, key, value, (), "", False).name] = value
    return found


def knob_named(program: Program, hw: Hardware, name: str) -> Knob:
    """The knob of this name as it stands, without its legal values: enough for `set_knob`. KeyError: there is none."""
    program = explicit(program)
    for index, kernel in enumerate(anatomies(program)):
        schedule = resolve(program, index, hw.arch, hw.name)
        found_on = effective(directives_of(program, index), hw)
        for directive, key, value, values, number in _decisions(kernel, schedule, hw):
            chips = _deciding(found_on, directive, key)
            knob = Knob(index, directive, key, _current(found_on, directive, key, value), (), "", number, chips, values)
            if knob.name == name:
                return knob
    raise KeyError(name)


def _decisions(
    kernel: Anatomy, schedule: KernelSchedule, hw: Hardware
) -> Iterator[tuple[str, str, Value, tuple[Value, ...], bool]]:
    """(directive, key, value, candidate values, whether a scale) of what a search may decide here."""
    grid = grid_of(kernel, schedule)
    contracted = {a for c in kernel.contractions for a in c.tiled} - kernel.batch()
    for axis in (*grid, *([schedule.stream] if schedule.stream else [])):
        block = dict(kernel.blocks).get(axis)
        if block is not None or (kernel.contractions and axis not in contracted) or not _cuttable(kernel, axis):
            continue
        value = schedule.tile.get(axis, 1)
        yield "tile", axis, value, _with(_ladder(kernel, axis, schedule), value), True
    if hw.arch == SPECIALISED and kernel.contractions and schedule.stream:
        yield from _of_roles(kernel, schedule, len(grid) > 1)
    for axis in kernel.inner:
        length = schedule.tile.get(axis)
        if schedule.stream not in (None, axis) and isinstance(length, int):
            yield "tile", axis, length, _with((16, 32, 64, 128, 256), length), True  # a loop of its own
    if len(grid) > 1:
        name, args = schedule.order
        orders: list[Value] = ["row", *(f"grouped({n})" for n in (4, 8, 16))]
        orders += [f"reverse({a})" for a in grid if a not in kernel.batch()]
        if kernel.masked:
            orders.append("longest_first")
        yield "order", "", spelt(name, args), _with(tuple(orders), spelt(name, args)), False
    if hw.dies > 1:
        yield "swizzle", "", schedule.swizzle or "none", ("none", "dies"), False
    yield "persistent", "", "on" if schedule.persistent else "off", ("off", "on"), False
    if kernel.streamable:
        yield "stream", "", schedule.stream or "none", ("none", *kernel.streamable), False
    if schedule.stream:
        slot = DIRECTIVES["stream"].slot("stages")
        assert slot is not None
        yield "stream", "stages", schedule.stages, _with(slot.numbers, schedule.stages), True
        yield "split", "", "masked" if schedule.split_masked else "none", ("none", "masked"), False
    yield "load", "", schedule.load, ("pointer", "tma"), False
    if schedule.stream in kernel.pivots:
        value = spelt(*schedule.rescale)
        rescales = ("always", "lazy(4)", "lazy(8)", "lazy(12)", *(("speculative",) if schedule.roles else ()))
        yield "rescale", "", value, _with(rescales, value), False
    if kernel.exponentials:
        value = spelt(*schedule.exponent)
        yield "exponent", "", value, ("exp", "exp2", "poly(8)", "poly(4)", "poly(2)"), False
    yield "warps", "", schedule.warps, (1, 2, 4, 8, 16) if schedule.roles is None else (schedule.warps,), True
    if hw.vendor == "amd":
        yield "waves_per_eu", "", schedule.waves_per_eu, (0, 1, 2, 3, 4), True
        if kernel.contractions:
            yield "matrix_instr", "", schedule.matrix_instr, (0, 16, 32), False


def _of_roles(
    kernel: Anatomy, schedule: KernelSchedule, grid: bool
) -> Iterator[tuple[str, str, Value, tuple[Value, ...], bool]]:
    """Roles, and what only warps with roles follow: no choice without them."""
    groups = schedule.roles[1] if schedule.roles else 0
    yield "roles", "mma", groups, (0, 1, 2), True

    def given(value: Value, *values: Value) -> tuple[Value, ...]:
        return values if schedule.roles is not None else (value,)

    if grid:
        share = schedule.l2_bytes or 0
        yield "order", "l2", share, given(share, *(n * 2**20 for n in (0, 4, 8, 16, 32))), True
    kept = [x.tensor for x in kernel.loads if x.staged and schedule.stream not in x.moved_by]
    for tensor in dict.fromkeys(kept):
        where = dict(schedule.hold).get(tensor, "shared")
        yield "hold", tensor, where, given(where, "shared", "registers"), False
    for name in kernel.writes:
        axes = kernel.graph.tensors[name][0]
        if sum(schedule.tile.get(a, 1 if a in kernel.batch() else "all") != 1 for a in axes) > 1:
            where = dict(schedule.hold).get(name, "shared")
            yield "hold", name, where, given(where, "shared", "registers"), False
    if len(kernel.contractions) > 1:
        walked = [x.tensor for x in kernel.loads if x.staged and schedule.stream in x.moved_by]
        for tensor in dict.fromkeys(walked):
            number = held_blocks(schedule, tensor)
            yield "buffers", tensor, number, given(number, 1, 2, 3, 4), True
        yield "issue", "", schedule.issue, given(schedule.issue, "next_contraction", "in_order"), False
        yield "issue", "turns", schedule.turns, given(schedule.turns, "free", "ping_pong"), False
    if schedule.stream in kernel.pivots:
        yield "reduce", "rows", schedule.rows, given(schedule.rows, "per_thread", "across"), False
        yield "reduce", "sums", schedule.sums, given(schedule.sums, "auto", "first", "free"), False


def _cuttable(kernel: Anatomy, axis: str) -> bool:
    """Whether a grid axis may have any tile: every output has it, and none has blocks of it (its tile is one block)."""
    if axis not in kernel.outputs:
        return True
    coarse = kernel.graph.axes[axis].fine in kernel.outputs
    return not coarse and all(axis in axes for axes, _ in kernel.stores)


def _blocky(kernel: Anatomy) -> bool:
    """Whether the kernel has blocks of a fixed length, which not every tile fits."""
    used = {a for axes in kernel.values for a in axes}
    return any(isinstance(x.ratio, Number) for n, x in kernel.graph.axes.items() if n in used)


def _lowers(program: Program, kernel: int, hw: Hardware) -> bool:
    graph, _ = elaborate(program, kernel)
    try:
        tile_kernel(graph, resolve(program, kernel, hw.arch, hw.name), "k")
    except NotLowered:
        return False
    return True


def _keeps_roles(program: Program, knob: Knob, value: Value, kernel: int, hw: Hardware) -> bool:
    dropped = knob.directive == "roles" and not value
    return dropped or value == knob.value or _specialises(set_knob(program, knob, value), kernel, hw)


def _specialises(program: Program, kernel: int, hw: Hardware) -> bool:
    """Whether the kernel has a form in which warps have roles."""
    from dsl.lowering.gluon import why_plain

    graph, _ = elaborate(program, kernel)
    try:
        return not why_plain(tile_kernel(graph, resolve(program, kernel, hw.arch, hw.name), "k"))
    except NotLowered:
        return False


def _ladder(kernel: Anatomy, axis: str, schedule: KernelSchedule) -> tuple[int, ...]:
    """Block lengths worth trying: what matrix instructions take; a row or a few where there is no contraction."""
    if kernel.contractions:
        return (16, 32, 64, 128, 256)
    if axis == schedule.stream:
        return (128, 256, 512, 1024, 2048, 4096, 8192)
    return (1, 2, 4, 8, 16, 32, 64)


def _with(values: tuple[Value, ...], value: object) -> tuple[Value, ...]:
    """The current value belongs to the scale, wherever it came from; one that is left open does not."""
    if value in values or not isinstance(value, int | str) or value == OPEN:
        return values
    if all(isinstance(v, int) for v in (*values, value)):
        return tuple(sorted((*values, value), key=int))
    return (*values, value)


def _doc(directive: str, key: str) -> str:
    spec = DIRECTIVES[directive]
    slot = spec.slot(key) if key and directive not in ("tile", "hold", "buffers") else None
    return slot.doc if slot is not None else spec.doc


def _accepted(program: Program, knob: Knob, value: Value, hw: Hardware, sizes: Sizes | None, kernel: Anatomy) -> bool:
    changed = set_knob(program, knob, value)
    directives = directives_of(changed, knob.kernel)
    found = list(form(directives, "kernel", changed, kernel))
    if not any(d.severity == "error" for d in found):
        schedule = resolve(changed, knob.kernel, hw.arch, hw.name)
        found += fit(kernel, schedule, effective(directives, hw), hw, sizes)
    return not any(d.severity == "error" for d in found)


def fill(program: Program, hw: Hardware, sizes: Sizes | None = None) -> Program:
    """The program with every number that it leaves open (`?`) set to the middle of what is legal on this chip."""
    while True:
        knob = next((k for k in knobs(program, hw, sizes) if k.value == OPEN and k.legal), None)
        if knob is None:
            return program
        program = set_knob(program, knob, knob.legal[len(knob.legal) // 2])


# Where a decision stands ----------------------------------------------------------------------------------------------


def _item(found: dict[str, Effective], directive: str, key: str) -> Item | None:
    e = found.get(directive)
    if e is None:
        return None
    return e.keyed.get(key) if key else (e.bare[0] if e.bare else None)


def _current(found: dict[str, Effective], directive: str, key: str, value: Value) -> Value:
    """The resolved value, or "?" where the program leaves it open."""
    item = _item(found, directive, key)
    return OPEN if item is not None and isinstance(item.value, Word) and item.value.id == OPEN else value


def _deciding(found: dict[str, Effective], directive: str, key: str) -> tuple[str, ...]:
    """The chips of the `for` line that the value comes from."""
    e = found.get(directive)
    item = _item(found, directive, key)
    if e is None or item is None or not any(i is item for i in e.directive.items):
        return ()
    return e.directive.chips
