"""Edits of a schedule: one decision changed, defaults left out, the naive schedule written out.

Every edit gives a program in canonical order and touches nothing else; `dsl.knobs` says which edits are legal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from dsl.anatomy import anatomies
from dsl.directives import DEFAULTS
from dsl.elaborate import elaborate
from dsl.printer import canonical
from dsl.schedule import KernelSchedule, kernels_of
from dsl.syntax import Block, Directive, Item, Program, Schedule, Word
from dsl.tiling import NotLowered, tile_kernel

if TYPE_CHECKING:
    from dsl.knobs import Knob

Value = int | str
OF_ROLES = ("roles", "registers", "hold", "buffers", "issue", "reduce")  # what nobody follows without roles


def set_knob(program: Program, knob: Knob, value: Value) -> Program:
    """The program with this decision changed, in canonical order.

    Where a `for` line decides it on the knob's chip, that line is edited; a common line else. A default is not written
    unless it has to override another line. Streaming another axis gives it a tile and makes the old one whole.
    """
    program = explicit_kernel(program, knob.kernel)
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
    if directive in ("roles", "hold", "buffers"):
        edited = _with_roles(block.directives, directive, key, value, knob.chips)
    else:
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
    elif not items and name != "persistent":
        return tuple(d for d in directives if d is not old)
    return tuple(replace(d, items=items) if d is old else d for d in directives)


def _with_roles(
    directives: tuple[Directive, ...], name: str, key: str, value: Value, chips: tuple[str, ...]
) -> tuple[Directive, ...]:
    """`roles` with so many groups that multiply (0: none, and what only roles follow goes), or where a tensor is."""
    if name == "hold":
        mine = [d for d in directives if d.name == "hold" and d.items and d.items[0].value == Word(key)]
        rest = tuple(d for d in directives if d not in mine)
        items = (Item(None, Word(key)), Item(None, Word(str(value))))
        return rest if value == "shared" else (*rest, Directive("hold", items, chips))
    if name == "buffers":
        rest = tuple(d for d in directives if not (d.name == name and d.items and d.items[0].value == Word(key)))
        stages = [i.value for d in directives if d.name == "stream" for i in d.items if i.key == "stages"]
        items = (Item(None, Word(key)), Item(None, value if isinstance(value, int) else _word(value)))
        return rest if value == (stages[-1] if stages else 1) else (*rest, Directive(name, items, chips))
    if not value:
        return tuple(d for d in directives if d.name not in OF_ROLES)
    old = next((d for d in directives if d.name == "roles" and d.chips == chips), None)
    loads = next((i for i in old.items if i.key == "load"), Item("load", 1)) if old else Item("load", 1)
    new = Directive("roles", (loads, Item("mma", value if isinstance(value, int) else _word(value))), chips)
    return (*(d for d in directives if d is not old), new)


def _new_item(key: str, value: Value) -> Item:
    return Item(key or None, value if isinstance(value, int) else _word(value))


def _word(text: str) -> Word:
    """`lazy(8)` and `reverse(m)` as words."""
    if not text.endswith(")"):
        return Word(text)
    name, _, inside = text[:-1].partition("(")
    return Word(name, tuple(int(a) if a.strip().isdigit() else a.strip() for a in inside.split(",")))


def spelt(name: str, args: tuple[int | str, ...]) -> str:
    """`lazy(8)`, as a knob's value has it."""
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
    contracts = bool(anatomies(program)[knob.kernel].contractions)
    block_item = Item(str(value), 64 if contracts else 1024)
    changed: list[Directive] = []
    for d in directives:
        if d.name == "tile":
            items = tuple(i for i in d.items if i.key not in (old, value))
            if value != "none":
                tile = next((i for i in d.items if i.key == value and isinstance(i.value, int)), block_item)
                items = (*items, tile)
            d = replace(d, items=items)
        if d.items or d.name not in ("tile",):
            changed.append(d)
    if value != "none" and not any(d.name == "tile" for d in changed):
        changed.append(Directive("tile", (block_item,)))
    return canonical(_put(program, at, replace(block, directives=tuple(changed))))


def _pivoting(d: Directive) -> bool:
    return d.name == "rescale"


# Two forms of the same schedule ---------------------------------------------------------------------------------------


def plain(program: Program) -> Program:
    """The program without what only repeats a default: two that differ in nothing else become equal."""
    blocks = []
    for block in program.schedule.blocks:
        kept = []
        for d in block.directives:
            if d.name == "persistent" and [getattr(i.value, "id", "") for i in d.items] == ["on"]:
                d = replace(d, items=())  # the line says so by itself
            if d.chips or not any(_repeats(d, i) for i in d.items):
                kept.append(d)
                continue
            items = tuple(i for i in d.items if not _repeats(d, i))
            if items and any(i.key is None for i in items):
                kept.append(replace(d, items=items))
        blocks.append(replace(block, directives=tuple(kept)))
    return canonical(replace(program, schedule=replace(program.schedule, blocks=tuple(blocks))))


def _repeats(d: Directive, item: Item) -> bool:
    value = item.value if isinstance(item.value, int) else spelt(item.value.id, item.value.args)
    if item.key is None and len([i for i in d.items if i.key is None]) > 1:
        return False
    if item.key is None and any(i.key is not None for i in d.items):
        return False  # `order row l2=8MiB` says more
    return DEFAULTS.get(item.key or d.name) == value


def explicit(program: Program) -> Program:
    """The program with the naive schedule written out for each kernel that says nothing of tile, grid or stream."""
    for index in range(len(kernels_of(program))):
        program = explicit_kernel(program, index)
    return program


def explicit_kernel(program: Program, kernel: int) -> Program:
    """The same for one kernel."""
    if any(d.name in ("tile", "grid", "stream") for d in directives_of(program, kernel)):
        return program
    found = _naive(replace(program, schedule=Schedule(program.schedule.kernels)), kernel)
    if not found:
        return program
    blocks = _blocks(program, kernel)
    if not blocks:
        program, blocks = _with_block(program, kernel)
    block = program.schedule.blocks[blocks[-1]]
    return canonical(_put(program, blocks[-1], replace(block, directives=(*found, *block.directives))))


@lru_cache(maxsize=256)
def _naive(program: Program, kernel: int) -> tuple[Directive, ...]:
    """tile, grid and stream as the lowering chooses them for a kernel without; empty where it cannot."""
    graph, _ = elaborate(program, kernel)
    try:
        schedule = tile_kernel(graph, KernelSchedule(writes=kernels_of(program)[kernel]), "k").schedule
    except NotLowered:
        return ()
    found = []
    if schedule.tile:
        found.append(Directive("tile", tuple(_new_item(a, t) for a, t in schedule.tile.items())))
    if schedule.grid:
        found.append(Directive("grid", tuple(Item(None, Word(a)) for a in schedule.grid)))
    if schedule.stream:
        found.append(Directive("stream", (Item(None, Word(schedule.stream)),)))
    return tuple(found)


# Where a kernel's directives stand ------------------------------------------------------------------------------------


def _blocks(program: Program, kernel: int) -> list[int]:
    """Places in `schedule.blocks` that schedule this kernel, as `dsl.schedule.resolve` finds them."""
    writes = kernels_of(program)
    last = kernel == len(writes) - 1
    blocks = enumerate(program.schedule.blocks)
    return [i for i, b in blocks if set(b.writes) == set(writes[kernel]) or (not b.writes and last)]


def directives_of(program: Program, kernel: int) -> list[Directive]:
    """Every directive that schedules this kernel, those of `for` lines included."""
    return [d for i in _blocks(program, kernel) for d in program.schedule.blocks[i].directives]
