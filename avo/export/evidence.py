"""What is known of a program that is to be exported: where it was accepted, how fast, under what, and its ancestors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from avo.errors import UserMistake

if TYPE_CHECKING:
    from avo.candidates import Named
    from dsl.syntax import Program
    from evaluators.benchmark_result import Benchmark
    from evaluators.evaluation import Evaluation

Mode = Literal["measured", "predicted", "none"]


@dataclass(frozen=True)
class Variant:
    """One program with its verdict. seconds: workload name -> seconds, in `mode`. floors: the same at the speed of
    light. provenance: JSON, stored with the package as it is."""

    text: str
    program: Program
    digest: str
    target: str
    hardware: str
    mode: Mode
    seconds: Mapping[str, float]
    floors: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


def variant_of_candidate(named: Named) -> Variant:
    """Of an accepted candidate of an archive. Raises UserMistake where it was not accepted, or failed when it was
    judged again as the best of its run: on fresh inputs, at sizes that nobody saw."""
    assert named.candidate is not None and named.run is not None
    found, evaluation = named.candidate, named.evaluation
    if evaluation is None:
        raise UserMistake(f"candidate {found.digest[:8]} is not judged yet")
    insist(evaluation, f"candidate {found.digest[:8]}")
    if named.promotion is not None:
        insist(named.promotion, f"candidate {found.digest[:8]}, judged again as the best of its run,")
    more: dict[str, Any] = {
        "run": {
            "id": named.run.id,
            "agent": named.run.agent,
            "seed": named.run.seed,
            "proposal": found.k,
            "proposed_by": found.agent,
            "rationale": found.rationale,
            "versions": named.run.versions,
        },
        "lineage": list(named.lineage),
    }
    if named.promotion is not None:
        more["promotion"] = named.promotion.model_dump(mode="json", exclude={"source"})
    return _judged(named.text, named.program, evaluation, named.run.target, named.run.hardware, more)


def circumstances(variant: Variant) -> str:
    """`NVIDIA H200, racing regime, torch 2.11.0, triton 3.6.0`: under what its times were measured; "" of others."""
    if variant.mode != "measured":
        return ""
    judged = variant.provenance.get("evaluation", {})
    found = variant.provenance.get("benchmark") or judged.get("environment", {})
    device, regime, versions = (found.get(key) or {} for key in ("device", "regime", "versions"))
    told = [device.get("name"), f"{regime['name']} regime" if regime.get("name") else None]
    told += [f"{name} {versions[name]}" for name in ("torch", "triton") if versions.get(name)]
    return ", ".join(one for one in told if one)


def variant_of_judgement(text: str, program: Program, evaluation: Evaluation, target: str, hardware: str) -> Variant:
    """Of a program that was just judged. Raises UserMistake where it was not accepted."""
    insist(evaluation, "the program")
    return _judged(text, program, evaluation, target, hardware, {})


def variant_of_benchmark(text: str, program: Program, found: Benchmark) -> Variant:
    """Of a program that took part in `avo bench`. Raises UserMistake where it did not, or was wrong everywhere."""
    from dsl.printer import digest

    name = digest(program)
    arms = [a for a in found.arms if a.digest == name]
    if not arms:
        have = ", ".join(f"{a.name} ({a.digest[:8]})" for a in found.arms if a.digest) or "none"
        raise UserMistake(f"program {name[:8]} took no part in that benchmark; it has {have}")
    arm = arms[0].name
    good = [(row, o) for row in found.rows if (o := row.outcome(arm)) and o.seconds and not o.reason]
    if not good:
        raise UserMistake(f"program {name[:8]} has no right answer in that benchmark")
    measured = [
        {
            "workload": row.workload,
            "seconds": o.seconds,
            "rate": o.rate,
            "unit": found.unit,
            "headroom": o.seconds / row.floor_s if o.seconds else None,
            "best_baseline": row.best_baseline,
            "speed_over_it": o.speed.model_dump() if o.speed else None,
            "state": o.state.model_dump(mode="json"),
            "samples_s": [s.seconds for s in row.measurement.of(arm)] if row.measurement else [],
        }
        for row, o in good
    ]
    facts = {
        "benchmark": {
            "date": found.date,
            "device": found.device,
            "versions": found.versions,
            "regime": found.regime.facts(),
            "rounds": found.rounds,
            "ceilings": found.ceilings,
            "workloads": measured,
        }
    }
    return Variant(
        text=text,
        program=program,
        digest=name,
        target=found.target,
        hardware=found.hardware,
        mode="measured",
        seconds={row.workload: o.seconds for row, o in good if o.seconds},
        floors={row.workload: row.floor_s for row, _ in good},
        provenance={"program": text, "digest": name, **facts},
    )


def insist(evaluation: Evaluation, what: str) -> None:
    """Raises UserMistake unless it was accepted: nothing else is shipped."""
    from evaluators.evaluation import Status

    if evaluation.status is not Status.OK:
        told = f": {evaluation.message}" if evaluation.message else ""
        raise UserMistake(f"{what} was not accepted ({evaluation.status}{told}); only what was is exported")


def _judged(
    text: str, program: Program, evaluation: Evaluation, target: str, hardware: str, more: Mapping[str, Any]
) -> Variant:
    from dsl.printer import digest
    from evaluators.evaluation import score

    seconds = {}
    for w in evaluation.workloads:
        time = w.measured_s if evaluation.mode == "measured" else w.predicted_s
        if time:
            seconds[w.workload] = time
    facts = evaluation.model_dump(mode="json", exclude={"source"})
    return Variant(
        text=text,
        program=program,
        digest=digest(program),
        target=target,
        hardware=hardware,
        mode=evaluation.mode,
        seconds=seconds,
        floors={w.workload: w.floor_s for w in evaluation.workloads},
        provenance={
            "program": text,
            "digest": digest(program),
            **more,
            "score": score(evaluation).model_dump(mode="json"),
            "evaluation": facts,
        },
    )
