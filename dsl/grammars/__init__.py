"""Grammars for constrained decoding, made from `grammar.lark` and the knob table.

`grammar(form)` is the whole language; `edit_grammar(program, hw, form)` the edits of one program's schedule on a chip.
"""

from __future__ import annotations

from dsl.grammars.ebnf import Opt, Ref, Rules, compact, seq
from dsl.grammars.formats import FORMATS, printed
from dsl.grammars.program import edit_grammar
from dsl.grammars.refine import CONTEXT_RULES, language
from dsl.grammars.spacing import BLANK, LINE_END, spaced

__all__ = ["CONTEXT_RULES", "FORMATS", "edit_grammar", "grammar"]


def grammar(form: str) -> str:
    """The whole language as text in one of FORMATS.

    It accepts what `dsl.parser.parse` and the checks of form accept, up to comments; the rules that need more than a
    context-free grammar are CONTEXT_RULES.
    """
    return printed(_whole(language()), "text", form)


def _whole(rules: Rules) -> Rules:
    done = spaced(rules, "program")
    newline = Opt(LINE_END)
    done["text"] = seq(newline, Ref("program"), newline, Opt(BLANK))
    return compact(done, "text")
