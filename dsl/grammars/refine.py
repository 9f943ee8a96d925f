"""The grammar of the parser made as narrow as the parser is: what it checks behind `grammar.lark` becomes rules.

That one file says how tokens go together; `dsl.assembly` and `dsl.schedule_form` then ask for lower-case axes, known
dtypes, the one keyword argument, known directives with known values. Here all of it is put into the rules, the
directives from the knob table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dsl.assembly import DTYPES, PARAM_DTYPES
from dsl.directive_specs import Choice, DirectiveSpec, Slot
from dsl.directives import DIRECTIVES
from dsl.grammars.ebnf import (
    EMPTY,
    Lit,
    Node,
    Opt,
    Ref,
    Rules,
    Star,
    Tok,
    alt,
    flattened,
    literals,
    read,
    replace,
    seq,
    without_left_recursion,
)
from dsl.hardware import HARDWARE
from dsl.parser import grammar_text

NAME, AXIS, NEWLINE = Tok("NAME"), Tok("AXIS"), Tok("_NL")
COMMA = Opt(Lit(","))
# Names that expressions refuse: they are Python's, and the parser says what to write instead.
NO_VALUES = ("True", "False", "None", "Inf", "Infinity", "nan", "NaN")

# Rules of the parser and the checks of form that no context-free grammar has, or none that stays small: they ask what
# is declared elsewhere, what stands twice, and how deep or long something is.
CONTEXT_RULES = frozenset(
    {
        *("unknown-axis", "axis-not-here", "coarse-axis", "unknown-name", "axis-form", "second-block", "no-kernel"),
        *("duplicate-directive", "duplicate-key", "too-deep", "too-large"),
    }
)


def keywords() -> tuple[str, ...]:
    """The words that name nothing else, as the grammar has them."""
    return tuple(sorted(w for w in literals(read(grammar_text())[0].values()) if w.isalpha()))


def language() -> Rules:
    """The rules of the whole language over tokens, from the rule `program`."""
    rules = flattened(without_left_recursion(read(grammar_text())[0]))
    for name, places in _NARROWER.items():
        rules[name] = _nth_names(rules[name], places)
    rules["axes"] = replace(rules["names"], _swap(NAME, AXIS))
    rules["tensor_axes"] = replace(rules["tensor_axes"], _swap(Ref("names"), Ref("axes")))
    rules["values"] = replace(rules["names"], _swap(NAME, Tok("VALUE")))
    for name in ("read", "indices"):
        rules[name] = replace(rules[name], _swap(Ref("names"), Ref("values")))
    rules["dtype"] = alt(*map(Lit, DTYPES))
    rules["number"] = replace(rules["number"], _swap(Tok("FLOAT"), alt(Tok("FLOAT"), Tok("DOTTED"))))
    rules |= _calls(rules) | _params()
    rules |= directives(_general_slot, DIRECTIVES.values())
    rules["chip"] = alt(*map(Lit, sorted({n for hw in HARDWARE.values() for n in (hw.name, hw.arch)})))
    rules["chips"] = replace(rules["names"], _swap(NAME, Ref("chip")))
    return _plain(rules | _lines(rules))


def _plain(rules: Rules) -> Rules:
    """Rules without the underscores by which Lark knows what the tree leaves out; `_sum` beside `sum` is `any_sum`."""
    new = {name: f"any_{name[1:]}" if name[1:] in rules else name.lstrip("_") for name in rules}
    return {
        new[name]: replace(body, lambda n: Ref(new[n.name]) if isinstance(n, Ref) else None)
        for name, body in rules.items()
    }


_NARROWER: dict[str, dict[int, Node]] = {
    "rank": {0: AXIS},
    "axis": {0: AXIS},
    "input": {1: Ref("dtype")},
    "tensor": {1: Ref("dtype")},
    "name": {0: Tok("VALUE")},
    "call": {0: Tok("FUNCTION")},
}


def _swap(old: Node, new: Node) -> Callable[[Node], Node | None]:
    return lambda node: new if node == old else None


def _nth_names(node: Node, places: dict[int, Node]) -> Node:
    """The node with its NAMEs at these places (counted from 0) replaced."""
    seen = -1

    def change(part: Node) -> Node | None:
        nonlocal seen
        if part != NAME:
            return None
        seen += 1
        return places.get(seen, part)

    return replace(node, change)


def _calls(rules: Rules) -> Rules:
    """Only `quantize` has a keyword and two results, and it stands alone on its line."""
    limit = seq(Lit("limit"), Lit("="), Ref("_expr"))
    more = Star(seq(Lit(","), limit))
    given = alt(seq(Ref("arguments"), more), seq(limit, more))
    quantize = replace(rules["call"], _swap(Ref("arguments"), given))
    target = Ref("tensor")
    return {
        "arguments": replace(rules["arguments"], _swap(Ref("_argument"), Ref("_expr"))),
        "quantize": replace(quantize, _swap(Tok("FUNCTION"), Lit("quantize"))),
        "statement": alt(seq(target, Lit("="), Ref("_expr")), seq(target, Lit(","), target, Lit("="), Ref("quantize"))),
    }


def _params() -> Rules:
    """A default is of its param's dtype."""
    kinds: dict[str, Node] = {"bool": Ref("truth"), "int": Tok("INT"), "f32": Ref("number")}
    minus = Opt(Lit("-"))
    typed = alt(*(seq(Lit(d), Opt(seq(Lit("="), minus, kinds[d]))) for d in PARAM_DTYPES))
    return {"param": seq(Lit("param"), NAME, typed)}


def _lines(rules: Rules) -> Rules:
    """The order of lines: one `rank` line, one bare block, and what stands only there. A last line needs no end."""
    declaration = alt(*(Ref(n) for n in ("inputs", "outputs", "axis", "param", "statement")))
    algorithm = Star(seq(NEWLINE, declaration))
    named, bare = Star(Ref("named_block")), Ref("bare_block")
    kernel_lines = alt(Ref("directive_line"), Ref("for_line"))
    bare_lines = Star(seq(NEWLINE, alt(Ref("pipeline_line"), Ref("directive_line"), Ref("pipeline_for_line"))))
    return {
        "program": seq(
            Ref("kernel"), algorithm, Opt(seq(NEWLINE, Ref("rank"), algorithm)), named, Opt(seq(bare, named))
        ),
        "named_block": seq(NEWLINE, Lit("schedule"), Ref("names"), Star(seq(NEWLINE, kernel_lines))),
        "bare_block": seq(NEWLINE, Lit("schedule"), bare_lines, Opt(seq(NEWLINE, Ref("kernels"), bare_lines))),
    }


# Directives -----------------------------------------------------------------------------------------------------------

SlotForm = Callable[[DirectiveSpec, Slot], Node | None]  # what may stand for an item; None: nothing, leave it out


def directives(form: SlotForm, specs: Iterable[DirectiveSpec]) -> Rules:
    """`directive_line` and `for_line` (and the two of whole pipelines) with one alternative for each directive."""
    lines: dict[str, list[Node]] = {"directive": [], "for_directive": [], "pipeline": [], "for_pipeline": []}
    rules: Rules = {}
    for spec in specs:
        kind = "pipeline" if spec.scope == "pipeline" else "directive"
        legal = {slot: node for slot in spec.slots if (node := form(spec, slot)) is not None}
        if any(slot not in legal and slot.default is None for slot in spec.slots):
            continue
        names = {slot: f"{spec.name}_{slot.key.lower() or f'item_{spec.slots.index(slot)}'}" for slot in legal}
        rules |= {names[slot]: node for slot, node in legal.items()}
        value: dict[Slot, Node] = {slot: Ref(name) for slot, name in names.items()}
        rules[spec.name], rules[f"for_{spec.name}"] = (directive(spec, value, c) for c in (COMMA, EMPTY))
        lines[kind].append(Ref(spec.name))
        lines[f"for_{kind}"].append(Ref(f"for_{spec.name}"))
    rules["directive_line"] = alt(*lines["directive"])
    rules["for_directive"] = alt(*lines["for_directive"])
    rules["for_line"] = _for(Ref("for_directive"))
    if lines["pipeline"]:
        rules["pipeline_line"] = alt(*lines["pipeline"])
        rules["for_any_directive"] = alt(Ref("for_directive"), *lines["for_pipeline"])
        rules["pipeline_for_line"] = _for(Ref("for_any_directive"))
    return rules


def _for(one: Node) -> Node:
    return seq(Lit("for"), Ref("chips"), Lit(":"), one, Star(seq(Lit(","), one)))


def directive(spec: DirectiveSpec, value: dict[Slot, Node], comma: Node) -> Node:
    """A directive and its items: those by position in turn, keyed ones anywhere between."""
    keyed = [s for s in spec.slots if s.key and s in value]
    key = alt(*(seq(NAME if s.key == "AXIS" else Lit(s.key), Lit("="), value[s]) for s in keyed))
    more = Star(seq(comma, key)) if keyed else EMPTY
    keys = seq(key, more)
    given = [s for s in spec.positional if s in value]
    items: Node = more
    for n, slot in enumerate(reversed(given), start=1):
        one = seq(value[slot], Star(seq(comma, value[slot]))) if slot.many else value[slot]
        items = seq(one, items) if n == len(given) else seq(more, comma, one, items)
    options: list[Node] = [keys] if not given else [items]
    if given and keyed:
        options.append(seq(keys, comma, items))
    if all(s.default is not None for s in value):
        options += [EMPTY, keys] if given else [EMPTY]
    elif given and given[0].default is not None:
        options.append(keys)
    return seq(Lit(spec.name), alt(*options))


def _general_slot(spec: DirectiveSpec, slot: Slot) -> Node:
    """What `dsl.schedule_form` takes for an item, whatever the chip and the kernel."""
    options: list[Node] = [Lit(str(n)) for n in slot.numbers]
    if slot.numbers:
        options.append(Lit("?"))
    if slot.size:
        options += [Tok("INT"), Tok("SIZE")]
    if slot.names:
        options.append(NAME)
    return alt(*options, *(choice_form(c, NAME) for c in slot.choices))


def choice_form(choice: Choice, axis: Node) -> Node:
    """`lazy(8)`, `reverse(m)`, `all`."""
    if not choice.argument:
        return Lit(choice.word)
    argument = axis if choice.argument == "axis" else alt(*(Lit(str(n)) for n in choice.numbers))
    return seq(Lit(choice.word), Lit("("), argument, Lit(")"))
