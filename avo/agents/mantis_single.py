"""A round of mantis in one prompt: analysis, hypotheses with their ratings and programs, and the lesson, in one reply.

The published controller has both forms (arXiv 2603.29010): separate phases help weak and middling models, one prompt a
strong one. Triage is the same formula here, on what the one reply says; the hypotheses tried after the best one cost no
further request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from archive.records import Hypothesis
from avo.agents import prompting
from avo.agents.answer import Answer
from avo.agents.brief_page import page, verdict_row
from avo.agents.evidence import evidence
from avo.agents.mantis import FORMS, Form, Talk, parsed, roi
from avo.agents.protocol import Brief, Judged, Proposal
from avo.agents.reading import brief_line, edited, look, look_at
from avo.agents.sweeping import fill_of
from avo.knowledge import search
from avo.models.calling import REPLIED, Unkept
from avo.models.protocol import Message, Reply, Request
from evaluators.failures import quoted

if TYPE_CHECKING:
    from avo.knowledge import Page


class Idea(Form):
    claim: str
    change: str
    bottleneck: str
    speedup: float = Field(gt=0, lt=1e3)
    implement: float = Field(ge=1, le=5)
    perform: float = Field(ge=1, le=5)
    answer: str


class Round(Form):
    bottleneck: str
    gap: float
    because: str
    hypotheses: list[Idea] = Field(min_length=1)
    lesson: str
    topic: str


def propose(talk: Talk, jobs: int, count: int, tries: int, pages: Sequence[Page]) -> Proposal:
    """The next hypothesis of the round that goes on, or the best of a new one."""
    brief = talk.brief
    began, going, tried = _under_way(brief, jobs)
    if going is not None and tried < tries and _same_best(brief, began):
        for idea in _ranked(going, brief, count):
            answer, problem = look_at(idea.answer, brief)
            if answer is not None and not problem:
                return _proposal(talk, idea, answer)
    return _new_round(talk, began, count, jobs, pages)


def _new_round(talk: Talk, began: int, count: int, jobs: int, pages: Sequence[Page]) -> Proposal:
    brief = talk.brief
    limit = evidence(brief.parent.evaluation).bottleneck
    hits = search(limit, brief.hardware, target=brief.target.name, limit=limit, among=pages)[:2]
    notes = [f"- {quoted(n.topic)} ({n.target}): {quoted(n.body, 300)}" for n in brief.notes[-8:]]
    since = [c for c in brief.candidates if began and c.k >= began and (c.k - began) % jobs == 0]
    words = {
        "page": page(brief, how=FORMS),
        "knowledge": "\n".join(p.text for p in hits),
        "lessons": "\n".join(["Lessons so far:", *notes]) if notes else "",
        "verdicts": "\n".join(["Since the last round:", *(verdict_row(brief, c) for c in since)]) if since else "",
        "count": str(count),
    }
    request = talk.request("round", Round, **words)
    best: tuple[Idea | None, Answer | None, str] = (None, None, "")
    reply, problem = Reply(""), ""
    for attempt in range(2):
        request, reply = talk.send(request)
        found = parsed(reply.text, Round)
        if found is None:
            answer, problem = look(reply, brief)
            problem = problem or "it was no JSON of the form that was asked for"
            best = best if best[1] is not None else (None, answer, problem)
        else:
            if attempt == 0 or best[0] is None:
                _keep_lesson(brief, found)
            ideas = _ranked(found, brief, count)
            problem = ""
            for idea in ideas:
                answer, wrong = look_at(idea.answer, brief)
                if answer is not None and not wrong:
                    _nominate(brief, [other for other in ideas if other is not idea])
                    return _proposal(talk, idea, answer)
                if best[1] is None and answer is not None:
                    best = (idea, answer, wrong)
                problem = problem or f"None of the hypotheses has a legal `answer`. Of the best one: {wrong}"
        back = Message("user", talk.prompts["repair"].fill(problem=problem))
        request = Request(
            request.system, (*request.messages, reply.said, back), request.max_tokens, schema=request.schema
        )
    chosen, last, wrong = best
    if last is None:
        sign = prompting.signature("mantis", talk.prompts)
        text = f"no program in two replies: {brief_line(problem)}"
        return Proposal(reply.text, (brief.parent.digest,), text, model=talk.model.name, prompts=sign)
    return _proposal(talk, chosen, last, f" (still wrong after a repair: {brief_line(wrong)})" if wrong else "")


def _proposal(talk: Talk, idea: Idea | None, answer: Answer, state: str = "") -> Proposal:
    sign = prompting.signature("mantis", talk.prompts)
    parent = edited(answer, talk.brief).digest
    tested = _hypothesis(idea) if idea else None
    why = (idea.claim if idea else answer.why or "an answer of another form") + state
    return Proposal(answer.text, (parent,), why, tested, model=talk.model.name, prompts=sign)


def _under_way(brief: Brief, jobs: int) -> tuple[int, Round | None, int]:
    """(the proposal that began this line's last round, what it said, how many were tried since); (0, None, 0) where
    there was none."""
    by_k = {c.k: c for c in brief.candidates}
    journal = brief.journal or Unkept()
    tried, k = 0, brief.k - jobs
    while k > 0:
        fill = fill_of(by_k[k]) if k in by_k else None
        tried += fill is None or fill.number == 1  # the fillings of a sweep are one try
        replies = [e.reply for e in journal.at(k) if e.outcome in REPLIED and e.reply]
        if replies:
            return k, parsed(Reply.from_json(replies[-1]).text, Round), tried
        k -= jobs
    return 0, None, 0


def _same_best(brief: Brief, began: int) -> bool:
    """Whether the best program is still the one that the round began with."""
    first: Judged | None = next((c for c in brief.candidates if c.k == began), None)
    return first is not None and brief.parent.digest in first.parents


def _ranked(found: Round, brief: Brief, count: int) -> list[Idea]:
    gap = brief.parent.score.headroom
    ideas = found.hypotheses[:count]
    return sorted(ideas, key=lambda i: -roi(i.speedup, i.implement, i.perform, gap))


def _hypothesis(idea: Idea) -> Hypothesis:
    return Hypothesis(idea.claim, idea.speedup, brief_line(idea.bottleneck, 60))


def _nominate(brief: Brief, ideas: Sequence[Idea]) -> None:
    gap = brief.parent.score.headroom
    for idea in ideas:
        rated = {"speedup": idea.speedup, "implement": idea.implement, "perform": idea.perform}
        detail = {"roi": roi(idea.speedup, idea.implement, idea.perform, gap), **rated}
        (brief.journal or Unkept()).nominate(_hypothesis(idea), detail)


def _keep_lesson(brief: Brief, found: Round) -> None:
    if found.lesson.strip():
        topic = brief_line(found.topic, 80) or "lesson"
        (brief.journal or Unkept()).note(topic, brief_line(found.lesson, 600))
