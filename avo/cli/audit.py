"""`avo audit`: is a target fit to judge by? Answers that skip the job are put before its own tolerances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import JsonOption

if TYPE_CHECKING:
    from evaluators.integrity.targets import Finding


def audit(
    target: Annotated[
        str | None,
        typer.Option(help="The job: a name, module:NAME or a file. [default: every built-in]", metavar="TARGET"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Try a target with answers that skip the job: zeros, means, copies, an ignored input. 1 where one passes.

    Example: avo audit --target my_target.py
    """
    from avo import plugins
    from avo.cli.console import say, show_json
    from evaluators.integrity import targets as fitness
    from evaluators.loading import complete
    from evaluators.targets import BUILTIN

    found: dict[str, list[Finding]] = {}
    for name in [target] if target is not None else BUILTIN:
        job = complete(plugins.load("target", name))
        found[job.name] = fitness.audit(job, seed)
    failed = [name for name, findings in found.items() if any(f.verdict == "fail" for f in findings)]
    if as_json:
        show_json(
            [
                {
                    "target": name,
                    "fit": name not in failed,
                    "findings": [
                        {"test": f.test, "tried": f.tried, "seen": f.seen, "verdict": f.verdict, "evidence": f.evidence}
                        for f in findings
                    ],
                }
                for name, findings in found.items()
            ]
        )
    else:
        say("\n\n".join(_page(name, findings) for name, findings in found.items()))
    if failed:
        raise typer.Exit(1)


def _page(name: str, findings: list[Finding]) -> str:
    from avo.cli.console import paint, table, tame

    rows = [[f.verdict, tame(f.test), tame(f"{f.tried}: {f.seen}")] for f in findings]
    bad = sum(f.verdict == "fail" for f in findings)
    told = f"unfit: {bad} of {len(findings)} tests failed" if bad else f"fit: {len(findings)} tests, none failed"
    return f"target {tame(name)} is {paint(told, 'red' if bad else 'green')}\n" + table(
        ["", "test", "what was seen"], rows
    )
