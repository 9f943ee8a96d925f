"""`avo audit`: is a target fit to judge by, and what did each layer of the judge see of one raw candidate?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import JsonOption

if TYPE_CHECKING:
    from evaluators.evaluation import Evaluation
    from evaluators.integrity.targets import Finding


def audit(
    file: Annotated[
        str | None, typer.Argument(help="Raw Python to try on the target instead.", metavar="[FILE.py]")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The job: a name, module:NAME or a file. [default: every built-in]", metavar="TARGET"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Try a target with answers that skip the job: zeros, means, copies, an ignored input. 1 where one passes.

    With a FILE.py: one raw candidate through every layer of the judge; what was tried, seen, and how sure that is.

    Example: avo audit --target my_target.py
    """
    if file is not None:
        _candidate(file, target, as_json)
        return
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


def _candidate(file: str, target: str | None, as_json: bool) -> None:
    from avo import choosing
    from avo.cli.console import say, show_json, table, tame
    from avo.errors import UserMistake
    from avo.files import read_text
    from avo.workloads import job
    from evaluators.evaluation import Status
    from evaluators.integrity.raw import RawEvaluator

    if target is None:
        raise UserMistake("say which job the candidate does: avo audit FILE.py --target T")
    if not file.endswith(".py"):
        raise UserMistake(
            f"{file} is no .py file; a program of the language can express no cheat, so `avo eval` is all"
        )
    text, found = read_text(file), job(target, run=True)
    with RawEvaluator() as judge:
        evaluation = judge.evaluate(text, found, choosing.chip("cpu"))
    layers = _layers(evaluation)
    if as_json:
        show_json({"status": evaluation.status, "message": evaluation.message, "layers": layers})
    else:
        told = f": {tame(evaluation.message)}" if evaluation.message else ""
        say(f"status: {evaluation.status}{told}\n")
        rows = [[r["verdict"], r["layer"], tame(f"{r['tried']}: {r['seen']} ({r['sure']})")] for r in layers]
        say(table(["", "layer", "what was tried and seen (how sure)"], rows))
    if evaluation.status is Status.UNAVAILABLE:
        raise typer.Exit(3)
    if evaluation.status is not Status.OK:
        raise typer.Exit(1)


def _layers(evaluation: Evaluation) -> list[dict[str, str]]:
    """A finding for each layer, in order: "ok", "FAIL", "look" (for a person), or "-" where it was not reached."""
    from avo.cli.evidence import line

    gates = {g.gate: g for g in evaluation.gates}
    box = evaluation.environment["sandbox"]

    def verdict(gate: str) -> str:
        return "-" if gate not in gates else "ok" if gates[gate].passed else "FAIL"

    def seen(gate: str) -> str:
        if gate not in gates:
            return "not reached"
        return gates[gate].message or line(gate, gates[gate].evidence)

    hints = gates["parse"].evidence.get("tripwires", []) if "parse" in gates else []
    found = [
        ("source", verdict("parse"), "parsed", seen("parse") if verdict("parse") == "FAIL" else "Python", "certain"),
        (
            "names",
            "look" if hints else "ok",
            "names that a reader looks at first",
            "; ".join(hints) or "none",
            "a hint",
        ),
        (
            "sandbox",
            "ok" if box["promotable"] else "look",
            "the strongest level here",
            f"{box['level']}, {box['accepted']} is asked for",
            "as sure as the kernel",
        ),
        (
            "numbers",
            verdict("correctness"),
            "every call on inputs that nobody knew, against float64",
            seen("correctness"),
            "certain for these calls, no word on other sizes",
        ),
        (
            "behaviour",
            verdict("integrity"),
            "plain tensors, no change after the return, no state, no processes or threads left",
            seen("integrity"),
            "the counts are the system's; the rest a hostile candidate could hide",
        ),
    ]
    return [dict(zip(("layer", "verdict", "tried", "seen", "sure"), row, strict=True)) for row in found]
