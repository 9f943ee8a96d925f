"""The heuristic where times are measured: what it has compiled before it proposes, and that nobody waits for that."""

from __future__ import annotations

from collections import Counter

import pytest

from avo.agents.heuristic import AT_ONCE, MOST_LAG, HeuristicAgent
from avo.agents.protocol import Brief, Judged, Proposal
from avo.agents.surrogate import Corrected, Point
from dsl.hardware import hardware
from dsl.knobs import settings
from dsl.parser import parse
from dsl.printer import digest, print_program
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult, score
from evaluators.target import Target, Workload
from evaluators.targets import seed_text

H200 = hardware("h200")
SIZES = {"b": 2, "h": 16, "g": 16, "m": 4096, "n": 4096, "d": 128, "e": 128}
W = (Workload(SIZES, {"causal": True}),)
TARGET = Target("attention", lambda *a: None, seed_text("attention"), W, W, W)


def verdict(measured: float | None, predicted: float) -> Evaluation:
    """Seconds; measured None: a preview."""
    row = WorkloadResult(
        workload="w", work=1e12, floor_s=1e-5, bottleneck="x", predicted_s=predicted, measured_s=measured
    )
    gate = GateResult(gate="compile", passed=True, evidence={"kernels": [{"registers": 128}]})
    mode = "predicted" if measured is None else "measured"
    return Evaluation(status=Status.OK, mode=mode, gates=(gate,), workloads=(row,))  # type: ignore[arg-type]


class Run:
    """A run whose compiler expects `predicted(setting)` seconds and whose card takes `measured(setting)`."""

    def __init__(self, jobs: int = 1, **options: object) -> None:
        self.jobs, self.options, self.looked = jobs, options, list[str]()
        self.done: list[Judged] = []
        self.judge(Proposal(print_program(parse(TARGET.seed))))

    def predicted(self, text: str) -> float:
        s = settings(parse(text), H200)
        away = (s["tile m"] != 128) + (s["tile n"] != 64) + (s["warps"] != 8 if "warps" in s else 1)
        return 1e-3 * 1.3 ** (away + (s["load"] != "tma") + (s["exponent"] != "exp2"))

    def preview(self, text: str) -> Evaluation:
        self.looked.append(text)
        return verdict(None, self.predicted(text))

    def judge(self, p: Proposal) -> None:
        time = self.predicted(p.text)
        found = verdict(time * 1.1, time)
        k = len(self.done)
        program = parse(p.text)
        self.done.append(Judged(k, digest(program), p.text, p.parents, "heuristic", found, score(found)))

    def brief(self, k: int) -> Brief:
        seen = tuple(self.done[: max(0, k - self.jobs) + 1])
        best = max(seen, key=lambda j: j.value)
        return Brief(k, 0, TARGET, H200, best, best, seen, options=self.options, preview=self.preview)

    def step(self, agent: HeuristicAgent) -> Proposal:
        proposal = agent.propose(self.brief(len(self.done)))
        assert proposal is not None
        self.judge(proposal)
        return proposal


def test_the_first_proposals_wait_for_no_compiler() -> None:
    """Of a run with many under way none does, for each waits for the one before it."""
    run, agent = Run(jobs=24), HeuristicAgent()
    for k in range(1, 25):
        assert agent.propose(run.brief(k)) is not None
    for _ in range(26):
        run.step(agent)
    assert run.looked == [] and run.jobs > MOST_LAG


def test_what_is_under_way_together_has_many_tiles_and_the_known_good_schedules() -> None:
    run, agent = Run(jobs=24), HeuristicAgent()
    found = [agent.propose(run.brief(k)) for k in range(1, 25)]
    texts = [p.text for p in found if p is not None]
    assert len(set(texts)) == 24
    every = [settings(parse(t), H200) for t in texts]
    tiles = Counter((s["tile m"], s["tile n"], s.get("roles mma", 0)) for s in every)
    assert len(tiles) >= 10 and max(tiles.values()) <= 2
    plain = [s for s in every if not s.get("roles mma")]
    wanted = {"load": "tma", "split": "masked", "exponent": "exp2"}
    assert any(all(s[n] == v for n, v in wanted.items()) for s in plain), "good on Hopper without roles"
    roles = [s for s in every if s.get("roles mma") == 2]
    assert any((s["tile m"], s["tile n"], s["rescale"]) == (128, 128, "speculative") for s in roles)


def test_later_ones_are_chosen_among_a_few_that_were_compiled_and_never_wait_for_roles() -> None:
    run, agent = Run(), HeuristicAgent()
    run.step(agent)
    assert run.looked == [], "the seed's verdict alone says nothing yet"
    before = len(run.looked)
    run.step(agent)
    assert 1 <= len(run.looked) - before <= AT_ONCE
    for _ in range(6):
        run.step(agent)
    assert not any("roles" in text for text in run.looked)
    assert len(run.looked) == len(set(run.looked)), "each is compiled once"
    assert max(j.value for j in run.done) > 1.3 * run.done[0].value


def test_proposals_are_the_same_for_another_object_and_without_previews_nothing_is_compiled() -> None:
    one, other = Run(), Run()
    kept = HeuristicAgent()
    for _ in range(5):
        assert one.step(kept).text == other.step(HeuristicAgent()).text
    without = Run(previews=0)
    for _ in range(4):
        without.step(kept)
    assert without.looked == []


@pytest.mark.parametrize("option", ["prediction"])
def test_without_prediction_nothing_is_asked_of_the_compiler(option: str) -> None:
    run = Run(**{option: False})
    agent = HeuristicAgent()
    for _ in range(4):
        run.step(agent)
    assert run.looked == []


def test_measurements_bend_predictions() -> None:
    """A prediction that is wrong by a factor keeps its order; one wrong for a kind of setting is mended for all."""

    def point(m: int, load: str) -> Point:
        return Point({"tile m": m, "load": load}, 0.0)

    known = [(point(m, load), 100.0 * (2 if load == "tma" else 1)) for m in (64, 128) for load in ("pointer", "tma")]
    judged = [(point(64, "pointer"), 80.0), (point(64, "tma"), 40.0)]
    model = Corrected(known, judged)
    mean, deviation = model.predict([point(128, "pointer"), point(128, "tma")])
    assert mean[0] > mean[1], "predicted the other way round, and measured so of their neighbours"
    assert (deviation > 0).all()
    believed = Corrected(known, judged, [point(128, "pointer")])
    assert (
        believed.improvement([point(128, "pointer")], [0.0])[0] < model.improvement([point(128, "pointer")], [0.0])[0]
    )
