"""What agents and evaluators gave back, looked at where it comes in: a wrong answer is its author's mistake."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from archive.records import Hypothesis, Spend
from avo.agents.protocol import Agent, Brief, Proposal
from avo.errors import UserMistake
from avo.plugins import ours
from evaluators.evaluation import Evaluation

if TYPE_CHECKING:
    from evaluators.protocol import Evaluator


def name_of(agent: Agent) -> str:
    """As it is recorded; its class where it says nothing."""
    return str(getattr(agent, "name", "") or type(agent).__name__)


def proposal_of(agent: Agent, found: Any, brief: Brief) -> Proposal | None:
    """The answer of `propose`. Raises UserMistake for one that is neither a Proposal nor None, or has a field of
    another type or a parent that the brief does not show; TypeError where the agent is avo's own."""
    who = f"the agent {name_of(agent)}"
    if found is None:
        return None
    if not isinstance(found, Proposal):
        raise _wrong(agent, f"{who} returned {type(found).__name__}, not a Proposal or None")
    parents = found.parents if isinstance(found.parents, list | tuple) else ()
    fields: list[tuple[str, Any, Any, str]] = [
        *((key, getattr(found, key), str, "text") for key in ("text", "rationale", "model", "prompts")),
        ("parents", found.parents, list | tuple, "a tuple of digests"),
        *(("parent", p, str, "a digest") for p in parents),
        ("hypothesis", found.hypothesis, Hypothesis | None, "a Hypothesis or None"),
        ("spend", found.spend, Spend, "a Spend"),
    ]
    if isinstance(found.hypothesis, Hypothesis):
        h = found.hypothesis
        fields += [("hypothesis.claim", h.claim, str, "text"), ("hypothesis.bottleneck", h.bottleneck, str, "text")]
        fields += [("hypothesis.expected_gain", h.expected_gain, int | float | None, "a number or None")]
    for key, value, kind, wanted in fields:
        if not isinstance(value, kind):
            raise _wrong(agent, f"{who} returned a Proposal whose {key} is {value!r:.80}; it wants {wanted}")
    for digest in parents:
        if brief.find(digest) is None:
            raise _wrong(agent, f"{who} names parent {digest}, which no candidate in its brief has")
    return found


def evaluation_of(evaluator: Evaluator, found: Any) -> Evaluation:
    """The answer of `evaluate`, `preview` or `promote`. Raises UserMistake for one that is no Evaluation, or whose
    times and work no score can be made of; TypeError where the evaluator is avo's own."""
    who = f"the evaluator {type(evaluator).__name__}"
    if not isinstance(found, Evaluation):
        raise _wrong(evaluator, f"{who} returned {type(found).__name__}, not an Evaluation")
    for w in found.workloads:
        for key in ("predicted_s", "measured_s", "work"):
            value = getattr(w, key)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise _wrong(evaluator, f"{who} says {key}={value} of {w.workload}; it wants a finite number above 0")
        if not (math.isfinite(w.floor_s) and w.floor_s >= 0):
            raise _wrong(evaluator, f"{who} says floor_s={w.floor_s} of {w.workload}; it wants a finite number, or 0")
    return found


def _wrong(maker: object, text: str) -> Exception:
    """What is raised for a wrong answer of an agent or evaluator: the person's mistake, or a bug of avo's own."""
    return TypeError(text) if ours(type(maker).__module__) else UserMistake(f"{text}: see docs/plugins.md")
