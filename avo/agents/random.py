"""Random search: the baseline that any other agent has to beat."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from avo.agents.protocol import Brief, Proposal
from avo.errors import UserMistake

if TYPE_CHECKING:
    from dsl.syntax import Program

_DRAWS = 20


class RandomAgent:
    """Draws every open decision of the seed program uniformly from its legal values, one after the other in random
    order, so that what is legal takes the draws before it into account. Looks at no verdict; repeats no program that
    the brief shows, unless twenty draws give nothing new.
    """

    name = "random"

    def propose(self, brief: Brief) -> Proposal:
        from dsl.diagnostics import ProgramError
        from dsl.parser import parse
        from dsl.printer import digest, print_program

        rng = brief.rng()
        seed = brief.candidates[0]
        try:
            program = parse(seed.text)
        except ProgramError as error:
            raise UserMistake(
                f"the agent 'random' edits programs in the language, and the seed of {brief.target.name} is none:\n"
                f"{error}"
            ) from error
        known = {c.digest for c in brief.candidates}
        for _ in range(_DRAWS):
            drawn, changes = _draw(program, brief, rng)
            if digest(drawn) not in known:
                break
        return Proposal(print_program(drawn), parents=(seed.digest,), rationale=", ".join(changes) or "no change")


def _draw(program: Program, brief: Brief, rng: random.Random) -> tuple[Program, list[str]]:
    from dsl.knobs import knobs, set_knob

    sizes = brief.target.workloads[0].sizes if brief.target.workloads else None
    changes: list[str] = []
    open_names = [k.name for k in knobs(program, brief.hardware, sizes)]
    rng.shuffle(open_names)
    for name in open_names:
        knob = next(iter(knobs(program, brief.hardware, sizes, only=name)), None)
        if knob is None or not knob.legal:
            continue  # an earlier draw closed it: no stages without a stream
        value = rng.choice(knob.legal)
        if value != knob.value:
            program = set_knob(program, knob, value)
            changes.append(f"{name}={value}")
    return program, changes
