"""The judge, gate by gate: what each lets through and what it stops, with the status and evidence that go with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import dsl.lowering
from dsl.hardware import Hardware, hardware
from dsl.lowering.lowered import Lowered
from dsl.syntax import Program
from evaluators import gates
from evaluators.evaluation import GATES, Evaluation, Status, score
from evaluators.judge import LocalEvaluator
from evaluators.pool import WorkerPool
from evaluators.target import Target, TargetError, Workload
from evaluators.targets import BUILTIN, target

B200, CPU = hardware("b200"), hardware("cpu")
SMALL = replace(
    target("matmul"),
    workloads=(Workload({"m": 4096, "n": 4096, "k": 4096}),),
    checks=(Workload({"m": 70, "n": 40, "k": 100}), Workload({"m": 33, "n": 70, "k": 40})),
)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as workers:
        yield workers


@pytest.fixture
def judge(pool: WorkerPool) -> LocalEvaluator:
    return LocalEvaluator(seed=5, pool=pool)


def facts(evaluation: Evaluation) -> dict[str, Any]:
    """All but the time that each gate took."""
    whole: dict[str, Any] = json.loads(evaluation.model_dump_json())
    for gate in whole["gates"]:
        del gate["seconds"]
    return whole


def spoiled(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[str], str]) -> None:
    """Lets the lowering emit another source than it should."""
    true = dsl.lowering.lower

    def lower(program: Program, hw: Hardware, sizes: Any = None, **options: Any) -> Lowered:
        lowered = true(program, hw, sizes, **options)
        source = spoil(lowered.source)
        assert source != lowered.source
        return replace(lowered, source=source, interpretable=source)

    monkeypatch.setattr(dsl.lowering, "lower", lower)


# What passes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILTIN)
def test_the_seed_of_each_target_passes_every_gate(judge: LocalEvaluator, name: str) -> None:
    """With one public size for each value of the params; all of them below."""
    job = target(name)
    sizes = {tuple(w.params.items()): w for w in reversed(job.workloads)}
    passes(judge, replace(job, workloads=tuple(sizes.values())))


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["b200", "h200", "mi300x"])
@pytest.mark.parametrize("name", BUILTIN)
def test_the_seed_of_each_target_passes_every_gate_at_every_size(judge: LocalEvaluator, name: str, chip: str) -> None:
    passes(judge, target(name), chip)


def passes(judge: LocalEvaluator, job: Target, chip: str = "b200") -> None:
    found = judge.evaluate(job.seed, job, hardware(chip))
    assert found.status is Status.OK, (found.message, found.gates[-1].evidence)
    assert [g.gate for g in found.gates] == [g for g in GATES if g not in ("integrity", "timing")]
    assert all(g.passed and g.evidence for g in found.gates) and found.failed_gate is None
    assert found.mode == "predicted" and found.unit == job.unit
    assert [w.workload for w in found.workloads] == [w.name for w in job.workloads]
    for w in found.workloads:
        assert w.measured_s is None and w.predicted_s is not None and w.predicted_s >= w.floor_s > 0
        assert w.work > 0 and w.bottleneck and w.limiter
    assert (score(found).predicted or 0) > 0 and (score(found).headroom or 0) >= 1
    assert "@triton.jit" in found.source
    assert found.environment["chip"] == chip and found.environment["versions"]["triton"]
    assert Evaluation.model_validate_json(found.model_dump_json()) == found


def test_the_host_makes_no_speed_claim(judge: LocalEvaluator) -> None:
    found = judge.evaluate(SMALL.seed, SMALL, CPU)
    assert found.status is Status.OK and found.mode == "none" and found.workloads == ()
    assert [g.gate for g in found.gates] == ["parse", "check", "meaning", "compile", "correctness"]
    assert score(found).predicted is None


def test_two_judgements_of_one_candidate_agree_and_other_candidates_see_other_inputs(
    judge: LocalEvaluator, pool: WorkerPool
) -> None:
    first = judge.evaluate(SMALL.seed, SMALL, B200)
    second = LocalEvaluator(seed=5, pool=pool).evaluate(SMALL.seed, SMALL, B200)
    assert facts(first) == facts(second)
    other = judge.evaluate(SMALL.seed.replace("warps 4", "warps 8"), SMALL, B200)
    reseeded = LocalEvaluator(seed=6, pool=pool).evaluate(SMALL.seed, SMALL, B200)

    def numbers(evaluation: Evaluation) -> object:
        gate = evaluation.gate("correctness")
        assert gate is not None and gate.passed
        return [case["outputs"]["c"] for case in gate.evidence["cases"]]

    assert numbers(first) != numbers(other) and numbers(first) != numbers(reseeded)


def test_a_winner_is_judged_again_on_the_hidden_sizes_and_another_seed(judge: LocalEvaluator) -> None:
    first, again = judge.evaluate(SMALL.seed, SMALL, B200), judge.promote(SMALL.seed, SMALL, B200)
    assert again.status is Status.OK and again.source == first.source
    assert [w.workload for w in again.workloads] == [w.name for w in SMALL.hidden]
    seen = [e.gate("correctness") for e in (first, again)]
    assert seen[0] and seen[1] and seen[0].evidence != seen[1].evidence


def test_threads_judge_side_by_side(judge: LocalEvaluator) -> None:
    texts = [SMALL.seed, "nonsense", SMALL.seed.replace("k=32", "k=64"), SMALL.seed]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda t: judge.evaluate(t, SMALL, B200), texts))
    assert [e.status for e in found] == [Status.OK, Status.PARSE_ERROR, Status.OK, Status.OK]
    assert facts(found[0]) == facts(found[3])


# What does not, before anything is compiled --------------------------------------------------------


def rejected(judge: LocalEvaluator, text: str, job: Target = SMALL, hw: Hardware = B200) -> Evaluation:
    found = judge.evaluate(text, job, hw)
    assert found.status not in (Status.OK, Status.UNAVAILABLE)
    assert found.message and found.failed_gate == found.gates[-1].gate
    assert score(found).predicted in (0.0, None) and not found.workloads
    return found


def test_a_text_that_is_no_program(judge: LocalEvaluator) -> None:
    found = rejected(judge, "kernel ]]]")
    assert found.status is Status.PARSE_ERROR and found.failed_gate == "parse"
    assert found.gates[0].evidence["diagnostics"][0]["line"] == 1
    assert "^" in found.gates[0].evidence["text"], "the rendered text has a caret"


def test_a_program_that_does_not_check_tells_everything_at_once(judge: LocalEvaluator) -> None:
    found = rejected(judge, SMALL.seed.replace("m=64", "m=63").replace("warps 4", "warps 5"))
    assert found.status is Status.CHECK_ERROR and found.failed_gate == "check"
    assert len([d for d in found.gates[1].evidence["diagnostics"] if d["severity"] == "error"]) >= 2


def test_a_locked_algorithm(judge: LocalEvaluator) -> None:
    found = rejected(judge, SMALL.seed.replace("sum[k](a * b)", "sum[k](a * b) * 2"))
    assert found.status is Status.CHECK_ERROR and "locked-algorithm" in str(found.gates[1].evidence)


def test_an_open_algorithm_must_still_mean_the_reference(judge: LocalEvaluator) -> None:
    job = replace(SMALL, opens="all")
    found = rejected(judge, SMALL.seed.replace("sum[k](a * b)", "sum[k](a * b) * 1.0001"), job)
    assert found.status is Status.MEANING_ERROR and found.failed_gate == "meaning"
    assert "c is 0.0001 off the reference" in found.message


def test_named_roundings_must_stay_within_the_tier(judge: LocalEvaluator) -> None:
    text = SMALL.seed.replace("c = sum[k](a * b)", "p[m n] e4m3 = sum[k](a * b)\nc = p")
    found = rejected(judge, text, replace(SMALL, opens="all"))
    assert found.status is Status.MEANING_ERROR and "the target's tier is 0.02" in found.message


def test_a_construct_without_a_lowering(judge: LocalEvaluator) -> None:
    job = replace(SMALL, opens="all")
    found = rejected(judge, SMALL.seed.replace("schedule\n", "schedule\nlaunch queue\n"), job)
    assert found.status is Status.NOT_LOWERED


# What does not, in the workers ---------------------------------------------------------------------


def test_a_kernel_that_the_chip_cannot_hold(judge: LocalEvaluator) -> None:
    found = rejected(judge, SMALL.seed, hw=replace(B200, shared_bytes=4096))
    assert found.status in (Status.RESOURCE, Status.CHECK_ERROR)
    assert "shared memory" in found.message


def test_a_source_that_the_compiler_refuses(judge: LocalEvaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(monkeypatch, lambda s: s.replace("tl.dot(", "tl.no_such_function(", 1))
    found = rejected(judge, SMALL.seed)
    assert found.status is Status.COMPILE_ERROR and found.failed_gate == "compile"
    assert "no_such_function" in str(found.gates[-1].evidence["error"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.dot(", "1.01 * tl.dot("),
        ("tl.dot(", "0.0 * tl.dot("),
    ],
)
def test_a_kernel_that_computes_something_else(
    judge: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    spoiled(monkeypatch, lambda s: s.replace(old, new))
    found = rejected(judge, SMALL.seed, hw=CPU)
    assert found.status is Status.INCORRECT and found.failed_gate == "correctness"
    case = found.gates[-1].evidence["cases"][0]
    assert case["reasons"] and case["workload"] == "m=70,n=40,k=100"


def test_a_run_that_does_not_end(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(
        monkeypatch, lambda s: s + "\nwhile_true = matmul\n\n\ndef matmul(*a, **k):\n    while True:\n        pass\n"
    )
    judge = LocalEvaluator(seed=5, pool=pool, run_timeout=2.0)
    found = rejected(judge, SMALL.seed, hw=CPU)
    assert found.status is Status.TIMEOUT and found.failed_gate == "correctness"


def test_a_run_that_kills_its_worker(judge: LocalEvaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(monkeypatch, lambda s: s + "\n\ndef matmul(*a, **k):\n    import os\n    os._exit(3)\n")
    found = rejected(judge, SMALL.seed, hw=CPU)
    assert found.status is Status.CRASH
    monkeypatch.undo()
    assert judge.evaluate(SMALL.seed, SMALL, CPU).status is Status.OK, "the next candidate is judged all the same"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("return torch.zeros(a.shape[0], b.shape[1] + 1, dtype=torch.bfloat16)", "shape"),
        ("return torch.zeros(a.shape[0], b.shape[1])", "dtype f32, declared bf16"),
        ("a.zero_()\n    return torch.zeros(a.shape[0], b.shape[1], dtype=torch.bfloat16)", "input"),
        ("raise ValueError('no')", "ValueError"),
        ("return None", "output"),
    ],
)
def test_an_output_of_another_form(
    judge: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, body: str, complaint: str
) -> None:
    spoiled(monkeypatch, lambda s: s + f"\n\ndef matmul(a, b):\n    {body}\n")
    found = rejected(judge, SMALL.seed, hw=CPU)
    assert found.failed_gate == "correctness"
    assert complaint in json.dumps(found.gates[-1].evidence) + found.message


# Whose fault it is ---------------------------------------------------------------------------------


def test_faster_than_light_is_an_error_of_the_evaluation(
    judge: LocalEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import evaluators.prediction as prediction

    true = prediction.predict
    monkeypatch.setattr(prediction, "predict", lambda *a, **k: replace(true(*a, **k), seconds=1e-9))
    found = judge.evaluate(SMALL.seed, SMALL, B200)
    assert found.status is Status.SUSPICIOUS and found.failed_gate == "floor"
    assert "speed of light" in found.message and score(found).predicted == 0


def test_a_harness_that_is_not_there_is_no_verdict() -> None:
    with LocalEvaluator(jobs=1) as judge:
        judge.close()
        found = judge.evaluate(SMALL.seed, SMALL, CPU)
    assert found.status is Status.UNAVAILABLE and found.message
    assert found.failed_gate is None and score(found).predicted is None


def test_a_bug_of_ours_ends_neither_the_run_nor_counts_as_wrong(
    judge: LocalEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "check", lambda *_: 1 // 0)
    found = judge.evaluate(SMALL.seed, SMALL, B200)
    assert found.status is Status.NOT_LOWERED and "please report" in found.message


def test_a_target_that_is_wrong_is_the_persons_mistake(judge: LocalEvaluator) -> None:
    with pytest.raises(TargetError, match="the reference returns NaN"):
        judge.evaluate(SMALL.seed, replace(SMALL, reference=lambda a, b: a @ b * float("nan")), B200)


def test_the_meaning_is_asked_once_for_all_schedules(pool: WorkerPool) -> None:
    calls = []

    def reference(a: Any, b: Any) -> Any:
        calls.append(1)
        return a @ b

    judge = LocalEvaluator(seed=5, pool=pool)
    job = replace(SMALL, reference=reference)
    for text in (SMALL.seed, SMALL.seed.replace("warps 4", "warps 8")):
        assert judge.evaluate(text, job, CPU).status is Status.OK
    assert len(calls) == len(SMALL.tiny)
