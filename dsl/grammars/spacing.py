"""Blanks made part of a grammar: from rules over tokens to rules over characters.

The parser drops blanks between tokens, and line breaks inside brackets; it tells tokens apart by taking the longest.
A decoder grammar has to say all that itself: two words need a blank between them, `not(x)` needs none, and inside
brackets a line break is a blank too. So each rule is written once for each of: whether a word stands right before it,
what kind of token it ends with, and whether brackets are open. Only those that are needed come out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dsl.grammars.ebnf import EMPTY, Alt, Lit, Node, Opt, Ref, Rules, Seq, Star, Tok, alt, chain, seq

BLANK, BLANK_IN, NEWLINE = Tok("WS"), Tok("WSN"), Tok("_NL")
PATTERNS = {"WS": "[ \\t]+", "WSN": "[ \\t\\n]+", "_NL": "\\n"}
# Blanks and newlines apart: a decoder that takes the longest token never goes back to a shorter one.
_END = seq(Opt(BLANK), NEWLINE)
LINE_END = Ref("line_end")
LINE_END_BODY = seq(_END, Star(_END))
_OPENING, _CLOSING = ("(", "["), (")", "]")
_DOTTED = ("DOTTED",)  # numbers that start with a point: no word, though one may not follow another word's end


@dataclass(frozen=True)
class _Want:
    """Of a part: does a word stand right before it; must it end in a word (None: either way); are brackets open."""

    after: bool
    ends: bool | None
    inside: bool


def spaced(rules: Rules, start: str) -> Rules:
    """Rules whose blanks are explicit, from the rule `start`, which keeps its name. No rule may be empty."""
    return _Spacer(rules).run(start)


class _Spacer:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.edges = {at: self._fixpoint(at) for at in (0, -1)}
        self.names: dict[tuple[str, _Want], str] = {}
        self.loops: dict[tuple[Node, _Want], str] = {}
        self.result: Rules = {}
        self.gen = lru_cache(maxsize=None)(self._gen)

    def run(self, start: str) -> Rules:
        self._name(start, _Want(False, None, False))
        return {**self.result, LINE_END.name: LINE_END_BODY}

    # Which tokens a part can start (0) and end (-1) with: True for a word, False for any other ---------------------

    def _fixpoint(self, at: int) -> dict[str, frozenset[bool]]:
        found: dict[str, frozenset[bool]] = dict.fromkeys(self.rules, frozenset())
        while True:
            now = {name: self._edge(body, at, found) for name, body in self.rules.items()}
            if now == found:
                return now
            found = now

    def _edge(self, node: Node, at: int, known: dict[str, frozenset[bool]] | None = None) -> frozenset[bool]:
        known = self.edges[at] if known is None else known
        match node:
            case Ref(name):
                return known[name]
            case Seq(items):
                found: frozenset[bool] = frozenset()
                for item in items if at == 0 else reversed(items):
                    found |= self._edge(item, at, known)
                    if not isinstance(item, Opt | Star):
                        break
                return found
            case Alt(items):
                return frozenset().union(*(self._edge(i, at, known) for i in items))
            case Opt(item) | Star(item):
                return self._edge(item, at, known)
        return frozenset({_is_word(node, at)})

    # The parts, spaced ---------------------------------------------------------------------------------------------

    def _gen(self, node: Node, want: _Want) -> Node | None:
        """The node as wanted; None where it cannot end so."""
        match node:
            case Ref(name):
                return self._ref(name, want)
            case Alt(items):
                found = [g for i in items if (g := self.gen(i, want)) is not None]
                return alt(*found) if found else None
            case Opt(item):
                inner = self.gen(item, want)
                if want.ends is None or want.ends == want.after:
                    return EMPTY if inner is None else alt(EMPTY, inner)
                return inner
            case Star(item):
                return self._star(item, want)
            case Seq(items):
                return self._seq(items, want)
        if want.ends is not None and want.ends != _is_word(node, -1):
            return None
        return self._token(node, want)

    def _token(self, node: Node, want: _Want) -> Node:
        if node == NEWLINE:
            return LINE_END
        blank = BLANK_IN if want.inside else BLANK
        return seq(blank if want.after and _is_word(node, 0) else Opt(blank), node)

    def _ref(self, name: str, want: _Want) -> Node | None:
        ends = self.edges[-1][name]
        if want.ends is not None and want.ends not in ends:
            return None
        after = want.after and True in self.edges[0][name]
        only = None if want.ends is None or len(ends) == 1 else want.ends
        return Ref(self._name(name, _Want(after, only, want.inside)))

    def _name(self, rule: str, want: _Want) -> str:
        if (rule, want) not in self.names:
            suffix = ("_in" if want.inside else "") + ("_after" if want.after else "")
            suffix += "" if want.ends is None else "_word" if want.ends else "_sign"
            name = self.names[rule, want] = rule + suffix
            self.result[name] = EMPTY  # keeps its place in the order of first use
            body = self.gen(self.rules[rule], want)
            assert body is not None and not (isinstance(body, Opt | Star) or body == EMPTY), name
            self.result[name] = body
        return self.names[rule, want]

    def _seq(self, items: tuple[Node, ...], want: _Want) -> Node | None:
        if not items:
            return EMPTY if want.ends is None or want.ends == want.after else None
        if len(items) == 1:
            return self.gen(items[0], want)
        head, rest = items[0], Seq(items[1:])
        if isinstance(head, Lit) and head.text in _OPENING:
            return self._bracket(items, want)
        link = chain(Seq(items))
        if link is not None and self._edge(link[1], 0) == self._edge(link[1], -1) == {False}:
            return self._chain(*link, want)
        tails = {e: self.gen(rest, _Want(e, want.ends, want.inside)) for e in (True, False)}
        if tails[True] == tails[False]:
            first, tail = self.gen(head, _Want(want.after, None, want.inside)), tails[True]
            return None if first is None or tail is None else seq(first, tail)
        found = []
        for ends, tail in tails.items():
            first = self.gen(head, _Want(want.after, ends, want.inside))
            if first is not None and tail is not None:
                found.append(seq(first, tail))
        return alt(*found) if found else None

    def _bracket(self, items: tuple[Node, ...], want: _Want) -> Node | None:
        """An opening bracket, what is inside, the closing one, and the rest."""
        depth, at = 0, 0
        for at, item in enumerate(items):  # noqa: B007
            text = item.text if isinstance(item, Lit) else ""
            depth += (text in _OPENING) - (text in _CLOSING)
            if depth == 0:
                break
        inner = self.gen(seq(*items[1 : at + 1]), _Want(False, None, True))
        tail = self.gen(Seq(items[at + 1 :]), _Want(False, want.ends, want.inside))
        if inner is None or tail is None:
            return None
        return seq(self._token(items[0], want), inner, tail)

    def _chain(self, operand: Node, operator: Node, want: _Want) -> Node | None:
        """`operand (operator operand)*` whose operators are signs: only the two outermost operands matter."""
        middle = _Want(False, None, want.inside)
        inner, sign = self.gen(operand, middle), self.gen(operator, middle)
        assert inner is not None and sign is not None
        if want.ends is None:
            first = self.gen(operand, want)
            return None if first is None else seq(first, Star(seq(sign, inner)))
        last = self.gen(operand, _Want(False, want.ends, want.inside))
        if last is None:
            return None
        if not want.after:
            return seq(Star(seq(inner, sign)), last)
        first, only = self.gen(operand, _Want(True, None, want.inside)), self.gen(operand, want)
        long = seq(first or EMPTY, sign, Star(seq(inner, sign)), last)
        return long if only is None else alt(only, long)

    def _star(self, item: Node, want: _Want) -> Node | None:
        empty = want.ends is None or want.ends == want.after
        again = self.gen(item, _Want(True, None, want.inside))
        if again is not None and again == self.gen(item, _Want(False, None, want.inside)):
            loop: Node = Star(again)  # what stands before it does not matter
            if want.ends is None:
                return loop
            last = self.gen(item, _Want(True, want.ends, want.inside))
            if last is None:
                return EMPTY if empty else None
            if len(self._edge(item, -1)) == 1:
                return loop if empty else seq(again, loop)
            return alt(EMPTY, seq(loop, last)) if empty else seq(loop, last)
        ends = self._edge(item, -1)
        if len(ends) == 1:
            (end,) = ends
            if want.ends is not None and want.ends != end:
                return EMPTY if empty else None
            first = self.gen(item, _Want(want.after, None, want.inside))
            more = self.gen(item, _Want(end, None, want.inside))
            if first is None or more is None:
                return EMPTY if empty else None
            if want.after == end and empty:
                return Star(more)
            whole = seq(first, Star(more))
            return alt(EMPTY, whole) if empty else whole
        inner = self._loop(item, want)
        return alt(EMPTY, inner) if empty else inner

    def _loop(self, item: Node, want: _Want) -> Node:
        """One or more, as a rule of its own: how one ends decides how the next may start."""
        key = (item, want)
        if key not in self.loops:
            name = self.loops[key] = f"more_{len(self.loops)}"
            self.result[name] = EMPTY
            found: list[Node] = []
            for end in (True, False):
                first = self.gen(item, _Want(want.after, end, want.inside))
                if first is None:
                    continue
                more = Ref(name) if end == want.after else self._loop(item, _Want(end, want.ends, want.inside))
                stop = want.ends is None or want.ends == end
                found.append(seq(first, alt(EMPTY, more) if stop else more))
            self.result[name] = alt(*found)
        return Ref(self.loops[key])


def _is_word(node: Node, at: int) -> bool:
    """Whether this token starts (0) or ends (-1) with a character that runs on into a word."""
    if isinstance(node, Lit):
        return node.text[at].isalnum() or (node.text == "?" and at == -1)
    assert isinstance(node, Tok)
    return node.name not in ("_NL", *(_DOTTED if at == 0 else ()))
