"""Judging again: equal evidence is the same, times within both intervals are noise, and what changed is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import avo
from avo.rejudging import SESSIONS, compare
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult


def evaluation(*seconds: float, mode: Any = "measured", half: float = 0.001, **more: Any) -> Evaluation:
    rows = []
    for place, s in enumerate(seconds):
        times = {"measured_s": s, "predicted_s": 2.0} if mode == "measured" else {"predicted_s": s}
        detail = {"interval_s": [s * (1 - half), s * (1 + half)]}
        rows.append(
            WorkloadResult(workload=f"n={place}", work=1e12, floor_s=0.1, bottleneck="memory", detail=detail, **times)
        )
    gates = (GateResult(gate="compile", passed=True, evidence={"kernels": [{"registers": 128}]}),)
    facts: dict[str, Any] = {"status": Status.OK, "mode": mode, "gates": gates, "workloads": tuple(rows), **more}
    return Evaluation(**facts)


def test_times_within_both_intervals_and_what_sessions_differ_by_are_noise() -> None:
    found = compare(evaluation(1.0, 2.0), evaluation(1.0 * (1 + SESSIONS / 2), 2.0))
    assert found.outcome == "within noise" and found.holds and found.ratio is not None
    assert found.ratio[1] <= 1 <= found.ratio[2]


@pytest.mark.parametrize(("factor", "outcome"), [(1.05, "slower"), (0.95, "faster")])
def test_a_time_beyond_noise_is_told_with_its_ratio(factor: float, outcome: str) -> None:
    found = compare(evaluation(1.0, 2.0), evaluation(factor, 2.0 * factor))
    assert found.outcome == outcome and found.ratio is not None
    assert found.ratio[0] == pytest.approx(1 / factor)
    assert found.holds == (outcome == "faster")


def test_predictions_have_to_be_equal_to_the_last_digit() -> None:
    then = evaluation(1.0, mode="predicted")
    assert compare(then, then).outcome == "same"
    found = compare(then, evaluation(1.0001, mode="predicted"))
    assert found.outcome == "different" and "predicted 1 s, now 1.0001 s" in found.differences[0]
    gates = (GateResult(gate="compile", passed=True, evidence={"kernels": [{"registers": 168}]}),)
    found = compare(then, evaluation(1.0, mode="predicted", gates=gates))
    assert found.differences == ("compile: kernels[0].registers: 128 -> 168",)


def test_one_that_is_not_accepted_any_more_says_why() -> None:
    now = Evaluation(status=Status.COMPILE_ERROR, message="ptxas gave up")
    found = compare(evaluation(1.0), now)
    assert found.outcome == "rejected" and not found.holds
    assert found.differences == ("then ok, now compile_error: ptxas gave up",)
    gone = compare(evaluation(1.0), Evaluation(status=Status.UNAVAILABLE, message="no device"))
    assert gone.outcome == "unavailable"


def test_what_changed_meanwhile_is_named() -> None:
    then = evaluation(1.0, environment={"versions": {"triton": "3.6.0"}, "device": {"driver": "570.1", "name": "H200"}})
    now = evaluation(1.0, environment={"versions": {"triton": "3.9.0"}, "device": {"driver": "580.2", "name": "H200"}})
    assert compare(then, now).changes == ("triton: 3.6.0 -> 3.9.0", "driver: 570.1 -> 580.2")


def test_measured_and_predicted_times_and_two_chips_are_never_compared() -> None:
    found = compare(evaluation(1.0), evaluation(5.0, mode="predicted"))
    assert found.ratio is None and "then measured, now predicted" in found.differences[0]
    other = compare(evaluation(1.0), evaluation(5.0), same_chip=False)
    assert other.outcome == "same" and other.ratio is None and "another chip" in other.differences[0]


def test_the_verbs(cli: Callable[..., Any], evolved: Path) -> None:
    answer = cli("reproduce", "1/0")
    assert answer.code == 0 and "same" in answer.out, answer.out + answer.err
    told = json.loads(cli("reproduce", "1/0", "--json").out)
    assert told["outcome"] == "same" and told["differences"] == []
    answer = cli("recheck")
    assert answer.code == 0 and "same" in answer.out, answer.out + answer.err
    (row,) = json.loads(cli("recheck", "1/0", "--json").out)
    assert row["candidate"] == "1/0" and row["outcome"] == "same"
    missing = cli("reproduce", "1/99")
    assert missing.code == 2 and "no candidate 99" in missing.err


def test_files_and_folders_are_told_what_the_verbs_take(cli: Callable[..., Any], evolved: Path) -> None:
    (evolved / "x.avo").write_text("kernel x")
    for arguments, said in (
        (("reproduce", "x.avo"), "x.avo is a file, and only a candidate has a verdict to compare with"),
        (("recheck", "."), ". is a folder: name its program files, as in `avo recheck *.avo`"),
        (("recheck", "no.avo"), "no such file: no.avo"),
    ):
        answer = cli(*arguments)
        assert answer.code == 2 and said in answer.err, answer.err


def test_one_champion_that_cannot_be_judged_does_not_keep_the_others_from_it(
    cli: Callable[..., Any], evolved: Path
) -> None:
    answer = cli("recheck", "1/99", "1/0")
    assert answer.code == 3, answer.out + answer.err
    assert "1/99: unavailable\n  run 1 has no candidate 99" in answer.out and "1/0: same" in answer.out
    assert cli("recheck", "1/99").code == 2


def test_champions_in_files_are_held_against_their_measurements(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from avo import rejudging
    from evaluators.targets import target

    path = tmp_path / "best.avo"
    path.write_text(target("softmax").seed)
    mistake = cli("recheck", path)
    assert mistake.code == 2 and "no best.json beside the program" in mistake.err and "`avo eval FILE" in mistake.err
    rows = [{"workload": "r=4096,c=2048", "seconds": 1e-5, "samples_s": [1e-5, 1.001e-5, 0.999e-5]}]
    facts = {"target": "softmax", "hardware": "h200", "mode": "measured", "workloads": rows}
    path.with_suffix(".json").write_text(json.dumps({**facts, "versions": {"triton": "3.6.0"}}))
    absent = cli("recheck", path)
    assert absent.code == 3 and "was measured, and no h200 is here" in absent.out
    assert "--evaluator" not in absent.out, "the verb has no such option"
    asked = []

    def judged(named: Any, evaluator: str, job: Any, *more: Any) -> Evaluation:
        asked.append([w.name for w in job.workloads])
        row = WorkloadResult(
            workload="r=4096,c=2048", work=1.0, floor_s=0.0, bottleneck="", measured_s=1.1e-5,
            detail={"interval_s": [1.09e-5, 1.11e-5]},
        )  # fmt: skip
        facts: dict[str, Any] = {"versions": {"triton": "3.9.0"}}
        return Evaluation(status=Status.OK, mode="measured", workloads=(row,), environment=facts)

    monkeypatch.setattr(rejudging, "_judge", judged)
    slower = cli("recheck", path, "--json")
    (found,) = json.loads(slower.out)
    assert slower.code == 1 and found["outcome"] == "slower" and found["changes"] == ["triton: 3.6.0 -> 3.9.0"]
    assert asked == [["r=4096,c=2048"]] and found["ratio"]["value"] == pytest.approx(1 / 1.1)
    path.with_suffix(".json").write_text(json.dumps({**facts, "digest": "d54da3c0c4daca3f"}))
    other = cli("recheck", path)  # whose figures these are is asked before anything is judged
    assert other.code == 1 and "best.json is about program d54da3c0c4daca3f" in other.out and len(asked) == 1
    path.with_suffix(".json").write_text("{}")
    assert cli("recheck", path).code == 2


def test_a_candidate_is_loaded_as_its_package_has_it(evolved: Path) -> None:
    """On the host it is the reference; the operator is one for torch.compile; its chip comes from the run."""
    import torch

    kernel = avo.load("1/0", archive=evolved / "avo.db")
    assert kernel.hardware.name == "b200"
    inputs = [t for t in kernel.program.algorithm.inputs]
    sizes = dict.fromkeys((a for t in inputs for a in t.axes or ()), 24)
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, None: torch.float32, "f32": torch.float32}
    given = [torch.randn([sizes[a] for a in t.axes or ()]).to(dtypes[t.dtype]) for t in inputs]
    found = kernel(*given)
    exact = kernel.meaning({t.name: x.double().numpy() for t, x in zip(inputs, given, strict=True)})
    (right,) = exact.values()
    assert torch.allclose(found.double(), torch.from_numpy(right), atol=3e-2, rtol=3e-2)
    fast = torch.compile(lambda *x: kernel(*x), fullgraph=True, backend="aot_eager")
    assert torch.equal(fast(*given), found)
    with pytest.raises(avo.UserMistake, match="brings its run's chip"):
        avo.load("1/0", "h200", archive=evolved / "avo.db")


@pytest.mark.slow
def test_a_prediction_is_reproduced_by_avos_own_judge(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("evolve", "--target", "softmax", "--hw", "h200", "--steps", 1, "--workload", "r=4096,c=2048")
    assert done.code == 0, done.err
    answer = cli("reproduce", "1/0")
    assert answer.code == 0 and ": same" in answer.out, answer.out + answer.err
    other = cli("recheck", "1/0", "--hw", "a100")
    assert other.code == 0 and "times are not compared: another chip" in other.out, other.out + other.err
