"""The simplest agent: one knob of the best program so far moves to one of its legal values."""

from avo import Brief, Proposal, knobs, parse


class OneKnob:
    name = "one_knob"

    def propose(self, brief: Brief) -> Proposal | None:
        program = parse(brief.best.text)
        rng = brief.rng()  # seeded by the run and k: the same brief gives the same proposal
        open_knobs = knobs(program, brief.hardware)
        return None if not open_knobs else self._moved(program, brief, rng.choice(open_knobs), rng)
