"""Judging again what was accepted before: is it the same, is the difference noise, and what has changed meanwhile."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from avo.errors import UserMistake
from avo.plugin_answers import evaluation_of

if TYPE_CHECKING:
    from avo.candidates import Named
    from dsl.hardware import Hardware
    from evaluators.evaluation import Evaluation
    from evaluators.target import Target

Outcome = Literal["same", "within noise", "faster", "slower", "different", "rejected", "unavailable"]

# Two sessions of one power-limited card differ by about a percent in geometric mean, whatever each one's interval says.
SESSIONS = 0.01

# What may make a difference, as `Evaluation.environment` and a run's `versions` name it.
_VERSIONS = ("avo-kernels", "numpy", "torch", "triton")


@dataclass(frozen=True)
class Comparison:
    """ratio: speed now over speed then, with its interval, where both were measured; below 1 is slower. differences:
    in words, the first ones first. changes: versions, driver and chip, as `name: then -> now`."""

    outcome: Outcome
    ratio: tuple[float, float, float] | None = None
    differences: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the verdict stands: nothing to act on."""
        return self.outcome in ("same", "within noise", "faster")


def again(named: Named, hardware: Hardware | None = None) -> tuple[Evaluation, Target, Hardware]:
    """Judges a candidate as its run did (or on another chip): same target, sizes, seed and kind of evaluator.

    Raises UserMistake where the run was begun with objects of Python, HarnessUnavailable where the chip that measured
    it is not here.
    """
    from avo import choosing
    from avo.compiling import require_torch, require_triton
    from avo.config import RunConfig
    from avo.exporting import target_of_run

    assert named.run is not None and named.evaluation is not None
    require_torch("judging")
    require_triton("judging")
    given = {k: v for k, v in named.run.given.items() if k in RunConfig.model_fields}
    config = RunConfig.model_validate(given)
    for kind, name in (("evaluator", config.evaluator), ("chip", config.hw)):
        if name.startswith("<"):
            raise UserMistake(
                f"run {named.run.id} was begun in Python with {name[1:-1]}; its {kind} has no name to go by"
            )
    chip = hardware or choosing.chip(named.run.hardware)
    target = target_of_run(named)
    name = config.evaluator
    if name in ("local", "predicted", "measured"):
        name = "measured" if named.evaluation.mode == "measured" else "predicted"
    found = _judge(named, name, target, chip, named.run.seed, config.evaluator_options)
    return found, target, chip


def again_file(path: Path, hardware: Hardware | None = None) -> Comparison:
    """What the judgement now says of the JSON beside a champion's program: configs/champions has such files. Nothing is
    judged where the JSON is about another program.

    Raises UserMistake where there is no JSON of that form, HarnessUnavailable where the chip is not here.
    """
    from avo import choosing, plugins, workloads
    from avo.candidates import find
    from avo.compiling import require_torch, require_triton
    from avo.programs import named as name_of
    from evaluators.loading import complete

    named = find(str(path))
    facts = _facts(path.with_suffix(".json"))
    digest = name_of(named.text)[0]
    if facts.get("digest", digest) != digest:
        told = f"{path.with_suffix('.json').name} is about program {facts['digest']!s:.16}; this one is {digest}"
        return Comparison("different", None, (told,))
    require_torch("judging")
    require_triton("judging")
    chip = hardware or choosing.chip(facts["hardware"])
    sizes = [w["workload"] for w in facts["workloads"]]
    target = complete(workloads.retarget(plugins.load("target", facts["target"]), sizes))
    then, now = _then(facts), _judge(named, "measured", target, chip, 0, {})
    return compare(then, now, same_chip=chip.name == facts["hardware"])


def _judge(
    named: Named, evaluator: str, target: Target, chip: Hardware, seed: int, options: Mapping[str, Any]
) -> Evaluation:
    from avo import plugins
    from avo.errors import HarnessUnavailable

    if evaluator == "measured":
        from evaluators.device import NoDevice, local_devices, matching

        try:
            matching(local_devices(), chip)
        except NoDevice as error:
            raise HarnessUnavailable(f"{named.name} was measured, and {error.measuring}") from None
    judge = plugins.create("evaluator", evaluator, {"jobs": 1, "seed": seed, "hardware": chip}, options)
    try:
        return evaluation_of(judge, judge.evaluate(named.text, target, chip))
    finally:
        judge.close()


def _facts(path: Path) -> dict[str, Any]:
    from avo.files import read_text

    if not path.is_file():
        raise UserMistake(
            f"there is no {path.name} beside the program: a champion is held against its measurements there, as "
            "configs/champions has them. `avo eval FILE --target T --hw X` judges a program that has none"
        )
    try:
        facts = json.loads(read_text(str(path)))
        known = {"target", "hardware", "mode", "workloads"} <= set(facts) and facts["mode"] == "measured"
        good = known and all({"workload", "seconds"} <= set(w) for w in facts["workloads"])
    except (ValueError, TypeError):
        good = False
    if not good:
        raise UserMistake(f"{path} does not hold the measurements of a champion, as configs/champions has them")
    found: dict[str, Any] = facts
    return found


def _then(facts: Mapping[str, Any]) -> Evaluation:
    """A champion's measurements as a judgement, each with the spread of its samples as interval."""
    from evaluators.evaluation import Evaluation, Status, WorkloadResult

    rows = []
    for w in facts["workloads"]:
        samples = w.get("samples_s") or [w["seconds"]]
        logs = [math.log(s) for s in samples]
        mean = sum(logs) / len(logs)
        half = 2 * math.sqrt(sum((x - mean) ** 2 for x in logs) / max(1, len(logs) - 1) / len(logs))
        interval = [w["seconds"] * math.exp(-half), w["seconds"] * math.exp(half)]
        rows.append(
            WorkloadResult(
                workload=w["workload"],
                work=1.0,
                floor_s=0.0,
                bottleneck="",
                measured_s=w["seconds"],
                detail={"interval_s": interval},
            )
        )
    environment = {
        "versions": facts.get("versions", {}),
        "device": facts.get("device", {}),
        "hardware": facts["hardware"],
    }
    return Evaluation(status=Status.OK, mode="measured", workloads=tuple(rows), environment=environment)


def compare(before: Evaluation, now: Evaluation, same_chip: bool = True) -> Comparison:
    """What the second judgement says of the first. Times are compared where both were measured on the same chip; where
    both were predicted the whole evidence has to be equal, for it is a function of program, seed and versions."""
    from evaluators.evaluation import Status

    changes = tuple(changed(before.environment, now.environment))
    if now.status is Status.UNAVAILABLE:
        return Comparison("unavailable", None, (now.message,), changes)
    if now.status is not before.status:
        told = f"then {before.status}, now {now.status}" + (f": {now.message}" if now.message else "")
        outcome: Outcome = "rejected" if before.status is Status.OK else "different"
        return Comparison(outcome, None, (told,), changes)
    differences = tuple(_gates(before, now)) if same_chip and before.gates else ()
    if before.mode == "measured" and now.mode == "measured" and same_chip:
        ratio = _ratio(before, now)
        if ratio is None:
            return Comparison("different", None, ("other workloads than then", *differences), changes)
        value, low, high = ratio
        if low <= 1.0 <= high:
            return Comparison("within noise", ratio, differences, changes)
        return Comparison("faster" if value > 1 else "slower", ratio, differences, changes)
    if not same_chip or before.mode != now.mode:
        why = "another chip" if not same_chip else f"then {before.mode}, now {now.mode}"
        return Comparison("same", None, (f"accepted there too; times are not compared: {why}",), changes)
    differences += tuple(_predictions(before, now))
    return Comparison("different" if differences else "same", None, differences, changes)


def changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Versions, driver and device that are not as they were, as `name: then -> now`."""
    found = []
    old, new = _flat(then), _flat(now)
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name) and old.get(name) is not None and new.get(name) is not None:
            found.append(f"{name}: {old[name]} -> {new[name]}")
    return found


def _flat(environment: Mapping[str, Any]) -> dict[str, Any]:
    device = environment.get("device") or {}
    versions = environment.get("versions") or {}
    found = {name: versions.get(name, environment.get(name)) for name in (*_VERSIONS, "python")}
    found |= {name: device.get(name) for name in ("name", "uuid", "driver", "runtime", "cudnn", "power_limit_w")}
    found["hardware"] = environment.get("hardware")
    return {name: value for name, value in found.items() if isinstance(value, str | int | float)}


def _gates(before: Evaluation, now: Evaluation) -> list[str]:
    """Gates whose evidence is another one. Evidence of timing is times, and compared as such."""
    found = []
    old = {g.gate: g for g in before.gates}
    for gate in now.gates:
        other = old.get(gate.gate)
        if other is None:
            found.append(f"{gate.gate}: there was no such gate")
        elif gate.gate not in ("timing", "floor") and (before.mode != "measured" or gate.gate == "compile"):
            found += [f"{gate.gate}: {what}" for what in _unlike(other.evidence, gate.evidence)[:4]]
    return found


def _predictions(before: Evaluation, now: Evaluation) -> list[str]:
    old = {w.workload: w.predicted_s for w in before.workloads}
    found = []
    for w in now.workloads:
        then = old.get(w.workload)
        if then is None or w.predicted_s is None:
            if then is not w.predicted_s:
                found.append(f"{w.workload}: a prediction then or now, not both")
        elif not math.isclose(then, w.predicted_s, rel_tol=1e-9):
            found.append(f"{w.workload}: predicted {then:.6g} s, now {w.predicted_s:.6g} s")
    return found


def _unlike(a: Any, b: Any, where: str = "") -> list[str]:
    """Places in two JSON values that differ, as `path: then -> now`."""
    if isinstance(a, dict) and isinstance(b, dict):
        found = []
        for key in dict.fromkeys([*a, *b]):
            found += _unlike(a.get(key), b.get(key), f"{where}.{key}" if where else str(key))
        return found
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        return [
            one for place, (x, y) in enumerate(zip(a, b, strict=True)) for one in _unlike(x, y, f"{where}[{place}]")
        ]
    return [] if a == b else [f"{where}: {_short(a)} -> {_short(b)}"]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _ratio(before: Evaluation, now: Evaluation) -> tuple[float, float, float] | None:
    """Speed now over speed then, geometric mean, with both intervals and what two sessions differ by anyway."""
    old = {w.workload: w for w in before.workloads}
    logs, squares = [], 0.0
    for w in now.workloads:
        other = old.get(w.workload)
        if other is None or not other.measured_s or not w.measured_s:
            return None
        logs.append(math.log(other.measured_s / w.measured_s))
        squares += _half(other.detail) ** 2 + _half(w.detail) ** 2
    if not logs or len(logs) != len(old):
        return None
    middle = sum(logs) / len(logs)
    half = math.sqrt(squares) / len(logs) + SESSIONS
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _half(detail: Mapping[str, Any]) -> float:
    low, high = detail.get("interval_s") or (1.0, 1.0)
    return math.log(high / low) / 2 if low > 0 else 0.0
