"""What seen behaviour is called: pure functions of the evidence that a judgement left.

The judge applies them to what it has just seen, and `rejudged` applies them to evidence in an archive: a rule that is
new or changed needs no run where the facts that it asks about were recorded. Each names them in `needs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.evaluation import Evaluation, GateResult, Status

SPARE_THREADS = 2  # where more compute after a call than these, a person looks

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """`find` says what was seen, or None. needs: keys of the integrity gate's evidence.

    version: raise it with every change of `find`. timed: it is about times, which verdicts without a device have not.
    """

    name: str
    version: int
    status: Status
    needs: tuple[str, ...]
    find: Callable[[Facts], str | None]
    timed: bool = False


@dataclass(frozen=True)
class Breach:
    rule: Rule
    seen: str


def _lazy(facts: Facts) -> str | None:
    return f"an output is lazy or disguised: {facts['odd'][0]}" if facts["odd"] else None


def _late(facts: Facts) -> str | None:
    return f"output {facts['late'][0]} changed after it was returned" if facts["late"] else None


def _state(facts: Facts) -> str | None:
    seen = facts["state"]
    return f"state kept between calls: right in a fresh process, wrong after other calls, {seen}" if seen else None


def _processes(facts: Facts) -> str | None:
    return f"{facts['children']} processes of its own were alive after a call" if facts["children"] else None


def _library(facts: Facts) -> str | None:
    if facts["torch"] == "any" or not facts["aten"]:
        return None
    names = ", ".join(sorted(facts["aten"])[:4])
    first = min(facts["aten"], key=lambda name: not name.startswith("aten::")).partition("::")[0]
    who = {"aten": "torch does the work", "host": "the host does the work"}.get(
        first, "operators do that are not torch's"
    )
    return f"{who} ({names}); this target allows memory, views, casts and elementwise calls alone"


def _decoy(facts: Facts) -> str | None:
    if facts["torch"] == "any" or facts["ghost"] != "right":
        return None
    if not facts["launches"]:
        return "no kernel was launched: the answer is computed elsewhere"
    return "the answer is right although none of its kernels ran: they are decoys"


def _threads(facts: Facts) -> str | None:
    """Those that wait are no work: pools outlive a call, torch's own among them."""
    if facts["at work"] <= SPARE_THREADS:
        return None
    return f"{facts['at work']} threads compute after the last call has ended: work that outlives its call?"


CLOCKS = 1.5  # what one clock may show of another
SLACK_S = 60e-6  # and beside: what launching and asking costs the host
WAIT_S = 300e-6  # and where one call is waited for: honest kernels on an H200 host, up to 165 us


def _timed_state(facts: Facts) -> str | None:
    seen = facts["timed wrong"]
    return f"right when it was checked, wrong when it was timed: {seen}" if seen else None


def _clocks(facts: Facts) -> str | None:
    """The device's events against the host's clock with a device-wide wait: work that the events do not see."""
    pairs = facts["clocks"]
    odd = [(e, w) for e, w in pairs if w > CLOCKS * e + WAIT_S]
    if 2 * len(odd) <= len(pairs):
        return None
    e, w = odd[0]
    return f"the events show {e * 1e6:.4g} us, the host waits {w * 1e6:.4g} us: work on another stream, or later?"


TAIL_S = 5e-6  # by the device's own clock


def _tails(facts: Facts) -> str | None:
    """The device is at work after the event that ends the call."""
    pairs = facts["tails"]
    odd = [(e, t) for e, t in pairs if t > 0.02 * e + TAIL_S]
    if 2 * len(odd) <= len(pairs):
        return None
    e, t = odd[0]
    return f"the call ends after {e * 1e6:.4g} us, the device is at work for {t * 1e6:.4g} us more"


def _outside(facts: Facts) -> str | None:
    """What the candidate's process says against the parent's clock, over many calls."""
    mine, theirs = facts["parent_s"], facts["told_s"]
    if mine <= CLOCKS * theirs + SLACK_S:
        return None
    return f"its process tells {theirs * 1e6:.4g} us a call, seen from outside it takes {mine * 1e6:.4g} us"


def _forged(facts: Facts) -> str | None:
    """The time that its process tells against that of the same steps in a process of the judge."""
    odd = [(told, played) for told, played in facts["played"] if played is not None and played > CLOCKS * told + TAIL_S]
    if not odd:
        return None
    told, played = odd[0]
    return f"its process tells {told * 1e6:.4g} us, the same steps take {played * 1e6:.4g} us in a process of the judge"


# What is certain comes first.
RULES = (
    Rule("lazy output", 1, Status.GAMING, ("odd",), _lazy),
    Rule("late write", 1, Status.GAMING, ("late",), _late),
    Rule("processes", 1, Status.GAMING, ("children",), _processes),
    Rule("state between calls", 1, Status.GAMING, ("state",), _state),
    Rule("library calls", 2, Status.GAMING, ("torch", "aten"), _library),
    Rule("decoy kernels", 1, Status.GAMING, ("torch", "ghost", "launches"), _decoy),
    Rule("timed outputs", 1, Status.GAMING, ("timed wrong",), _timed_state, timed=True),
    Rule("two clocks", 2, Status.SUSPICIOUS, ("clocks",), _clocks, timed=True),
    Rule("work after the end", 1, Status.SUSPICIOUS, ("tails",), _tails, timed=True),
    Rule("clock outside", 1, Status.SUSPICIOUS, ("parent_s", "told_s"), _outside, timed=True),
    Rule("time of the same steps", 1, Status.SUSPICIOUS, ("played",), _forged, timed=True),
    Rule("threads", 2, Status.SUSPICIOUS, ("at work",), _threads),
)


def breaches(facts: Facts) -> list[Breach]:
    """Every rule that the facts break, the gravest first; rules whose facts are not there are left out."""
    found = [
        Breach(rule, seen)
        for rule in RULES
        if all(key in facts for key in rule.needs) and (seen := rule.find(facts)) is not None
    ]
    return sorted(found, key=lambda b: b.rule.status is not Status.GAMING)


def applied() -> dict[str, int]:
    """Rule -> version, as it is stored with a verdict."""
    return {rule.name: rule.version for rule in RULES}


@dataclass(frozen=True)
class Rejudged:
    """verdict: the evaluation as today's rules have it, None where nothing changes. missing: rules whose facts were
    never recorded, so that only a run can tell."""

    verdict: Evaluation | None = None
    missing: tuple[str, ...] = ()


def rejudged(evaluation: Evaluation) -> Rejudged:
    """Today's rules on a stored evaluation of a raw candidate; other evaluations, and those that failed for another
    reason than integrity, are left as they are."""
    gate = evaluation.gate("integrity")
    before = gate.evidence.get("rules") if gate is not None else None
    if gate is None or not isinstance(before, dict):
        return Rejudged()
    facts = gate.evidence
    missing = tuple(
        rule.name
        for rule in RULES
        if before.get(rule.name) != rule.version
        and not (rule.timed and evaluation.mode != "measured")
        and any(key not in facts for key in rule.needs)
    )
    found = breaches(facts)
    status = found[0].rule.status if found else Status.OK
    if status is evaluation.status or (evaluation.status not in (Status.OK, Status.SUSPICIOUS, Status.GAMING)):
        return Rejudged(missing=missing)
    message = found[0].seen if found else ""
    evidence = {**facts, "rules": applied(), **told(found)}
    again = GateResult(gate="integrity", passed=not found, message=message, evidence=evidence, seconds=gate.seconds)
    gates = tuple(again if g.gate == "integrity" else g for g in evaluation.gates)
    verdict = evaluation.model_copy(update={"status": status, "message": message, "gates": gates})
    return Rejudged(verdict, missing)


def told(found: list[Breach]) -> dict[str, Any]:
    """The part of the evidence that names the rule and what was seen."""
    return {"rule": found[0].rule.name, "seen": [f"{b.rule.name}: {b.seen}" for b in found]} if found else {}
