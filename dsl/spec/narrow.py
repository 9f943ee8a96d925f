"""The spec narrowed to one program on one chip: what may be edited, with the values that are legal there."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Literal

from dsl.anatomy import Anatomy, anatomies
from dsl.assembly import DTYPES
from dsl.directive_specs import DirectiveSpec, Slot
from dsl.directives import DEFAULTS, DIRECTIVES, SELDOM
from dsl.grammars.program import Found, axis_values, legal_values, slot_names, variants
from dsl.hardware import Hardware
from dsl.knobs import explicit
from dsl.printer import print_program
from dsl.schedule import kernels_of
from dsl.spec.pages import WIDTH, filled
from dsl.spec.tables import choice_notes, facts, functions, numbers
from dsl.syntax import Program

Opens = Literal["schedule", "numerics", "all"]
_OPENS: Mapping[str, str] = {
    "schedule": "The algorithm is fixed; the schedule is open.",
    "numerics": "The algorithm's dtypes, casts and scales are open, and the schedule; what it computes is fixed.",
    "all": "All of it is open; it has to compute the same.",
}


def narrowed(program: Program, hw: Hardware, opens: Opens = "schedule") -> str:
    """What is legal in edits of this program on this chip: its kernels, axes, directives and values.

    The algorithm must be free of errors. opens: what the edits may change, as a target says.
    """
    full = explicit(program)
    kernels, writes = anatomies(full), kernels_of(full)
    values = legal_values(variants(full, hw, None), hw)
    heads = [f"`schedule {' '.join(w)}`" for w in writes]
    if not any(set(b.writes) == set(writes[-1]) for b in full.schedule.blocks):
        heads[-1] = "`schedule` for the last kernel"
    blocks = f"Blocks: {', '.join(heads)}. " if len(kernels) > 1 else ""
    words = {
        "name": program.algorithm.name,
        "chip": hw.name,
        "arch": hw.arch,
        "opens": _OPENS[opens],
        "program": print_program(program).rstrip("\n"),
        "kernels": "\n".join(f"- {_kernel(k)}" for k in kernels),
        "blocks": blocks,
        "defaults": ", ".join(
            f"{k} {v}" for k, v in DEFAULTS.items() if v and _has(k, kernels, hw) and k not in SELDOM
        ),
        "directives": "\n".join(_directives(kernels, writes, values, hw)),
        "facts": facts(hw),
        "dtypes": " ".join(d for d in DTYPES if d in hw.dtypes | {"f32", "i32", "bool"}),
        **functions(),
    }
    page = (resources.files("dsl.spec") / "narrow.md").read_text(encoding="utf-8")
    if opens != "schedule":
        page += (resources.files("dsl.spec") / "narrow_algorithm.md").read_text(encoding="utf-8")
    return filled(page, words)


def _has(name: str, kernels: tuple[Anatomy, ...], hw: Hardware) -> bool:
    spec = DIRECTIVES.get("stream" if name == "stages" else name)
    return spec is not None and not spec.chip(hw) and any(not spec.kernel(k) for k in kernels)


def _kernel(kernel: Anatomy) -> str:
    """`o over b h m e; may stream n; whole: d e`."""
    held = f", of which {' '.join(kernel.held)} not in `grid`" if kernel.held else ""
    of = " ".join(kernel.writes)
    text = f"The kernel of `{of}`: its result has axes {' '.join(kernel.outputs)}{held}"
    if kernel.streamable:
        text += f"; it may stream {' or '.join(kernel.streamable)}"
    rest = [a for a in kernel.reduced if a not in (*kernel.streamable, *kernel.held)]
    return f"{text}; whole: {' '.join(rest)}." if rest else f"{text}."


def _directives(
    kernels: tuple[Anatomy, ...], writes: tuple[tuple[str, ...], ...], values: Found, hw: Hardware
) -> Iterator[str]:
    """Each directive that any kernel has on this chip, once for all kernels that it is alike in."""
    for spec in DIRECTIVES.values():
        if spec.scope != "kernel" or spec.chip(hw):
            continue
        forms: dict[str, list[str]] = {}
        for index, kernel in enumerate(kernels):
            if not spec.kernel(kernel) and (form := _usage(spec, index, kernel, values, hw)):
                forms.setdefault(form, []).append(" ".join(writes[index]))
        notes = list(dict.fromkeys(n for k in kernels for n in choice_notes(spec, hw, k)))
        doc = spec.doc + (f". {'; '.join(notes)}" if notes else "")
        alike = len(forms) == 1 and len(next(iter(forms.values()))) == len(kernels)
        for n, (form, where) in enumerate(forms.items()):
            text = form if alike else f"{form}  in {', '.join(f'`{w}`' for w in where)}"
            text += f": {doc}" if n == len(forms) - 1 else ""
            yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def _usage(spec: DirectiveSpec, index: int, kernel: Anatomy, values: Found, hw: Hardware) -> str:
    parts = [spec.name]
    for slot in spec.slots:
        if spec.name == "tile":
            parts += [f"{a}={v}" for a in kernel.axes if (v := axis_values(a, index, kernel, values)) != "all"]
            continue
        text = _item(spec, slot, index, kernel, values, hw)
        if len(spec.slots) == 1 and slot.choices and "|" not in text:
            return ""  # nothing to choose
        if not text and slot.default is None:
            return ""
        if text:
            text = f"{slot.key}={text}" if slot.key else text
            parts.append(text if slot.default is None else f"[{text}]")
    return " ".join(parts)


def _item(spec: DirectiveSpec, slot: Slot, index: int, kernel: Anatomy, values: Found, hw: Hardware) -> str:
    if slot.names:
        names = "|".join(slot_names(spec, kernel))
        return f"{names} ..." if names and slot.many else names
    if slot.size:
        return "8MiB"
    known = values.get((index, spec.name, slot.key), {})
    legal = [v for v in known if isinstance(v, int) and v in slot.numbers] or list(slot.numbers)
    axes = "|".join(a for a in kernel.outputs if a not in kernel.held and a not in kernel.batch())
    choices = [c for c in slot.choices if not c.chip(hw) and not c.kernel(kernel) and (c.argument != "axis" or axes)]
    words = [c.form.replace("(N)", f"({numbers(c.numbers)})").replace("AXIS", axes) for c in choices]
    return "|".join(([numbers(sorted(legal))] if legal else []) + words)
