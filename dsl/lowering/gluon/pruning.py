"""A role's nodes without those whose value nobody reads."""

from __future__ import annotations

from dataclasses import replace

from dsl.lowering.gluon.body import For
from dsl.tile import If, Loop, Node, Op, Value

Nodes = list[Node | For]


def turning(loop: Loop, body: Nodes) -> Loop:
    """The loop with another body."""
    return replace(loop, body=body)  # type: ignore[arg-type]


def pruned(nodes: Nodes) -> Nodes:
    """The nodes without ops whose value nobody reads."""
    while True:
        used = _used(nodes)
        kept, dropped = _without(nodes, used)
        if not dropped:
            return kept
        nodes = kept


def _used(nodes: Nodes) -> set[Value]:
    found: set[Value] = set()
    for n in nodes:
        if isinstance(n, Op):
            found |= set(n.args)
        elif isinstance(n, If):
            found |= {n.condition} | _used(list(n.body))
        elif isinstance(n, Loop):
            found |= {n.lo, n.hi, *n.only_if} | _used(list(n.body))
        else:
            found |= {n.hi, *n.flags, *([n.lo] if isinstance(n.lo, Value) else [])} | _used(n.body)
    return found


def _without(nodes: Nodes, used: set[Value]) -> tuple[Nodes, int]:
    kept: Nodes = []
    dropped = 0
    for n in nodes:
        if isinstance(n, Op):
            dead = n.kind != "issue" and n.out is not None and n.out not in used
            dead = dead or (n.kind == "set" and n.attr not in used and n.args[0] is not n.attr)
            dropped += dead
            kept += [] if dead else [n]
            continue
        body, inside = _without(list(n.body), used)
        dropped += inside
        if isinstance(n, For):
            kept.append(For(n.var, n.lo, n.hi, body, n.note, n.flags))
        elif isinstance(n, If):
            kept.append(If(n.condition, body, n.note))  # type: ignore[arg-type]
        else:
            kept.append(turning(n, body))
    return kept, dropped
