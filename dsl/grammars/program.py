"""A grammar for edits of one program on one chip: its algorithm as it stands, its axes and names, the chip's values.

What may stand in a slot is what `dsl.knobs` calls legal from here, from the smallest tiles, or with another axis
streamed: each value is legal beside some others, and the checker says which go together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dsl.anatomy import Anatomy, Sizes, anatomies
from dsl.directive_specs import DirectiveSpec, Slot
from dsl.directives import DIRECTIVES
from dsl.grammars.ebnf import EMPTY, Alt, Lit, Node, Opt, Ref, Rules, Seq, Star, Tok, alt, compact, seq
from dsl.grammars.formats import patterns, printed
from dsl.grammars.refine import choice_form
from dsl.hardware import Hardware
from dsl.knobs import Knob, Value, explicit, knobs, set_knob
from dsl.printer import print_directive, print_program
from dsl.schedule import kernels_of
from dsl.syntax import Block, Directive, Program, Schedule, Word

SPACE, LF = Lit(" "), Lit("\n")
Found = dict[tuple[int, str, str], dict[Value, None]]  # (kernel, directive, key) -> legal values


def edit_grammar(program: Program, hw: Hardware, form: str, sizes: Sizes | None = None) -> str:
    """The program with any schedule that its knobs allow on this chip, as text in one of FORMATS.

    Canonical text: directives in their order, each at most once, single blanks. `for` lines of other chips stay as
    they are. The algorithm must be free of errors.
    """
    given = {frozenset(b.writes) for b in program.schedule.blocks}
    program = explicit(program)
    start = variants(program, hw, sizes)
    values = legal_values(start, hw, sizes)
    rules: Rules = {}
    writes, kernels, schedule = kernels_of(program), anatomies(program), program.schedule
    named: list[Node] = []
    bare: list[Node] = []
    for index, kernel in enumerate(kernels):
        block = next((b for b in schedule.blocks if b.writes and set(b.writes) == set(writes[index])), None)
        if block is None and index == len(kernels) - 1:
            last = next((b for b in schedule.blocks if not b.writes), None)
            bare = _lines(rules, index, kernel, last, hw, values, start)
            continue
        title = Lit("schedule " + " ".join(block.writes if block else writes[index]))
        whole = seq(LF, LF, title, *_lines(rules, index, kernel, block, hw, values, start))
        named.append(whole if frozenset(writes[index]) in given else Opt(whole))
    algorithm = print_program(Program(program.algorithm, Schedule())).rstrip("\n")
    said = ["schedule"]
    if schedule.kernels:
        said.append("kernels " + " | ".join(" ".join(k) for k in schedule.kernels))
    said += map(print_directive, schedule.pipeline)
    first = seq(LF, LF, Lit("\n".join(said)), *bare)
    needed = frozenset() in given or len(said) > 1
    rules["text"] = seq(Lit(algorithm), first if needed else Opt(first), *named, Opt(LF))
    return printed(compact(rules, "text"), "text", form)


def variants(program: Program, hw: Hardware, sizes: Sizes | None) -> list[Program]:
    """The program, and with each other axis that a kernel of it may stream instead."""
    found = [program]
    for knob in knobs(program, hw, sizes):
        if (knob.directive, knob.key) == ("stream", ""):
            found += [set_knob(program, knob, v) for v in knob.legal if v != knob.value]
    return found


def legal_values(start: Sequence[Program], hw: Hardware, sizes: Sizes | None = None) -> Found:
    """Every value that some edit of a few knobs of these programs can set, and those that stand in them."""
    found: Found = {}
    for variant in start:
        for place, value in _standing(variant, hw):
            found.setdefault(place, {})[value] = None
        here = knobs(variant, hw, sizes)
        for knob in (*here, *knobs(_smallest(variant, here), hw, sizes)):
            found.setdefault((knob.kernel, knob.directive, knob.key), {}).update(dict.fromkeys(knob.legal))
    return found


def _standing(program: Program, hw: Hardware) -> Iterable[tuple[tuple[int, str, str], Value]]:
    writes = kernels_of(program)
    for index in range(len(writes)):
        for block in program.schedule.blocks:
            if set(block.writes) == set(writes[index]) or (not block.writes and index == len(writes) - 1):
                for d in block.directives:
                    if _counts(d, block, hw):
                        for item in d.items:
                            value = item.value.id if isinstance(item.value, Word) else item.value
                            yield (index, d.name, item.key or ""), value


def _counts(d: Directive, block: Block, hw: Hardware) -> bool:
    """Whether a directive may stand as it is: the chip has its words, or a `for` line of the chip overrides it."""
    here = {x.name for x in block.directives if hw.arch in x.chips or hw.name in x.chips}
    spec = DIRECTIVES.get(d.name)
    words = {i.value.id for i in d.items if isinstance(i.value, Word)}
    lacking = spec is None or spec.chip(hw) or any(c.chip(hw) for s in spec.slots for c in s.choices if c.word in words)
    return not lacking or bool(not d.chips and d.name in here)


def _smallest(program: Program, open_knobs: Sequence[Knob]) -> Program:
    """The program with the least of each number: what leaves the most room for one of them to grow."""
    for knob in open_knobs:
        if knob.directive == "tile" or knob.key == "stages":
            program = set_knob(program, knob, knob.legal[0])
    return program


def _lines(
    rules: Rules,
    index: int,
    kernel: Anatomy,
    block: Block | None,
    hw: Hardware,
    values: Found,
    start: Sequence[Program],
) -> list[Node]:
    """The directive lines of one kernel: each directive once, in canonical order, then the `for` lines."""
    lines: list[Node] = []
    nodes: list[Node] = []
    common = [d for d in block.directives if not d.chips and _counts(d, block, hw)] if block else []
    standing = {d.name: d for d in common}
    for spec in DIRECTIVES.values():
        if spec.scope != "kernel" or spec.chip(hw) or spec.kernel(kernel):
            continue
        forms = {slot: node for slot in spec.slots if (node := _slot(spec, slot, index, kernel, hw, values)) != EMPTY}
        if any(slot not in forms and slot.default is None for slot in spec.slots):
            continue
        name = f"{spec.name}_{index}"
        line = _line(spec, forms)
        now = print_directive(standing[spec.name]) if spec.name in standing else ""
        rules[name] = alt(line, Lit(now)) if now and not re.fullmatch(_regex(line, rules), now) else line
        nodes.append(Ref(name))
        lines.append(Opt(seq(LF, Ref(name))))
    groups: dict[tuple[str, ...], dict[str, None]] = {}
    for variant in start if block else ():
        same = next((b for b in variant.schedule.blocks if block and b.writes == block.writes), None)
        for chips in dict.fromkeys(d.chips for d in same.directives if d.chips) if same else ():
            text = ", ".join(print_directive(d) for d in same.directives if d.chips == chips) if same else ""
            groups.setdefault(chips, {})[text] = None
    for chips, texts in groups.items():
        if hw.arch in chips or hw.name in chips:
            rules[f"for_{index}"] = alt(*nodes)
            one = Ref(f"for_{index}")
            line = seq(one, Star(seq(Lit(", "), one)))
            odd = [t for t in texts if not re.fullmatch(_regex(line, rules), t)]
            lines.append(Opt(seq(LF, Lit(f"for {' '.join(chips)}: "), alt(line, *map(Lit, odd)))))
        else:
            lines.append(seq(LF, Lit(f"for {' '.join(chips)}: "), alt(*map(Lit, texts))))
    return lines


def _regex(node: Node, rules: Rules) -> str:
    match node:
        case Ref(name):
            return f"(?:{_regex(rules[name], rules)})"
        case Lit(text):
            return re.escape(text)
        case Tok(name):
            return f"(?:{patterns()[name]})"
        case Seq(items):
            return "".join(_regex(i, rules) for i in items)
        case Alt(items):
            return f"(?:{'|'.join(_regex(i, rules) for i in items)})"
        case Opt(item):
            return f"(?:{_regex(item, rules)})?"
        case Star(item):
            return f"(?:{_regex(item, rules)})*"
    raise AssertionError(node)


def _line(spec: DirectiveSpec, forms: dict[Slot, Node]) -> Node:
    """The directive as the printer writes it: items by position, then keyed ones."""
    if spec.name == "tile":
        (item,) = forms.values()
        return seq(Lit("tile"), item, Star(item))
    parts: list[Node] = [Lit(spec.name)]
    for slot, form in forms.items():
        item = seq(SPACE, Lit(f"{slot.key}="), form) if slot.key else seq(SPACE, form)
        item = seq(item, Star(item)) if slot.many else item
        parts.append(item if slot.default is None else Opt(item))
    return seq(*parts)


def _slot(spec: DirectiveSpec, slot: Slot, index: int, kernel: Anatomy, hw: Hardware, values: Found) -> Node:
    """What may stand for an item; EMPTY where nothing may."""
    known = values.get((index, spec.name, slot.key), {})
    if spec.name == "tile":
        return alt(*(_tile_item(axis, index, kernel, values) for axis in kernel.axes))
    if slot.names:
        return alt(*map(Lit, slot_names(spec, kernel)))
    if slot.size:
        return Tok("SIZE")
    grid = alt(*(Lit(a) for a in kernel.outputs if a not in kernel.held and a not in kernel.batch()))
    choices = [c for c in slot.choices if c.word in known or not (c.chip(hw) or c.kernel(kernel))]
    forms = [choice_form(c, grid) for c in choices if c.argument != "axis" or grid != EMPTY]
    numbers = [v for v in known if v in slot.numbers] or list(slot.numbers)
    return alt(*(Lit(str(n)) for n in sorted(numbers, key=int)), *forms)


def slot_names(spec: DirectiveSpec, kernel: Anatomy) -> tuple[str, ...]:
    """The names that an item of names may be in this kernel."""
    names = {
        "grid": tuple(a for a in kernel.outputs if a not in kernel.held),
        "stream": kernel.streamable,
        "skip": tuple(name for name, _ in kernel.selectors),
        "hold": tuple(load.tensor for load in kernel.loads),
        "buffers": tuple(load.tensor for load in kernel.loads),
    }[spec.name]
    return tuple(dict.fromkeys(names))


def _tile_item(axis: str, index: int, kernel: Anatomy, values: Found) -> Node:
    return seq(SPACE, Lit(f"{axis}="), alt(*map(Lit, axis_values(axis, index, kernel, values).split("|"))))


def axis_values(axis: str, index: int, kernel: Anatomy, values: Found) -> str:
    """`16|32|64|all`: what the tile of an axis may be."""
    known = values.get((index, "tile", axis), {})
    options = [str(v) for v in sorted(v for v in known if isinstance(v, int))]
    if axis in (*kernel.reduced, *kernel.held) or "all" in known or not options:
        options.append("all")
    return "|".join(options)
