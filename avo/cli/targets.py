"""`avo targets [NAME]`: the jobs that are known, and all of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from evaluators.target import Target


def targets(
    name: Annotated[
        str | None, typer.Argument(help="Show this target: a name, module:NAME or a file.", metavar="[TARGET]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the targets as JSON.")] = False,
) -> None:
    """List the targets, or show one with its workloads and its seed program.

    Example: avo targets attention
    """
    from avo import plugins
    from avo.cli.console import say, show_json, table, warn
    from evaluators.loading import complete

    if name is not None:
        target = plugins.load("target", name)
        complete(target)  # one that no run would take is not shown as if it would
        if as_json:
            show_json(as_dict(target))
            return
        say(f"{target.name}: {target.summary}\n" if target.summary else f"{target.name}\n")
        say(f"score   {target.unit}, geometric mean over the workloads")
        say(f"open    {target.opens}: what an agent may change")
        for label, group in (("public", target.workloads), ("hidden", target.hidden), ("checks", target.checks)):
            for place, workload in enumerate(group):
                say(f"{label if place == 0 else '':<8}{workload.name}")
        for place, (label, one) in enumerate(target.sets.items()):
            say(
                f"\nset {label}, by --workloads {label}: {one.summary}"
                if place == 0
                else f"\nset {label}: {one.summary}"
            )
            for workload in one.workloads:
                say(f"        {workload.name}")
        say(f"\nseed program\n\n{target.seed}")
        return
    found = plugins.usable("target", warn)
    if as_json:
        show_json([as_dict(t) for t in found])
        return
    rows = [[t.name, t.unit, str(len(t.workloads)), t.opens, t.summary] for t in found]
    say(table(["target", "score", "workloads", "open", "what it is"], rows, right=(2,)))


def as_dict(target: Target) -> dict[str, Any]:
    """The target as JSON; the reference is named, not shown."""
    return {
        "name": target.name,
        "summary": target.summary,
        "unit": target.unit,
        "opens": target.opens,
        "tier": target.tier,
        "reference": f"{target.reference.__module__}.{getattr(target.reference, '__qualname__', '?')}",
        "workloads": [w.name for w in target.workloads],
        "hidden": [w.name for w in target.hidden],
        "checks": [w.name for w in target.checks],
        "tiny": [w.name for w in target.tiny],
        "sets": {name: [w.name for w in one.workloads] for name, one in target.sets.items()},
        "seed": target.seed,
    }
