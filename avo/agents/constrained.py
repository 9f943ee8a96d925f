"""The grammar of one reply: a reason, what is expected, and edits of this program with values legal on this chip.

Made for each brief from `dsl.knobs`, so each edit alone passes the check; edits that together do not are few, and the
check says which.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from avo.agents.brief_page import knobs
from avo.agents.protocol import Brief

MOST = 3  # edits in one reply
SCHEMA_ANSWER = """\
Answer with one JSON object: `why` (in one line, what should get faster and why), `expect` (1.10 for a score 10% above
the parent's) and `edits`, a list of one to three directive lines (`tile m=128`), each a change of what it names. Change
what the bottleneck names; do not send a program that was judged already."""
_FOLLOWED = re.compile(r"\s*why: [^\n`]+\nexpect: [01]\.\d+\n```\n")


def lines(brief: Brief) -> list[tuple[str, tuple[str, ...]]]:
    """(beginning, endings) of each directive line that changes one decision of the last kernel of the brief's program.

    Empty for a program with no open decision, or one that is none of the language.
    """
    found = knobs(brief)
    last = max((k.kernel for k in found), default=0)
    streamed = next((str(k.value) for k in found if k.directive == "stream" and not k.key and k.kernel == last), "")
    rows: list[tuple[str, tuple[str, ...]]] = []
    for k in found:
        if k.kernel != last or k.chips:  # a line for this chip would win over the edit of the common one
            continue
        values = tuple(str(v) for v in k.legal if v != k.value)
        if k.directive == "stream" and not k.key:
            continue  # another streamed axis takes another tile, grid and split with it: that is a whole schedule
        head = k.directive
        if k.directive == "tile":
            head = f"tile {k.key}="
        elif k.key:
            head = f"{k.directive} {streamed or _axis(brief)} {k.key}="
        if values:
            rows.append((head if head.endswith("=") else head + " ", values))
    return rows


def reply_grammar(brief: Brief, form: Literal["gbnf", "lark"]) -> str:
    """The grammar of a reply to this brief, "" where nothing but a whole program can answer it.

    gbnf: the reply of a model without tools, with its fence. lark: the text of the tool `evaluate_edit`.
    """
    found = lines(brief) if brief.opens == "schedule" else []
    if not found:
        return ""
    edits = " | ".join(f'"{head}" ({" | ".join(f"{chr(34)}{v}{chr(34)}" for v in values)})' for head, values in found)
    if form == "gbnf":
        more = ' ("\\n" edit)?' * (MOST - 1)
        return (
            f'root ::= "why: " [A-Za-z(] why "\\nexpect: " expect "\\n```\\n" edit{more} "\\n```\\n"\n'
            "why ::= [^\\n`]{12,200}\n"
            'expect ::= ("0.9" | "1.") [0-9] [0-9]?\n'
            f"edit ::= {edits}\n"
        )
    more = ' ("\\n" edit)?' * (MOST - 1)
    return (
        f'start: "why: " WHY "\\nexpect: " EXPECT "\\n" edit{more}\n'
        f"edit: {edits}\n"
        "WHY: /[A-Za-z(][^\\n`]{12,200}/\n"
        "EXPECT: /(0\\.9|1\\.)[0-9][0-9]?/\n"
    )


def reply_schema(brief: Brief) -> dict[str, Any]:
    """The same as a JSON schema, for servers that keep a reply to one and know no GBNF (Ollama); {} where nothing but
    a whole program can answer it."""
    found = lines(brief) if brief.opens == "schedule" else []
    if not found:
        return {}
    edits = [head + value for head, values in found for value in values]
    return {
        "type": "object",
        "properties": {
            "why": {"type": "string"},
            "expect": {"type": "number"},
            "edits": {"type": "array", "items": {"type": "string", "enum": edits}, "minItems": 1, "maxItems": MOST},
        },
        "required": ["why", "expect", "edits"],
        "additionalProperties": False,
    }


def follows(text: str) -> bool:
    """Whether a whole reply begins as the grammar in GBNF has it; one that does not was not kept to it."""
    return _FOLLOWED.match(text) is not None


def _axis(brief: Brief) -> str:
    """The streamed axis, where it is not itself a decision."""
    from dsl.parser import parse
    from dsl.schedule import kernels_of, resolve

    program = parse(brief.parent.text)
    hw = brief.hardware
    return resolve(program, len(kernels_of(program)) - 1, hw.arch, hw.name).stream or ""
