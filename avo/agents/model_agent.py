"""The agent `avo`: a language model is the variation operator.

With tools it works in conversations: it reads, checks and has changes judged, one after the other; proposal k goes on
with the conversation of proposal k - jobs, which is rebuilt from the journal, so nothing is lost in a kill and a replay
asks the same. Without tools it is asked once for each proposal, with one round of repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from archive.records import Hypothesis
from avo.agents import prompting, supervisor
from avo.agents.answer import Answer
from avo.agents.brief_page import TOOLS_ANSWER, page, profile, scored, tokens, verdict_row
from avo.agents.constrained import SCHEMA_ANSWER, follows, reply_grammar, reply_schema
from avo.agents.protocol import Brief, Judged, Proposal
from avo.agents.reading import brief_line, edited, look, look_at
from avo.agents.sweeping import sweep_before
from avo.agents.toolbox import EDIT, Commit, Evaluate, GiveUp, Noted, Toolbox, refusal, tools
from avo.errors import Halted, UserMistake
from avo.models.calling import REPLIED, WAITS, Lacks, Unkept, Waits, converse
from avo.models.protocol import Message, Model, Reply, Request, Result, takes

MAX_TOKENS = 16_000  # of one reply, with what the model thinks
PROMPTS = ("system", "operator", "repair", "supervisor", "python")
_JUDGED = "Verdict: "
_LIMITS = ("usd", "tokens")


class ModelAgent:
    """Asks `model`. What is wrong with an answer before it is judged goes back with the reasons; what is still wrong at
    the end is proposed as it stands, so that it is recorded, and the judge says why it is rejected.

    max_tokens: of one reply. timeout_s: of one attempt. attempts: before the model counts as away.
    prompts: a folder whose templates stand instead of those of this package. tools: False asks for whole answers, True
    goes on with tools also where the model makes no use of them. grammar: keep replies to it where the endpoint can.
    turns: requests for one proposal. evaluations, context: judgements and tokens of one conversation.
    knowledge: folders of Markdown. review_after: proposals without a gain before a reviewer is asked; 0: never.
    """

    name = "avo"

    def __init__(
        self,
        model: Model | None = None,
        max_tokens: int = MAX_TOKENS,
        timeout_s: float = WAITS.timeout_s,
        attempts: int = WAITS.attempts,
        prompts: str | None = None,
        tools: bool | None = None,
        grammar: bool = True,
        turns: int = 12,
        evaluations: int = 6,
        context: int = 40_000,
        knowledge: Sequence[str] = (),
        review_after: int = supervisor.PATIENCE,
        jobs: int = 1,
        waits: Waits | None = None,
    ) -> None:
        if model is None:
            from avo.models.naming import FORMS

            raise UserMistake(f"the agent 'avo' asks a model: --model NAME, where NAME is {FORMS}")
        self._model = model
        self._max_tokens = max_tokens
        self._waits = waits or replace(WAITS, timeout_s=float(timeout_s), attempts=int(attempts))
        self._prompts = prompting.prompts(PROMPTS, prompts)
        self._tools = tools
        self._grammar = grammar
        self._turns = max(1, turns)
        self._evaluations = evaluations
        self._context = context
        self._folders = (knowledge,) if isinstance(knowledge, str) else tuple(knowledge)
        self._review_after = review_after
        self._jobs = jobs

    def propose(self, brief: Brief) -> Proposal | None:
        why = supervisor.stalled(brief, self._review_after) if self._review_after else ""
        advice = self._advice(brief, why) if why else ""
        if self._uses_tools(brief):
            try:
                return self._work(brief, advice)
            except Lacks as lacks:
                if lacks.what != "tools":
                    raise
        return self._answer(brief, advice)

    # What both forms share ----------------------------------------------------------------------------

    def _ask(self, request: Request, brief: Brief) -> Reply:
        return converse(
            self._model,
            request,
            brief.journal or Unkept(),
            stop=brief.stop,
            seconds=brief.left.seconds,
            waits=self._waits,
        )

    def _advice(self, brief: Brief, why: str) -> str:
        """What somebody says who sees the record alone; "" where nothing usable came."""
        told = Message("user", supervisor.record(brief, why))
        reply = self._ask(Request(self._prompts["supervisor"].text, (told,), self._max_tokens), brief)
        if reply.outcome not in ("ok", "truncated") or not reply.text.strip():
            return ""
        head = f"\n## A reviewer was asked: {why}\n\nTheir directions; take them or not.\n\n"
        return head + reply.text.strip() + "\n"

    def _proposal(self, brief: Brief, said: _Said, rounds: Sequence[str]) -> Proposal:
        """rounds: what was wrong with each answer of this step, "" where nothing was; the last one is proposed."""
        sign = prompting.signature(self.name, self._prompts)
        answer = said.answer
        if answer is None:
            why = f"no program in {_number(len(rounds))} replies: {brief_line(rounds[-1])}"
            return Proposal(said.text, (brief.parent.digest,), why, model=self._model.name, prompts=sign)
        why = said.why or answer.why
        problems = [r for r in rounds if r]
        if len(rounds) > 1 and problems:
            state = f"still wrong after a repair: {brief_line(rounds[-1])}" if rounds[-1] else ""
            state = state or f"repaired: {brief_line(problems[0])}"
            why = f"{why} ({state})" if why else state
        expect = said.expect if said.expect is not None else answer.expect
        return Proposal(
            answer.text,
            (edited(answer, brief).digest,),
            why,
            Hypothesis(said.why or answer.why or "a higher score", expect) if expect is not None else None,
            model=self._model.name,
            prompts=sign,
        )

    # One question and one repair ----------------------------------------------------------------------

    def _answer(self, brief: Brief, advice: str) -> Proposal:
        system = self._prompts["python" if brief.language == "python" else "system"].text
        kept = self._kept(brief)
        grammar = reply_grammar(brief, "gbnf") if kept == "grammar" else ""
        request = Request(system, (Message("user", page(brief) + advice),), self._max_tokens, grammar=grammar)
        if kept == "schema":
            request = self._under_schema(request, brief, advice)
        request, reply = self._allowed(request, brief, advice)
        answer, problem = look(reply, brief)
        rounds = [problem]
        if problem:
            back = Message("user", self._prompts["repair"].fill(problem=problem))
            again = replace(request, messages=(*request.messages, replace(reply.said, calls=(), kept=""), back))
            reply = self._allowed(again, brief, advice)[1]
            second, problem = look(reply, brief)
            rounds.append(problem)
            answer = second or answer
        return self._proposal(brief, _Said(answer, reply.text), rounds)

    def _allowed(self, request: Request, brief: Brief, advice: str) -> tuple[Request, Reply]:
        """The reply, and the request as the endpoint took it: without a grammar and then without a schema, where it
        refuses them."""
        try:
            return request, self._ask(request, brief)
        except Lacks as lacks:
            bare = replace(request, grammar="", schema={})
            if lacks.what == "grammar" and "schema" in takes(self._model):
                return self._allowed(self._under_schema(bare, brief, advice), brief, advice)
            return bare, self._ask(bare, brief)

    def _under_schema(self, request: Request, brief: Brief, advice: str) -> Request:
        """The request for edits in JSON of a schema; as it is where nothing but a whole program can answer."""
        schema = reply_schema(brief)
        if not schema:
            return request
        told = Message("user", page(brief, how=SCHEMA_ANSWER) + advice)
        return replace(request, messages=(told, *request.messages[1:]), schema=schema)

    def _kept(self, brief: Brief) -> Literal["grammar", "schema", ""]:
        """What a server of one's own keeps a whole answer to: a grammar; a schema once it refused or ignored one (as
        Ollama does); nothing once it refused that."""
        if brief.language == "python" or not self._grammar or "gbnf" not in takes(self._model):
            return ""
        free = [e for e in self._past(brief, self._before(brief)) if e.outcome in REPLIED and not e.tooled]
        free = [e for e in free if not e.reviews]
        if not free:
            return "grammar"
        ignored = any(e.limited and e.outcome == "ok" and not follows(_text(e.reply)) for e in free)
        if free[-1].limited and not ignored:
            return "grammar"
        schooled = ignored or bool(Request.from_json(free[-1].request).schema)
        return "schema" if schooled and "schema" in takes(self._model) else ""

    # A conversation with tools ------------------------------------------------------------------------

    def _work(self, brief: Brief, advice: str) -> Proposal | None:
        box = Toolbox(brief, self._folders)
        lark = reply_grammar(brief, "lark") if "lark" in takes(self._model) and self._grammar else ""
        shown = tools(lark)
        messages = (None if advice else self._continued(brief)) or self._opened(brief, advice)
        rounds: list[str] = []
        last = _Said(None, "")
        ended = 0  # lines of work that were given up in this step
        for _ in range(self._turns):
            request = Request(self._prompts["operator"].text, tuple(messages), self._max_tokens, shown)
            try:
                reply = self._ask(request, brief)
            except Halted as halted:
                if halted.reason in _LIMITS and box.legal is not None:
                    # It was paid for, and it may be good: what is left of the budget is judging it.
                    return self._proposal(brief, _Said(box.legal, "", "the last that was checked"), [""])
                raise
            turn = self._turn(reply, brief, box)
            if turn.chosen is not None:
                return self._proposal(brief, turn.chosen, [*rounds, ""])
            rounds += turn.problems
            last = turn.last or last
            ended += turn.gave_up
            if ended > 1:
                return None
            messages = self._opened(brief, "") if turn.ended else [*messages, reply.said, turn.back]
        if last.answer is None and box.legal is not None:
            return self._proposal(brief, _Said(box.legal, "", "the last that was checked"), [""])
        return self._proposal(brief, last, rounds or ["it called tools and had nothing judged"])

    def _turn(self, reply: Reply, brief: Brief, box: Toolbox) -> _Turn:
        """Carries out what a reply asks for."""
        turn = _Turn()
        if not reply.calls:
            answer, problem = look(reply, brief)
            if answer is not None and not problem:
                turn.chosen = _Said(answer, reply.text)
                return turn
            turn.problems.append(problem)
            turn.last = _Said(answer, reply.text)
            turn.back = Message("user", self._prompts["repair"].fill(problem=problem))
            return turn
        results = []
        for call in reply.calls:
            act = box.run(call)
            match act:
                case str():
                    text = act
                case Evaluate():
                    text = self._evaluate(act, brief, turn)
                case Noted():
                    (brief.journal or Unkept()).note(act.topic, act.text)
                    text = "Kept."
                case Commit():
                    text = refusal(brief, act.digest)
                    if not text:
                        (brief.journal or Unkept()).note(f"committed {act.digest[:8]}", act.lesson)
                        turn.ended = True
                case GiveUp():
                    (brief.journal or Unkept()).note("given up", act.why)
                    turn.ended, turn.gave_up, text = True, 1, "Ended."
            results.append(Result(call.id, text, call.free))
        turn.back = Message("user", "", results=tuple(results))
        return turn

    def _evaluate(self, act: Evaluate, brief: Brief, turn: _Turn) -> str:
        if turn.chosen is not None or turn.last is not None:
            return "Not judged: one evaluation a reply. Wait for the verdict of the first."
        answer, problem = look_at(act.answer, brief, act.parent)
        said = _Said(answer, act.answer, act.why, act.expect)
        if problem:
            turn.last = said
            turn.problems.append(problem)
            return f"Not judged: {problem}"
        turn.chosen = said
        return ""

    def _opened(self, brief: Brief, advice: str) -> list[Message]:
        return [Message("user", page(brief, how=TOOLS_ANSWER) + advice)]

    def _continued(self, brief: Brief) -> list[Message] | None:
        """The conversation of this line of work with the verdict that it waits for; None where a new one begins."""
        sweep = sweep_before(brief, self._jobs)
        before = sweep[0].k if sweep else brief.k - self._jobs
        past = [e for e in self._past(brief, before) if e.tooled and e.outcome in REPLIED and e.reply]
        judged = [c for c in (sweep or brief.candidates) if sweep or c.k == before]
        if not past or not judged:
            return None
        request, reply = Request.from_json(past[-1].request), Reply.from_json(past[-1].reply or "")
        asked = [c for c in reply.calls if c.name in ("evaluate", EDIT)]
        if reply.calls and not asked:
            return None  # its turns were over
        earlier = sum(r.text.startswith(_JUDGED) for m in request.messages for r in m.results)
        size = sum(tokens(m.text) + sum(tokens(r.text) for r in m.results) for m in request.messages)
        if earlier + 1 >= self._evaluations or size > self._context:
            return None
        text = _verdict(brief, judged)
        results = tuple(
            Result(c.id, text if c is asked[0] else "Not done: it stood beside an evaluation. Ask again.", c.free)
            for c in reply.calls
        )
        return [*request.messages, reply.said, Message("user", "" if results else text, results=results)]

    # What the journal says of this line ---------------------------------------------------------------

    def _uses_tools(self, brief: Brief) -> bool:
        if (
            brief.language == "python"
            or self._tools is False
            or "tools" not in takes(self._model)
            or self._lacks_tools(brief)
        ):
            return False
        if self._tools or "gbnf" not in takes(self._model):  # a provider's model may just have had none to call
            return True
        past = [e for e in self._past(brief, self._before(brief)) if e.tooled and e.outcome in REPLIED and e.reply]
        # A server may take tools and never tell the model of them.
        return not past or any(Reply.from_json(e.reply or "").calls for e in past)

    def _lacks_tools(self, brief: Brief) -> bool:
        """Whether the endpoint refused them, in the step before in this line or (since then they are not asked for)
        before that."""
        past = self._past(brief, self._before(brief))
        replied = [e for e in past if e.outcome in REPLIED and not e.reviews]
        return any(e.outcome == "no tools" for e in past) or (bool(replied) and not any(e.tooled for e in replied))

    def _before(self, brief: Brief) -> int:
        sweep = sweep_before(brief, self._jobs)
        return sweep[0].k if sweep else brief.k - self._jobs

    def _past(self, brief: Brief, k: int) -> list[_Past]:
        if brief.journal is None:
            return []
        review = self._prompts["supervisor"].text
        return [_Past(e.request, e.reply, e.outcome or "", review) for e in brief.journal.at(k)]


@dataclass(frozen=True)
class _Past:
    """An exchange of an earlier step."""

    request: str
    reply: str | None
    outcome: str
    review: str

    @property
    def tooled(self) -> bool:
        return bool(Request.from_json(self.request).tools)

    @property
    def limited(self) -> bool:
        return bool(Request.from_json(self.request).grammar)

    @property
    def reviews(self) -> bool:
        return Request.from_json(self.request).system == self.review


@dataclass(frozen=True)
class _Said:
    """An answer with what was said beside it. text: as it came."""

    answer: Answer | None
    text: str
    why: str = ""
    expect: float | None = None


@dataclass
class _Turn:
    """What came of one reply. back: what the model reads next."""

    chosen: _Said | None = None
    last: _Said | None = None
    problems: list[str] = field(default_factory=list)
    ended: bool = False
    gave_up: int = 0
    back: Message = Message("user", "")


def _verdict(brief: Brief, judged: Sequence[Judged]) -> str:
    rows = [_JUDGED.strip()] + [verdict_row(brief, c) for c in judged]
    best = max(judged, key=lambda c: c.value)
    if best.value:
        rows += ["", profile(best)]
    rows.append(f"The best so far is proposal {brief.best.k}, `{brief.best.digest[:8]}`: {scored(brief, brief.best)}.")
    return "\n".join(rows).replace(_JUDGED.strip() + "\n", _JUDGED, 1)


def _text(reply: str | None) -> str:
    return Reply.from_json(reply).text if reply else ""


def _number(n: int) -> str:
    return {1: "one", 2: "two", 3: "three"}.get(n, str(n))
