"""How a schedule fits: one kernel on one chip. What the chip lacks, what the kernel has no use for, what contradicts
itself, and what is too large.

Each rule gives a Diagnostic with position, what is legal on this chip and the nearest fix; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from dsl import polynomial
from dsl.anatomy import Anatomy, Sizes
from dsl.diagnostics import Diagnostic
from dsl.directive_specs import Slot
from dsl.footprint import MAX_TILE, SMALLEST_WHOLE, grid_of, largest_value, lengths
from dsl.hardware import Hardware
from dsl.schedule import KernelSchedule
from dsl.schedule_form import OPEN, Effective, spelt, words
from dsl.shared_memory import allocated_bytes
from dsl.syntax import Directive, Item, Span, Word
from dsl.terms import Term
from dsl.tiling.coordinates import BYTES

KIB = 1024
SPECIALISED = "sm_90"  # the architecture whose warps are given roles


def fit(
    kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective], hw: Hardware | None, sizes: Sizes | None
) -> Iterator[Diagnostic]:
    """What the chip lacks, what the kernel has no use for, what contradicts itself. Assumes that `form` was clean."""
    wrong = [d for e in found.values() for d in _lacks(e, kernel, hw, "roles" in found)]
    for rule in (_cuts, _orders, _pivots, _exponents, _skips, _buffers):
        wrong += rule(kernel, schedule, found)
    yield from wrong
    if hw is not None and not any(d.severity == "error" for d in wrong):
        yield from _room(kernel, _least(schedule), found, hw, sizes)


def lacks(e: Effective, hw: Hardware) -> Iterator[Diagnostic]:
    """What of this directive the chip has not."""
    why = e.spec.chip(hw)
    if why:
        yield Diagnostic(
            "chip-lacks", f"`{e.spec.name}` {why}; {hw.name} has none", e.directive.span, fix=_remove(e.directive)
        )
        return
    for item, slot in _slotted(e):
        if isinstance(item.value, Word):
            choice = next((c for c in slot.choices if c.word == item.value.id), None)
            why = choice.chip(hw) if choice else ""
            if why:
                good = words(slot.choices, hw)
                yield Diagnostic(
                    "chip-lacks",
                    f"`{e.spec.name} {item.value.id}` {why}; {hw.name} has none",
                    item.span,
                    legal=f"on {hw.name}: {good}",
                    fix=f"`{e.spec.name} {slot.choices[0].word}`",
                )


def _lacks(e: Effective, kernel: Anatomy, hw: Hardware | None, roles: bool) -> Iterator[Diagnostic]:
    if hw is not None:
        yield from lacks(e, hw)
    why = e.spec.kernel(kernel)
    default = all(_is_default(i, s) for i, s in _slotted(e))
    if why and not (default and e.bare):
        yield Diagnostic(
            "no-use", f"`{e.spec.name}` has nothing to act on: {why}", e.directive.span, fix=_remove(e.directive)
        )
        return
    for item, slot in _slotted(e):
        if isinstance(item.value, Word):
            choice = next((c for c in slot.choices if c.word == item.value.id), None)
            why = choice.kernel(kernel) if choice else ""
            if why:
                name = f"{e.spec.name} {item.value.id}"
                yield Diagnostic(
                    "no-use", f"`{name}` has nothing to act on: {why}", item.span, fix=_remove(e.directive)
                )
    if e.spec.lowered == "roles" and not (roles and (hw is None or hw.arch == SPECIALISED)):
        why = f"only {SPECIALISED} has the lowering for it yet" if roles else "without `roles` it has no effect"
        message = f"`{e.spec.name}` is checked, but lowers to plain Triton: {why}"
        yield Diagnostic("plain-lowering", message, e.directive.span, severity="warning")
    speculative = e.spec.name == "rescale" and bool(e.bare) and e.bare[0].value == Word("speculative")
    if speculative and roles and hw is not None and hw.arch != SPECIALISED:
        message = f"`rescale speculative` is checked, but lowers as `rescale always`: only {SPECIALISED} has it yet"
        yield Diagnostic("plain-lowering", message, e.directive.span, severity="warning")


def _cuts(kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective]) -> Iterator[Diagnostic]:
    """Rule 19: every axis is grid, streamed or whole."""
    tiles = found["tile"].keyed if "tile" in found else {}
    grid = grid_of(kernel, schedule)
    if "grid" in found:
        yield from _grid(kernel, found["grid"], tiles)
    if not kernel.streamable:
        pass  # said once, by the directive's own rule
    elif "stream" in found:
        yield from _stream(kernel, schedule, found["stream"], tiles, "grid" in found and schedule.stream in grid)
    elif "split" in found and schedule.split_masked:
        at = found["split"].directive
        yield Diagnostic(
            "split-without-stream",
            "`split masked` splits a loop, and nothing is streamed",
            at.span,
            legal="stream " + " | ".join(kernel.streamable),
            fix=_remove(at),
        )
    for axis, item in tiles.items():
        if isinstance(item.value, int) and axis in kernel.axes and axis not in grid and axis != schedule.stream:
            if axis in kernel.inner and schedule.stream:
                continue  # a loop of its own walks it, within the one over the stream
            if axis in kernel.held:
                why = "it is reduced over and also stored, so it is streamed or whole"
                fix = f"`stream {axis}`, or `{axis}=all`" if axis in kernel.streamable else f"`{axis}=all`"
            elif axis in kernel.streamable:
                why = "it is neither in `grid` nor streamed, so it is whole"
                fix = f"`stream {axis}`, or `{axis}=all`"
            elif axis in kernel.outputs:
                why = "it is not in `grid`, so it is whole"
                fix = f"add `{axis}` to `grid`, or `{axis}=all`"
            else:
                why = "no loop of its own can walk it here, so it is whole"
                fix = f"`{axis}=all`"
            yield Diagnostic("tile-of-whole", f"`tile {axis}={item.value}`: {why}", item.span, fix=fix)


def _grid(kernel: Anatomy, e: Effective, tiles: dict[str, Item]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for item in e.bare:
        axis = item.value.id if isinstance(item.value, Word) else ""
        legal = " ".join(a for a in kernel.outputs if a not in kernel.held)
        if axis in seen:
            yield Diagnostic("grid-twice", f"`{axis}` stands twice in `grid`", item.span, legal, "keep one of them")
        elif axis in kernel.held:
            yield Diagnostic(
                "grid-held",
                f"`{axis}` is reduced over and also stored, so no grid can cut it",
                item.span,
                legal,
                f"remove `{axis}` from `grid`; `tile {axis}=all`",
            )
        elif axis in kernel.reduced and axis not in kernel.outputs:
            fix = f"`stream {axis}`" if axis in kernel.streamable else f"remove `{axis}`"
            yield Diagnostic(
                "grid-reduced", f"`{axis}` is summed up in this kernel and cannot be in `grid`", item.span, legal, fix
            )
        elif axis in tiles and isinstance(tiles[axis].value, Word) and tiles[axis].value.id == "all":  # type: ignore[union-attr]
            yield Diagnostic(
                "grid-whole",
                f"`{axis}` is in `grid` and whole at once",
                item.span,
                fix=f"remove `{axis}` from `grid`, or give it a tile",
            )
        seen.add(axis)


def _sums(term: Term, axis: str) -> bool:
    """Whether a name is a sum along the axis, in whatever dtype."""
    while term.op == "cast":
        (term,) = term.args
    return term.op == "reduce" and axis in term.attr[1]


def _stream(
    kernel: Anatomy, schedule: KernelSchedule, e: Effective, tiles: dict[str, Item], in_grid: bool
) -> Iterator[Diagnostic]:
    axis = schedule.stream or ""
    at = e.bare[0].span if e.bare else e.directive.span
    legal = " | ".join(f"stream {a}" for a in kernel.streamable)
    if axis in kernel.outputs and axis not in kernel.held:
        why = "it is an axis of what the kernel writes, and no sum runs over it"
        yield Diagnostic("stream-output", f"`stream {axis}`: {why}", at, legal, f"put `{axis}` in `grid`")
    elif axis in kernel.ordered:
        yield Diagnostic(
            "stream-ordered",
            f"`stream {axis}`: a scan, an argmax or a selection goes along `{axis}`, so one tile holds all of it",
            at,
            legal,
            f"`tile {axis}=all`, without `stream`",
        )
    elif axis not in kernel.streamable:
        names = [n for n, t in kernel.graph.names.items() if _sums(t, axis)]
        one = names[0] if len(names) == 1 else ""
        fix = f"`{legal.split(' | ')[0]}`" if legal else f"a kernel of its own for what sums over `{axis}`"
        yield Diagnostic(
            "stream-inner",
            f"`stream {axis}`: it is reduced inside another reduction, not by the outer loop",
            at,
            legal,
            f"{fix}, or `{one}` in `kernels`, which stores it for this kernel" if legal and one else fix,
        )
    elif in_grid:
        yield Diagnostic(
            "stream-in-grid", f"`{axis}` is streamed and in `grid` at once", at, fix=f"remove `{axis}` from `grid`"
        )
    elif axis not in tiles:
        yield Diagnostic(
            "stream-untiled",
            f"`{axis}` is streamed but has no tile",
            at,
            legal=f"tile {axis}=16, 32, 64, 128, ...",
            fix=f"`tile {axis}=64`",
        )
    elif isinstance(tiles[axis].value, Word) and not _is_open(tiles[axis]):
        yield Diagnostic(
            "stream-whole",
            f"`{axis}` is streamed and whole at once",
            tiles[axis].span,
            fix=f"`tile {axis}=64`, or remove the `stream` line",
        )
    block = dict(kernel.blocks).get(axis)
    tile = schedule.tile.get(axis)
    if axis in dict(kernel.blocks) and axis in tiles and isinstance(tile, int) and tile != block:
        yield Diagnostic(
            "runmax-tile",
            f"`tile {axis}={tile}`: a running maximum goes by blocks of {block}",
            tiles[axis].span,
            legal=f"tile {axis}={block}",
            fix=f"`{axis}={block}`",
        )


def _orders(kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective]) -> Iterator[Diagnostic]:
    """Rule 28: orders are over axes of the grid."""
    if "order" not in found or not found["order"].bare:
        return
    item = found["order"].bare[0]
    grid = grid_of(kernel, schedule)
    name, args = schedule.order
    if name == "reverse" and args and args[0] not in grid and args[0] in kernel.axes:
        yield Diagnostic(
            "order-axis",
            f"`order reverse({args[0]})`: `{args[0]}` is not in `grid`",
            item.span,
            legal=", ".join(f"reverse({a})" for a in grid),
        )
    if name == "grouped" and len(grid) < 2:
        yield Diagnostic(
            "order-axis", "`order grouped` needs two axes in `grid`", item.span, legal="row", fix="`order row`"
        )


SPECULATIVE = 12  # log2 of the partial sum above which a block is computed again
_LARGEST = {"f16": 15, "e5m2": 15, "e4m3": 0, "int8": 0, "mxfp4": 0, "nvfp4": 0}  # log2 of room above 1


def _pivots(kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective]) -> Iterator[Diagnostic]:
    """Rule 24: under lazy(t) an exponential reaches 2^t, which every cast on the way must hold."""
    name, args = schedule.rescale
    if "rescale" not in found or not found["rescale"].bare:
        return
    item = found["rescale"].bare[0]
    if name == "speculative" and "roles" not in found:
        yield Diagnostic(
            "needs-roles",
            "`rescale speculative` needs warps with roles",
            item.span,
            legal="always, lazy(N)",
            fix="`roles load=1 mma=2`, or `rescale lazy(8)`",
        )
    rise = SPECULATIVE if name == "speculative" else args[0] if name == "lazy" and args else None
    if isinstance(rise, int):
        casts = [d for c in kernel.contractions if c.after_exp for d in c.dtypes if d]
        room = min((_LARGEST.get(d, 64) for d in casts), default=64)
        if rise > room:
            tight = next(d for d in casts if _LARGEST.get(d, 64) == room)
            legal = f"lazy(1) to lazy({room})" if room else "always"
            shown = spelt(item.value)
            yield Diagnostic(
                "lazy-range",
                f"`rescale {shown}` lets exponentials grow to 2^{rise}, and {tight} cannot hold that",
                item.span,
                legal=legal,
                fix=f"`rescale lazy({room})`" if room else "`rescale always`",
            )


def _exponents(kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective]) -> Iterator[Diagnostic]:
    """A polynomial's error has to vanish in a rounding that the program names."""
    if "exponent" not in found or not found["exponent"].bare or schedule.exponent[0] != "poly":
        return
    if kernel.exact_outputs:
        item = found["exponent"].bare[0]
        shown = ", ".join(f"`{n}`" for n in kernel.exact_outputs)
        yield Diagnostic(
            "polynomial-error",
            f"`exponent {spelt(item.value)}` is off by up to {polynomial.ERROR:.3%} of each value, and that would show "
            f"in {shown}: no rounding to 16 bits or fewer lies between, or a logarithm does",
            item.span,
            legal="exp, exp2",
            fix="`exponent exp2`",
        )


def _skips(kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective]) -> Iterator[Diagnostic]:
    """Rule 29: a false x over the whole tile must leave every carried value as it is."""
    if "skip" not in found:
        return
    good = [n for n, axes in kernel.selectors if schedule.stream in axes]
    for item in found["skip"].bare:
        name = item.value.id if isinstance(item.value, Word) else ""
        if schedule.stream is None:
            yield Diagnostic(
                "skip-without-stream", f"`skip {name}`: nothing is streamed", item.span, fix="add a `stream` line"
            )
        elif name not in kernel.booleans:
            yield Diagnostic("skip-not-bool", f"`{name}` is no bool of this kernel", item.span, legal=", ".join(good))
        elif name not in good:
            yield Diagnostic(
                "skip-changes",
                f"`skip {name}` would change the result: where `{name}` is false the sums still grow",
                item.span,
                legal=", ".join(good),
                fix=f"mask first: where({name}, x, -inf)",
            )


def _buffers(kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective]) -> Iterator[Diagnostic]:
    """Only what the loop walks has more than one block."""
    walked = [x.tensor for x in kernel.loads if x.staged and schedule.stream in x.moved_by]
    for name, number in schedule.buffers:
        if name not in walked and "buffers" in found:
            yield Diagnostic(
                "buffers-still",
                f"`buffers {name} {number}`: the loop does not walk `{name}` as an operand of a product",
                found["buffers"].directive.span,
                legal=", ".join(f"buffers {x} {number}" for x in dict.fromkeys(walked)),
                fix="remove the line",
            )


def _least(schedule: KernelSchedule) -> KernelSchedule:
    """With the smallest numbers where they are left open: if that does not fit, nothing will."""
    tile = {a: SMALLEST_WHOLE if t == OPEN else t for a, t in schedule.tile.items()}
    stages = schedule.stages if isinstance(schedule.stages, int) else 1
    return replace(schedule, tile=tile, stages=stages, warps=schedule.warps if isinstance(schedule.warps, int) else 4)


def _room(
    kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective], hw: Hardware, sizes: Sizes | None
) -> Iterator[Diagnostic]:
    """What is too large for the chip, with the nearest setting that fits."""
    at = found["tile"].directive.span if "tile" in found else Span()
    elements, axes = largest_value(kernel, lengths(kernel, schedule, sizes))
    if elements > MAX_TILE:
        yield Diagnostic(
            "tile-too-large",
            f"a value over {' '.join(axes)} has {elements:,} elements in one tile; {MAX_TILE:,} is the most",
            at,
            fix=_smaller(kernel, schedule, lambda s: largest_value(kernel, lengths(kernel, s, sizes))[0] <= MAX_TILE),
        )
        return
    if sizes is not None and schedule.load == "tma":
        yield from _rows(kernel, schedule, found, sizes)
    need = allocated_bytes(kernel, schedule, hw, sizes)
    if need > hw.shared_bytes:
        has = hw.shared_bytes // KIB
        stages = f" stages={schedule.stages}" if schedule.stream else ""
        tile = " ".join(f"{a}={t}" for a, t in schedule.tile.items() if isinstance(t, int) and t > 1)
        yield Diagnostic(
            "shared-memory",
            f"tile {tile}{stages} needs {-(-need // KIB)} KiB of shared memory; {hw.name} has {has} KiB",
            at,
            fix=_smaller(kernel, schedule, lambda s: allocated_bytes(kernel, s, hw, sizes) <= hw.shared_bytes),
        )


def _rows(kernel: Anatomy, schedule: KernelSchedule, found: dict[str, Effective], sizes: Sizes) -> Iterator[Diagnostic]:
    """Descriptors take rows of whole 16 bytes; what goes by descriptor is decided in `dsl.tiling.coordinates`."""
    at = found["load"].directive.span if "load" in found else Span()
    held, cut = lengths(kernel, schedule, sizes), {*grid_of(kernel, schedule), schedule.stream, *kernel.within}
    moved = [(x.tensor, x.axes, x.dtype) for x in kernel.loads if x.plain]
    moved += [(n, axes, dtype) for n, (axes, dtype) in zip(kernel.writes, kernel.stores, strict=False)]
    for name, axes, dtype in moved:
        length = [held.get(a, 1) if a in cut or a not in held else 2 for a in axes]  # whole axes are dims at any length
        if not axes or axes[-1] not in sizes or length[-1] < 2 or sum(n > 1 for n in length) < 2 or dtype not in BYTES:
            continue
        if sizes[axes[-1]] * BYTES[dtype] % 16:
            step = 16 // BYTES[dtype]
            yield Diagnostic(
                "tma-rows",
                f"`load tma` needs rows of whole 16 bytes; a row of `{name}` is {sizes[axes[-1]]} {dtype}",
                at,
                legal=f"{axes[-1].upper()} a multiple of {step}",
                fix="`load pointer`",
            )
            return


def _smaller(kernel: Anatomy, schedule: KernelSchedule, fits: Callable[[KernelSchedule], bool]) -> str:
    """The nearest smaller schedule that fits: fewer stages first, then half the longest block, and so on."""
    s, said = schedule, ""
    while True:
        if s.buffers:
            s = replace(s, buffers=())
            said = "without `buffers` it fits"
        elif s.stages > 1:
            s = replace(s, stages=s.stages - 1)
            said = f"stages={s.stages} fits"
        else:
            blocks = {a: t for a, t in s.tile.items() if isinstance(t, int) and t > 16}
            if not blocks:
                return ""
            axis = max(blocks, key=lambda a: blocks[a])
            s = replace(s, tile={**s.tile, axis: blocks[axis] // 2})
            changed = " ".join(f"{a}={t}" for a, t in s.tile.items() if t != schedule.tile[a])
            said = f"{changed}{' stages=1' if schedule.stages > 1 else ''} fits"
        if fits(s):
            return said


def _slotted(e: Effective) -> Iterator[tuple[Item, Slot]]:
    slots = e.spec.positional
    for n, item in enumerate(e.bare):
        slot = slots[n] if n < len(slots) else slots[-1] if slots and slots[-1].many else None
        if slot is not None:
            yield item, slot
    for key, item in e.keyed.items():
        slot = e.spec.slot(key)
        if slot is not None:
            yield item, slot


def _is_open(item: Item) -> bool:
    return isinstance(item.value, Word) and item.value.id == OPEN


def _is_default(item: Item, slot: Slot) -> bool:
    """The first choice of a slot is what holds without the directive."""
    return isinstance(item.value, Word) and bool(slot.choices) and item.value.id == slot.choices[0].word


def _remove(d: Directive) -> str:
    return f"remove the `{d.name}` line"
