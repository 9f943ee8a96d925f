"""A grammar printed for a decoder: Lark (OpenAI's custom tools, llguidance) or GBNF (llama.cpp, vLLM through xgrammar).

Both have no look-around and no priorities, so a name that is no keyword is written out as the complement of the
keywords, letter by letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from dsl.grammars.ebnf import EMPTY, Alt, Lit, Node, Opt, Ref, Rules, Seq, Star, Tok, glued, used, walk
from dsl.grammars.refine import NO_VALUES, keywords
from dsl.grammars.spacing import PATTERNS

FORMATS = ("lark", "gbnf")
WIDTH = 100


def patterns() -> dict[str, str]:
    """Terminal -> regular expression without look-around. Each is what `dsl.parser` takes for it."""
    words = keywords()
    return {
        "WORD": without((*words, *NO_VALUES, "quantize")),
        "AXIS": without(words, first="a-z_", rest="a-z0-9_"),
        "INT": "[0-9]{1,18}",
        "SIZE": "[0-9]{1,18}[KMG]iB",
        "FLOAT": "[0-9]+\\.[0-9]*([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+",
        "DOTTED": "\\.[0-9]+([eE][+-]?[0-9]+)?",
        **PATTERNS,
    }


# Terminals that are others or words.
JOINED: dict[str, tuple[str, ...]] = {
    "NAME": ("WORD", *NO_VALUES, "quantize"),
    "VALUE": ("WORD", "quantize"),
    "FUNCTION": ("WORD", *NO_VALUES),
}


def without(words: Iterable[str], first: str = "A-Za-z_", rest: str = "A-Za-z0-9_") -> str:
    """A regular expression for every name that is none of `words`; `first` and `rest` are the insides of classes.

    A trie of the words: at each letter either the next one of a word, or any other and then anything.
    """
    rest = re.sub("(?<!A-Z)a-z0-9", "a-z0-9", rest)
    words = [w for w in words if re.fullmatch(f"[{first}][{rest}]*", w)]

    def after(prefix: str) -> str:
        following = sorted({w[len(prefix)] for w in words if w.startswith(prefix) and len(w) > len(prefix)})
        inside = rest if prefix else first
        options = [c + after(prefix + c) for c in following]
        options.append(f"[{_less(inside, following)}][{rest}]*")
        body = "|".join(options)
        if not prefix:
            return body
        if len(options) == 1:
            return f"[{rest}]+" if prefix in words else f"[{rest}]*"
        return f"({body})" + ("" if prefix in words else "?")

    return after("")


def _less(inside: str, letters: list[str]) -> str:
    """The inside of a character class without some letters, as ranges."""
    allowed = [c for c in map(chr, range(128)) if re.fullmatch(f"[{inside}]", c) and c not in letters]
    ranges: list[list[str]] = []
    for c in allowed:
        if ranges and ord(ranges[-1][1]) == ord(c) - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return "".join(a if a == b else a + b if ord(b) - ord(a) == 1 else f"{a}-{b}" for a, b in ranges)


def printed(rules: Rules, start: str, form: str) -> str:
    """The grammar as text in one of FORMATS; `start` becomes `start` (Lark) or `root` (GBNF)."""
    names = used(rules, start)
    rules = {name: glued(rules[name]) for name in names}
    tokens = dict.fromkeys(n.name for name in names for n in walk(rules[name]) if isinstance(n, Tok))
    tokens |= dict.fromkeys(part for t in tokens for part in JOINED.get(t, ()) if part.isupper())
    return {"lark": _lark, "gbnf": _gbnf}[form](rules, names, list(tokens))


def _lark(rules: Rules, names: list[str], tokens: list[str]) -> str:
    new = {name: "start" if i == 0 else name for i, name in enumerate(names)}
    lines = []
    for name in names:
        text = shown(rules[name], lambda n: new[n.name] if isinstance(n, Ref) else n.name, json.dumps)
        lines += _wrapped(f"{new[name]}: ", text, "\n    | ")
    known = patterns()
    for name in tokens:
        parts = [p if p.isupper() else json.dumps(p) for p in JOINED.get(name, ())]
        lines.append(f"{name}: " + (" | ".join(parts) or f"/{known[name]}/"))
    return "\n".join(lines) + "\n"


def _gbnf(rules: Rules, names: list[str], tokens: list[str]) -> str:
    new = {name: "root" if i == 0 else name.replace("_", "-") for i, name in enumerate(names)}
    terminals = {name: f"t-{name.strip('_').lower().replace('_', '-')}" for name in tokens}
    lines = []
    for name in names:
        text = shown(rules[name], lambda n: new[n.name] if isinstance(n, Ref) else terminals[n.name], json.dumps)
        lines += _wrapped(f"{new[name]} ::= ", text, " |\n    ")
    known = patterns()
    for name in tokens:
        parts = [terminals[p] if p.isupper() else json.dumps(p) for p in JOINED.get(name, ())]
        lines.append(f"{terminals[name]} ::= " + (" | ".join(parts) or gbnf_pattern(known[name])))
    return "\n".join(lines) + "\n"


def shown(
    node: Node, name: Callable[[Ref | Tok], str] = lambda n: n.name, quote: Callable[[str], str] = json.dumps
) -> str:
    """The node in the notation that both formats share."""

    def text(part: Node, tight: bool) -> str:
        match part:
            case Lit(word):
                return quote(word)
            case Ref() | Tok():
                return name(part)
            case Opt(item):
                return f"{text(item, True)}?"
            case Star(item):
                return f"{text(item, True)}*"
            case Seq(items):
                body = " ".join(text(i, isinstance(i, Alt)) for i in items) or '""'
                return f"({body})" if tight else body
            case Alt(items):
                body = " | ".join(text(i, False) for i in items)
                return f"({body})" if tight else body
        raise AssertionError(part)

    assert node != EMPTY
    return text(node, False)


def _wrapped(head: str, text: str, joint: str) -> list[str]:
    """Alternatives on lines of their own where one line would be too long."""
    if len(head) + len(text) <= WIDTH:
        return [head + text]
    parts, depth, quoted = [""], 0, False
    for i, c in enumerate(text):
        quoted ^= c == '"' and text[i - 1 : i] != "\\"
        depth += 0 if quoted else (c == "(") - (c == ")")
        if c == "|" and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    rows = [parts[0].strip()]
    for part in (p.strip() for p in parts[1:]):
        if len(rows[-1]) + len(part) + 7 <= WIDTH:
            rows[-1] += f" | {part}"
        else:
            rows.append(part)
    return (head + joint.join(rows)).split("\n")


_PIECE = re.compile(r"\[(?:[^\]\\]|\\.)*\]|\{[0-9,]+\}|\\.|.")


def gbnf_pattern(pattern: str) -> str:
    """A regular expression of classes, groups, `|`, `*`, `+`, `?` and `{}` in GBNF, where letters stand in quotes."""
    out: list[str] = []
    for piece in _PIECE.findall(pattern):
        if piece in ("(", ")", "|") or piece.startswith("["):
            out.append(piece)
        elif piece in ("*", "+", "?") or piece.startswith("{"):
            out[-1] += piece
        else:
            out.append(json.dumps({"\\n": "\n", "\\t": "\t"}.get(piece, piece.removeprefix("\\"))))
    return " ".join(out)
