"""An agent that proposes what it was given, in order: for tests, demonstrations and replays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from avo.agents.protocol import Brief, Proposal


class ScriptedAgent:
    """Proposal k is entry k - 1: a text, a Proposal, or a function of the brief that gives either (or None).

    Gives up after the last entry.
    """

    name = "scripted"

    def __init__(self, script: Sequence[str | Proposal | Callable[[Brief], str | Proposal | None]]) -> None:
        self._script = tuple(script)

    def propose(self, brief: Brief) -> Proposal | None:
        if brief.k > len(self._script):
            return None
        entry = self._script[brief.k - 1]
        made = entry(brief) if callable(entry) else entry
        return Proposal(made) if isinstance(made, str) else made
