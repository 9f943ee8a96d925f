"""The form of a schedule: names, keys, values and duplicates of its directives, each by itself, whatever the chip.

Each rule gives a Diagnostic with position, what is legal and the nearest fix; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dsl.anatomy import Anatomy
from dsl.diagnostics import Diagnostic, nearest
from dsl.directive_specs import Choice, DirectiveSpec, Slot
from dsl.directives import DIRECTIVES, HABITS
from dsl.hardware import HARDWARE, Hardware
from dsl.syntax import Directive, Item, Program, Span, Word

OPEN = "?"


@dataclass(frozen=True)
class Effective:
    """A directive as it holds on one chip: items by key or by position, each with the line that it comes from."""

    spec: DirectiveSpec
    directive: Directive
    keyed: dict[str, Item]
    bare: tuple[Item, ...]


def effective(directives: Sequence[Directive], hw: Hardware | None) -> dict[str, Effective]:
    """Common directives, then those of the chip's `for` lines over them, item by item (rule 32)."""
    found: dict[str, Effective] = {}
    common = [d for d in directives if not d.chips]
    special = [d for d in directives if hw is not None and (hw.arch in d.chips or hw.name in d.chips)]
    for d in (*common, *special):
        if d.name not in DIRECTIVES:
            continue
        keyed = {i.key: i for i in d.items if i.key is not None}
        bare = tuple(i for i in d.items if i.key is None)
        old = found.get(d.name)
        if old is not None:
            keyed, bare = {**old.keyed, **keyed}, bare or old.bare
        found[d.name] = Effective(DIRECTIVES[d.name], d, keyed, bare)
    return found


# Form: every directive by itself ------------------------------------------------------------------------------------


def form(directives: Sequence[Directive], scope: str, program: Program, kernel: Anatomy | None) -> Iterator[Diagnostic]:
    """Names, keys, values and duplicates of directives, whatever the chip."""
    seen: dict[tuple[str, tuple[str, ...]], Directive] = {}
    yield from _chips(directives)
    for d in directives:
        spec = DIRECTIVES.get(d.name)
        if spec is None:
            unknown = _unknown("directive", d.name, tuple(DIRECTIVES), d.span)
            yield replace(unknown, fix=f"`{HABITS[d.name]}`") if d.name in HABITS else unknown
            continue
        if spec.scope != scope:
            where = "the bare `schedule` block" if spec.scope == "pipeline" else "a kernel's `schedule` block"
            yield Diagnostic("misplaced-directive", f"`{d.name}` belongs into {where}", d.span, legal=spec.form)
            continue
        first = seen.setdefault((d.name, d.chips), d)
        if first is not d and d.name not in ("comm", "hold", "buffers"):
            yield Diagnostic(
                "duplicate-directive",
                f"`{d.name}` stands twice in this block; the first is in line {first.span.line}",
                d.span,
                legal=f"one `{d.name}` line: {spec.form}",
                fix=f"merge the two into one `{d.name}` line",
            )
        yield from _items(d, spec, program, kernel)


def _chips(directives: Sequence[Directive]) -> Iterator[Diagnostic]:
    known = sorted({n for hw in HARDWARE.values() for n in (hw.name, hw.arch)})
    first = {chip: d.span for d in reversed(directives) for chip in d.chips}
    for chip, at in first.items():
        if chip not in known:
            yield _unknown("chip", chip, known, at)


def _items(d: Directive, spec: DirectiveSpec, program: Program, kernel: Anatomy | None) -> Iterator[Diagnostic]:
    slots = list(spec.positional)
    bare = [i for i in d.items if i.key is None]
    for n, item in enumerate(bare):
        slot = slots[n] if n < len(slots) else slots[-1] if slots and slots[-1].many else None
        if slot is None:
            text = spelt(item.value)
            yield Diagnostic(
                "extra-item",
                f"`{d.name}` takes no item `{text}`",
                item.span,
                legal=spec.form,
                fix=_keyed_fix(spec, item) or f"remove `{text}`",
            )
        else:
            yield from _value(d, item, slot, program, kernel)
    for slot in slots[len(bare) :]:
        if slot.default is None:
            yield Diagnostic("missing-item", f"`{d.name}` needs {slot.form}", d.span, legal=spec.form)
    seen: set[str] = set()
    for item in d.items:
        if item.key is None:
            continue
        found = spec.slot(item.key)
        if found is None:
            keys = [s.key for s in spec.slots if s.key]
            near = nearest(item.key, keys)
            yield Diagnostic(
                "unknown-key",
                f"`{d.name}` has no `{item.key}=`",
                item.span,
                legal=spec.form,
                fix=f"`{near}=`" if near else f"remove `{item.key}={spelt(item.value)}`",
            )
        elif item.key in seen:
            yield Diagnostic("duplicate-key", f"`{item.key}=` stands twice", item.span, fix="keep one of them")
        else:
            yield from _value(d, item, found, program, kernel)
        seen.add(item.key)
    if not d.items and all(s.key for s in spec.slots) and any(s.default is None for s in spec.slots):
        yield Diagnostic("missing-item", f"`{d.name}` needs {spec.slots[0].form}", d.span, legal=spec.form)


def _keyed_fix(spec: DirectiveSpec, item: Item) -> str:
    """`stream n 2` was meant as `stream n stages=2`."""
    if isinstance(item.value, Word):
        return ""
    key = next((s.key for s in spec.slots if s.key and s.key != "AXIS" and s.numbers), "")
    return f"`{key}={item.value}`" if key else ""


def _value(d: Directive, item: Item, slot: Slot, program: Program, kernel: Anatomy | None) -> Iterator[Diagnostic]:
    label = f"{d.name} {item.key}=" if item.key else f"{d.name} "
    value, at = item.value, item.span
    if slot.key == "AXIS" and item.key is not None:
        yield from _axis(item.key, at, program, kernel)
    if isinstance(value, Word) and value.id == OPEN:
        if slot.numbers:
            yield Diagnostic(
                "open-number",
                f"`{label}?` is left open: a search fills it in",
                at,
                legal=_numbers(slot.numbers),
                severity="hint",
            )
        else:
            yield Diagnostic("open-choice", f"`{label}?`: only numbers can be left open", at, legal=slot.form)
        return
    if isinstance(value, int):
        if slot.size:
            return
        if not slot.numbers:
            legal = words(slot.choices, None) or slot.form
            yield Diagnostic("not-a-number", f"`{label}{value}`: a word belongs here, not a number", at, legal)
        elif value not in slot.numbers:
            powers = slot.numbers[:4] == (1, 2, 4, 8) and len(slot.numbers) > 8
            why = "is no power of two" if powers and value not in (0,) else "is out of range"
            near = min(slot.numbers, key=lambda n: (abs(n - value), n))
            yield Diagnostic(
                "bad-number",
                f"`{label}{value}` {why}",
                at,
                legal=_numbers(slot.numbers),
                fix=f"`{label}{near}`",
            )
        return
    if slot.names:
        if value.args:
            yield Diagnostic("bad-name", f"`{spelt(value)}` is no name", at, legal=slot.form)
        elif slot.names == "axis":
            yield from _axis(value.id, at, program, kernel)
        else:
            names = [t.name for s in program.algorithm.statements for t in s.targets]
            names += [t.name for t in program.algorithm.inputs]
            names += [p.name for p in program.algorithm.params]
            if value.id not in names:
                yield _unknown("name", value.id, names, at)
        return
    choice = next((c for c in slot.choices if c.word == value.id), None)
    if choice is None:
        near_word = nearest(value.id, [c.word for c in slot.choices])
        forms = (words(slot.choices, None), _numbers(slot.numbers) if slot.numbers else "")
        yield Diagnostic(
            "unknown-word",
            f"unknown {d.name} `{f'{item.key}=' if item.key else ''}{value.id}`",
            at,
            legal=" or ".join(x for x in forms if x) or slot.form,
            fix=f"`{label}{near_word}`" if near_word else "",
        )
    else:
        yield from _argument(d, value, choice, at, program, kernel)


def _argument(
    d: Directive, value: Word, choice: Choice, at: Span, program: Program, kernel: Anatomy | None
) -> Iterator[Diagnostic]:
    wanted = 1 if choice.argument else 0
    if len(value.args) != wanted:
        yield Diagnostic(
            "bad-argument",
            f"`{value.id}` takes {'one argument' if wanted else 'no argument'}, got {len(value.args)}",
            at,
            legal=_numbered(choice) if choice.argument == "number" else choice.form,
        )
    elif choice.argument == "axis":
        yield from _axis(str(value.args[0]), at, program, kernel)
    elif choice.argument == "number" and value.args[0] not in choice.numbers:
        given = value.args[0]
        near = min(choice.numbers, key=lambda n: (abs(n - given), n)) if isinstance(given, int) else choice.numbers[0]
        yield Diagnostic(
            "bad-number",
            f"`{d.name} {spelt(value)}` {_beside(given, choice.numbers)}",
            at,
            legal=_numbered(choice),
            fix=f"`{d.name} {value.id}({near})`",
        )


def _numbered(choice: Choice) -> str:
    first, *_, last = choice.numbers
    if len(choice.numbers) > 8:
        return f"{choice.word}({first}) to {choice.word}({last})"
    return ", ".join(f"{choice.word}({n})" for n in choice.numbers)


def _beside(given: object, numbers: Sequence[int]) -> str:
    if not isinstance(given, int):
        return "takes a number"
    within = numbers[0] <= given <= numbers[-1]
    return "is none of the values that are legal here" if within else "is out of range"


def _axis(name: str, at: Span, program: Program, kernel: Anatomy | None) -> Iterator[Diagnostic]:
    """Whether the program has this axis, and the kernel can be cut along it."""
    everywhere = dict.fromkeys(a for t in program.algorithm.inputs for a in t.axes or ())
    everywhere |= dict.fromkeys(a.name for a in program.algorithm.axes)
    if kernel is None:
        if name not in everywhere:
            yield _unknown("axis", name, tuple(everywhere), at)
    elif name not in kernel.axes:
        legal = " ".join(kernel.axes)
        fine = next((f for f in kernel.axes if kernel.graph.coarse_over(name, f)), "")
        if name not in kernel.graph.axes:
            yield _unknown("axis", name, kernel.axes, at)
        elif fine:
            yield Diagnostic(
                "coarse-axis", f"`{name}` follows `{fine}` and is not cut by itself", at, legal, f"`{fine}`"
            )
        else:
            what = " ".join(kernel.writes)
            yield Diagnostic("axis-not-here", f"the kernel of `{what}` has no axis `{name}`", at, legal)


# Words --------------------------------------------------------------------------------------------------------------


def spelt(value: int | Word) -> str:
    if isinstance(value, Word):
        return value.id + (f"({', '.join(map(str, value.args))})" if value.args else "")
    return str(value)


def _numbers(numbers: Sequence[int]) -> str:
    if len(numbers) > 10:
        return f"{', '.join(map(str, numbers[:4]))}, ... {numbers[-1]}"
    return ", ".join(map(str, numbers))


def words(choices: Sequence[Choice], hw: Hardware | None) -> str:
    return ", ".join(c.form for c in choices if hw is None or not c.chip(hw))


def _unknown(what: str, name: str, known: Sequence[str], at: Span) -> Diagnostic:
    near = nearest(name, known)
    return Diagnostic(
        f"unknown-{what}",
        f"unknown {what} `{name}`",
        at,
        legal=", ".join(dict.fromkeys(known)),
        fix=f"`{near}`" if near else "",
    )
