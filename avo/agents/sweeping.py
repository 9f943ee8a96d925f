"""Numbers that a proposal leaves open (`tile m=? n=?`), filled without a model in a stated number of evaluations.

It stands around any agent. What a sweep has tried is read back from its candidates' reasons, so a resumed run goes on
with it. One of several `--jobs` sweeps by itself: proposal k goes on with what proposal k - jobs began.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from avo.agents.protocol import Agent, Brief, Judged, Proposal
from avo.plugin_answers import name_of, proposal_of

if TYPE_CHECKING:
    from dsl.knobs import Knob
    from dsl.syntax import Program

Value = int | str
EVALUATIONS = 6
_MARK = re.compile(r" \[filled (\d+) of (\d+): ([^\]]+)\]$")
_TRIED = 2000  # settings that arithmetic looks at


@dataclass(frozen=True)
class Fill:
    """A candidate's place in its sweep, from 1. names: the knobs that were left open."""

    number: int
    of: int
    names: tuple[str, ...]


def fill_of(candidate: Judged) -> Fill | None:
    found = _MARK.search(candidate.rationale)
    if found is None:
        return None
    names = tuple(part.rpartition(" ")[0] for part in found[3].split(", "))
    return Fill(int(found[1]), int(found[2]), names)


def claim(candidate: Judged) -> str:
    """Its rationale without the mark of a sweep."""
    return _MARK.sub("", candidate.rationale)


def sweep_before(brief: Brief, jobs: int) -> list[Judged]:
    """The candidates of the sweep that proposal k - jobs belongs to, the first one first; empty where it is of none."""
    found: list[Judged] = []
    by_k = {c.k: c for c in brief.candidates}
    at = by_k.get(brief.k - jobs)
    while at is not None and (fill := fill_of(at)) is not None:
        found.append(at)
        if fill.number == 1:
            break
        at = by_k.get(at.k - jobs)
    return found[::-1]


class Sweeping:
    """`inner`, and a sampler for the numbers that it leaves open.

    evaluations: of one sweep, the first filling among them. jobs: of the run. since: a sweep that began before this
    proposal is left where it stands.
    """

    def __init__(self, inner: Agent, jobs: int = 1, evaluations: int = EVALUATIONS, since: int = 0) -> None:
        self.name = name_of(inner)
        self._inner = inner
        self._jobs = jobs
        self._evaluations = evaluations
        self._since = since

    def propose(self, brief: Brief) -> Proposal | None:
        going = sweep_before(brief, self._jobs)
        if going and going[0].k >= self._since:
            fill = fill_of(going[-1])
            assert fill is not None
            if fill.number < fill.of:
                found = self._next(brief, going, fill)
                if found is not None:
                    return found
        proposal = proposal_of(self._inner, self._inner.propose(brief), brief)
        return proposal if proposal is None else self._begun(proposal, brief)

    def _begun(self, proposal: Proposal, brief: Brief) -> Proposal:
        """The proposal with its open numbers filled by what arithmetic likes best; as it is where none is open."""
        from dsl.printer import print_program

        program = _legal(proposal.text, brief) if "?" in proposal.text else None
        if program is None:
            return proposal
        scales = {k.name: k.legal for k in _open(program, brief)}
        if not scales:
            return proposal
        filled = _liked(program, scales, brief)
        mark = _mark(1, self._evaluations, _values(filled, brief, list(scales)))
        return replace(proposal, text=print_program(filled), rationale=proposal.rationale + mark)

    def _next(self, brief: Brief, going: list[Judged], fill: Fill) -> Proposal | None:
        """Another filling that is legal and was not judged; None where there is none.

        The heuristic agent finds it, with nothing open but these numbers and nothing known but this sweep.
        """
        from avo.agents.heuristic import HeuristicAgent
        from dsl.knobs import knob_named
        from dsl.parser import parse

        first = parse(going[0].text)
        wanted = brief.options.get("knobs") or {}
        scales = {n: wanted.get(n) or knob_named(first, brief.hardware, n).scale for n in fill.names}
        best = max(going, key=lambda c: (c.value, -c.k))
        # What else the run has judged is not in the sweep's way, unless it is one of its own settings.
        others = [c for c in brief.candidates if c not in going and _same_but(c, going[0], fill.names, brief)]
        seen = tuple(sorted([*going, *others], key=lambda c: c.k))
        options = {**brief.options, "knobs": scales, "previews": 0}
        found = HeuristicAgent().propose(replace(brief, parent=best, best=best, candidates=seen, options=options))
        if found is None:
            return None
        mark = _mark(fill.number + 1, fill.of, _values(parse(found.text), brief, fill.names))
        return Proposal(found.text, going[0].parents, _MARK.sub("", going[0].rationale) + mark)


def _liked(program: Program, scales: dict[str, tuple[Value, ...]], brief: Brief) -> Program:
    """The legal setting of these knobs that `avo.agents.appraisal` finds fastest, of those that were not judged if
    there are any; the middle of each where none is legal."""
    from avo.agents.appraisal import appraise
    from dsl.anatomy import anatomies
    from dsl.knobs import fill, knob_named, set_knob
    from dsl.printer import digest, print_program
    from dsl.schedule import resolve

    hw = brief.hardware
    sizes = brief.target.workloads[0].sizes if brief.target.workloads else None
    settings = list(itertools.islice(itertools.product(*scales.values()), _TRIED))
    ranked = []
    for n, setting in enumerate(settings):
        filled = program
        for name, value in zip(scales, setting, strict=True):
            filled = set_knob(filled, knob_named(filled, hw, name), value)
        time = sum(
            appraise(kernel, resolve(filled, index, hw.arch, hw.name), hw, sizes).relative_time
            for index, kernel in enumerate(anatomies(filled))
        )
        ranked.append((time, n, filled))
    ranked.sort(key=lambda r: r[:2])
    legal = (p for _, _, p in ranked if _legal(print_program(p), brief))
    known = None
    for filled in legal:
        if brief.find(digest(filled)) is None:
            return filled
        known = known or filled
    return known or fill(program, hw, sizes)


def _same_but(c: Judged, first: Judged, names: tuple[str, ...], brief: Brief) -> bool:
    """Whether a candidate is another setting of the same structure."""
    from dsl.diagnostics import ProgramError
    from dsl.knobs import settings
    from dsl.parser import parse

    try:
        mine, its = (settings(parse(x.text), brief.hardware) for x in (first, c))
    except (ProgramError, RecursionError, KeyError):
        return False
    return {n: v for n, v in mine.items() if n not in names} == {n: v for n, v in its.items() if n not in names}


def _mark(number: int, of: int, values: dict[str, Value]) -> str:
    return f" [filled {number} of {of}: {', '.join(f'{n} {v}' for n, v in values.items())}]"


def _values(program: Program, brief: Brief, names: tuple[str, ...] | list[str]) -> dict[str, Value]:
    from dsl.knobs import settings

    found = settings(program, brief.hardware)
    return {n: found[n] for n in names}


def _open(program: Program, brief: Brief) -> list[Knob]:
    """The knobs that are left open, with what is legal and, where `agent_options.knobs` names values, wanted."""
    from dsl.knobs import knobs
    from dsl.schedule_form import OPEN

    sizes = brief.target.workloads[0].sizes if brief.target.workloads else None
    wanted = brief.options.get("knobs") or {}
    found = [k for k in knobs(program, brief.hardware, sizes) if k.value == OPEN]
    within = {k.name: tuple(v for v in k.legal if v in wanted[k.name]) for k in found if k.name in wanted}
    return [replace(k, legal=within.get(k.name) or k.legal) for k in found]


def _legal(text: str, brief: Brief) -> Program | None:
    """The program where it is one, passes the check, and could leave something open; None else."""
    from avo.agents.reading import errors_in
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse

    try:
        program = parse(text)
        return program if not errors_in(program, brief) else None
    except (ProgramError, RecursionError):
        return None
