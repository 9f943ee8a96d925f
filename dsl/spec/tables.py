"""The parts of the spec that come from the grammar, the functions, the knob table and the chips."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from dsl.anatomy import Anatomy
from dsl.assembly import DTYPES, PARAM_DTYPES
from dsl.directive_specs import Choice, DirectiveSpec, Slot
from dsl.directives import DEFAULTS, DIRECTIVES, SELDOM
from dsl.grammars.ebnf import Node, Ref, Tok, flattened, literals, read, replace, without_left_recursion
from dsl.grammars.formats import shown
from dsl.grammars.refine import keywords
from dsl.hardware import HARDWARE, Hardware
from dsl.named_functions import ARITY, BRACKETED, FUNCTIONS, LIMITS, form
from dsl.parser import grammar_text
from dsl.spec.pages import WIDTH

LOWERED_LATER = ("f64", "mxfp4", "nvfp4")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_to_all", "all_gather")
_LINES: tuple[str, ...] = (
    "kernel",
    "rank",
    "axis",
    "param",
    "inputs",
    "input",
    "outputs",
    "tensor",
    "tensor_axes",
    "statement",
    "targets",
)
_LINES += ("read", "indices", "_index", "call", "call_axes", "axes_in", "block_head", "kernels", "for_line")
# How rules are called in the spec; those of values are told by the operators and tables.
_SHORT = {
    "_expr": "expr",
    "_index": "index",
    "_argument": "expr",
    "names": "NAMES",
    "for_directive": "directive",
    "name": "NAME",
}

# What people and models write by habit, and the form that says it here. Each is an error with that form in its text.
HABITS: tuple[tuple[str, str], ...] = (
    ("sum(x, axis=n)", "`sum[n](x)`"),
    ("x @ w", "`sum[k](x * w)`"),
    ("x ** 2", "`x * x`"),
    ("0 < m < n", "`0 < m and m < n`"),
    ("x if c else y", "`where(c, x, y)`"),
    ("x[m - 1]", "`x[(m - 1)]`"),
    ("x[:, None]", "`x`"),
    ("x += y", "a new name"),
    ("c && d", "`c and d`"),
    ("!c", "`not c`"),
    ("True", "`true`"),
)


def grammar_lines() -> str:
    """The rules of the lines of a program, as `grammar.lark` has them, one a line."""
    rules = flattened(without_left_recursion(read(grammar_text())[0]))

    def plain(node: Node) -> Node | None:
        if isinstance(node, Ref):
            return Tok(_SHORT.get(node.name, node.name))
        return None

    rows: list[str] = []
    for name in _LINES:
        rule = f"{_SHORT.get(name, name)} = {shown(replace(rules[name], plain))}"
        if rows and len(rows[-1]) + 3 + len(rule) <= WIDTH:
            rows[-1] += f"   {rule}"
        else:
            rows.append(rule)
    return "\n".join(rows)


def operators() -> str:
    """`or`, then `and`, ...: the chain of `grammar.lark`, loosest first."""
    rules = read(grammar_text())[0]
    steps = ("or", "and", "not", "comparison", "add", "multiply", "negative")
    return ", ".join(f"`{' '.join(literals([rules[s]]))}`" for s in steps)


def functions() -> dict[str, str]:
    """The named functions by how they are called."""
    unary = [f for f in FUNCTIONS if ARITY.get(f, 1) == 1]
    several = [form(f) if f not in BRACKETED else f"{f}(x, y)" for f in FUNCTIONS if f in ARITY]
    special = ("topk", "bottomk", "quantize", "runmax", "runsum", *COLLECTIVES)
    reductions = [f for f in BRACKETED if f not in special]
    return {
        "unary": " ".join(unary),
        "several": ", ".join(f"`{s}`" for s in several),
        "reductions": " ".join(reductions),
        "collectives": ", ".join(f"`{form(f)}`" for f in COLLECTIVES),
        "limits": " ".join(f"{k} {v:g}" for k, v in LIMITS.items()),
    }


# Directives ---------------------------------------------------------------------------------------------------------


def numbers(values: Sequence[int]) -> str:
    """`1|2|4`, `1..8`, `1|2|4..32768`, `24|32..256`."""
    if len(values) < 6:
        return "|".join(map(str, values))
    if list(values) == list(range(values[0], values[-1] + 1)):
        return f"{values[0]}..{values[-1]}"
    return f"{values[0]}|{values[1]}|{values[2]}..{values[-1]}"


def item_form(slot: Slot, choices: Sequence[Choice]) -> str:
    """`stages=1..8`, `row|grouped(N)`, `AXIS...`."""
    names = {"axis": "AXIS", "tensor": "TENSOR", "bool": "NAME", "": ""}[slot.names]
    parts = [names + ("..." if slot.many else "")] if names else []
    parts += [numbers(slot.numbers)] if slot.numbers else []
    parts += ["8MiB"] if slot.size else []
    parts += [c.form.replace("(N)", f"({numbers(c.numbers)})") for c in choices]
    value = "|".join(parts)
    text = f"{slot.key}={value}" if slot.key else value
    return text if slot.default is None else f"[{text}]"


def directive_lines(specs: Iterable[DirectiveSpec], hw: Hardware | None = None) -> str:
    """Usage and meaning of each directive; of those that not every chip has, which have it."""
    rows: list[str] = []
    for spec in specs:
        if hw is not None and spec.chip(hw):
            continue
        usage = [spec.name]
        notes = choice_notes(spec, hw)
        for slot in spec.slots:
            choices = [c for c in slot.choices if hw is None or not c.chip(hw)]
            usage.append(item_form(slot, choices) + (" ..." if slot.key == "AXIS" else ""))
        text = f"{' '.join(usage)}: {spec.doc}{_where(spec, hw)}" + (f". {'; '.join(notes)}" if notes else "")
        rows += textwrap.wrap(text, WIDTH, subsequent_indent="  ")
    return "\n".join(rows)


def choice_notes(spec: DirectiveSpec, hw: Hardware | None, kernel: Anatomy | None = None) -> list[str]:
    """What each word of a directive does: not where the directive says it already, nor where nothing follows it yet."""
    choices = [c for slot in spec.slots for c in slot.choices if spec.lowered == "yes" and c.lowered]
    legal = [c for c in choices if (hw is None or not c.chip(hw)) and (kernel is None or not c.kernel(kernel))]
    plain = ("on", "off", "none", "all", "pointer")
    return [f"{c.word}{_where(c, hw)} = {c.doc}" for c in legal if c.word not in plain]


def _where(thing: DirectiveSpec | Choice, hw: Hardware | None) -> str:
    """On which chips, where not on all."""
    if hw is not None:
        return ""
    real = [h for h in HARDWARE.values() if h.vendor != "cpu"]
    have = {h.arch for h in real if not thing.chip(h)}
    if have == {h.arch for h in real}:
        return ""
    if have == {h.arch for h in real if h.vendor == "amd"}:
        return " (AMD)"
    first = min(int(a[3:]) for a in have)
    assert have == {h.arch for h in real if h.vendor == "nvidia" and int(h.arch[3:]) >= first}, have
    return f" (sm_{first}+)"


def tables(hw: Hardware | None = None) -> Mapping[str, str]:
    """Everything that `text.md` takes."""
    usable = [d for d in DTYPES if d not in LOWERED_LATER]
    real = [h for h in HARDWARE.values() if h.vendor != "cpu"]
    archs = dict.fromkeys(h.arch for h in real)
    chips = ", ".join(f"{' '.join(h.name for h in real if h.arch == a)} ({a})" for a in archs)
    return {
        **functions(),
        "grammar": grammar_lines(),
        "keywords": " ".join(keywords()),
        "operators": operators(),
        "dtypes": " ".join(usable) + ", and mxfp4 nvfp4, not lowered yet",
        "param_dtypes": ", ".join(PARAM_DTYPES[:-1]) + f" or {PARAM_DTYPES[-1]}",
        "defaults": ", ".join(f"{k} {v}" for k, v in DEFAULTS.items() if v and k not in SELDOM),
        "directives": directive_lines(DIRECTIVES.values(), hw),
        "chips": f"Chips: {chips}." if hw is None else facts(hw),
        "habits": "; ".join(f"`{wrong}` is {right}" for wrong, right in HABITS) + ".",
    }


def facts(hw: Hardware) -> str:
    """What of a chip bounds a schedule."""
    dtypes = " ".join(d for d in DTYPES if d in hw.dtypes)
    text = f"{hw.name} ({hw.arch}): contracts {dtypes}; {hw.shared_bytes // 1024} KiB of shared memory a block"
    return f"{text}, {hw.sms} SMs." if hw.sms > 1 else f"{text}."
