"""What the heuristic agent is made of: arithmetic, the table of moves, the surrogate, the sampler."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from avo.agents.appraisal import appraise
from avo.agents.evidence import Evidence, evidence
from avo.agents.moves import MOVES, answer
from avo.agents.sampler import suggestions
from avo.agents.surrogate import Point, Surrogate, distances
from dsl.anatomy import anatomies
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.schedule import resolve
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult
from evaluators.targets import seed_text

SIZES = {"b": 8, "h": 16, "g": 16, "m": 4096, "n": 4096, "d": 128, "e": 128}
STREAMED = frozenset({"n"})


def test_arithmetic_knows_registers_shared_memory_and_warps() -> None:
    program, hw = parse(seed_text("attention")), hardware("h200")
    (kernel,) = anatomies(program)
    naive = resolve(program, 0, hw.arch, hw.name)

    def of(m: int, n: int, stages: int, warps: int):  # type: ignore[no-untyped-def]
        return appraise(kernel, replace(naive, tile={"m": m, "n": n}, stages=stages, warps=warps), hw, SIZES)

    assert of(128, 64, 2, 4).registers == 252  # measured: 254
    assert of(64, 64, 2, 4).registers == pytest.approx(138, abs=15)
    assert of(128, 64, 2, 4).blocks == 2 and of(128, 64, 3, 4).blocks == 1
    assert of(128, 128, 2, 4).registers > 255  # it spills
    assert of(128, 64, 2, 4).relative_time < of(128, 128, 2, 4).relative_time
    assert of(64, 64, 2, 4).relative_time < of(64, 64, 2, 8).relative_time  # warps without rows of their own
    assert of(128, 64, 2, 4).relative_time < of(64, 64, 1, 4).relative_time < of(16, 16, 1, 4).relative_time
    assert of(256, 128, 2, 8).relative_time < of(256, 128, 2, 16).relative_time  # 128 registers a thread: it spills


def test_a_product_with_few_rows_wants_bytes_in_flight_on_every_sm() -> None:
    """The larger operand is read once: what a multiply-add costs does not matter (benchmarks/data/tables, 16 rows)."""

    def time(schedule: str, m: int) -> float:
        program = parse(seed_text("matmul").partition("schedule")[0] + "schedule\n" + schedule)
        kernel = anatomies(program)[0]
        return appraise(
            kernel, resolve(program, 0, "sm_90"), hardware("h200"), {"m": m, "n": 8192, "k": 8192}
        ).relative_time

    small = "tile m=16 n=64 k=128\ngrid m n\nstream k stages=4\nload tma\nwarps 4"
    large = "tile m=128 n=256 k=64\ngrid m n\nstream k stages=3\nload tma\nwarps 8"
    for m in (1, 16):
        assert time(small, m) < 0.8 * time(large, m)
        assert time(small, m) < time(small.replace("stages=4", "stages=2"), m)
        assert time(small, m) < time(small.replace("n=64", "n=16"), m)
    assert time(large, 4096) < time(small, 4096)


def test_an_elementwise_kernel_wants_bytes_in_flight() -> None:
    program, hw = parse("kernel scale\nin x[r c] bf16\nout y[r c] bf16\ny = 2.0 * x\n"), hardware("h200")
    (kernel,) = anatomies(program)
    naive = resolve(program, 0, hw.arch, hw.name)
    times = [appraise(kernel, replace(naive, tile={"r": 1, "c": c}), hw, None).relative_time for c in (16, 256, 2048)]
    assert times[0] > times[1] > times[2]


@pytest.mark.parametrize(
    ("name", "old", "new", "found", "cause"),
    [
        ("stream stages", 1, 2, Evidence({"load latency": 0.5}), "load latency"),
        ("exponent", "exp", "exp2", Evidence({"exponentials": 0.5}), "exponentials"),
        ("exponent", "exp2", "poly(4)", Evidence({"exponentials": 0.5}), "exponentials"),
        ("order", "row", "longest_first", Evidence({"tail wave": 0.5}), "tail wave"),
        ("tile m", 128, 64, Evidence({"spills": 0.4}, spills=9), "spills"),
        ("warps", 4, 8, Evidence({"spills": 0.4}, spills=9), "spills"),
        ("tile m", 64, 128, Evidence({"L2 bandwidth": 0.5}), "L2 bandwidth"),
        ("1: swizzle", "none", "dies", Evidence({"L2 bandwidth": 0.5}), "L2 bandwidth"),
    ],
)
def test_moves_answer_bottlenecks(name: str, old: int | str, new: int | str, found: Evidence, cause: str) -> None:
    there = answer(name, old, new, found, STREAMED)
    assert there.cause == cause and there.gain > 1.05 and there.claim
    assert answer(name, new, old, found, STREAMED).gain < there.gain
    elsewhere = Evidence({"matrix units": 1.0})
    assert answer(name, old, new, elsewhere, STREAMED).gain == 1.0


def test_back_from_a_polynomial_nothing_is_claimed() -> None:
    found = Evidence({"exponentials": 0.5, "instruction issue": 0.5})
    assert answer("exponent", "poly(4)", "exp2", found, STREAMED).gain == 1.0


def test_every_move_has_a_claim_and_a_cause() -> None:
    assert all(m.claim and m.causes and 0 < m.saves < 1 for m in MOVES)
    assert all((m.direction == "to") == bool(m.to) for m in MOVES)


def test_evidence_is_read_from_the_gates() -> None:
    gate = GateResult(
        gate="compile",
        passed=True,
        evidence={"kernels": [{"registers": 255, "spills": 4, "occupancy_blocks": 1, "occupancy_limit": "registers"}]},
    )
    parts = {"matrix units": 3e-4, "latency": 1e-4, "HBM bandwidth": 1e-4}
    workload = WorkloadResult(
        workload="w",
        work=1.0,
        floor_s=1e-4,
        bottleneck="",
        predicted_s=4e-4,
        limiter="latency",
        detail={"parts": parts},
    )
    found = evidence(Evaluation(status=Status.OK, gates=(gate,), workloads=(workload,)))
    assert found.shares["matrix units"] == pytest.approx(0.75) and found.shares["HBM bandwidth"] < 0.01
    assert (found.bottleneck, found.registers, found.spills) == ("matrix units", 255, 4)
    bare = evidence(Evaluation(status=Status.OK))
    assert bare == Evidence() and bare.share(("latency",)) == 0.1


def test_the_surrogate_starts_from_arithmetic_and_follows_verdicts() -> None:
    def point(warps: int, expected: float) -> Point:
        return Point({"warps": warps, "load": "tma"}, expected)

    near, far = point(8, 0.0), point(1, 0.2)
    untold = Surrogate([point(4, 0.1)], [100.0])
    assert untold.predict([far])[0] > untold.predict([near])[0]
    told = Surrogate([point(4, 0.1), point(16, 0.0), point(2, 0.2)], [100.0, 180.0, 60.0])
    mean, deviation = told.predict([near, far, point(4, 0.1)])
    assert mean[0] > mean[1]
    assert math.exp(mean[2]) == pytest.approx(100.0, rel=0.02) and deviation[2] < 0.02 < deviation[0]
    assert np.all(told.improvement([near, far], [0.0, 0.0]) >= 0)


def test_a_failure_pulls_its_neighbours_down() -> None:
    good, bad = Point({"warps": 4}, 0.0), Point({"warps": 16}, 0.0)
    mean, _ = Surrogate([good, bad], [100.0, 0.0]).predict([Point({"warps": 8}, 0.0), good])
    assert mean[0] < mean[1]


def test_distances_that_are_no_metric_are_fitted_all_the_same() -> None:
    """`order l2 0` is a word beside sizes, as near to each as they are to none of each other: no Cholesky factor."""
    sizes = [0, 4 << 20, 8 << 20, 16 << 20, 32 << 20]
    settings = [{"order l2": l2, "stream stages": stages, "hold": h} for l2 in sizes for stages in (1, 6) for h in "ab"]
    points = [Point(s, 0.0) for s in settings]
    scores = [100.0 + (i * 7) % 11 for i in range(len(points))]
    model = Surrogate(points, scores, deviation=3.0, effect=0.0)
    mean, deviation = model.predict(points)
    assert np.all(np.isfinite(mean)) and np.all(deviation > 0)
    assert np.all(np.isfinite(model.improvement(points, [0.0] * len(points))))


def test_distance() -> None:
    def apart(a: dict[str, int | str], b: dict[str, int | str]) -> float:
        return float(distances([a], [b])[0][0, 0])

    assert apart({"warps": 4}, {"warps": 4}) == 0
    assert 0 < apart({"warps": 4}, {"warps": 8}) < apart({"warps": 4}, {"warps": 16})
    assert apart({"stages": 3}, {"stages": 4}) == apart({"stages": 1}, {"stages": 2})
    assert 0 < apart({"a": "x"}, {"a": "y"}) < apart({"a": "x"}, {})
    assert apart({"a": "x", "warps": 4}, {"a": "y", "warps": 8}) == pytest.approx(0.7)


def test_the_sampler_is_rebuilt_from_what_was_tried() -> None:
    scales: dict[str, tuple[int | str, ...]] = {"warps": (1, 2, 4, 8, 16), "stages": (1, 2, 3, 4)}
    tried = [({"warps": w, "stages": s}, -abs(w - 8) - 2.0 * abs(s - 3)) for w in (1, 2, 4, 8, 16) for s in (1, 2, 4)]
    first = suggestions(scales, tried, 7, 6)
    assert first == suggestions(scales, tried, 7, 6) != suggestions(scales, tried, 8, 6)
    assert all(set(s) == set(scales) and all(s[n] in scales[n] for n in s) for s in first)
    assert sum(s["warps"] in (4, 8) for s in first) > len(first) / 2
    assert suggestions({"warps": (4,)}, tried, 7, 3) == []
