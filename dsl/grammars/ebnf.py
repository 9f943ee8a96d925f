"""A grammar as a value, and the reading of `grammar.lark` into one.

Only what that file uses: rules, strings, named terminals, groups, `|`, `?`, `*`, `+` and `[..]`. Aliases (`-> name`)
say how trees are built, which no decoder asks for, and are dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Lit:
    """These characters."""

    text: str


@dataclass(frozen=True)
class Tok:
    """A named terminal."""

    name: str


@dataclass(frozen=True)
class Ref:
    """A rule."""

    name: str


@dataclass(frozen=True)
class Seq:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Alt:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Opt:
    item: Node


@dataclass(frozen=True)
class Star:
    item: Node


Node: TypeAlias = Lit | Tok | Ref | Seq | Alt | Opt | Star
Rules: TypeAlias = dict[str, Node]
EMPTY = Seq(())


def seq(*items: Node) -> Node:
    """In turn; nested sequences are flattened."""
    flat: list[Node] = []
    for item in items:
        flat += item.items if isinstance(item, Seq) else (item,)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(*items: Node) -> Node:
    """Any of these, each once; an empty one makes the rest optional."""
    flat: dict[Node, None] = {}
    empty = False
    for item in items:
        for one in item.items if isinstance(item, Alt) else (item,):
            if isinstance(one, Opt):
                empty, one = True, one.item
            if one == EMPTY:
                empty = True
            else:
                flat.update(dict.fromkeys(one.items if isinstance(one, Alt) else (one,)))
    if not flat:
        return EMPTY
    whole = next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat))
    return Opt(whole) if empty and not isinstance(whole, Star) else whole


def factored(node: Node) -> Node:
    """`a b | a c` as `a (b | c)`, and the same from the right, everywhere."""
    match node:
        case Seq(items):
            return seq(*map(factored, items))
        case Opt(item):
            return alt(EMPTY, factored(item))
        case Star(item):
            return Star(factored(item))
        case Alt(items):
            return _factored(tuple(map(factored, items)))
    return node


def _factored(options: tuple[Node, ...]) -> Node:
    rows = [o.items if isinstance(o, Seq) else (o,) for o in options]
    shortest = min(map(len, rows))
    left = next((i for i in range(shortest) if len({r[i] for r in rows}) > 1), shortest)
    right = next((i for i in range(shortest - left) if len({r[-1 - i] for r in rows}) > 1), shortest - left)
    if not left and not right:
        return alt(*options)
    middle = factored(alt(*(seq(*r[left : len(r) - right]) for r in rows)))
    return seq(*rows[0][:left], middle, *rows[0][len(rows[0]) - right :])


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Seq(items) | Alt(items):
            return items
        case Opt(item) | Star(item):
            return (item,)
    return ()


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from walk(child)


def replace(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """The node with what `change` gives in the place of a part; None leaves the part and looks inside it."""
    changed = change(node)
    if changed is not None:
        return changed
    match node:
        case Seq(items):
            return seq(*(replace(i, change) for i in items))
        case Alt(items):
            return alt(*(replace(i, change) for i in items))
        case Opt(item):
            return Opt(replace(item, change))
        case Star(item):
            return Star(replace(item, change))
    return node


def used(rules: Rules, start: str) -> list[str]:
    """The rules that can be reached, in order of first use."""
    found = [start]
    for name in found:
        found += dict.fromkeys(n.name for n in walk(rules[name]) if isinstance(n, Ref) and n.name not in found)
    return list(dict.fromkeys(found))


# Reading ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"|/(?:[^/\\\n]|\\.)+/|->\s*\w+|%ignore[^\n]*|\w+|[():|\[\]?*+]')


def read(text: str) -> tuple[Rules, dict[str, str]]:
    """The rules of a Lark grammar, and its terminals: name -> regular expression.

    A terminal that is only strings is put in the place of its name.
    """
    tokens = [t for t in _TOKEN.findall(text) if not t.startswith(("//", "->", "%"))]
    heads = [i for i in range(len(tokens) - 1) if tokens[i + 1] == ":"]
    rules: Rules = {}
    terminals: dict[str, str] = {}
    words: Rules = {}
    for at, end in zip(heads, [*heads[1:], len(tokens)], strict=True):
        name, body = tokens[at], tokens[at + 2 : end]
        if not name.lstrip("_").isupper():
            rules[name] = _Reader(body).alternatives()
        elif body[0].startswith("/"):
            terminals[name] = body[0][1:-1]
        else:
            words[name] = _Reader(body).alternatives()
    return {
        name: replace(body, lambda n: words.get(n.name) if isinstance(n, Tok) else None) for name, body in rules.items()
    }, terminals


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def alternatives(self) -> Node:
        found = [self.sequence()]
        while self.next() == "|":
            self.take()
            found.append(self.sequence())
        return alt(*found)

    def sequence(self) -> Node:
        found = []
        while self.next() not in ("", "|", ")", "]"):
            found.append(self.item())
        return seq(*found)

    def item(self) -> Node:
        token = self.take()
        item: Node
        if token in "([":
            item = self.alternatives()
            self.take()
            item = Opt(item) if token == "[" else item
        elif token.startswith('"'):
            item = Lit(token[1:-1])
        else:
            item = Tok(token) if token.lstrip("_").isupper() else Ref(token)
        match self.next():
            case "?":
                self.take()
                return Opt(item)
            case "*":
                self.take()
                return Star(item)
            case "+":
                self.take()
                return seq(item, Star(item))
        return item


# Left recursion ---------------------------------------------------------------------------------------------------


def without_left_recursion(rules: Rules) -> Rules:
    """The same language with loops: llama.cpp takes no left recursion.

    A rule that only passes another on (`_sum: _product | add`, `add: _sum PLUS _product`) is first put in its place.
    """
    done = dict(rules)
    for name, body in rules.items():
        inner = {n for n in _firsts(body) if n in rules and name in _firsts(rules[n]) and n != name}
        for other in inner:
            if _only_here(rules, other, name):
                done[name] = replace(done[name], lambda n, o=other: rules[o] if n == Ref(o) else None)  # type: ignore[misc]
                done.pop(other)
    for name, body in list(done.items()):
        options = body.items if isinstance(body, Alt) else (body,)
        loops = [o for o in options if isinstance(o, Seq) and o.items[0] == Ref(name)]
        if loops:
            base = alt(*(o for o in options if o not in loops))
            done[name] = seq(base, Star(alt(*(seq(*o.items[1:]) for o in loops if isinstance(o, Seq)))))
    return done


def _firsts(node: Node) -> set[str]:
    match node:
        case Ref(name):
            return {name}
        case Seq(items):
            return _firsts(items[0]) if items else set()
        case Alt(items):
            return {n for i in items for n in _firsts(i)}
        case Opt(item) | Star(item):
            return _firsts(item)
    return set()


def _only_here(rules: Rules, name: str, place: str) -> bool:
    return all(Ref(name) not in walk(body) for other, body in rules.items() if other != place)


def glued(node: Node) -> Node:
    """Strings that follow each other as one string; a blank or newline stays by itself, as `spacing` says why."""
    match node:
        case Seq(items):
            found: list[Node] = []
            for item in map(glued, items):
                last = found[-1] if found else None
                if isinstance(item, Lit) and isinstance(last, Lit) and not {item.text, last.text} & {" ", "\n"}:
                    item = Lit(last.text + item.text)
                    found.pop()
                found.append(item)
            return seq(*found)
        case Alt(items):
            return alt(*map(glued, items))
        case Opt(item):
            return Opt(glued(item))
        case Star(item):
            return Star(glued(item))
    return node


def flattened(rules: Rules) -> Rules:
    """Chains of operators on one level: `x: y (a y)*` and `y: z (b z)*` say the same strings as `x: z ((a | b) z)*`.

    How operators bind is for the parser; a decoder writes strings.
    """
    done = dict(rules)
    while True:
        for name, body in done.items():
            outer = chain(body)
            inner = chain(done[outer[0].name]) if outer and isinstance(outer[0], Ref) else None
            if outer and inner:
                done[name] = seq(inner[0], Star(seq(alt(outer[1], inner[1]), inner[0])))
                break
        else:
            return done


def chain(node: Node) -> tuple[Node, Node] | None:
    """(operand, operator) of `operand (operator operand)*`; an operator that may be absent makes none."""
    match node:
        case Seq((operand, Star(Seq((operator, again))))) if operand == again and not isinstance(operator, Opt | Star):
            return operand, operator
    return None


def compact(rules: Rules, start: str) -> Rules:
    """Equal rules made one, and what is short or stands in one place only put there."""
    done = {name: rules[name] for name in used(rules, start)}
    while True:
        first: dict[Node, str] = {}
        same = {name: first.setdefault(body, name) for name, body in done.items()}
        size = {name: sum(1 for _ in walk(body)) for name, body in done.items()}
        places = Counter(n.name for body in done.values() for n in walk(body) if isinstance(n, Ref))
        small = [name for name in done if size[name] <= 3 or (places[name] == 1 and size[name] <= 9)]
        gone = {name: done[name] for name in small if name != start and Ref(name) not in walk(done[name])}

        def change(node: Node, same: dict[str, str] = same, gone: Rules = gone) -> Node | None:
            if not isinstance(node, Ref):
                return None
            name = same[node.name]
            return gone[name] if name in gone else Ref(name)

        now = {name: factored(replace(body, change)) for name, body in done.items()}
        now = {name: now[name] for name in used(now, start)}
        if now == done:
            return done
        done = now


def literals(nodes: Iterable[Node]) -> list[str]:
    """The strings in these nodes, each once."""
    return list(dict.fromkeys(n.text for node in nodes for n in walk(node) if isinstance(n, Lit)))
