"""The loop with a real archive and real threads; only the evaluator is a fake, and it implements the protocol."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_parts import HW, TARGET, HashEvaluator, WalkAgent, Watch, program, verdict_on

from archive import Archive, ArchiveError, Held, Spend, deterministic, open_archive
from avo import judging, proposing
from avo.agents import Brief, Hypothesis, Proposal
from avo.agents.scripted import ScriptedAgent
from avo.budget import Budget
from avo.errors import HarnessUnavailable, UserMistake
from avo.events import Committed, Finished, Promoted, Promoting, Proposed, Started, Stopping, Unavailable, Verdict
from avo.history import History
from avo.loop import Patience
from avo.run import Run, begin, open_run, proceed
from dsl.hardware import Hardware
from evaluators.evaluation import Evaluation, Status, WorkloadResult
from evaluators.target import Target, Workload


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with open_archive(tmp_path / "avo.db") as opened:
        yield opened


def search(archive: Archive, agent: Any, evaluator: Any, budget: Budget, *, jobs: int = 1, **more: Any) -> Run:
    target = more.pop("target", TARGET)
    run = begin(archive, target=target, hardware=HW, agent=agent, evaluator=evaluator, seed=7, jobs=jobs)
    return again(run, agent, evaluator, budget, target=target, **more)


def again(run: Run, agent: Any, evaluator: Any, budget: Budget, **more: Any) -> Run:
    target = more.pop("target", TARGET)
    return proceed(run, target=target, hardware=HW, agent=agent, evaluator=evaluator, budget=budget, **more)


def facts(run: Run) -> list[tuple[Any, ...]]:
    return [
        (
            *(c.k, c.digest, c.text, c.parents, c.status, c.committed, c.reused),
            *(c.score, c.rationale, c.hypothesis, deterministic(c.evaluation)),
        )
        for c in run.history().all()
    ]


def good(seconds: float, mode: str = "predicted", interval: tuple[float, float] | None = None) -> Evaluation:
    result = WorkloadResult(
        workload="w",
        work=1e12,
        floor_s=0.1,
        bottleneck="matrix",
        predicted_s=seconds if mode == "predicted" else None,
        measured_s=seconds if mode == "measured" else None,
        detail={} if interval is None else {"interval_s": list(interval)},
    )
    return Evaluation(status=Status.OK, mode=mode, workloads=(result,))  # type: ignore[arg-type]


class Table:
    """An evaluator that looks the verdict up by the number of warps."""

    key = "table"

    def __init__(self, verdicts: dict[int, Evaluation], seed: Evaluation) -> None:
        self.verdicts = verdicts
        self.seed = seed

    def evaluate(self, text: str, target: Any, hardware: Any) -> Evaluation:
        if text == target.seed:
            return self.seed
        return self.verdicts[int(text.split("warps ")[1])]

    def close(self) -> None:
        pass


class TestOrder:
    def test_the_seed_is_candidate_0_and_steps_count_proposals_after_it(self, archive: Archive) -> None:
        run = search(archive, WalkAgent(), HashEvaluator(), Budget(steps=12))
        found = run.candidates
        assert [c.k for c in found] == list(range(13))
        assert (found[0].agent, found[0].text, found[0].parents) == ("seed", TARGET.seed, ())
        assert all(c.status is not None and c.agent == "walk" and c.parents for c in found[1:])
        assert (run.record.state, run.record.ended) == ("ended", "steps")

    @pytest.mark.parametrize("jobs", [2, 5])
    def test_timing_decides_nothing(self, tmp_path: Path, jobs: int) -> None:
        runs = []
        for number, pause_s in enumerate((0.0, 0.01, 0.03)):
            with open_archive(tmp_path / f"{number}.db") as archive:
                evaluator = HashEvaluator(pause_s=pause_s)
                run = search(archive, WalkAgent(pause_s=pause_s), evaluator, Budget(steps=30), jobs=jobs)
                runs.append(facts(run))
                assert 1 <= evaluator.most_at_once <= jobs
        assert runs[0] == runs[1] == runs[2]

    def test_proposal_k_sees_the_verdicts_up_to_k_minus_j_and_no_other(self, archive: Archive) -> None:
        seen: dict[int, list[int]] = {}

        def look(brief: Brief) -> str:
            seen[brief.k] = [c.k for c in brief.candidates]
            assert brief.best is brief.parent and brief.best.committed
            assert brief.find(brief.best.digest) is brief.best
            return program(brief.k, 4)

        search(archive, ScriptedAgent([look] * 9), HashEvaluator(pause_s=0.02), Budget(steps=9), jobs=3)
        assert seen == {k: list(range(max(0, k - 3) + 1)) for k in range(1, 10)}

    def test_what_is_random_depends_on_seed_and_k_alone(self, archive: Archive) -> None:
        drawn: list[tuple[int, float, float]] = []

        def draw(brief: Brief) -> str:
            drawn.append((brief.k, brief.rng().random(), brief.rng().random()))
            return program(brief.k, 4)

        search(archive, ScriptedAgent([draw] * 3), HashEvaluator(), Budget(steps=3))
        search(archive, ScriptedAgent([draw] * 3), HashEvaluator(key="other"), Budget(steps=3))
        assert drawn[:3] == drawn[3:]
        assert all(first == second for _, first, second in drawn)
        assert len({first for _, first, _ in drawn}) == 3

    def test_what_an_agent_sees_is_what_a_resumed_run_would_read(self, archive: Archive) -> None:
        briefs: list[Brief] = []

        def keep(brief: Brief) -> Proposal:
            briefs.append(brief)
            claim = Hypothesis("less \x00 waiting \ud800", float("nan"), "latency")
            return Proposal(program(brief.k, 2), rationale="odd \x00 \ud800 text", hypothesis=claim)

        run = search(archive, ScriptedAgent([keep] * 6), HashEvaluator(), Budget(steps=6))
        assert briefs[-1].candidates == History.of(archive, run.id).upto(5)
        assert briefs[-1].candidates[0].evaluation.gates[0].evidence == {"inf": "inf", "pair": [1, 2]}


class TestDuplicates:
    def test_nothing_is_judged_twice_and_equal_programs_share_a_verdict(self, archive: Archive) -> None:
        evaluator = HashEvaluator(pause_s=0.05)
        spaced = program(3, 4).replace("tile b=3", "tile  b=3   # the same program")
        script = [program(2, 4), program(3, 4), spaced, program(3, 4), "no program", "no program"]
        run = search(archive, ScriptedAgent(script), evaluator, Budget(steps=6), jobs=4)
        assert set(evaluator.calls.values()) == {1}
        found = run.candidates
        assert found[2].digest == found[3].digest == found[4].digest
        assert found[2].text == found[3].text == program(3, 4)
        assert [c.reused for c in found] == [False, False, False, True, True, False, True]
        assert len({c.evaluation_id for c in found[2:5]}) == 1
        assert [c.committed for c in run.history().all()][3:5] == [False, False]

    def test_texts_that_were_made_to_have_one_digest_share_no_verdict(
        self, archive: Archive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pair for 16 digits is found in seconds: one honest, one not."""
        real = proposing.named
        monkeypatch.setattr(proposing, "named", lambda text: ("5" * 16, real(text)[1]))
        evaluator = HashEvaluator()
        texts = [program(2, 4), program(3, 4), program(2, 4), "no program"]
        run = search(archive, ScriptedAgent(texts), evaluator, Budget(steps=4), jobs=2)
        found = run.candidates[1:]
        assert set(evaluator.calls) >= set(texts) and set(evaluator.calls.values()) == {1}
        assert found[0].digest == found[2].digest == "5" * 16 and len({c.digest for c in found}) == 3
        assert [len(c.digest) for c in found] == [16, 64, 16, 64]
        assert [c.reused for c in found] == [False, False, True, False]

    def test_a_second_run_takes_over_the_verdicts_of_an_equal_judge(self, archive: Archive) -> None:
        first = search(archive, WalkAgent(), HashEvaluator(), Budget(steps=8))
        evaluator = HashEvaluator()
        second = search(archive, WalkAgent(), evaluator, Budget(steps=8))
        assert not evaluator.calls
        assert facts(first) == facts(second)

    @pytest.mark.parametrize("change", ["evaluator", "target", "code", "no key"])
    def test_and_of_no_other(self, archive: Archive, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
        target = replace(TARGET, tier=1e-3) if change == "target" else TARGET
        keys = {"evaluator": ("a", "b"), "target": ("a", "a"), "code": ("a", "a"), "no key": (None, None)}[change]
        search(archive, WalkAgent(), HashEvaluator(keys[0]), Budget(steps=4))
        if change == "code":
            monkeypatch.setattr(judging, "_code", lambda *modules: "mended")
            again(
                Run(archive, 1), WalkAgent(), HashEvaluator(keys[0]), Budget(steps=4)
            )  # does not keep it from going on
        evaluator = HashEvaluator(keys[1])
        search(archive, WalkAgent(), evaluator, Budget(steps=4), target=target)
        assert len(evaluator.calls) >= 4


class TestCommits:
    def test_correct_and_not_slower_than_the_best_of_the_lineage(self, archive: Archive) -> None:
        # warps -> predicted seconds; each child of the one before
        verdicts = {1: good(0.9), 2: good(0.95), 3: good(0.92), 4: good(0.9), 5: good(0.5)}
        verdicts[6] = Evaluation(status=Status.INCORRECT, mode="predicted")

        def child(brief: Brief) -> Proposal:
            return Proposal(program(1, brief.k), parents=(brief.candidates[-1].digest,))

        watch = Watch()
        run = search(archive, ScriptedAgent([child] * 6), Table(verdicts, good(1.0)), Budget(steps=6), observer=watch)
        # 2 is slower than 1; 3 is faster than its parent and slower than its lineage's best; 4 equals it
        assert [c.committed for c in run.history().all()] == [True, True, False, False, True, True, False]
        told = watch.of(Committed)
        assert [(e.candidate.k, e.best) for e in told] == [(0, True), (1, True), (4, False), (5, True)]
        assert told[0].comparison is None
        assert told[3].comparison.verdict == "better"
        assert told[3].comparison.ratio == pytest.approx(0.5 / 0.9)
        assert run.best is not None and run.best.k == 5

    def test_a_branch_answers_to_its_own_line(self, archive: Archive) -> None:
        verdicts = {1: good(0.5), 2: good(0.8), 3: good(0.8)}

        def from_seed(brief: Brief) -> Proposal:
            return Proposal(program(1, brief.k), parents=(brief.candidates[0].digest,))

        def of_both(brief: Brief) -> Proposal:
            return Proposal(program(1, 3), parents=tuple(c.digest for c in brief.candidates[1:3]))

        agent = ScriptedAgent([from_seed, from_seed, of_both])
        run = search(archive, agent, Table(verdicts, good(1.0)), Budget(steps=3))
        assert [c.committed for c in run.history().all()] == [True, True, True, False]

    def test_measured_times_within_noise_are_committed_and_beyond_it_are_not(self, archive: Archive) -> None:
        verdicts = {
            1: good(1.02, "measured", (0.99, 1.05)),
            2: good(1.08, "measured", (1.06, 1.10)),
            3: good(0.90, "measured", (0.88, 0.92)),
        }
        watch = Watch()
        agent = ScriptedAgent([lambda b: Proposal(program(1, b.k), parents=(b.candidates[0].digest,))] * 3)
        evaluator = Table(verdicts, good(1.0, "measured", (0.98, 1.03)))
        run = search(archive, agent, evaluator, Budget(steps=3), observer=watch)
        assert [c.committed for c in run.history().all()] == [True, True, False, True]
        assert [e.comparison.verdict for e in watch.of(Committed)[1:]] == ["within noise", "better"]

    def test_predicted_and_measured_are_never_compared(self, archive: Archive) -> None:
        agent = ScriptedAgent([program(1, 1)])
        run = search(archive, agent, Table({1: good(0.1, "measured")}, good(1.0)), Budget(steps=1))
        assert [c.committed for c in run.history().all()] == [True, False]


class TestEnds:
    def test_resume_with_more_steps_goes_on(self, archive: Archive, tmp_path: Path) -> None:
        run = search(archive, WalkAgent(), HashEvaluator(), Budget(steps=5), jobs=2)
        again(run, WalkAgent(), HashEvaluator(), Budget(steps=14))
        with open_archive(tmp_path / "straight.db") as other:
            straight = search(other, WalkAgent(), HashEvaluator(), Budget(steps=14), jobs=2)
            assert facts(run) == facts(straight)

    def test_minutes_are_counted_over_sessions_and_what_is_under_way_is_judged(self, archive: Archive) -> None:
        evaluator = HashEvaluator(pause_s=0.1)
        run = search(archive, WalkAgent(), evaluator, Budget(minutes=0.5 / 60), jobs=2)
        assert run.record.ended == "minutes"
        assert 0.5 <= run.record.wall_s < 5
        assert all(c.status is not None for c in run.candidates)
        count = len(run.candidates)
        again(run, WalkAgent(), evaluator, Budget(minutes=0.5 / 60))
        assert len(run.candidates) == count

    @pytest.mark.parametrize("jobs", [1, 3])
    def test_an_agent_that_gives_up_ends_the_run_the_same_way_every_time(self, tmp_path: Path, jobs: int) -> None:
        runs = []
        for number in range(3):
            script: list[Any] = [program(k, 4) for k in range(1, 20)]
            script[5] = lambda brief: None
            with open_archive(tmp_path / f"{number}.db") as archive:
                evaluator = HashEvaluator(pause_s=0.01 * number)
                run = search(archive, ScriptedAgent(script), evaluator, Budget(steps=15), jobs=jobs)
                assert run.record.ended == "agent"
                runs.append(facts(run))
                again(run, ScriptedAgent(script), evaluator, Budget(steps=15))
                assert facts(run) == runs[-1]
        assert runs[0] == runs[1] == runs[2]
        assert [row[0] for row in runs[0]] == [*range(6), *range(7, 6 + jobs)]

    def test_epsilon_and_window(self, archive: Archive) -> None:
        times = {k: good(0.5 if k < 5 else 0.11) for k in range(1, 30)}
        agent = ScriptedAgent([lambda brief: program(1, brief.k)] * 29)
        near = search(archive, agent, Table(times, good(1.0)), Budget(steps=29, epsilon=0.25), jobs=2)
        assert (near.record.ended, len(near.candidates)) == ("epsilon", 5 + 2)
        stale = search(archive, agent, Table(times, good(1.0)), Budget(steps=29, window=3))
        assert (stale.record.ended, len(stale.candidates)) == ("window", 1 + 4)

    def test_money_tokens_and_device_seconds_end_a_run(self, archive: Archive) -> None:
        def paid(brief: Brief) -> Proposal:
            spend = Spend(usd=0.4, tokens_in=90, tokens_out=10)
            return Proposal(program(brief.k, 4), spend=spend, model="m")

        for limit, reason in ((Budget(usd=1.0), "usd"), (Budget(tokens=300), "tokens")):
            run = search(archive, ScriptedAgent([paid] * 9), HashEvaluator(), limit)
            assert (run.record.ended, len(run.candidates)) == (reason, 1 + 3)
            assert run.spend.usd == pytest.approx(1.2)
            assert archive.spend_by(run.id, "model")["m"].tokens == 300
        free = ScriptedAgent([lambda b: Proposal(program(b.k, 4), spend=Spend(usd=None))] * 9)
        unknown = search(archive, free, HashEvaluator(), Budget(usd=1.0))
        assert (unknown.record.ended, len(unknown.candidates)) == ("usd", 2)

    def test_a_seed_that_is_not_accepted_is_the_persons_mistake(self, archive: Archive) -> None:
        def wrong(evaluator: HashEvaluator, text: str) -> Evaluation:
            return Evaluation(status=Status.RESOURCE, message="too many registers")

        with pytest.raises(UserMistake, match=r"seed program of rows is not accepted on b200: resource.*registers"):
            search(archive, WalkAgent(), HashEvaluator(fault=wrong), Budget(steps=5))
        assert archive.run().ended == "failed"
        assert len(archive.candidates(1)) == 1


class TestHarness:
    def test_unavailable_is_tried_again_and_never_a_verdict(self, archive: Archive) -> None:
        tries: Counter[str] = Counter()

        def shaky(evaluator: HashEvaluator, text: str) -> Evaluation | None:
            tries[text] += 1
            return Evaluation(status=Status.UNAVAILABLE, message="no device") if tries[text] < 3 else None

        watch = Watch()
        run = search(
            archive,
            WalkAgent(),
            HashEvaluator(fault=shaky),
            Budget(steps=4),
            jobs=2,
            patience=Patience(4, 0.01),
            observer=watch,
        )
        assert Status.UNAVAILABLE.value not in archive.counts(run.id)
        assert [(e.attempt, e.message) for e in watch.of(Unavailable)[:1]] == [(1, "no device")]
        assert sum(b.stage == "unavailable" for b in archive.bookings(run.id)) == 2 * len(tries)

    def test_a_preview_that_the_harness_cannot_give_decides_nothing(self, archive: Archive) -> None:
        """Asked again; an agent never sees it, or a fault of the harness would say where the search goes."""

        class Previewing(HashEvaluator):
            broken = 2

            def preview(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
                self.broken -= 1
                fault = Evaluation(status=Status.UNAVAILABLE, message="no compiler")
                return fault if self.broken >= 0 else verdict_on(text, target)

        class Curious(WalkAgent):
            def propose(self, brief: Brief) -> Proposal:
                assert brief.preview is not None
                assert brief.preview(TARGET.seed).status is Status.OK
                return super().propose(brief)

        judge = Previewing()
        search(archive, Curious(), judge, Budget(steps=3), patience=Patience(4, 0.01))
        judge.broken = 9
        with pytest.raises(HarnessUnavailable, match="could not preview a program: no compiler"):
            search(archive, Curious(), judge, Budget(steps=3), patience=Patience(2, 0.01))

    def test_where_it_stays_away_the_run_stops_and_the_candidate_keeps_its_place(self, archive: Archive) -> None:
        def gone(evaluator: HashEvaluator, text: str) -> Evaluation | None:
            return Evaluation(status=Status.UNAVAILABLE, message="no device") if len(evaluator.calls) > 4 else None

        with pytest.raises(HarnessUnavailable, match=r"no device.*--resume 1"):
            search(
                archive, WalkAgent(), HashEvaluator(fault=gone), Budget(steps=12), jobs=2, patience=Patience(2, 0.01)
            )
        assert archive.run().ended == "unavailable"
        assert archive.counts(1)["pending"] >= 1
        run = again(Run(archive, 1), WalkAgent(), HashEvaluator(), Budget(steps=12))
        with open_archive(Path(archive.where).with_name("straight.db")) as other:
            assert facts(run) == facts(search(other, WalkAgent(), HashEvaluator(), Budget(steps=12), jobs=2))

    @pytest.mark.parametrize("who", ["evaluator", "agent"])
    def test_a_bug_stops_the_run_cleanly_and_says_whose(self, archive: Archive, who: str) -> None:
        def judge_bug(evaluator: HashEvaluator, text: str) -> None:
            if who == "evaluator" and len(evaluator.calls) == 3:
                raise ZeroDivisionError("in the evaluator")

        def agent_bug(brief: Brief) -> str:
            if who == "agent" and brief.k == 3:
                raise ZeroDivisionError("in the agent")
            return program(brief.k, 4)

        agent = ScriptedAgent([agent_bug] * 8)
        with pytest.raises(ZeroDivisionError, match=who) as caught:
            search(archive, agent, HashEvaluator(fault=judge_bug), Budget(steps=8))
        assert caught.value.__notes__ == ["while working on proposal 3 of run 1"]
        assert (archive.run().ended, archive.run().holder) == ("failed", None)
        assert "ZeroDivisionError" in archive.run().message
        who = "nobody"
        run = again(Run(archive, 1), agent, HashEvaluator(), Budget(steps=8))
        assert len(run.history().all()) == 9

    def test_output_that_nobody_reads_interrupts(self, archive: Archive) -> None:
        def gone(event: object) -> None:
            if isinstance(event, Verdict) and event.candidate.k == 2:
                raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            search(archive, WalkAgent(), HashEvaluator(), Budget(steps=6), observer=Watch(gone))
        found = archive.run()
        assert (found.ended, found.message) == ("interrupted", "nobody reads its output any more")

        def broken(evaluator: HashEvaluator, text: str) -> None:
            raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            search(archive, WalkAgent(), HashEvaluator(fault=broken), Budget(steps=6))
        assert archive.run().ended == "failed"

    def test_a_full_disk_ends_the_session_and_room_lets_it_go_on(self, archive: Archive) -> None:
        def pages(more: int) -> None:
            engine = archive._db._write
            assert engine is not None
            with engine.connect() as connection:
                now = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                connection.exec_driver_sql(f"PRAGMA max_page_count = {now + more}")

        def fill_up(event: object) -> None:
            if isinstance(event, Proposed) and event.k == 5:
                pages(2)

        with pytest.raises(ArchiveError, match=r"disk is full.*--resume"):
            search(archive, WalkAgent(), HashEvaluator(), Budget(steps=60), jobs=2, observer=Watch(fill_up))
        pages(100_000)
        run = again(Run(archive, 1), WalkAgent(), HashEvaluator(), Budget(steps=60))
        with open_archive(Path(archive.where).with_name("straight.db")) as other:
            assert facts(run) == facts(search(other, WalkAgent(), HashEvaluator(), Budget(steps=60), jobs=2))

    def test_an_answer_of_the_wrong_type_is_named(self, archive: Archive) -> None:
        class Plugin(HashEvaluator):
            def __init__(self, answer: Any) -> None:
                super().__init__()
                self._answer = answer

            def evaluate(self, text: str, target: Any, hardware: Any) -> Any:
                return self._answer if text != TARGET.seed else super().evaluate(text, target, hardware)

            def propose(self, brief: Brief) -> Any:
                return self._answer

        good = verdict_on(TARGET.seed, TARGET)
        for key, value in (("predicted_s", -1.0), ("measured_s", 0.0), ("work", math.nan), ("floor_s", math.inf)):
            timed = tuple(w.model_copy(update={key: value}) for w in good.workloads)
            with pytest.raises(UserMistake, match=rf"Plugin says {key}={value} of b=8,d=8; it wants a finite number"):
                search(archive, WalkAgent(), Plugin(good.model_copy(update={"workloads": timed})), Budget(steps=2))
        for answer in ({"score": 1}, None):
            with pytest.raises(UserMistake, match=f"Plugin returned {type(answer).__name__}, not an Evaluation"):
                search(archive, WalkAgent(), Plugin(answer), Budget(steps=2))
        wrong = Proposal(program(1, 4))
        for proposal, message in (
            ("kernel x", "returned str, not a Proposal or None"),
            (replace(wrong, text=None), "whose text is None; it wants text"),  # type: ignore[arg-type]
            (replace(wrong, parents="ffff"), "whose parents is 'ffff'; it wants a tuple of digests"),  # type: ignore[arg-type]
            (replace(wrong, hypothesis=Hypothesis(1, 1.5)), "whose hypothesis.claim is 1; it wants text"),  # type: ignore[arg-type]
            (replace(wrong, parents=("ffff",)), "names parent ffff, which no candidate in its brief has"),
        ):
            with pytest.raises(UserMistake, match=message):
                search(archive, Plugin(proposal), HashEvaluator(), Budget(steps=2))
        with pytest.raises(TypeError, match="names parent ffff"):  # avo's own agent, so avo's own bug
            search(archive, ScriptedAgent([replace(wrong, parents=("ffff",))]), HashEvaluator(), Budget(steps=2))

    @pytest.mark.parametrize("code", [None, 0, 5])
    def test_a_plugin_that_leaves_the_process_is_a_mistake_of_its_author(self, archive: Archive, code: Any) -> None:
        def leave(*_: object) -> None:
            sys.exit(code)

        for parts in ((ScriptedAgent([leave]), HashEvaluator()), (WalkAgent(), HashEvaluator(fault=leave))):
            with pytest.raises(UserMistake, match=r"plug-in of the run raised SystemExit: .* \(.*test_loop\.py, line"):
                search(archive, *parts, Budget(steps=2))


class TestResumeRefuses:
    def test_another_judge_and_says_what_changed(self, archive: Archive) -> None:
        run = search(archive, WalkAgent(), HashEvaluator("fast"), Budget(steps=2))
        with pytest.raises(UserMistake, match="evaluator's configuration: fast -> slow"):
            again(run, WalkAgent(), HashEvaluator("slow"), Budget(steps=4))
        with pytest.raises(UserMistake, match="the target's definition"):
            again(run, WalkAgent(), HashEvaluator("fast"), Budget(steps=4), target=replace(TARGET, tier=1.0))
        with pytest.raises(UserMistake, match="agent 'walk', not 'scripted'"):
            again(run, ScriptedAgent([]), HashEvaluator("fast"), Budget(steps=4))
        assert len(run.candidates) == 3

    def test_a_run_that_another_process_writes(self, archive: Archive) -> None:
        run = search(archive, WalkAgent(), HashEvaluator(), Budget(steps=2))
        with archive.claim(run.id), pytest.raises(Held, match=f"being written by process {os.getpid()} on"):
            again(run, WalkAgent(), HashEvaluator(), Budget(steps=4))


class TestInterrupts:
    def test_the_first_finishes_what_is_under_way(self, archive: Archive) -> None:
        def press(event: object) -> None:
            if isinstance(event, Proposed) and event.k == 4:
                os.kill(os.getpid(), signal.SIGINT)

        watch = Watch(press)
        before = signal.getsignal(signal.SIGINT)
        evaluator = HashEvaluator(pause_s=0.05)
        run = search(archive, WalkAgent(), evaluator, Budget(steps=30), jobs=2, observer=watch)
        assert signal.getsignal(signal.SIGINT) is before
        assert run.record.ended == "interrupted"
        assert watch.of(Stopping)[0].reason == "interrupted"
        assert 5 <= len(run.candidates) <= 7
        assert all(c.status is not None for c in run.candidates)
        again(run, WalkAgent(), evaluator, Budget(steps=30))
        with open_archive(Path(archive.where).with_name("straight.db")) as other:
            straight = search(other, WalkAgent(), HashEvaluator(), Budget(steps=30), jobs=2)
            assert facts(run) == facts(straight)
        assert set(evaluator.calls.values()) == {1}

    def test_the_second_stops_at_once(self, archive: Archive) -> None:
        release = threading.Event()

        def stuck(evaluator: HashEvaluator, text: str) -> None:
            if text != TARGET.seed:
                release.wait(60)

        def press(event: object) -> None:
            if isinstance(event, Proposed) and event.k == 1:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
            if isinstance(event, Stopping):
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            search(archive, WalkAgent(), HashEvaluator(fault=stuck), Budget(steps=5), observer=Watch(press))
        release.set()
        assert time.monotonic() - start < 30
        assert (archive.run().state, archive.run().ended) == ("interrupted", "interrupted")
        assert archive.counts(1) == {"ok": 1, "pending": 1}


class TestFace:
    def test_events_come_in_order(self, archive: Archive) -> None:
        watch = Watch()
        run = search(archive, WalkAgent(), HashEvaluator(), Budget(steps=6), jobs=2, observer=watch)
        assert isinstance(watch.events[0], Started) and isinstance(watch.events[-1], Finished)
        assert sorted(e.candidate.k for e in watch.of(Verdict)) == list(range(7))
        assert sorted(e.k for e in watch.of(Proposed)) == list(range(7))
        finished = watch.events[-1]
        assert isinstance(finished, Finished)
        assert (finished.reason, finished.judged) == ("steps", 7)
        assert finished.best is not None and run.best is not None and finished.best.k == run.best.k

    def test_a_run_in_python(self, archive: Archive) -> None:
        hostile = "<script>alert(1)</script>"
        agent = ScriptedAgent([Proposal(program(2, 4), rationale=hostile), Proposal(hostile)])
        run = search(archive, agent, HashEvaluator(), Budget(steps=2))
        rows = run.to_dicts()
        assert [r["k"] for r in rows] == [0, 1, 2]
        assert rows[1]["rationale"] == hostile and rows[1]["parents"] == [rows[0]["digest"]]
        assert "<script>" not in run._repr_html_()
        assert "rows on b200" in repr(run)
        with open_run(archive.where) as seen:
            assert seen.to_dicts() == rows
            with pytest.raises(ArchiveError, match="for reading only"):
                seen.archive.claim(seen.id)

    def test_to_frame_names_the_pip_line_where_pandas_is_missing(
        self, archive: Archive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = search(archive, WalkAgent(), HashEvaluator(), Budget(steps=1))
        monkeypatch.setitem(__import__("sys").modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            run.to_frame()


class Promoter(HashEvaluator):
    """Promotes what is not named in `fails`; counts how often it is asked."""

    def __init__(self, fails: Callable[[str], Status | None]) -> None:
        super().__init__()
        self.fails = fails
        self.asked: list[str] = []
        self.adopted: list[str] = []

    def promote(self, text: str, target: Any, hardware: Any, versus: str | None = None) -> Evaluation:
        assert versus == target.seed
        self.asked.append(text)
        status = self.fails(text)
        return Evaluation(
            status=status or Status.OK, mode="predicted", message="wrong at a hidden size" if status else ""
        )

    def adopt(self, text: str, target: Any, evaluation: Evaluation) -> None:
        self.adopted.append(text)


class TestPromotion:
    HIDING = replace(TARGET, hidden=(Workload({"b": 3, "d": 8}),))

    def test_the_best_is_judged_again_once(self, archive: Archive) -> None:
        judge, watch = Promoter(lambda text: None), Watch()
        run = search(archive, WalkAgent(), judge, Budget(steps=12), target=self.HIDING, observer=watch)
        assert run.best is not None and judge.asked == [run.best.text]
        assert archive.promotions(run.id)[run.best.digest].status is Status.OK
        (event,) = watch.of(Promoted)
        assert event.candidate.digest == run.best.digest and watch.of(Promoting)
        assert "promote" in archive.spend_by(run.id, "stage")
        again(run, WalkAgent(), judge, Budget(steps=12), target=self.HIDING)  # nothing new, so nothing is asked
        assert len(judge.asked) == 1
        assert judge.adopted == [run.best.text]

    def test_what_a_promotion_took_is_not_of_the_minutes_of_the_next_session(self, archive: Archive) -> None:
        judge, watch = Promoter(lambda text: time.sleep(3.0)), Watch()
        run = search(archive, WalkAgent(), judge, Budget(steps=3), target=self.HIDING)
        before = archive.run(run.id).wall_s
        minutes = (before - 0.5) / 60  # more than the steps took, less than they and the promotion
        again(run, WalkAgent(), judge, Budget(minutes=minutes, steps=4), target=self.HIDING, observer=watch)
        (began,) = watch.of(Started)
        assert began.wall_s < before - 1.0 and len(archive.candidates(run.id)) == 5

    def test_one_that_fails_is_not_the_best_and_the_next_is_tried(self, archive: Archive) -> None:
        first: list[str] = []

        def fails(text: str) -> Status | None:
            first.append(text)
            return Status.INCORRECT if text == first[0] else None

        judge, watch = Promoter(fails), Watch()
        run = search(archive, WalkAgent(), judge, Budget(steps=20), target=self.HIDING, observer=watch)
        assert len(judge.asked) == 2 and run.best is not None and run.best.text == judge.asked[1]
        assert [e.evaluation.status for e in watch.of(Promoted)] == [Status.INCORRECT, Status.OK]
        finished = watch.events[-1]
        assert isinstance(finished, Finished) and finished.best is not None and finished.best.text == judge.asked[1]
        lost = next(c for c in run.candidates if c.text == judge.asked[0])
        assert lost.status is Status.OK  # its verdict stands as it was given; it is only no winner

    def test_a_harness_that_is_not_there_promotes_nobody_and_is_no_verdict(self, archive: Archive) -> None:
        judge = Promoter(lambda text: Status.UNAVAILABLE)
        run = search(archive, WalkAgent(), judge, Budget(steps=6), target=self.HIDING)
        assert archive.promotions(run.id) == {} and run.record.ended == "steps"
        assert run.best is not None and len(judge.asked) == 1

    def test_where_nothing_is_hidden_nothing_is_asked(self, archive: Archive) -> None:
        judge = Promoter(lambda text: None)
        search(archive, WalkAgent(), judge, Budget(steps=3))
        assert judge.asked == []
