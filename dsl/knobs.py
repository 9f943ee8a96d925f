"""The decisions of a schedule: each with its legal values on a chip, its neighbours, and an edit that changes it.

What is legal is what `dsl.check` accepts, so any chain of these edits stays legal. The table of directives is in
`dsl.directives`; here it meets a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsl.anatomy import Anatomy, Sizes, anatomies
from dsl.directives import DEFAULTS, DIRECTIVES
from dsl.footprint import grid_of
from dsl.hardware import Hardware
from dsl.printer import canonical
from dsl.schedule import KernelSchedule, kernels_of, resolve
from dsl.schedule_form import OPEN, Effective, effective, form
from dsl.schedule_rules import fit
from dsl.syntax import Block, Directive, Item, Program, Word

Value = int | str


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


def knobs(program: Program, hw: Hardware, sizes: Sizes | None = None) -> list[Knob]:
    """Every decision that a search may change, for each kernel, with the values that `check` accepts on this chip.

    The algorithm must be free of errors. `sizes`: extents of the workload, which bound what fits in shared memory.
    """
    kernels = anatomies(program)
    found = []
    for index, kernel in enumerate(kernels):
        schedule = resolve(program, index, hw.arch, hw.name)
        found_on = effective(_directives(program, index), hw)
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
            legal = tuple(v for v in values if _accepted(program, knob, v, hw, sizes, kernel))
            if len(legal) > 1 or knob.value == OPEN:
                found.append(replace(knob, legal=legal))
    return found


def settings(program: Program, hw: Hardware) -> dict[str, Value]:
    """Knob name -> value as it stands, of every decision that `knobs` may offer; without asking what is legal."""
    found: dict[str, Value] = {}
    for index, kernel in enumerate(anatomies(program)):
        schedule = resolve(program, index, hw.arch, hw.name)
        for directive, key, value, _, _ in _decisions(kernel, schedule, hw):
            found[Knob(index, directive, key, value, (), "", False).name] = value
    return found


def knob_named(program: Program, hw: Hardware, name: str) -> Knob:
    """The knob of this name as it stands, without its legal values: enough for `set_knob`. KeyError: there is none."""
    for index, kernel in enumerate(anatomies(program)):
        schedule = resolve(program, index, hw.arch, hw.name)
        found_on = effective(_directives(program, index), hw)
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
        if block is not None or (kernel.contractions and axis not in contracted):
            continue
        value = schedule.tile.get(axis, 1)
        yield "tile", axis, value, _with(_ladder(kernel, axis, schedule), value), True
    if len(grid) > 1:
        name, args = schedule.order
        orders: list[Value] = ["row", *(f"grouped({n})" for n in (4, 8, 16))]
        orders += [f"reverse({a})" for a in grid if a not in kernel.batch()]
        if kernel.masked:
            orders.append("longest_first")
        yield "order", "", _spelt(name, args), _with(tuple(orders), _spelt(name, args)), False
    if hw.dies > 1:
        yield "swizzle", "", schedule.swizzle or "none", ("none", "dies"), False
    yield "persistent", "", "on" if schedule.persistent else "off", ("off", "on"), False
    if kernel.streamable:
        yield "stream", "", schedule.stream or "none", ("none", *kernel.streamable), False
    if schedule.stream:
        most = 6 if hw.vendor != "amd" else 3
        yield "stream", "stages", schedule.stages, _with(tuple(range(1, most + 1)), schedule.stages), True
        yield "split", "", "masked" if schedule.split_masked else "none", ("none", "masked"), False
    yield "load", "", schedule.load, ("pointer", "tma"), False
    if schedule.stream in kernel.pivots:
        value = _spelt(*schedule.rescale)
        yield "rescale", "", value, _with(("always", "lazy(4)", "lazy(8)", "lazy(12)"), value), False
    if kernel.exponentials:
        yield "exponent", "", schedule.exponent, ("exp", "exp2"), False
    yield "warps", "", schedule.warps, (1, 2, 4, 8, 16), True
    if hw.vendor == "amd":
        yield "waves_per_eu", "", schedule.waves_per_eu, (0, 1, 2, 3, 4), True
        if kernel.contractions:
            yield "matrix_instr", "", schedule.matrix_instr, (0, 16, 32), False


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
    slot = spec.slot(key) if key and directive != "tile" else None
    return slot.doc if slot is not None else spec.doc


def _accepted(program: Program, knob: Knob, value: Value, hw: Hardware, sizes: Sizes | None, kernel: Anatomy) -> bool:
    changed = set_knob(program, knob, value)
    directives = _directives(changed, knob.kernel)
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


def plain(program: Program) -> Program:
    """The program without what only repeats a default: two that differ in nothing else become equal."""
    blocks = []
    for block in program.schedule.blocks:
        kept = []
        for d in block.directives:
            if d.chips or not any(_repeats(d, i) for i in d.items):
                kept.append(d)
                continue
            items = tuple(i for i in d.items if not _repeats(d, i))
            if items and any(i.key is None for i in items):
                kept.append(replace(d, items=items))
        blocks.append(replace(block, directives=tuple(kept)))
    return canonical(replace(program, schedule=replace(program.schedule, blocks=tuple(blocks))))


def _repeats(d: Directive, item: Item) -> bool:
    value = item.value if isinstance(item.value, int) else _spelt(item.value.id, item.value.args)
    if item.key is None and len([i for i in d.items if i.key is None]) > 1:
        return False
    if item.key is None and any(i.key is not None for i in d.items):
        return False  # `order row l2=8MiB` says more
    return DEFAULTS.get(item.key or d.name) == value


# Where a decision stands --------------------------------------------------------------------------------------------


def _blocks(program: Program, kernel: int) -> list[int]:
    """Places in `schedule.blocks` that schedule this kernel, as `dsl.schedule.resolve` finds them."""
    writes = kernels_of(program)
    last = kernel == len(writes) - 1
    blocks = enumerate(program.schedule.blocks)
    return [i for i, b in blocks if set(b.writes) == set(writes[kernel]) or (not b.writes and last)]


def _directives(program: Program, kernel: int) -> list[Directive]:
    return [d for i in _blocks(program, kernel) for d in program.schedule.blocks[i].directives]


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


# Edits --------------------------------------------------------------------------------------------------------------


def set_knob(program: Program, knob: Knob, value: Value) -> Program:
    """The program with this decision changed, in canonical order.

    Where a `for` line decides it on the knob's chip, that line is edited; a common line else. A default is not written
    unless it has to override another line. Streaming another axis gives it a tile and makes the old one whole.
    """
    directive, key = knob.directive, knob.key
    if directive == "stream" and not key:
        return _restream(program, knob, value)
    blocks = _blocks(program, knob.kernel)
    if not blocks:
        program, blocks = _with_block(program, knob.kernel)
    for at in blocks:
        block = program.schedule.blocks[at]
        if any(d.name == directive and d.chips == knob.chips for d in block.directives) or at == blocks[-1]:
            break
    edited = _edit(block.directives, directive, key, value, knob.chips)
    return canonical(_put(program, at, replace(block, directives=edited)))


def _put(program: Program, at: int, block: Block) -> Program:
    blocks = (*program.schedule.blocks[:at], block, *program.schedule.blocks[at + 1 :])
    return replace(program, schedule=replace(program.schedule, blocks=blocks))


def _with_block(program: Program, kernel: int) -> tuple[Program, list[int]]:
    """A kernel without a block gets an empty one: the bare one for the last kernel (rule 18)."""
    writes = kernels_of(program)
    block = Block(() if kernel == len(writes) - 1 else writes[kernel], ())
    blocks = (*program.schedule.blocks, block)
    return replace(program, schedule=replace(program.schedule, blocks=blocks)), [len(blocks) - 1]


def _edit(
    directives: tuple[Directive, ...], name: str, key: str, value: Value, chips: tuple[str, ...]
) -> tuple[Directive, ...]:
    old = next((d for d in directives if d.name == name and d.chips == chips), None)
    default = DEFAULTS.get(key or name) == value
    if old is None:
        if default:
            return directives
        return (*directives, Directive(name, (_new_item(key, value),), chips))
    if default and not chips and not key and len(old.items) <= 1:
        return tuple(d for d in directives if d is not old)
    new = _new_item(key, value)
    if default and not chips and key:
        items = tuple(i for i in old.items if i.key != key)
    elif any(i.key == (key or None) for i in old.items):
        done = False
        changed = []
        for i in old.items:
            if i.key == (key or None) and not done:
                changed.append(replace(new, span=i.span))
                done = True
            else:
                changed.append(i)
        items = tuple(changed)
    else:
        items = (*old.items, new) if key else (new, *old.items)
    if name == "persistent" and value == "on":
        items = ()
    return tuple(replace(d, items=items) if d is old else d for d in directives)


def _new_item(key: str, value: Value) -> Item:
    return Item(key or None, value if isinstance(value, int) else _word(value))


def _word(text: str) -> Word:
    """`lazy(8)` and `reverse(m)` as words."""
    if not text.endswith(")"):
        return Word(text)
    name, _, inside = text[:-1].partition("(")
    return Word(name, tuple(int(a) if a.strip().isdigit() else a.strip() for a in inside.split(",")))


def _spelt(name: str, args: tuple[int | str, ...]) -> str:
    return f"{name}({', '.join(map(str, args))})" if args else name


def _restream(program: Program, knob: Knob, value: Value) -> Program:
    """Another streamed axis, or none: the tiles follow, and what acts on the loop goes with it."""
    blocks = _blocks(program, knob.kernel)
    if not blocks:
        program, blocks = _with_block(program, knob.kernel)
    at = blocks[-1]
    block = program.schedule.blocks[at]
    old = knob.value
    directives = list(block.directives)
    if value == "none":
        drop = ("stream", "split", "skip")
        directives = [d for d in directives if d.name not in drop and not _pivoting(d)]
    elif any(d.name == "stream" for d in directives):
        directives = [
            replace(d, items=tuple(replace(i, value=Word(str(value))) if i.key is None else i for i in d.items))
            if d.name == "stream"
            else d
            for d in directives
        ]
    else:
        directives.append(Directive("stream", (Item(None, Word(str(value))),)))
    changed: list[Directive] = []
    for d in directives:
        if d.name == "tile":
            items = tuple(i for i in d.items if i.key not in (old, value))
            if value != "none":
                tile = next((i for i in d.items if i.key == value and isinstance(i.value, int)), Item(str(value), 64))
                items = (*items, tile)
            d = replace(d, items=items)
        if d.items or d.name not in ("tile",):
            changed.append(d)
    if value != "none" and not any(d.name == "tile" for d in changed):
        changed.append(Directive("tile", (Item(str(value), 64),)))
    return canonical(_put(program, at, replace(block, directives=tuple(changed))))


def _pivoting(d: Directive) -> bool:
    return d.name == "rescale"
