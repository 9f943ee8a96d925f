"""What any archive does, whatever database is behind it: `ArchiveContract`, and its run over SQLite."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archive_parts import bad, ok

from archive import Archive, ArchiveError, Held, Hypothesis, Run, Spend, deterministic, open_archive
from evaluators.evaluation import Evaluation, Score, Status, score


class ArchiveContract:
    """Subclass it, and give `opened` a fixture that yields a function which opens the same empty archive each time."""

    @pytest.fixture
    def archive(self, opened: Any) -> Iterator[Archive]:
        with opened() as archive:
            yield archive

    def run(self, archive: Archive, judge: str = "judge", **more: Any) -> Run:
        facts = {"target": "attention", "hardware": "b200", "agent": "walk", "seed": 3, "jobs": 2, **more}
        return archive.create_run(judge=judge, **facts)

    # Runs

    def test_a_run_comes_back_as_it_was_given(self, archive: Archive, opened: Any) -> None:
        made = self.run(archive, config={"steps": 5, "nested": {"a": [1, 2.5, None, True]}}, versions={"torch": "2.9"})
        with opened() as other:
            assert other.run(made.id) == other.run() == made
        assert made.config == {"steps": 5, "nested": {"a": [1, 2.5, None, True]}}
        assert made.versions == {"torch": "2.9"}
        assert (made.state, made.ended, made.holder, made.wall_s) == ("new", None, None, 0.0)
        assert made.created_at.tzinfo is dt.UTC
        assert abs(made.created_at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)

    def test_unknown_runs_are_named(self, archive: Archive) -> None:
        with pytest.raises(ArchiveError, match="holds no run yet"):
            archive.run()
        self.run(archive)
        with pytest.raises(ArchiveError, match=r"holds no run 7; the newest are 1"):
            archive.run(7)
        with pytest.raises(ArchiveError, match="holds no run 7"):
            archive.claim(7)

    def test_one_writer_at_a_time(self, archive: Archive, opened: Any) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            assert archive.run(run.id).state == "running"
            assert archive.run(run.id).holder is not None
            with opened() as other, pytest.raises(Held, match=r"run 1 is being written by process \d+ on"):
                other.claim(run.id)
            writer.release("steps", "done")
        assert (archive.run(run.id).state, archive.run(run.id).ended) == ("ended", "steps")
        archive.claim(run.id).release("again")
        with pytest.raises(Held, match="taken over"):
            writer.add_candidate(0, "aa" * 8, "text", agent="walk")
        assert archive.candidates(run.id) == []

    def test_an_error_in_a_session_is_written_down(self, archive: Archive) -> None:
        run = self.run(archive)
        with pytest.raises(ZeroDivisionError), archive.claim(run.id):
            raise ZeroDivisionError("by zero")
        found = archive.run(run.id)
        assert (found.ended, found.message) == ("failed", "ZeroDivisionError: by zero")

    # Candidates and evaluations

    def test_a_candidate_is_pending_until_it_is_judged(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            assert writer.add_candidate(0, "a" * 16, "kernel a\n", agent="seed") is None
            assert [c.status for c in archive.candidates(run.id, pending=True)] == [None]
            assert archive.counts(run.id) == {"pending": 1}
            assert archive.evaluation(archive.candidates(run.id)[0]) is None
            kept = writer.record_evaluation(0, ok(0.5), Spend(wall_s=2.0))
        found = archive.candidates(run.id)[0]
        assert (found.status, found.mode, found.text, found.wall_s) == (Status.OK, "predicted", "kernel a\n", 2.0)
        assert found.score == score(ok(0.5)) != Score()
        assert found.value == pytest.approx(2.0)
        assert archive.evaluation(found) == kept == ok(0.5)
        assert archive.candidates(run.id, pending=True) == []

    def test_parents_lineage_children(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            for k, of in enumerate([(), (0,), (0,), (2, 1), (1,), (3,)]):
                writer.add_candidate(k, f"{k:016x}", f"text {k}", agent="walk", parents=of)
        assert [c.parents for c in archive.candidates(run.id)] == [(), (0,), (0,), (2, 1), (1,), (3,)]
        assert [c.k for c in archive.lineage(run.id, 5)] == [0, 1, 2, 3, 5]
        assert [c.k for c in archive.lineage(run.id, 0)] == [0]
        assert [c.k for c in archive.children(run.id, 1)] == [3, 4]
        with pytest.raises(ArchiveError, match="run 1 has no candidate 9"):
            archive.lineage(run.id, 9)

    def test_a_parent_has_to_be_there(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            with pytest.raises(ArchiveError, match="refused a record that contradicts another"):
                writer.add_candidate(1, "a" * 16, "text", agent="walk", parents=[0])
            with pytest.raises(ArchiveError, match="refused a record"):
                writer.add_candidate(0, "a" * 16, "text", agent="walk")
                writer.add_candidate(0, "b" * 16, "text", agent="walk")
        assert [c.digest[0] for c in archive.candidates(run.id)] == ["a"]

    def test_equal_programs_share_an_evaluation_under_an_equal_judge(self, archive: Archive) -> None:
        first, second, third = self.run(archive), self.run(archive), self.run(archive, judge="another")
        with archive.claim(first.id) as writer:
            writer.add_candidate(0, "a" * 16, "text", agent="walk")
            writer.add_candidate(1, "a" * 16, "text", agent="walk")
            kept = writer.record_evaluation(1, ok(0.5))  # both wait; one verdict is for both
            assert writer.add_candidate(2, "a" * 16, "text", agent="walk") == kept
            assert writer.record_evaluation(2, bad()) == kept  # the first verdict holds
        assert [c.reused for c in archive.candidates(first.id)] == [False, True, True]
        assert len({c.evaluation_id for c in archive.candidates(first.id)}) == 1
        with archive.claim(second.id) as writer:
            assert writer.add_candidate(0, "a" * 16, "text", agent="walk") == kept
        with archive.claim(third.id) as writer:
            assert writer.add_candidate(0, "a" * 16, "text", agent="walk") is None

    def test_a_verdict_that_another_run_found_meanwhile_is_adopted(self, archive: Archive) -> None:
        first, second = self.run(archive), self.run(archive)
        with archive.claim(first.id) as waits, archive.claim(second.id) as finds:
            for writer in (waits, finds):
                writer.add_candidate(0, "a" * 16, "text", agent="walk")
                writer.add_candidate(1, "b" * 16, "other", agent="walk")
            kept = finds.record_evaluation(0, ok(0.5))
            assert waits.adopt() == 1
            assert waits.adopt() == 0
        assert [c.status for c in archive.candidates(first.id)] == [Status.OK, None]
        assert archive.evaluation(archive.candidates(first.id)[0]) == kept

    def test_unavailable_is_never_a_verdict(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "a" * 16, "text", agent="walk")
            with pytest.raises(ValueError, match="UNAVAILABLE is no verdict"):
                writer.record_evaluation(0, Evaluation(status=Status.UNAVAILABLE))
        assert archive.counts(run.id) == {"pending": 1}

    def test_odd_evidence_and_text_survive(self, archive: Archive) -> None:
        odd = Evaluation.model_validate(
            {
                **bad("a \x00 b \ud800 c").model_dump(),
                "source": "# \ud800 \x00",
                "environment": {"t": (1, {2: float("nan")})},
            }
        )
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "a" * 16, "text \x00 \ud800", agent="walk", rationale="\x00\ud800")
            kept = writer.record_evaluation(0, odd)
        found = archive.candidates(run.id)[0]
        assert archive.evaluation(found) == kept
        assert kept.source == "# ? \x00"
        assert kept.gates[0].evidence == {"worst": "inf"}
        assert kept.environment == {"t": [1, {"2": "nan"}]}
        assert found.rationale == "\ufffd?"

    def test_deterministic_leaves_out_times_and_environment_alone(self) -> None:
        one = ok(0.5)
        gates = tuple(g.model_copy(update={"seconds": 9.0}) for g in one.gates)
        other = one.model_copy(update={"gates": gates, "environment": {"host": "x"}})
        assert deterministic(one) == deterministic(other)
        assert deterministic(one) != deterministic(ok(0.6))
        assert deterministic(one) != deterministic(one.model_copy(update={"source": "# other"}))

    # Finding

    def test_candidates_by_digest_and_by_number(self, archive: Archive) -> None:
        one, two = self.run(archive), self.run(archive)
        for run in (one, two):
            with archive.claim(run.id) as writer:
                writer.add_candidate(0, "aaaa1111" + "0" * 8, "x", agent="seed")
                writer.add_candidate(1, "aaaa2222" + "0" * 8, "y", agent="walk")
                writer.add_candidate(2, "aaaa2222" + "0" * 8, "y", agent="walk")
        found = archive.candidate("aaaa2")
        assert (found.run, found.k) == (two.id, 1)
        assert archive.candidate("AAAA2", run=one.id).run == one.id
        assert archive.candidate("1/2") == archive.candidates(one.id)[2]
        with pytest.raises(ArchiveError, match=r"start of several digests: aaaa1111\w+, aaaa2222"):
            archive.candidate("aaaa")
        with pytest.raises(ArchiveError, match="no candidate whose digest begins with 'bbbb'"):
            archive.candidate("bbbb")
        for ref in ("aaa", "a%aa", "", "1/"):
            with pytest.raises(ArchiveError, match="at least 4 characters"):
                archive.candidate(ref)
        with pytest.raises(ArchiveError, match="run 1 has no candidate 9"):
            archive.candidate("1/9")
        with pytest.raises(ArchiveError, match="holds no run 9"):
            archive.candidate("9/0")

    def test_best_never_ranks_measured_with_predicted(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            verdicts = [ok(0.5), ok(0.2), ok(0.2), bad(), ok(4.0, "measured"), ok(3.0, "measured")]
            assert archive.best(run.id) is None
            for k, verdict in enumerate(verdicts):
                writer.add_candidate(k, f"{k:016x}", f"text {k}", agent="walk" if k % 2 else "seed")
                writer.record_evaluation(k, verdict)
        best, predicted = archive.best(run.id), archive.best(run.id, "predicted")
        assert best is not None and best.k == 5
        assert predicted is not None and predicted.k == 1  # the earlier of equals
        assert archive.counts(run.id) == {"ok": 5, "incorrect": 1}
        assert [c.k for c in archive.candidates(run.id, status=Status.INCORRECT)] == [3]
        assert [c.k for c in archive.candidates(run.id, agent="seed", sort="-k")] == [4, 2, 0]
        assert [c.k for c in archive.candidates(run.id, sort="predicted", limit=2, offset=1)] == [2, 0]
        assert [c.text for c in archive.candidates(run.id, ks=[4, 1], text=False)] == ["", ""]
        assert [(c.k, e) for c, e in archive.evaluations(archive.candidates(run.id, ks=[0]))] == [(0, ok(0.5))]

    def test_a_promotion_stands_beside_the_verdict_and_decides_who_is_best(self, archive: Archive) -> None:
        run = self.run(archive)
        other = self.run(archive)
        with archive.claim(run.id) as writer:
            for k, seconds in enumerate((0.5, 0.2, 0.3)):
                writer.add_candidate(k, f"{k:016x}", f"text {k}", agent="walk")
                writer.record_evaluation(k, ok(seconds))
            writer.record_promotion(1, bad("wrong at a hidden size"), Spend(wall_s=2.0))
            with pytest.raises(ValueError, match="no verdict"):
                writer.record_promotion(1, Evaluation(status=Status.UNAVAILABLE))
        best = archive.best(run.id)
        assert best is not None and best.k == 2
        assert {d: e.message for d, e in archive.promotions(run.id).items()} == {f"{1:016x}": "wrong at a hidden size"}
        assert archive.evaluation(archive.candidates(run.id)[1]) == ok(0.2)  # the verdict itself stands
        assert archive.spend_by(run.id, "stage")["promote"].wall_s == 2.0
        with archive.claim(run.id) as writer:
            writer.record_promotion(1, ok(0.21))  # later, on a machine that was mended
        assert archive.promotions(run.id)[f"{1:016x}"].status is Status.OK
        best = archive.best(run.id)
        assert best is not None and best.k == 1
        with archive.claim(other.id) as writer:  # a run that shares verdicts does not judge it again either
            assert writer.add_candidate(0, f"{1:016x}", "text 1", agent="seed") == ok(0.2)
        assert set(archive.promotions(other.id)) == {f"{1:016x}"}

    # Ledger, journal, hypotheses, notes

    def test_the_ledger_adds_up(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            paid = Spend(usd=0.25, tokens_in=100, tokens_out=20, tokens_cached=50, wall_s=3.0)
            writer.add_candidate(0, "a" * 16, "text", agent="walk", spend=paid, model="m")
            writer.record_evaluation(0, ok(1.0), Spend(device_s=1.5, wall_s=2.0))
            writer.book(None, "estimate", Spend(usd=0.25), note="a note")
        assert archive.spend(run.id) == Spend(0.5, 100, 20, 50, 1.5, 5.0)
        assert archive.spend_by(run.id, "stage")["evaluate"] == Spend(device_s=1.5, wall_s=2.0)
        assert archive.spend_by(run.id, "model")["m"].tokens == 120
        assert set(archive.spend_by(run.id, "k")) == {0, None}
        assert [(b.stage, b.k, b.settled, b.note) for b in archive.bookings(run.id)][-1] == (
            "estimate",
            None,
            True,
            "a note",
        )

    def test_an_unknown_price_is_not_zero(self, archive: Archive) -> None:
        run = self.run(archive)
        assert archive.spend(run.id) == Spend()
        with archive.claim(run.id) as writer:
            writer.book(0, "propose", Spend(usd=1.0))
            writer.book(1, "propose", Spend(usd=None, tokens_in=5))
        assert archive.spend(run.id).usd is None

    def test_a_request_is_journalled_and_booked_before_its_reply(self, archive: Archive, opened: Any) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            first = writer.ask(3, "m", "request one", Spend(usd=2.0, tokens_out=1000))
            writer.ask(3, "m", "request two", Spend(usd=2.0))
            with opened() as other:  # what a kill now would leave behind
                assert [(x.seq, x.request, x.reply, x.outcome) for x in other.exchanges(run.id)] == [
                    (0, "request one", None, None),
                    (1, "request two", None, None),
                ]
                assert other.spend(run.id).usd == 4.0
                assert not any(b.settled for b in other.bookings(run.id))
            writer.answered(first, "reply", "ok", Spend(usd=0.1, tokens_in=10, tokens_out=5))
        assert archive.spend(run.id) == Spend(usd=2.1, tokens_in=10, tokens_out=5)
        assert [(x.reply, x.outcome) for x in archive.exchanges(run.id, 3)] == [("reply", "ok"), (None, None)]
        assert archive.exchanges(run.id, 4) == []

    def test_hypotheses_with_what_came_of_them(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "a" * 16, "a", agent="seed")
            writer.record_evaluation(0, ok(1.0))
            tried = Hypothesis("deeper pipeline", 1.5, "latency")
            writer.add_candidate(1, "b" * 16, "b", agent="walk", parents=[0], hypothesis=tried)
            writer.nominate(1, Hypothesis("swizzle"), {"roi": 0.3})
            writer.record_evaluation(1, ok(0.8))
            writer.add_candidate(2, "c" * 16, "c", agent="walk", parents=[1], hypothesis=Hypothesis("bigger tile"))
            writer.record_evaluation(2, bad())
        found = archive.hypotheses(run.id)
        assert [(t.k, t.nominated_k, t.actual_gain) for t in found] == [
            (1, 1, pytest.approx(1.25)),
            (None, 1, None),
            (2, 2, None),
        ]
        assert found[0].hypothesis == tried
        assert found[1].detail == {"roi": 0.3}

    def test_notes_are_kept_by_run_and_by_target(self, archive: Archive) -> None:
        one, two = self.run(archive), self.run(archive, target="gemm")
        for run, body in ((one, "stages beyond 3 spill"), (two, "swizzle helps")):
            with archive.claim(run.id) as writer:
                writer.note(4, body, topic="memory")
        assert [(n.run, n.k, n.topic, n.body) for n in archive.notes(target="attention")] == [
            (one.id, 4, "memory", "stages beyond 3 spill")
        ]
        assert [n.body for n in archive.notes(run=two.id)] == ["swizzle helps"]
        assert len(archive.notes()) == 2

    # Concurrency

    def test_threads_may_write_at_once(self, archive: Archive) -> None:
        run = self.run(archive)
        with archive.claim(run.id) as writer:

            def work(start: int) -> None:
                for k in range(start, start + 20):
                    writer.add_candidate(k, f"{k:016x}", f"text {k}", agent="walk")
                    writer.record_evaluation(k, ok(1.0 + k))

            threads = [threading.Thread(target=work, args=(20 * n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [c.k for c in archive.candidates(run.id, status=Status.OK)] == list(range(80))


class TestSQLite(ArchiveContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Any:
        return lambda: open_archive(tmp_path / "avo.db")


class TestSQLiteByURL(ArchiveContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Any:
        return lambda: open_archive(f"sqlite:///{tmp_path}/a folder with # and %20/avo.db")
