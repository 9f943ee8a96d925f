"""What a device's worker is asked to do, as JSON, and what its answers mean: only the parent judges."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from dsl.lowering.lowered import Lowered
from dsl.syntax import Program
from dsl.wording import counted
from evaluators import errors, gates
from evaluators.evaluation import Status
from evaluators.failures import Unavailable
from evaluators.gates import Evidence, Rejected
from evaluators.inputs import extents, indexed_axes, input_shapes
from evaluators.oracle import named_inside, output_dtypes
from evaluators.slices import slices
from evaluators.target import Target, Workload


def job(
    target: Target, program: Program, workload: Workload, distribution: str, seed: int, rng: Any, rotate: bool = False
) -> dict[str, Any]:
    """All that a device's worker needs to make inputs and right answers by itself; JSON.

    Raises Unavailable where the target's functions cannot be found again in another process.
    """
    algorithm = program.algorithm
    sizes = extents(algorithm, workload)
    shapes, dtypes, axes = input_shapes(algorithm, workload), output_dtypes(algorithm), indexed_axes(algorithm)
    cuts, total = slices(algorithm, sizes, rng)
    return {
        "workload": workload.name,
        "distribution": distribution,
        "seed": seed,
        "rotate": rotate,
        "sizes": dict(sizes),
        "given": list(workload.sizes),
        "params": gates._params(program, workload),
        "inputs": [
            {
                "name": t.name,
                "dtype": t.dtype or "f32",
                "axes": list(t.axes or ()),
                "shape": list(shapes[t.name]),
                "index": min((sizes[a] for a in axes[t.name]), default=None) if t.name in axes else None,
            }
            for t in algorithm.inputs
        ],
        "outputs": [
            {
                "name": t.name,
                "dtype": dtypes[t.name],
                "axes": list(t.axes or ()),
                "shape": [sizes[a] for a in t.axes or ()],
            }
            for t in algorithm.outputs
        ],
        "inside": named_inside(program),
        "slices": cuts,
        "of": total,
        "reference": _where(target, target.reference),
        "make_inputs": _where(target, target.make_inputs) if target.make_inputs is not None else None,
    }


def _where(target: Target, function: Any) -> dict[str, str]:
    name = getattr(function, "__qualname__", "")
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    if not file or not name or "<" in name:
        raise Unavailable(
            f"target {target.name}: its function {name or function!r} cannot be found again in another process; "
            "define it at the top of a file"
        )
    return {"module": function.__module__, "file": file, "name": name}


def arm(lowered: Lowered | None) -> dict[str, str]:
    assert lowered is not None
    return {"source": lowered.source, "entry": lowered.entry}


def wrong_with(
    t: Mapping[str, Any], output: Mapping[str, Any], asked: Mapping[str, Any], evidence: Evidence
) -> list[str]:
    """What is wrong with one output; the worst slice's figures go into `evidence`."""
    from evaluators.tolerance import form

    reasons = list(form(output["dtype"], tuple(output["shape"]), t["dtype"], tuple(t["shape"])))
    if not output["contiguous"]:
        reasons.append("its strides are not row-major")
    if output["alias"] is not None:
        reasons.append(f"it is the memory of input {asked['inputs'][output['alias']]['name']}")
    if reasons:
        return reasons
    verdicts = [(errors.judge(f, t["dtype"]), f["slice"]) for f in output["figures"]]
    if not verdicts:
        raise ValueError("no figures")
    worst, place = next(((v, s) for v, s in verdicts if not v.passed), verdicts[0])
    evidence[t["name"]] = {**worst.evidence, **({"slice": place} if place else {})}
    found = list(worst.reasons)
    if found and output["unwritten"]:
        found.append(f"{counted(output['unwritten'], 'element')} never written")
    return found


def correct(jobs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Evidence:
    cases: list[Evidence] = []
    for asked, row in zip(jobs, rows, strict=True):
        seen: Evidence = {"workload": asked["workload"], "distribution": asked["distribution"]}
        seen["slices"] = f"{len(asked['slices'])} of {asked['of']}"
        reasons = [f"input {name} was written to" for name in row["mutated"]]
        reasons += [f"something was written outside of {name}" for name in row["strayed"]]
        if row["count"] != len(asked["outputs"]):
            reasons.append(f"{counted(row['count'], 'output')}, declared {len(asked['outputs'])}")
        if not row["repeatable"]:
            seen["repeatable"] = False
        seen["outputs"] = {}
        for t, output in zip(asked["outputs"], row["outputs"], strict=False):
            reasons += [f"{t['name']}: {why}" for why in wrong_with(t, output, asked, seen["outputs"])]
        if reasons:
            seen["reasons"] = reasons
        cases.append(seen)
    if wrong := [seen for seen in cases if "reasons" in seen]:
        first = wrong[0]
        where = f"{first['workload']} ({first['distribution']})"
        message = f"{len(wrong)} of {counted(len(cases), 'check')}; {where}: {first['reasons'][0]}"
        raise Rejected(Status.INCORRECT, message, {"cases": cases, "on": "device"})
    return {"cases": cases, "on": "device"}
