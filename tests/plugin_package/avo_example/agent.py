"""The simplest agent: one knob of the best program so far moves to another of its legal values."""

from avo import Brief, Hypothesis, Proposal, knobs, parse
from dsl.knobs import set_knob
from dsl.printer import print_program


class OneKnob:
    name = "one_knob"

    def propose(self, brief: Brief) -> Proposal | None:
        program = parse(brief.best.text)
        rng = brief.rng()  # seeded by the run and k: the same brief gives the same proposal
        moves = [(k, v) for k in knobs(program, brief.hardware) for v in k.legal if v != k.value]
        if not moves:
            return None  # gives up: the run ends
        knob, value = rng.choice(moves)
        return Proposal(
            text=print_program(set_knob(program, knob, value)),
            parents=(brief.best.digest,),
            rationale=f"{knob.name}: {knob.value} -> {value}",
            hypothesis=Hypothesis(claim=f"{knob.name} {value} suits this chip better"),
        )
