"""Asking an agent for a proposal, and bringing the answer into the form in which it is kept.

What goes on from here is exactly what the archive will give back, so that a resumed run sees no difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from archive.documents import line
from archive.records import Hypothesis
from avo.agents.protocol import Agent, Brief, Proposal
from avo.plugin_answers import name_of, proposal_of
from avo.programs import named


@dataclass(frozen=True)
class Named:
    """A proposal with the name of its program; None: the agent gave up."""

    proposal: Proposal | None
    digest: str = ""
    agent: str = ""


def ask(agent: Agent, brief: Brief) -> Named:
    """Called in a thread. Raises what the agent raises; UserMistake for an answer that is none."""
    name = name_of(agent)
    proposal = proposal_of(agent, agent.propose(brief), brief)
    if proposal is None:
        return Named(None, agent=name)
    digest, text = named(line(proposal.text))
    parents = tuple(dict.fromkeys(proposal.parents)) or (brief.parent.digest,)
    kept = replace(
        proposal,
        text=text,
        parents=parents,
        rationale=line(proposal.rationale),
        hypothesis=None if proposal.hypothesis is None else _kept(proposal.hypothesis),
    )
    return Named(kept, digest, name)


def _kept(hypothesis: Hypothesis) -> Hypothesis:
    gain = hypothesis.expected_gain
    return Hypothesis(
        claim=line(hypothesis.claim),
        expected_gain=float(gain) if gain is not None and math.isfinite(gain) else None,
        bottleneck=line(hypothesis.bottleneck),
    )
