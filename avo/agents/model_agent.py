"""The agent `avo`, in its narrow form: one question to a language model for each proposal, and one round of repair."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from archive.records import Hypothesis
from avo.agents.answer import HOW, Answer, Unreadable, read_answer
from avo.agents.brief_page import page
from avo.agents.protocol import Brief, Judged, Proposal
from avo.errors import UserMistake
from avo.models.calling import WAITS, Unkept, Waits, converse
from avo.models.protocol import Message, Model, Reply, Request

if TYPE_CHECKING:
    from dsl.diagnostics import Diagnostic
    from dsl.syntax import Program

MAX_TOKENS = 16_000  # of one reply, with what the model thinks


class ModelAgent:
    """Asks `model` with the brief of the step; reads its answer as `avo tell` does. An answer that holds no program, or
    one with errors, or a program that was judged already, goes back once with the reasons. What is still wrong then is
    proposed as it stands, so that it is recorded, and the judge says why it is rejected.

    max_tokens: of one reply. timeout_s: of one attempt. attempts: before the model counts as away.
    prompts: a folder whose `system.md` and `repair.md` (with `{problem}` in it) stand instead of those of this package.
    """

    name = "avo"

    def __init__(
        self,
        model: Model | None = None,
        max_tokens: int = MAX_TOKENS,
        timeout_s: float = WAITS.timeout_s,
        attempts: int = WAITS.attempts,
        prompts: str | None = None,
        waits: Waits | None = None,
    ) -> None:
        if model is None:
            from avo.models.naming import FORMS

            raise UserMistake(f"the agent 'avo' asks a model: --model NAME, where NAME is {FORMS}")
        self._model = model
        self._max_tokens = max_tokens
        self._waits = waits or replace(WAITS, timeout_s=float(timeout_s), attempts=int(attempts))
        self._system = _prompt("system", prompts)
        self._repair = _prompt("repair", prompts)

    def propose(self, brief: Brief) -> Proposal:
        request = Request(self._system, (Message("user", page(brief)),), self._max_tokens)
        reply = self._ask(request, brief)
        answer, problem = look(reply, brief)
        rounds = [problem]
        if problem:
            said = Message("assistant", reply.text.strip() or "(nothing)")
            back = Message("user", self._repair.replace("{problem}", problem))
            reply = self._ask(replace(request, messages=(*request.messages, said, back)), brief)
            second, problem = look(reply, brief)
            rounds.append(problem)
            answer = second or answer
        return self._proposal(brief, reply, answer, rounds)

    def _ask(self, request: Request, brief: Brief) -> Reply:
        return converse(
            self._model,
            request,
            brief.journal or Unkept(),
            stop=brief.stop,
            seconds=brief.left.seconds,
            waits=self._waits,
        )

    def _proposal(self, brief: Brief, reply: Reply, answer: Answer | None, rounds: list[str]) -> Proposal:
        if answer is None:
            why = f"no program in two replies: {_line(rounds[-1])}"
            return Proposal(reply.text, (brief.parent.digest,), why, model=self._model.name)
        why = answer.why
        if len(rounds) > 1:
            state = f"still wrong after a repair: {_line(rounds[1])}" if rounds[1] else f"repaired: {_line(rounds[0])}"
            why = f"{why} ({state})" if why else state
        return Proposal(
            answer.text,
            (_parent(answer, brief).digest,),
            why,
            Hypothesis(answer.why or "a higher score", answer.expect) if answer.expect is not None else None,
            model=self._model.name,
        )


def look(reply: Reply, brief: Brief) -> tuple[Answer | None, str]:
    """(what the reply proposes, what is wrong with it): None where there is no program in it; "" where nothing is."""
    if reply.outcome == "refused":
        return None, f"you refused ({reply.detail or 'no reason given'}). The task is to make a numeric kernel faster"
    try:
        answer = read_answer(reply.text, brief.parent.text)
        named = _parent(answer, brief)
        if named is not brief.parent:
            answer = read_answer(reply.text, named.text)
    except Unreadable as error:
        return None, f"your reply was {reply.detail}: {error}" if reply.outcome == "truncated" else str(error)
    problem = _problem(answer, brief)
    if problem and reply.outcome == "truncated":
        problem = f"your reply was {reply.detail}. {problem}"
    return answer, problem


def _parent(answer: Answer, brief: Brief) -> Judged:
    """The candidate that the answer says it edits, by the start of its digest; the brief's where it names none."""
    found = [c for c in brief.candidates if len(answer.parent) >= 4 and c.digest.startswith(answer.parent.lower())]
    return found[0] if found else brief.parent


def _problem(answer: Answer, brief: Brief) -> str:
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.printer import digest

    try:
        program = parse(answer.text)
        found = _errors(program, brief)
    except ProgramError as error:
        found = list(error.diagnostics)
    except RecursionError:
        return f"the program is nested too deeply. Send {HOW}"
    if found:
        shown = "\n".join(d.render(answer.text) for d in found[:8])
        return shown + (f"\n... and {len(found) - 8} more" if len(found) > 8 else "")
    known = brief.find(digest(program))
    if known is not None:
        score = f", {known.value:.5g} {known.evaluation.unit}" if known.value else ""
        return f"this program was judged already, as proposal {known.k}: {known.status}{score}. Send another"
    return ""


def _errors(program: Program, brief: Brief) -> list[Diagnostic]:
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


def _prompt(name: str, folder: str | None) -> str:
    if folder is not None:
        from avo.files import read_text

        if not Path(folder).is_dir():
            raise UserMistake(f"agent_options.prompts names a folder with system.md and repair.md; {folder} is none")
        path = Path(folder) / f"{name}.md"
        if path.exists():
            return read_text(str(path))
    return (resources.files("avo.agents") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


def _line(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
