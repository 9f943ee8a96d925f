"""Several models for one agent: which of them makes the next proposal, by what theirs gained and what they cost.

An upper confidence bound on the gain, mixed half and half with cheapness, as in ShinkaEvolve. It reads verdicts and the
journal alone, so a resumed run asks the same models in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from archive.records import Exchange, Hypothesis, Spend
from avo.agents.protocol import Agent, Brief, Judged, Proposal
from avo.models.calling import Journal, Unkept
from avo.models.prices import Price
from avo.models.protocol import Usage

CHEAPNESS = 0.5  # its weight; the rest is the gain's
STEP = Usage(7_000, 2_000)  # what a proposal takes, to compare prices by


class Bandit:
    """arms: the same agent once for each model, by the model's name. prices: of each; None where it is not known."""

    def __init__(self, arms: Mapping[str, Agent], prices: Mapping[str, Price | None], jobs: int = 1) -> None:
        self.name = next(iter(arms.values())).name
        self._arms = dict(arms)
        self._jobs = jobs
        self._cheap = dict(zip(arms, cheapness([prices.get(name) for name in arms]), strict=True))
        self._asked: dict[int, str | None] = {}  # proposal -> whose it is; read from the journal once

    def propose(self, brief: Brief) -> Proposal | None:
        name = self.choose(brief)
        return self._arms[name].propose(replace(brief, journal=_Own(brief.journal or Unkept(), name)))

    def choose(self, brief: Brief) -> str:
        """The model for this proposal. Each is asked once, in the order given, before any is asked again."""
        journal = brief.journal or Unkept()
        gains: dict[str, list[float]] = {name: [] for name in self._arms}
        best = brief.candidates[0].value
        for c in brief.candidates[1:]:
            if c.k not in self._asked:
                self._asked[c.k] = next((e.model for e in reversed(journal.at(c.k)) if e.model in gains), None)
            name = self._asked[c.k]
            if name is not None:
                gains[name].append(_gain(c, best))
            best = max(best, c.value if c.committed else 0.0)
        fresh = [name for name, found in gains.items() if not found]
        if fresh:  # those whose proposals are under way are not seen, so side by side they take turns
            return fresh[(brief.k - 1) % self._jobs % len(fresh)]
        means = {name: sum(found) / len(found) for name, found in gains.items()}
        most = max(means.values()) or 1.0
        whole = sum(map(len, gains.values()))

        def worth(name: str) -> float:
            bound = means[name] / most + math.sqrt(2 * math.log(whole) / len(gains[name]))
            return (1 - CHEAPNESS) * bound + CHEAPNESS * self._cheap[name]

        return max(gains, key=worth)  # the first of equals


def _gain(c: Judged, best: float) -> float:
    return max(0.0, math.log(c.value / best)) if c.committed and c.value and best else 0.0


def cheapness(prices: Sequence[Price | None]) -> list[float]:
    """1 for the cheapest and what is free, less in proportion to the price; one that is not known counts as the
    dearest."""
    usd = [None if p is None else p.usd(STEP) for p in prices]
    known = [u for u in usd if u is not None]
    paid = [u for u in known if u > 0]
    if not paid:
        return [1.0] * len(usd)
    dearest = max(paid)
    return [1.0 if u == 0 else min(paid) / (dearest if u is None else u) for u in usd]


class _Own:
    """The journal as the agent of one model reads it: the exchanges of others are none of its conversation."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal = journal
        self._name = name

    def at(self, k: int) -> list[Exchange]:
        found = [e for e in self._journal.at(k) if e.model == self._name]
        if found or k < 1:
            return found
        # Another model's turn: what this one's endpoint does not take is still worth knowing.
        earlier = (e for j in range(k - 1, 0, -1) for e in self._journal.at(j) if e.model == self._name)
        return [e for e in earlier if (e.outcome or "").startswith("no ")][:1]

    def recall(self, model: str, request: str) -> str | None:
        return self._journal.recall(model, request)

    def ask(self, model: str, request: str, maximum: Spend) -> int:
        return self._journal.ask(model, request, maximum)

    def answered(self, exchange: int, reply: str, outcome: str, spent: Spend) -> None:
        self._journal.answered(exchange, reply, outcome, spent)

    def withheld(self, model: str, request: str, reason: str) -> None:
        self._journal.withheld(model, request, reason)

    def note(self, topic: str, body: str) -> None:
        self._journal.note(topic, body)

    def nominate(self, hypothesis: Hypothesis, detail: Mapping[str, Any]) -> None:
        self._journal.nominate(hypothesis, detail)
