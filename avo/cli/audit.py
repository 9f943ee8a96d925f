"""`avo audit`: is a target fit to judge by, what did each layer see of a candidate, is the judge itself right?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import JsonOption, WorkloadOption
from dsl.wording import counted

if TYPE_CHECKING:
    from evaluators.evaluation import Evaluation
    from evaluators.integrity.targets import Finding


def audit(
    file: Annotated[
        str | None,
        typer.Argument(help="Raw Python to try on the target instead; with --corpus its folder.", metavar="[FILE.py]"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The job: a name, module:NAME or a file. [default: every built-in]", metavar="TARGET"),
    ] = None,
    workload: WorkloadOption = None,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
    corpus: Annotated[
        bool, typer.Option("--corpus", help="Judge the judge: its corpora of attacks and of honest kernels.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Try a target with answers that skip the job: zeros, means, copies, an ignored input. 1 where one passes.

    With a FILE.py: one raw candidate through every layer of the judge; what was tried, seen, and how sure that is.

    With --corpus: how many known attacks are stopped, and how many honest kernels pass. 1 where one is misjudged.

    Example: avo audit --target my_target.py
    """
    if corpus:
        _corpus(file, as_json)
        return
    if file is not None:
        _candidate(file, target, workload or [], as_json)
        return
    from avo.cli.console import say, show_json
    from avo.errors import UserMistake
    from avo.workloads import job as named
    from evaluators.integrity import targets as fitness
    from evaluators.targets import BUILTIN

    if workload and target is None:
        raise UserMistake("--workload names sizes of one target: name it with --target")

    found: dict[str, list[Finding]] = {}
    for name in [target] if target is not None else BUILTIN:
        job = named(name, workload or [])
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
    told = (
        f"unfit: {bad} of {counted(len(findings), 'test')} failed"
        if bad
        else f"fit: {counted(len(findings), 'test')}, none failed"
    )
    return f"target {tame(name)} is {paint(told, 'red' if bad else 'green')}\n" + table(
        ["", "test", "what was seen"], rows
    )


def _candidate(file: str, target: str | None, workload: list[str], as_json: bool) -> None:
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
    text, found = read_text(file), job(target, workload, run=True)
    with RawEvaluator() as judge:
        judge.compiles = True
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


def _corpus(folder: str | None, as_json: bool) -> None:
    import os
    from pathlib import Path

    from avo.cli.console import say, show_json, table, tame
    from avo.errors import UserMistake
    from evaluators.integrity import corpus
    from evaluators.integrity.raw import RawEvaluator

    where = Path(folder) if folder else Path(__file__).resolve().parents[2] / "tests" / "integrity"
    try:
        items = corpus.read(where)
    except corpus.CorpusError as error:
        raise UserMistake(str(error)) from None
    with RawEvaluator() as judge:
        found = corpus.judge(items, judge, jobs=min(4, os.cpu_count() or 1))
        level = judge.level
    if any(j.evaluation.status == "unavailable" for j in found):
        say(next(j.evaluation.message for j in found if j.evaluation.status == "unavailable"))
        raise typer.Exit(3)
    attacks = [j for j in found if j.item.kind == "attacks"]
    honest = [j for j in found if j.item.kind == "honest"]
    stopped, passed = sum(j.stopped for j in attacks), sum(not j.stopped for j in honest)
    if as_json:
        rows = [
            {
                "name": j.item.name,
                "corpus": j.item.kind,
                "kind": j.item.kind_of,
                "layer": j.item.layer,
                "status": j.evaluation.status,
                "message": j.evaluation.message,
                "as_wanted": j.as_wanted,
            }
            for j in found
        ]
        totals = {"attacks": len(attacks), "stopped": stopped, "honest": len(honest), "passed": passed}
        show_json({"level": level, **totals, "judged": rows})
    else:
        shown = [[j.evaluation.status, j.item.name, j.item.layer or j.item.kind_of] for j in found]
        say(table(["verdict", "file", "stopped by; or why a filter could object"], shown))
        wrong = [j for j in found if not j.as_wanted]
        for j in wrong:
            say(f"\nnot as it should be: {j.item.name} ({j.item.status}): {tame(j.evaluation.message) or 'accepted'}")
        mechanisms, reasons = (len({j.item.kind_of for j in part}) for part in (attacks, honest))
        say(
            f"\nsandbox {level}: {stopped} of {counted(len(attacks), 'attack')} stopped "
            f"({counted(mechanisms, 'mechanism')}), "
            f"{passed} of {len(honest)} honest kernels passed ({counted(reasons, 'reason')} to object)"
        )
    if any(not j.as_wanted for j in found):
        raise typer.Exit(1)


def _layers(evaluation: Evaluation) -> list[dict[str, str]]:
    """A finding for each layer, in order: "ok", "FAIL", "look" (for a person), or "-" where it was not reached."""
    from avo.cli.evidence import line
    from evaluators.evaluation import Status

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
    work = gates["integrity"].evidence.get("work") if "integrity" in gates else None
    if work:
        found.append(
            (
                "work",
                "ok" if work == "proved" else "look",
                "the steps of a call, played where the candidate has never been, on inputs that were drawn afterwards",
                work,
                "certain for the size that was played",
            )
        )
    compiled = gates["integrity"].evidence.get("compiled") if "integrity" in gates else None
    if compiled:
        taken = compiled == "taken"
        verdict_of = "ok" if taken else "FAIL" if evaluation.status is Status.COMPILE_ERROR else "look"
        found.append(
            (
                "compiler",
                verdict_of,
                "its kernels, compiled without their device for the chip or, with none, for sm_90",
                compiled,
                "certain for these kernels at the sizes that were played; without the assembler",
            )
        )
    return [dict(zip(("layer", "verdict", "tried", "seen", "sure"), row, strict=True)) for row in found]
