"""The TextMate grammar is current, and gives every token of the examples a scope: by a small tokenizer of its kind."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from lark import Lark

from dsl.parser import grammar_text

ROOT = Path(__file__).parents[2]
GRAMMAR = json.loads((ROOT / "editors" / "avo.tmLanguage.json").read_text(encoding="utf-8"))
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.avo"))


def test_the_grammar_is_current():
    made = runpy.run_path(str(ROOT / "editors" / "make_textmate.py"))
    assert made["grammar"]() == GRAMMAR, "run python editors/make_textmate.py"


def flat(patterns):
    for p in patterns:
        if "include" in p:
            yield from flat([GRAMMAR["repository"][p["include"].removeprefix("#")]])
        elif "match" in p or "begin" in p:
            yield p
        else:
            yield from flat(p["patterns"])


def captured(match, captures):
    for n, capture in (captures or {}).items():
        if match[int(n)]:
            yield match.start(int(n)), match.end(int(n)), capture["name"]


def scopes(line):
    """(start, end, scope) of a line, as TextMate finds them: the earliest match, the first of equal ones."""
    found, at, inside = [], 0, []
    while at <= len(line):
        rules = list(flat(inside[-1]["patterns"] if inside else GRAMMAR["patterns"]))
        options = [(m, r) for r in rules if (m := re.compile(r.get("match", r.get("begin"))).search(line, at))]
        if inside and (end := re.compile(inside[-1]["end"]).search(line, at)):
            options.insert(0, (end, None))
        if not options:
            break
        match, rule = min(options, key=lambda o: o[0].start())
        if rule is None:
            found += captured(match, inside.pop().get("endCaptures"))
        elif "begin" in rule:
            found += captured(match, rule.get("beginCaptures"))
            inside.append(rule)
        elif "captures" in rule:
            found += captured(match, rule["captures"])
        else:
            found.append((match.start(), match.end(), rule["name"]))
        at = match.end() if match.end() > at or rule is None else at + 1
        if rule is None and not inside and match.end() == match.start() == len(line):
            break
    return found


LEXER = Lark(grammar_text(), parser="lalr", lexer="basic", start=["program"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_token_has_one_scope(path):
    rows = [scopes(row) for row in path.read_text().splitlines()]
    for token in LEXER.lex(path.read_text()):
        if token.type == "_NL":
            continue
        start, end = token.column - 1, token.end_column - 1
        hits = [s for a, b, s in rows[token.line - 1] if a <= start and end <= b]
        assert len(hits) == 1, (path.name, token.line, str(token), hits)


@pytest.mark.parametrize(
    "line, token, scope",
    [
        ("kernel tile", "tile", "entity.name.avo"),
        ("in  q[b h] bf16", "bf16", "storage.type.avo"),
        ("out o[b h] f32", "out", "keyword.control.avo"),
        ("s[b h] = sum[d in db](q * k) * rsqrt(D)", "sum", "support.function.avo"),
        ("s[b h] = sum[d in db](q * k) * rsqrt(D)", "in", "keyword.operator.word.avo"),
        ("s[b h] = sum[d in db](q * k) * rsqrt(D)", "rsqrt", "support.function.avo"),
        ("s[b h] = sum[d in db](q * k) * rsqrt(D)", "D", "constant.other.extent.avo"),
        ("c = where(not causal, -inf, 1e-6)", "inf", "constant.language.avo"),
        ("c = where(not causal, -inf, 1e-6)", "1e-6", "constant.numeric.avo"),
        ("order longest_first l2=8MiB  # why", "longest_first", "constant.language.choice.avo"),
        ("order longest_first l2=8MiB  # why", "8MiB", "constant.numeric.avo"),
        ("order longest_first l2=8MiB  # why", "# why", "comment.line.number-sign.avo"),
        ("stream n stages=2", "stages", "variable.parameter.avo"),
        ("for gfx942 gfx950: load pointer, waves_per_eu 2", "gfx950", "constant.language.chip.avo"),
        ("for gfx942 gfx950: load pointer, waves_per_eu 2", "load", "keyword.other.directive.avo"),
        ("for gfx942 gfx950: load pointer, waves_per_eu 2", "waves_per_eu", "keyword.other.directive.avo"),
        ("load[m] = warps + 1", "load", "variable.other.tensor.avo"),
    ],
)
def test_scopes(line, token, scope):
    start = line.index(token)
    assert (start, start + len(token), scope) in scopes(line)
