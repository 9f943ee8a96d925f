"""What a reply proposes, and what is wrong with it before anything is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from avo.agents.answer import HOW, Answer, Unreadable, read_answer
from avo.agents.protocol import Brief, Judged
from avo.models.protocol import Reply
from avo.programs import named
from avo.python_arm import trouble

if TYPE_CHECKING:
    from dsl.diagnostics import Diagnostic
    from dsl.syntax import Program


def look(reply: Reply, brief: Brief) -> tuple[Answer | None, str]:
    """(what the reply proposes, what is wrong with it): None where there is no program in it; "" where nothing is."""
    if reply.outcome == "refused":
        return None, f"you refused ({reply.detail or 'no reason given'}). The task is to make a numeric kernel faster"
    answer, problem = look_at(reply.text, brief)
    if problem and reply.outcome == "truncated":
        problem = f"your reply was {reply.detail}{'. ' if answer else ': '}{problem}"
    return answer, problem


def look_at(text: str, brief: Brief, parent: str = "") -> tuple[Answer | None, str]:
    """The same of a text. parent: the candidate that it edits, by the start of its digest; as the text says without."""
    try:
        answer = read_answer(text, brief.parent.text, brief.language)
        answer = replace(answer, parent=parent or answer.parent)
        named = edited(answer, brief)
        if named is not brief.parent:
            answer = replace(read_answer(text, named.text, brief.language), parent=answer.parent)
    except Unreadable as error:
        return None, str(error)
    return answer, problem_in(answer, brief)


def edited(answer: Answer, brief: Brief) -> Judged:
    """The candidate that the answer says it edits; the brief's where it names none."""
    return candidate(brief, answer.parent) or brief.parent


def candidate(brief: Brief, name: str) -> Judged | None:
    """A candidate by the start of its digest (4 signs or more), or by its number."""
    name = name.strip().strip("`").lower()
    if name.isdecimal() and len(name) < 4:
        return next((c for c in brief.candidates if c.k == int(name)), None)
    return next((c for c in brief.candidates if len(name) >= 4 and c.digest.startswith(name)), None)


def problem_in(answer: Answer, brief: Brief) -> str:
    """What `avo check` says of it, or that it was judged already; "" where nothing is wrong."""
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.printer import digest

    if brief.language == "python":
        return trouble(answer.text) or _known(brief, named(answer.text)[0])
    try:
        program = parse(answer.text)
        found = errors_in(program, brief)
    except ProgramError as error:
        found = list(error.diagnostics)
    except RecursionError:
        return f"the program is nested too deeply. Send {HOW}"
    if found:
        shown = "\n".join(d.render(answer.text) for d in found[:8])
        return shown + (f"\n... and {len(found) - 8} more" if len(found) > 8 else "")
    return _known(brief, digest(program))


def _known(brief: Brief, digest: str) -> str:
    known = brief.find(digest)
    if known is None:
        return ""
    score = f", {known.value:.5g} {known.evaluation.unit}" if known.value else ""
    return f"this program was judged already, as proposal {known.k}: {known.status}{score}. Send another"


def errors_in(program: Program, brief: Brief) -> list[Diagnostic]:
    """What the check finds on the brief's chip, and what the target does not let an edit change."""
    from dsl.check import check
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from evaluators.contract import breaches

    try:
        wanted = parse(brief.target.seed)
    except ProgramError:
        return []
    found = breaches(wanted.algorithm, program.algorithm, brief.opens)
    if not found:
        sizes = brief.target.workloads[0].sizes if brief.target.workloads else None
        found = [d for d in check(program, brief.hardware, sizes) if d.severity == "error"]
    return sorted(found, key=lambda d: (d.span.line, d.span.column))


def brief_line(text: str, most: int = 200) -> str:
    """In one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
