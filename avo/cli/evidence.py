"""A gate's evidence in one line. `avo show --json` and the report have all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsl.wording import counted


def line(gate: str, evidence: dict[str, Any]) -> str:
    """What a person wants to know first. Evidence of another form than avo's own is listed key by key."""
    try:
        told = _LINES[gate](evidence) if gate in _LINES else ""
    except (KeyError, TypeError, ValueError, AttributeError):
        told = ""  # an evaluator of one's own may leave anything under a known name
    return told or _plain(evidence)


def _meaning(evidence: dict[str, Any]) -> str:
    cases = evidence["cases"]
    values = [v for case in cases for v in case.values() if isinstance(v, dict)]
    exact, rounded = max(v["exact"] for v in values), max(v["rounded"] for v in values)
    return (
        f"{counted(len(cases), 'case')}; {exact:.0e} off the reference (limit {evidence['limit']:.0e}), "
        f"{rounded:.1e} by its roundings (limit {evidence['tier']:g})"
    )


def _compile(evidence: dict[str, Any]) -> str:
    parts = []
    for k in evidence["kernels"]:
        parts.append(
            f"{k['registers']} registers, {k['spills']} spilled, {k['shared_bytes'] / 1024:.4g} KiB shared, "
            f"{counted(k['occupancy_blocks'], 'block a unit')}"
        )
    return "; ".join(dict.fromkeys(parts))


def _correctness(evidence: dict[str, Any]) -> str:
    cases = evidence["cases"]
    worst = max(_limits(cases), key=lambda found: found[0])
    share, name, value, limit = worst
    nearest = f"{name.replace('_', ' ')} {value:.2g} of {limit:.2g} ({share:.0%})"
    return f"{counted(len(cases), 'case')}; nearest to its limit: {nearest}"


def _limits(found: Any, name: str = "") -> Iterator[tuple[float, str, float, float]]:
    """Every `{"value": v, "limit": l}` at any depth, as (v / l, name, v, l)."""
    if isinstance(found, dict):
        value, limit = found.get("value"), found.get("limit")
        if isinstance(value, int | float) and isinstance(limit, int | float) and limit:
            yield value / limit, name, value, limit
        for key, inner in found.items():
            yield from _limits(inner, str(key))
    elif isinstance(found, list):
        for inner in found:
            yield from _limits(inner, name)


def _prediction(evidence: dict[str, Any]) -> str:
    limiters: dict[str, int] = {}
    for w in evidence["workloads"]:
        limiters[w["limiter"]] = limiters.get(w["limiter"], 0) + 1
    return "limited by " + ", ".join(f"{name} ({n})" for name, n in limiters.items())


def _floor(evidence: dict[str, Any]) -> str:
    nearest = min(w["seconds"] / w["floor_s"] for w in evidence["workloads"] if w["floor_s"])
    return f"nearest to the speed of light: {nearest:.2f}x its time"


def _plain(evidence: dict[str, Any]) -> str:
    parts = []
    for key, value in evidence.items():
        if isinstance(value, list | dict):
            parts += [f"{key}: {len(value)}"] if value else []
        elif value not in (None, ""):
            parts.append(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}")
    text = ", ".join(parts)
    return text if len(text) <= 200 else text[:199] + "…"


_LINES = {
    "meaning": _meaning,
    "compile": _compile,
    "correctness": _correctness,
    "prediction": _prediction,
    "floor": _floor,
}
