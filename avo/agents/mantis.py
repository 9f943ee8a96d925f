"""The agent `mantis`: measure, analyse, nominate, triage, implement, summarise, each a short question.

After muCUTLASS's orchestrated controller (arXiv 2603.29010), for models that lose the thread in long conversations.
What was measured is in the brief. One round analyses the best program, nominates hypotheses, rates them, and tries the
best rated, one a proposal; each verdict is summarised beside what was expected, and the lesson is kept as a note.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archive.records import Exchange, Hypothesis
from avo.agents import prompting
from avo.agents.brief_page import change, page, scored, verdict_row
from avo.agents.evidence import evidence
from avo.agents.protocol import Brief, Judged, Proposal
from avo.agents.reading import brief_line, edited, look, look_at
from avo.agents.supervisor import record
from avo.agents.sweeping import sweep_before
from avo.errors import UserMistake
from avo.knowledge import pages, search
from avo.models.calling import REPLIED, WAITS, Lacks, Unkept, Waits, converse
from avo.models.protocol import Message, Model, Reply, Request, takes
from evaluators.failures import quoted

MAX_TOKENS = 6_000
PROMPTS = ("mantis", "analyse", "nominate", "triage", "implement", "summarise", "repair")
_MARK = "(mantis: {})"
FORMS = "Change the program in one of these forms: a whole program, a whole schedule, a unified diff, directive lines."


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Analysis(Form):
    bottleneck: str
    gap: float
    because: str


class Nominee(Form):
    claim: str
    change: str
    bottleneck: str


class Nominees(Form):
    hypotheses: list[Nominee] = Field(min_length=1)


class Rating(Form):
    number: int
    speedup: float = Field(gt=0, lt=1e3)
    implement: float = Field(ge=1, le=5)
    perform: float = Field(ge=1, le=5)


class Ratings(Form):
    ratings: list[Rating]


class Implementation(Form):
    answer: str
    why: str


class Lesson(Form):
    lesson: str
    topic: str


_Kind = TypeVar("_Kind", bound=Form)


def roi(speedup: float, implement: float, perform: float, gap: float | None) -> float:
    """What a hypothesis is worth: S^(1 + max(0, log10(g / 5))) / (R_impl R_perf), arXiv 2603.29010.

    gap: the best time over the speed of light; far from it large gains count for more. None: unknown, as at 5.
    """
    power = 1 + max(0.0, math.log10(gap / 5)) if gap else 1.0
    return float(speedup**power / (implement * perform))


@dataclass(frozen=True)
class Rated:
    """A hypothesis in the order of triage."""

    nominee: Nominee
    rating: Rating
    roi: float


class MantisAgent:
    """Asks `model`. count: hypotheses of a round; tries: how many of them are tried, the best rated first. one_prompt:
    a round in one question (avo.agents.mantis_single) instead of one for each phase.

    The rest as `avo.agents.model_agent.ModelAgent`.
    """

    name = "mantis"

    def __init__(
        self,
        model: Model | None = None,
        max_tokens: int = MAX_TOKENS,
        timeout_s: float = WAITS.timeout_s,
        attempts: int = WAITS.attempts,
        prompts: str | None = None,
        count: int = 4,
        tries: int = 2,
        knowledge: Sequence[str] = (),
        one_prompt: bool = False,
        jobs: int = 1,
        waits: Waits | None = None,
    ) -> None:
        if model is None:
            from avo.models import naming

            raise UserMistake(f"the agent 'mantis' asks a model: --model NAME, where NAME is {naming.FORMS}")
        self._model = model
        self._max_tokens = max_tokens
        self._waits = waits or replace(WAITS, timeout_s=float(timeout_s), attempts=int(attempts))
        self._one_prompt = one_prompt
        self._prompts = prompting.prompts(("mantis", "round", "repair") if one_prompt else PROMPTS, prompts)
        self._count = max(1, count)
        self._tries = max(1, tries)
        self._folders = (knowledge,) if isinstance(knowledge, str) else tuple(knowledge)
        self._jobs = jobs

    def propose(self, brief: Brief) -> Proposal:
        schema = "schema" in takes(self._model) and not self._unschooled(brief)
        talk = Talk(self._model, self._prompts, self._max_tokens, self._waits, brief, schema)
        if self._one_prompt:
            from avo.agents import mantis_single

            return mantis_single.propose(talk, self._jobs, self._count, self._tries, self._pages())
        self._summarise(talk)
        plan, at = self._plan(brief)
        if at >= min(len(plan), self._tries):
            plan, at = self._nominated(talk), 0
            for rated in plan[1:]:
                detail = {"roi": rated.roi, **rated.rating.model_dump()}
                (brief.journal or Unkept()).nominate(_hypothesis(rated), detail)
        return self._implement(talk, plan[at] if plan else None)

    # Phases -------------------------------------------------------------------------------------------

    def _nominated(self, talk: Talk) -> list[Rated]:
        """A new round: what limits, what could answer it, what each is worth; the best rated first."""
        brief = talk.brief
        analysis = talk.ask("analyse", Analysis, page=_facts(brief))
        found = evidence(brief.parent.evaluation)
        limit = analysis.bottleneck if analysis else found.bottleneck
        told = f"What limits it: {limit}. {analysis.because if analysis else ''}".strip()
        hits = search(limit, brief.hardware, target=brief.target.name, limit=found.bottleneck, among=self._pages())[:2]
        notes = [f"- {quoted(n.topic)} ({n.target}): {quoted(n.body, 300)}" for n in brief.notes[-8:]]
        nominees = talk.ask(
            "nominate",
            Nominees,
            page=_facts(brief),
            analysis=told,
            knowledge="\n".join(p.text for p in hits),
            lessons="\n".join(["Lessons so far:", *notes]) if notes else "",
            count=str(self._count),
        )
        if nominees is None:
            return []
        return self._rated(talk, nominees.hypotheses[: self._count], told)

    def _rated(self, talk: Talk, nominees: list[Nominee], told: str) -> list[Rated]:
        listed = "\n".join(f"{n}. {h.claim} ({brief_line(h.change)})" for n, h in enumerate(nominees, 1))
        brief = talk.brief
        ratings = talk.ask(
            "triage",
            Ratings,
            analysis=told,
            score=scored(brief, brief.parent),
            program=brief.parent.text.rstrip(),
            hypotheses=listed,
        )
        return _ordered(nominees, ratings, brief.parent.score.headroom)

    def _implement(self, talk: Talk, rated: Rated | None) -> Proposal:
        brief = talk.brief
        claim = (
            rated.nominee.claim if rated else f"answer the bottleneck, {evidence(brief.parent.evaluation).bottleneck}"
        )
        words = {"claim": claim, "change": rated.nominee.change if rated else "(nothing)"}
        request = talk.request("implement", Implementation, page=page(brief, how=FORMS), **words)
        problems: list[str] = []
        answer, why, reply = None, "", Reply("")
        for _ in range(2):
            request, reply = talk.send(request)
            made = parsed(reply.text, Implementation)
            found, problem = look_at(made.answer, brief) if made else look(reply, brief)
            why = brief_line(made.why if made else found.why if found else "", 300) or why
            answer = found or answer
            problems.append(problem)
            if not problem:
                break
            back = Message("user", self._prompts["repair"].fill(problem=problem))
            request = replace(request, messages=(*request.messages, reply.said, back))
        sign = prompting.signature(self.name, self._prompts)
        if answer is None:
            text = f"{claim}: no program in two replies: {brief_line(problems[-1])}"
            return Proposal(reply.text, (brief.parent.digest,), text, model=self._model.name, prompts=sign)
        state = f" (still wrong after a repair: {brief_line(problems[-1])})" if problems[-1] else ""
        state = state or (f" (repaired: {brief_line(problems[0])})" if problems[0] else "")
        parent = edited(answer, brief).digest
        hypothesis = _hypothesis(rated) if rated else None
        return Proposal(
            answer.text, (parent,), (why or claim) + state, hypothesis, model=self._model.name, prompts=sign
        )

    def _summarise(self, talk: Talk) -> None:
        """The verdict on what this line proposed last, beside what was expected of it; the lesson is kept."""
        brief = talk.brief
        sweep = sweep_before(brief, self._jobs)
        last = max(sweep, key=lambda c: c.value, default=None) or next(
            (c for c in brief.candidates if c.k == brief.k - self._jobs), None
        )
        if last is None or last.hypothesis is None or not self._past(brief, (sweep or [last])[0].k):
            return
        gain = last.hypothesis.expected_gain
        expected = f"{gain:.2f}x its parent's score" if gain else "no figure"
        lesson = talk.ask(
            "summarise",
            Lesson,
            claim=last.hypothesis.claim,
            change=change(brief, last) or "(the same program)",
            expected=expected,
            verdict=verdict_row(brief, last),
        )
        if lesson is not None:
            got = _gain(brief, last)
            body = f"{brief_line(lesson.lesson, 600)} (expected {expected}, {got})"
            (brief.journal or Unkept()).note(brief_line(lesson.topic, 80), body)

    # What the journal says of this line ---------------------------------------------------------------

    def _past(self, brief: Brief, k: int) -> list[Exchange]:
        return [] if brief.journal is None else brief.journal.at(k)

    def _steps(self, brief: Brief) -> list[int]:
        """The proposals of this line that were asked for, the newest first."""
        found = []
        k = brief.k - self._jobs
        while k > 0:
            if self._past(brief, k):
                found.append(k)
            k -= self._jobs
        return found

    def _unschooled(self, brief: Brief) -> bool:
        """Whether the endpoint refused schemas in the line's last step, or was not asked for them any more then."""
        steps = self._steps(brief)[:1]
        past = [e for k in steps for e in self._past(brief, k)]
        replied = [Request.from_json(e.request) for e in past if e.outcome in REPLIED]
        return any(e.outcome == "no schema" for e in past) or (bool(replied) and not any(r.schema for r in replied))

    def _plan(self, brief: Brief) -> tuple[list[Rated], int]:
        """The hypotheses of the round that goes on and how many were tried; ([], 0) where a new round begins: none is
        under way, or the best program is another one since."""
        for tried, k in enumerate(self._steps(brief), 1):
            found = self._round(brief, k)
            if found:
                began = next((c for c in brief.candidates if c.k == k), None)
                same = began is not None and brief.parent.digest in began.parents
                return (found, tried) if same else ([], 0)
        return [], 0

    def _round(self, brief: Brief, k: int) -> list[Rated]:
        """What step k nominated and rated, from its replies; empty where it began no round."""
        said: dict[str, str] = {}
        for e in self._past(brief, k):
            if e.outcome in REPLIED and e.reply:
                first = Request.from_json(e.request).messages[0].text.split("\n", 1)[0]
                said[first] = Reply.from_json(e.reply).text  # the last one of a phase is its repair
        nominees = parsed(said.get(_MARK.format("nominate"), ""), Nominees)
        if nominees is None:
            return []
        ratings = parsed(said.get(_MARK.format("triage"), ""), Ratings)
        # A round goes on only while the best program is the one that it began with, so the gap is the same.
        return _ordered(nominees.hypotheses[: self._count], ratings, brief.parent.score.headroom)

    def _pages(self) -> list[Any]:
        return pages(self._folders)


@dataclass
class Talk:
    """The questions of one step. schema: until the endpoint refuses one."""

    model: Model
    prompts: dict[str, prompting.Template]
    max_tokens: int
    waits: Waits
    brief: Brief
    schema: bool

    def ask(self, phase: str, kind: type[_Kind], **words: str) -> _Kind | None:
        """One phase's answer; None where two replies were none of its form."""
        request = self.request(phase, kind, **words)
        for _ in range(2):
            request, reply = self.send(request)
            found = parsed(reply.text, kind)
            if found is not None:
                return found
            wanted = ", ".join(kind.model_fields)
            problem = f"It was no JSON of the form that was asked for: one object with {wanted}, and nothing beside it."
            back = Message("user", self.prompts["repair"].fill(problem=problem))
            request = replace(request, messages=(*request.messages, reply.said, back))
        return None

    def request(self, phase: str, kind: type[Form], **words: str) -> Request:
        text = f"{_MARK.format(phase)}\n\n{self.prompts[phase].fill(**words)}"
        schema = _schema(kind) if self.schema else {}
        return Request(self.prompts["mantis"].text, (Message("user", text),), self.max_tokens, schema=schema)

    def send(self, request: Request) -> tuple[Request, Reply]:
        """The reply, and the request as the endpoint took it."""
        try:
            return request, self._converse(request)
        except Lacks:
            self.schema = False
            request = replace(request, schema={})
            return request, self._converse(request)

    def _converse(self, request: Request) -> Reply:
        brief = self.brief
        journal = brief.journal or Unkept()
        seconds = brief.left.seconds
        return converse(self.model, request, journal, stop=brief.stop, seconds=seconds, waits=self.waits)


def _ordered(nominees: list[Nominee], ratings: Ratings | None, gap: float | None) -> list[Rated]:
    """By ROI; one that was not rated counts as no gain at middling risk."""
    by_number = {r.number: r for r in ratings.ratings} if ratings else {}
    found = []
    for n, nominee in enumerate(nominees, 1):
        rating = by_number.get(n) or Rating(number=n, speedup=1.0, implement=3, perform=3)
        found.append(Rated(nominee, rating, roi(rating.speedup, rating.implement, rating.perform, gap)))
    return sorted(found, key=lambda r: (-r.roi, r.rating.number))


def _facts(brief: Brief) -> str:
    return record(brief, "the facts")


def _hypothesis(rated: Rated) -> Hypothesis:
    return Hypothesis(rated.nominee.claim, rated.rating.speedup, brief_line(rated.nominee.bottleneck, 60))


def _gain(brief: Brief, c: Judged) -> str:
    before = max((p.value for d in c.parents if (p := brief.find(d)) is not None), default=0.0)
    return f"got {c.value / before:.2f}x" if before and c.value else f"it was {c.status}"


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Without the bounds that providers' structured outputs do not take."""

    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "title", "description")
            return {k: plain(v) for k, v in part.items() if k not in bounds or isinstance(v, dict)}
        return [plain(p) for p in part] if isinstance(part, list) else part

    found: dict[str, Any] = plain(kind.model_json_schema())
    return found


def parsed(text: str, kind: type[_Kind]) -> _Kind | None:
    """The object in a reply, whatever stands around it; None where there is none of this form."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        return kind.model_validate(json.loads(text[start : end + 1]))
    except (ValueError, ValidationError, RecursionError):
        return None
