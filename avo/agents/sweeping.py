"""Numbers that a proposal leaves open (`tile m=? n=?`), filled by a sampler within a stated number of evaluations.

It stands around any agent. What a sweep has tried is read back from its candidates' reasons, so a resumed run goes on
with it. One of several `--jobs` sweeps by itself: proposal k goes on with what proposal k - jobs began.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from avo.agents.protocol import Agent, Brief, Judged, Proposal
from avo.agents.sampler import Value, suggestions

if TYPE_CHECKING:
    from dsl.knobs import Knob
    from dsl.syntax import Program

EVALUATIONS = 6
_MARK = re.compile(r" \[filled (\d+) of (\d+): ([^\]]+)\]$")
_ASKED = 64  # settings that the sampler is asked for, until one is new and legal


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
        self.name = inner.name
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
        proposal = self._inner.propose(brief)
        return proposal if proposal is None else self._begun(proposal, brief)

    def _begun(self, proposal: Proposal, brief: Brief) -> Proposal:
        """The proposal with its open numbers filled by what is usual; as it is where it leaves none open."""
        from dsl.knobs import fill
        from dsl.printer import print_program

        program = _legal(proposal.text, brief) if "?" in proposal.text else None
        if program is None:
            return proposal
        names = [k.name for k in _open(program, brief)]
        if not names:
            return proposal
        sizes = brief.target.workloads[0].sizes if brief.target.workloads else None
        filled = fill(program, brief.hardware, sizes)
        return replace(
            proposal,
            text=print_program(filled),
            rationale=proposal.rationale + _mark(1, self._evaluations, _values(filled, brief, names)),
        )

    def _next(self, brief: Brief, going: list[Judged], fill: Fill) -> Proposal | None:
        """Another filling that is legal and was not judged; None where there is none."""
        from dsl.knobs import knob_named, set_knob
        from dsl.parser import parse
        from dsl.printer import digest, print_program

        first = parse(going[0].text)
        scales = {k.name: k.scale for k in (knob_named(first, brief.hardware, n) for n in fill.names)}
        worst = min((math.log(c.value) for c in going if c.value > 0), default=0.0) - 1.0
        tried = [
            (_values(parse(c.text), brief, fill.names), math.log(c.value) if c.value > 0 else worst) for c in going
        ]
        for setting in suggestions(scales, tried, brief.entropy, _ASKED):
            program = first
            for name, value in setting.items():
                program = set_knob(program, knob_named(program, brief.hardware, name), value)
            text = print_program(program)
            if brief.find(digest(parse(text))) is None and _legal(text, brief) is not None:
                mark = _mark(fill.number + 1, fill.of, _values(program, brief, fill.names))
                why = _MARK.sub("", going[0].rationale)
                return Proposal(text, going[0].parents, why + mark)
        return None


def _mark(number: int, of: int, values: dict[str, Value]) -> str:
    return f" [filled {number} of {of}: {', '.join(f'{n} {v}' for n, v in values.items())}]"


def _values(program: Program, brief: Brief, names: tuple[str, ...] | list[str]) -> dict[str, Value]:
    from dsl.knobs import settings

    found = settings(program, brief.hardware)
    return {n: found[n] for n in names}


def _open(program: Program, brief: Brief) -> list[Knob]:
    from dsl.knobs import knobs
    from dsl.schedule_form import OPEN

    sizes = brief.target.workloads[0].sizes if brief.target.workloads else None
    return [k for k in knobs(program, brief.hardware, sizes) if k.value == OPEN]


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
