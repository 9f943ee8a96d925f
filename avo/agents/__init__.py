"""Agents: whoever proposes programs. The protocol is here; `avo.agents.registry.agent(name)` finds a built-in one."""

from avo.agents.protocol import Agent, Brief, Hypothesis, Judged, Left, Proposal, Spend

__all__ = ["Agent", "Brief", "Hypothesis", "Judged", "Left", "Proposal", "Spend"]
