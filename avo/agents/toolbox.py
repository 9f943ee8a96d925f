"""The tools of an agent and of the MCP server: what each takes, what it says, and which of them end a step.

A tool reads the brief and nothing else, so the same verdicts give the same answers. `evaluate`, `commit` and `give_up`
are acts: they are handed back to whoever runs the tools.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from avo.agents import brief_page
from avo.agents.answer import Answer
from avo.agents.protocol import Brief, Judged
from avo.agents.reading import candidate, look_at
from avo.knowledge import Page, pages, search
from avo.models.protocol import Call, Tool
from evaluators.failures import quoted

_LINEAGE = 60  # candidates that the lineage lists at once
_LONGEST = 12_000  # characters of one tool's answer


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Which(_Arguments):
    digest: str = Field("", description="A candidate: its digest (the first 8 signs do) or number. Empty: the parent.")


class _Lineage(_Arguments):
    first: int = Field(0, description="From this number on; the newest are shown otherwise.", ge=0)


class _Two(_Arguments):
    old: str = Field(description="A candidate by digest or number.")
    new: str = Field(description="Another one.")


class _Query(_Arguments):
    query: str = Field(description="A few words: a technique, a directive, a bottleneck.", max_length=400)


class _Answer(_Arguments):
    answer: str = Field(
        description="A whole program, a whole schedule, a unified diff, or directive lines (`tile m=128`, `no split`)."
    )
    parent: str = Field("", description="The candidate that it changes, by digest. Empty: the program of the brief.")


class _Evaluate(_Answer):
    why: str = Field(description="What should get faster and why, in one line.")
    expect: float = Field(description="The score that you expect over the parent's: 1.10 for 10% more.", gt=0, lt=1e6)


class _Note(_Arguments):
    topic: str = Field(description="Two or three words.", max_length=80)
    text: str = Field(description="What a later step, run or target should know.", max_length=1000)


class _Commit(_Arguments):
    digest: str = Field(description="The candidate that this line of work ends with.")
    lesson: str = Field(description="What was learnt, in a sentence or two, with the numbers.", max_length=1000)


class _GiveUp(_Arguments):
    why: str = Field(description="What was tried and why it leads nowhere.", max_length=1000)


class _None(_Arguments):
    pass


@dataclass(frozen=True)
class Evaluate:
    """Have this text judged; it was not looked at yet. name: of the tool that asked."""

    answer: str
    parent: str = ""
    why: str = ""
    expect: float | None = None


@dataclass(frozen=True)
class Commit:
    """End this line of work with a candidate."""

    digest: str
    lesson: str


@dataclass(frozen=True)
class GiveUp:
    why: str


@dataclass(frozen=True)
class Noted:
    topic: str
    text: str


Act = Evaluate | Commit | GiveUp | Noted

# name -> (arguments, what it is for)
TOOLS: dict[str, tuple[type[_Arguments], str]] = {
    "read_brief": (_None, "The brief of this step again: job, program, bottleneck, legal values, verdicts, language."),
    "read_program": (_Which, "A candidate's program, its verdict, score and reason."),
    "read_lineage": (_Lineage, "Every candidate so far with its parent, change, score, and why it was rejected."),
    "diff": (_Two, "What differs between two candidates, in their programs and in their times."),
    "list_knobs": (_Which, "Each open decision of a candidate with its value and the values legal on this chip."),
    "check": (_Answer, "Whether a change is legal on this chip; every error with its place and nearest fix. Free."),
    "profile": (_Which, "What limits a candidate: the named bottleneck, shares, registers, spills, times, floors."),
    "search_knowledge": (
        _Query,
        "Pages on techniques and chips: when they help, how they are written, what they gave.",
    ),
    "read_notes": (_Query, "Notes of earlier steps, runs and other targets that hold these words; none: the newest."),
    "write_note": (_Note, "Keep something for later steps, runs and targets."),
    "evaluate": (_Evaluate, "Have a change judged. Costs one step of the budget; what is not legal is told for free."),
    "commit": (_Commit, "End this line of work with a candidate that entered the lineage, and go on from the best."),
    "give_up": (_GiveUp, "End this line of work without one, and go on from the best."),
}

EDIT = "evaluate_edit"
_EDIT_DOC = (
    "Have an edit of the schedule judged: a line `why: ...`, a line `expect: 1.10`, then directive lines, one a line. "
    "Its grammar holds this program's axes and the values that are legal on this chip. Costs one step of the budget."
)


def tools(lark: str = "", without: tuple[str, ...] = ()) -> tuple[Tool, ...]:
    """What a model is shown. lark: the grammar of `evaluate_edit`, which is left out without."""
    found = [Tool(name, doc, _schema(kind)) for name, (kind, doc) in TOOLS.items() if name not in without]
    return (*found, Tool(EDIT, _EDIT_DOC, grammar=lark)) if lark else tuple(found)


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    found = kind.model_json_schema()
    found.pop("title", None)
    found.pop("description", None)
    for part in found.get("properties", {}).values():
        part.pop("title", None)
    found.setdefault("properties", {})
    return found


class Misused(Exception):
    """A call that cannot be carried out: what was wrong with it, for whoever made it."""


class Toolbox:
    """The tools over one brief. folders: of Markdown, beside avo's own knowledge pages."""

    def __init__(self, brief: Brief, folders: tuple[str, ...] = ()) -> None:
        self._brief = brief
        self._folders = folders
        self._pages: list[Page] | None = None
        self.legal: Answer | None = None  # the last that `check` found nothing wrong with

    def run(self, call: Call) -> str | Act:
        """What a call says, or the act that it asks for. What is wrong with a call is said too: it raises nothing."""
        try:
            if call.name == EDIT:
                return Evaluate(call.arguments)
            return self._act(call.name, self.arguments(call.name, call.arguments))
        except Misused as error:
            return f"Nothing was done: {error}"

    @staticmethod
    def arguments(name: str, given: str) -> _Arguments:
        """A call's arguments from JSON. Raises Misused."""
        from avo.errors import unknown

        if name not in TOOLS:
            raise Misused(unknown("tool", name, TOOLS))
        kind = TOOLS[name][0]
        try:
            found = json.loads(given or "{}")
        except (ValueError, RecursionError) as error:
            raise Misused(f"the arguments of {name} are no JSON ({error})") from None
        try:
            return kind.model_validate(found)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'all'}: {e['msg'].lower()}" for e in error.errors()[:4]
            )
            takes = ", ".join(kind.model_fields) or "nothing"
            raise Misused(f"the arguments of {name} are wrong ({wrong}). It takes {takes}") from None

    def _act(self, name: str, found: Any) -> str | Act:
        match name:
            case "evaluate":
                return Evaluate(found.answer, found.parent, found.why, found.expect)
            case "commit":
                return Commit(found.digest, found.lesson)
            case "give_up":
                return GiveUp(found.why)
            case "write_note":
                return Noted(found.topic, found.text)
        text: str = self._READS[name](self, found)
        return text if len(text) <= _LONGEST else text[:_LONGEST] + "\n... (cut: ask for less)"

    # Reading ------------------------------------------------------------------------------------------

    def _read_brief(self, found: Any) -> str:
        return brief_page.page(self._brief)

    def _read_program(self, found: Any) -> str:
        c = self._one(found.digest)
        reason = brief_page.reason(c)
        rows = [f"Proposal {c.k}, `{c.digest}`, by {quoted(c.agent)}: {self._verdict(c)}"]
        rows += [f"From {', '.join(f'`{p[:8]}`' for p in c.parents)}: {brief_page.change(self._brief, c)}"] * bool(
            c.parents
        )
        rows += [f"Why: {quoted(c.rationale)}"] * bool(c.rationale) + [f"Rejected: {reason}"] * bool(reason)
        return "\n".join([*rows, brief_page.fenced(c.text)])

    def _read_lineage(self, found: Any) -> str:
        every = self._brief.candidates
        shown = [c for c in every if c.k >= found.first][:_LINEAGE] if found.first else list(every[-_LINEAGE:])
        best = self._brief.best
        rows = [f"{len(every)} candidates; the best is {best.k}, `{best.digest[:8]}`: {self._verdict(best)}"]
        rows += [brief_page.verdict_row(self._brief, c) for c in shown]
        if len(shown) < len(every):
            rows.append(f"(Numbers {shown[0].k} to {shown[-1].k}; `first` shows others.)" if shown else "(None there.)")
        return "\n".join(rows)

    def _diff(self, found: Any) -> str:
        from avo.report.differences import change, line_diff

        old, new = self._one(found.old), self._one(found.new)
        rows = [f"{change(old.text, new.text) or 'no difference in the programs'}"]
        rows.append(line_diff(old.text, new.text, old.digest[:8], new.digest[:8]).rstrip())
        rows += [f"`{c.digest[:8]}`: {self._verdict(c)}" for c in (old, new)]
        then = {t["workload"]: t for t in brief_page.times(old)}
        for t in brief_page.times(new):
            if before := then.get(t["workload"]):
                rows.append(f"- {t['workload']}: {before['seconds'] / t['seconds']:.3f}x the speed, by {t['limiter']}")
        return "\n".join(r for r in rows if r)

    def _list_knobs(self, found: Any) -> str:
        from dataclasses import replace

        c = self._one(found.digest)
        knobs = brief_page.knobs(replace(self._brief, parent=c))
        return (
            "\n".join(f"{k.name} {k.value}: {' '.join(map(str, k.legal))}" for k in knobs) or "it leaves nothing open"
        )

    def _check(self, found: Any) -> str:
        answer, problem = look_at(found.answer, self._brief, found.parent)
        if problem or answer is None:
            return problem
        self.legal = answer
        return f"Legal on {self._brief.hardware.name}, and not judged yet:\n```\n{answer.text.rstrip()}\n```"

    def _profile(self, found: Any) -> str:
        c = self._one(found.digest)
        return f"Proposal {c.k}, {self._verdict(c)}\n" + brief_page.profile(c)

    def _search_knowledge(self, found: Any) -> str:
        from avo.agents.evidence import evidence

        if self._pages is None:
            self._pages = pages(self._folders)
        limit = evidence(self._brief.parent.evaluation).bottleneck
        target = self._brief.target.name
        hits = search(found.query, self._brief.hardware, target=target, limit=limit, among=self._pages)
        if not hits:
            names = ", ".join(p.name for p in self._pages if p.suits(self._brief.hardware))
            return f"Nothing on that. There are pages on: {names}"
        return "\n\n".join(p.text.rstrip() for p in hits)

    def _read_notes(self, found: Any) -> str:
        words = found.query.lower().split()
        hits = [n for n in self._brief.notes if any(w in f"{n.topic} {n.body} {n.target}".lower() for w in words)]
        hits = hits[-20:] if words else list(self._brief.notes[-20:])
        return "\n".join(f"- {quoted(n.topic)} ({n.target}): {quoted(n.body)}" for n in hits) or "no such note"

    _READS: ClassVar[dict[str, Callable[[Any, Any], str]]] = {
        "read_brief": _read_brief,
        "read_program": _read_program,
        "read_lineage": _read_lineage,
        "diff": _diff,
        "list_knobs": _list_knobs,
        "check": _check,
        "profile": _profile,
        "search_knowledge": _search_knowledge,
        "read_notes": _read_notes,
    }

    def _one(self, name: str) -> Judged:
        if not name.strip():
            return self._brief.parent
        found = candidate(self._brief, name)
        if found is None:
            newest = ", ".join(f"{c.k} `{c.digest[:8]}`" for c in self._brief.candidates[-6:])
            raise Misused(f"{name} is no candidate; the newest are {newest}")
        return found

    def _verdict(self, c: Judged) -> str:
        return brief_page.scored(self._brief, c)


def refusal(brief: Brief, digest: str) -> str:
    """Why a candidate cannot end a line of work; "" where it can."""
    found = candidate(brief, digest)
    if found is None:
        return f"{digest} is no candidate"
    if found.committed:
        return ""
    if found.status.value != "ok":
        return f"proposal {found.k} was rejected: {found.status}"
    return f"proposal {found.k} is slower than the best of its ancestors, so it is not in the lineage"
