"""Write editors/avo.tmLanguage.json from the grammar and the tables: `python editors/make_textmate.py` (`--check`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dsl.assembly import DTYPES
from dsl.directives import DIRECTIVES
from dsl.expressions import FUNCTIONS
from dsl.grammars.ebnf import literals, read
from dsl.grammars.refine import keywords
from dsl.hardware import HARDWARE
from dsl.parser import grammar_text

PAGE = Path(__file__).parent / "avo.tmLanguage.json"
_OPERATOR_WORDS = ("and", "or", "not", "in")
_CONSTANTS = ("true", "false", "inf")


def _any(words: Iterable[str]) -> str:
    """One of these words, longest first."""
    return "|".join(sorted(words, key=lambda w: (-len(w), w)))


def _word(words: Iterable[str]) -> str:
    return rf"\b(?:{_any(words)})\b"


def _signs() -> str:
    """The operators that are no words, longest first, as a regular expression."""
    rules, _ = read(grammar_text())
    names = ("or", "and", "not", "comparison", "add", "multiply", "negative")
    signs = [s for s in literals(rules[n] for n in names) if not s.isalpha()]
    return "|".join("".join(f"\\{c}" for c in s) for s in sorted(signs, key=len, reverse=True))


def grammar() -> dict[str, Any]:
    """The TextMate grammar. Lines of the schedule are told by the directive that they start with."""
    _, terminals = read(grammar_text())
    name = "[A-Za-z_][A-Za-z0-9_]*"
    words = [w for w in keywords() if w not in (*_OPERATOR_WORDS, *_CONSTANTS)]
    keys = {s.key for d in DIRECTIVES.values() for s in d.slots if s.key and s.key != "AXIS"}
    choices = {c.word for d in DIRECTIVES.values() for s in d.slots for c in s.choices}
    chips = {n for h in HARDWARE.values() for n in (h.name, h.arch)}
    start = r"(?:^|(?<=[:,]))\s*"
    shared = [{"include": f"#{part}"} for part in ("comment", "number", "sign", "bracket")]
    directive = rf"({_any(DIRECTIVES)})(?=$|[\s,#])(?!\s*[\[=])"
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "avo",
        "scopeName": "source.avo",
        "fileTypes": ["avo"],
        "patterns": [
            {"include": "#comment"},
            {"include": "#for"},
            {"include": "#directive"},
            {"include": "#declaration"},
            {"include": "#expression"},
        ],
        "repository": {
            "comment": {"name": "comment.line.number-sign.avo", "match": "#.*$"},
            "number": {
                "name": "constant.numeric.avo",
                "match": rf"(?<![\w.])(?:{terminals['FLOAT']}|{terminals['SIZE']}|{terminals['INT']})(?![\w.])",
            },
            "sign": {"name": "keyword.operator.avo", "match": f"{_signs()}|=|\\||\\?"},
            "bracket": {"name": "punctuation.avo", "match": r"[()\[\],:]"},
            "declaration": {
                "match": rf"^\s*({_any(w for w in words if w not in ('for',))}|in)\b(?:\s+({name}))?",
                "captures": {"1": {"name": "keyword.control.avo"}, "2": {"name": "entity.name.avo"}},
            },
            "for": {
                "begin": r"^\s*(for)\b",
                "end": "(:)",
                "beginCaptures": {"1": {"name": "keyword.control.avo"}},
                "endCaptures": {"1": {"name": "punctuation.avo"}},
                "patterns": [{"name": "constant.language.chip.avo", "match": _word(chips)}, *shared],
            },
            "directive": {
                "begin": f"{start}{directive}",
                "end": r"$|(?=,)|(?=#)",
                "beginCaptures": {"1": {"name": "keyword.other.directive.avo"}},
                "patterns": [
                    {"name": "variable.parameter.avo", "match": rf"\b(?:{_any(keys)})(?=\s*=)"},
                    {"name": "constant.language.choice.avo", "match": _word(choices)},
                    {"name": "variable.other.axis.avo", "match": rf"\b{name}\b"},
                    *shared,
                ],
            },
            "expression": {
                "patterns": [
                    {"name": "keyword.operator.word.avo", "match": _word(_OPERATOR_WORDS)},
                    {"name": "constant.language.avo", "match": _word(_CONSTANTS)},
                    {
                        "name": "support.function.avo",
                        "match": rf"\b(?:{_any(FUNCTIONS)})(?=\s*\(|\s*\[[^\]]*\]\s*\()",
                    },
                    {"name": "storage.type.avo", "match": _word((*DTYPES, "int"))},
                    {"name": "variable.parameter.avo", "match": r"\blimit(?=\s*=(?!=))"},
                    {"name": "constant.other.extent.avo", "match": r"\b[A-Z][A-Z0-9_]*\b"},
                    {"name": "variable.other.tensor.avo", "match": rf"\b{name}(?=\s*\[)"},
                    {"name": "variable.other.avo", "match": rf"\b{name}\b"},
                    *shared,
                ]
            },
        },
    }


def text() -> str:
    return json.dumps(grammar(), indent=2) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != text():
            print("editors/avo.tmLanguage.json is not current: run python editors/make_textmate.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
