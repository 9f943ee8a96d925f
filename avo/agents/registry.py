"""The built-in agents, by name. `avo.plugins` adds those that are installed from elsewhere."""

from __future__ import annotations

import importlib
from typing import Any

from avo.agents.protocol import Agent
from avo.errors import UserMistake, unknown

BUILTIN: dict[str, str] = {
    "avo": "avo.agents.model_agent:ModelAgent",
    "heuristic": "avo.agents.heuristic:HeuristicAgent",
    "mantis": "avo.agents.mantis:MantisAgent",
    "outside": "avo.outside:OutsideAgent",
    "random": "avo.agents.random:RandomAgent",
}


def agent(name: str, **options: Any) -> Agent:
    """A new built-in agent. Raises UserMistake, with the nearest name first, for one that is not known."""
    if name not in BUILTIN:
        raise UserMistake(unknown("agent", name, BUILTIN))
    module, _, attribute = BUILTIN[name].partition(":")
    made: Agent = getattr(importlib.import_module(module), attribute)(**options)
    return made
