"""The verbs around a run: evolve, resume, log, show, diff, report; and every kind of trouble they may meet."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
PARTS = ["--target", EXAMPLE / "target.py", "--agent", EXAMPLE / "agent.py", "--evaluator", EXAMPLE / "evaluator.py"]


def told(archive: Path | str = "avo.db") -> list[tuple[Any, ...]]:
    """What an undisturbed and a disturbed run must have in common, in the order of k."""
    from archive.archive import open_archive

    with open_archive(archive, readonly=True) as store:
        run = store.run()
        return [(c.k, c.digest, c.parents, c.status, c.score.predicted, c.message) for c in store.candidates(run.id)]


def test_evolve_says_what_it_will_do_how_it_goes_and_what_came_of_it(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli("evolve", *PARTS, "--steps", 6, "--jobs", 1, "--workload", "r=16384,c=1024")
    assert answer.code == 0, answer.err
    for word in ("target    row_l2", "chip      b200", "mode      ", "6 steps, 1 at a time, seed 0", "expected  about"):
        assert word in answer.out
    assert "sizes     r=16384,c=1024\n" in answer.out
    for word in ("[6/6]", "new best:", "predicted", "failed: none"):
        assert word in answer.out
    assert "run 1 ended: all steps are done" in answer.out
    assert "best program: proposal" in answer.out and "kernel row_l2" in answer.out
    assert "what changed from the seed: " in answer.out and "\n+" in answer.out
    assert "avo evolve --resume 1 --steps 12" in answer.out
    paths = (str(tmp_path), str(EXAMPLE))
    wide = [row for row in answer.out.splitlines() if len(row) > 80 and not any(path in row for path in paths)]
    assert not wide
    page = tmp_path / "avo-report-1.html"
    assert f"report: {page}" in answer.out and "</html>" in page.read_text()


def test_the_resolved_configuration_and_all_versions_are_stored(evolved: Path) -> None:
    from archive.archive import open_archive

    with open_archive("avo.db", readonly=True) as store:
        record = store.run()
    assert record.config["given"]["target"] == str(EXAMPLE / "target.py")
    assert record.config["given"]["steps"] == 4
    assert {"python", "triton", "torch", "avo-kernels"} <= set(record.versions)


def test_a_recipe_with_workloads(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('steps = 2\nseed = 5\n[workloads]\na = "r=128,c=64"\nb = { r = 256 }\n')
    answer = cli("evolve", *PARTS, "-c", "run.toml", "--set", "seed=6")
    assert answer.code == 0 and "seed 6" in answer.out
    assert "r=128,c=64\n" in answer.out and "r=256,c=4096\n" in answer.out
    answer = cli("evolve", *PARTS, "-c", "run.toml", "--set", "workload.a=1")
    assert answer.code == 2 and "unknown setting 'workload'; did you mean 'workloads'?" in answer.err
    answer = cli("evolve", *PARTS, "-c", "none.toml")
    assert (answer.code, answer.err) == (2, "error: no such file: none.toml\n")


def test_log_show_diff_and_report_read_the_archive(cli: Callable[..., Any], evolved: Path) -> None:
    assert "row_l2" in cli("log").out
    (run,) = json.loads(cli("log", "--json").out)
    assert run["candidates"] == 5 and run["best"]["status"] == "ok"
    assert len(json.loads(cli("log", "1", "--json").out)) == 5
    shown = cli("show", "1/0").out
    assert "meaning     ok" in shown and "kernel row_l2" in shown and "predicted" in shown
    digest = run["best"]["digest"]
    whole = json.loads(cli("show", digest[:6], "--json").out)
    assert whole["evaluation"]["status"] == "ok" and whole["lineage"][0] == 0
    best = run["best"]["k"]
    program = cli("show", f"1/{best}", "--program").out
    Path("best.avo").write_text(program)
    assert cli("check", "best.avo").code == 0
    assert cli("diff", "best.avo", f"1/{best}").out == "the same program\n"
    changed = json.loads(cli("diff", "1/0", "1/1", "--json").out)
    assert changed["change"] and changed["diff"].startswith("--- ")
    assert cli("diff", "1/0", "1/1").code == 0
    report = cli("report")
    assert report.code == 0 and "row_l2 on b200" in report.out and "avo-report-1.html" in report.out
    model = json.loads(cli("report", "--json").out)
    assert model["candidates"][0]["digest"] and "predicted" in model["candidates"][0]["score"]
    assert cli("report", "1", "--html", "page.html").code == 0 and Path("page.html").stat().st_size > 10_000
    nowhere = cli("report", "--html", "no/such/folder/page.html")
    assert nowhere.code == 2 and "cannot write no/such/folder/page.html" in nowhere.err
    if Path("/dev/full").exists():
        full = cli("report", "--html", "/dev/full")
        assert full.code == 3 and full.err.startswith("unavailable: the disk is full")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "9/9"), "no run 9"),
        (("show", "1/99"), "run 1 has no candidate 99"),
        (("show", "zz"), "at least 4 characters"),
        (("show", "ffffffffffff"), "no candidate whose digest begins with"),
        (("show", "1/0", "--triton"), "has no Triton"),
        (("show", "1/0", "--triton", "--program"), "ask for one"),
        (("log", "7"), "no run 7"),
        (("report", "7"), "no run 7"),
        (("diff", "1/0", "none.avo"), "no such file: none.avo"),
        (("evolve", "--resume", "7"), "no run 7"),
        (("evolve", "--resume", "first"), "wants the number of a run"),
        (("evolve", "--resume", "--seed", "3"), "--seed cannot change it"),
    ],
)
def test_what_is_not_there_is_told(
    cli: Callable[..., Any], evolved: Path, arguments: tuple[str, ...], message: str
) -> None:
    answer = cli(*arguments)
    assert answer.code == 2 and message in answer.err
    assert answer.err.count("\n") == 1, "one message"


def test_resume_goes_on_as_if_nothing_had_happened(
    cli: Callable[..., Any], evolved: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("evolve", "--resume", "--steps", 9).code == 0
    short = told()
    monkeypatch.chdir(tmp_path_factory.mktemp("whole"))
    assert cli("evolve", *PARTS, "--steps", 9).code == 0
    assert told() == short and len(short) == 10


SLOW = """
import sys, time
sys.path.insert(0, {folder!r})
from avo_example.evaluator import WavesEvaluator
class Slow(WavesEvaluator):
    def evaluate(self, text, target, hardware):
        time.sleep(0.25)
        return super().evaluate(text, target, hardware)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_loses_nothing_that_was_judged(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(EXAMPLE.parent)))
    parts = ["--target", EXAMPLE / "target.py", "--agent", EXAMPLE / "agent.py", "--evaluator", "slow.py:Slow"]
    command = [sys.executable, "-c", "from avo.cli import main; main()", "evolve", *map(str, parts), "--steps", "10"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("[3/10]"):
            break
    process.send_signal(number)
    rest = process.stdout.read()
    code = process.wait(timeout=60)
    if number == signal.SIGINT:
        assert code == 0 and "run 1 interrupted: stopped by you" in rest and "--resume 1" in rest
    stands = [cli("log").out.splitlines()[1], cli("report", "--no-html").out.splitlines()[0], cli("log", "--json").out]
    assert all("interrupted" in text for text in stands) and "ended (" not in "".join(stands)
    before = told()
    assert len(before) < 11
    done = cli("evolve", "--resume", "1")
    assert done.code == 0, done.err
    disturbed = told()
    judged = [c for c in before if c[3]]
    assert len(judged) >= 3 and [disturbed[c[0]] for c in judged] == judged
    assert cli("evolve", *parts, "--steps", 10, "--archive", "undisturbed.db").code == 0
    assert told("undisturbed.db") == disturbed


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    slow = SLOW.format(folder=str(EXAMPLE.parent)).replace("time.sleep(", "open('begun', 'w'); time.sleep(60 + ")
    (tmp_path / "slow.py").write_text(slow)
    assert "60 + " in slow
    parts = ["--target", EXAMPLE / "target.py", "--evaluator", "slow.py:Slow", "--agent", EXAMPLE / "agent.py"]
    command = [sys.executable, "-c", "from avo.cli import main; main()", "evolve", *map(str, parts), "--steps", "10"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    while not Path("begun").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    for line in process.stdout:
        if "finishing 1 under way" in line:
            break  # two that come at once would be one
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr.read().splitlines()[-1] == "stopped"


def test_reports_of_several_archives_stand_beside_each_other(cli: Callable[..., Any], evolved: Path) -> None:
    Path("more").mkdir()
    shutil.copy("avo.db", "other.db")
    shutil.copy("avo.db", "more/avo.db")
    for archive, page in (
        ("avo.db", "avo-report-1.html"),
        ("other.db", "avo-report-other-1.html"),
        ("more/avo.db", "avo-report-more-avo-1.html"),
    ):
        assert f"report: {evolved / page}" in cli("report", "1", "--archive", archive).out
    assert len(list(evolved.glob("*.html"))) == 3


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "atention"], "unknown target 'atention'; did you mean 'attention'?"),
        (["--hw", "b20"], "unknown hardware 'b20'; did you mean 'b200'?"),
        (["--agent", "heuristics"], "unknown agent 'heuristics'; did you mean 'heuristic'?"),
        (["--evaluator", "locl"], "unknown evaluator 'locl'; did you mean 'local'?"),
        (["--steps", "0"], "setting 'steps' is at least 1, got 0"),
        (["--jobs", "0"], "setting 'jobs'"),
        (["--minutes", "-1"], "setting 'minutes'"),
        (["--workload", "q=3"], "unknown axis or param of attention: 'q'"),
        (["--set", "step=3"], "unknown setting 'step'; did you mean 'steps'?"),
        (["--set", "agent_options.x="], "unknown option of the agent heuristic: 'x'"),
        (["--set", "agent_options.knob=1"], "option of the agent heuristic: 'knob'; did you mean 'knobs'?"),
        (["--set", "steps=many"], "setting 'steps' wants a whole number, got 'many'"),
        (["--program", "none.avo"], "no such file: none.avo"),
        (["--resume"], "no archive at avo.db, so there is no run to resume"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli("evolve", *arguments)
    assert answer.code == 2 and message in answer.err
    assert list(tmp_path.iterdir()) == []


TARGET = """
import torch
from avo import Target, Workload
SEED = '''kernel twice
in  x[r c] bf16
out y[r c] bf16
y = x * 2
'''
def reference(x):
    {body}
{more}
TARGET = Target(name="twice", reference=reference, seed=SEED, workloads=(Workload({{"r": 64, "c": 64}}),))
"""


@pytest.mark.parametrize(
    ("body", "more", "message"),
    [
        ("return x * 2", "raise RuntimeError('no luck')", "job.py raised RuntimeError: no luck"),
        ("return x * float('nan')", "", "the reference returns NaN in y"),
        ("raise ValueError('not today')", "", "the reference raised ValueError on"),
        ("return 3", "", "the reference must return a tensor"),
        ("return x * 3", "", "target twice"),
        ("return x * 2", "SEED = SEED.replace('x * 2', 'z * 2')", "the seed program"),
    ],
)
@pytest.mark.parametrize("verb", ["evolve", "eval"])
def test_a_target_that_is_wrong_is_told(
    cli: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    body: str,
    more: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(TARGET.format(body=body, more=more))
    (tmp_path / "p.avo").write_text("kernel twice\nin x[r c] bf16\nout y[r c] bf16\ny = x * 2\n")
    answer = cli(verb, *(["p.avo"] if verb == "eval" else []), "--target", "job.py")
    assert answer.code == 2 and message in answer.err
    assert not (tmp_path / "avo.db").exists()


def test_an_evaluator_that_raises_is_named_with_its_line(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.py").write_text(
        "class Judge:\n"
        "    def evaluate(self, text, target, hardware):\n"
        "        raise KeyError('mine')\n"
        "    def close(self): ...\n"
    )
    answer = cli("evolve", *PARTS[:4], "--evaluator", "judge.py")
    assert answer.code == 2
    assert f"error: {tmp_path / 'judge.py'}, line 3 raised KeyError: 'mine' (while working on proposal 0" in answer.err


@pytest.mark.parametrize("verb", ["evolve", "report", "log", "show"])
def test_an_archive_that_is_none_or_from_the_future_is_told(cli: Callable[..., Any], evolved: Path, verb: str) -> None:
    arguments = {"evolve": ["evolve", *PARTS, "--steps", 1], "show": ["show", "1/0"]}.get(verb, [verb])
    Path("text.db").write_text("this is no database, but it is long enough to have been one " * 20)
    answer = cli(*arguments, "--archive", "text.db")
    assert answer.code == 2 and "text.db is not an avo archive" in answer.err and answer.out == ""
    shutil.copy("avo.db", "future.db")
    with sqlite3.connect("future.db") as raw:
        raw.execute("UPDATE avo_archive SET version = 99")
    raw.close()
    answer = cli(*arguments, "--archive", "future.db")
    assert answer.code == 2 and "future.db" in answer.err and "newer" in answer.err
    if verb != "evolve":
        answer = cli(*arguments, "--archive", "none.db")
        assert answer.code == 2 and "none.db" in answer.err
    assert cli(*arguments, "--archive", str(evolved)).code == 2
    assert cli(*arguments, "--archive", "mysql://nobody@nowhere/x").code == 2


def test_a_run_that_another_process_writes_is_unavailable(cli: Callable[..., Any], evolved: Path) -> None:
    from archive.archive import open_archive

    with open_archive("avo.db") as store, store.claim(1):
        answer = cli("evolve", "--resume", "1", "--steps", 9)
        assert answer.code == 3 and "run 1 is being written by process" in answer.err and answer.out == ""
        assert cli("report", "1").code == 0  # readers never wait for the writer


def test_a_full_disk_is_told_and_what_was_recorded_stays(
    cli: Callable[..., Any], evolved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    with sqlite3.connect("avo.db") as raw:
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.close()

    def no_more(connection: Any, record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")

    event.listen(Engine, "connect", no_more)
    try:
        answer = cli("evolve", "--resume", "1", "--steps", 400)
    finally:
        event.remove(Engine, "connect", no_more)
    assert answer.code == 3 and "the disk is full" in answer.err and "--resume" in answer.err
    assert len(told()) >= 5
    assert cli("evolve", "--resume", "1", "--steps", 6).code == 0


def may_not_write_everywhere() -> None:
    """Root writes wherever it likes; without CAP_DAC_OVERRIDE it is stopped by permissions as everybody is."""
    if sys.platform == "linux" and os.getuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


def test_an_archive_that_is_read_only_is_told(evolved: Path) -> None:
    archive = evolved / "avo.db"
    command = [sys.executable, "-c", "from avo.cli import main; main()"]
    try:
        archive.chmod(0o444)
        evolved.chmod(0o555)
        arguments = ["evolve", *map(str, PARTS), "--steps", "1"]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=300, preexec_fn=may_not_write_everywhere
        )
        assert done.returncode == 2, done.stderr
        assert f"{archive.name} is read-only" in done.stderr and done.stderr.count("\n") == 1
        done = subprocess.run([*command, "log"], capture_output=True, text=True, preexec_fn=may_not_write_everywhere)
        assert done.returncode == 0, done.stderr  # reading works
    finally:
        evolved.chmod(0o755)


def test_time_budget_alone_ends_a_run(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    answer = cli("evolve", *PARTS, "--minutes", 0.03)
    assert answer.code == 0 and "the time is up" in answer.out
    assert time.monotonic() - began < 60


def test_in_python_a_run_comes_back(tmp_path: Path) -> None:
    import avo
    from avo.plugins import load

    target = load("target", str(EXAMPLE / "target.py"))
    agent, evaluator = (load(kind, str(EXAMPLE / f"{kind}.py"))() for kind in ("agent", "evaluator"))
    seen: list[Any] = []
    archive = tmp_path / "x.db"
    with avo.evolve(
        target,
        "h200",
        steps=3,
        agent=agent,
        evaluator=evaluator,
        archive=archive,
        workloads=[{"r": 512}],
        observer=seen.append,
    ) as run:
        assert run.best is not None and run.best.value > 0
        assert len(run.to_dicts()) == 4 and "<table>" in run._repr_html_()
        assert run.record.hardware == "h200"
    assert type(seen[0]).__name__ == "Started" and type(seen[-1]).__name__ == "Finished"
    with pytest.raises(avo.UserMistake, match=r"avo\.resume\(target=\.\.\.\)"):
        avo.resume(archive=archive, steps=5)
    with avo.resume(archive=archive, steps=5, target=target, agent=agent, evaluator=evaluator) as run:
        assert len(run.to_dicts()) == 6


def test_the_panel_of_a_terminal_shows_the_same_facts(evolved: Path) -> None:
    import io

    from rich.console import Console

    import avo
    from avo.cli.progress import Panel, State

    sheet = io.StringIO()
    panel = Panel(State(), Console(file=sheet, force_terminal=True, width=80, color_system=None))
    with avo.open_run("avo.db") as before:
        panel.state.recall(before.history())
    with panel, avo.resume(archive="avo.db", steps=7, observer=panel):
        pass
    assert panel.state.done == panel.state.passed == 8
    with panel:
        drawn = Console(file=io.StringIO(), width=80)
        drawn.print(panel._draw())
    text = drawn.file.getvalue()  # type: ignore[attr-defined]
    assert "7/7, 8 passed every gate" in text and "GB/s predicted" in text and "failed" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_state_counts_failures_by_gate_and_names_the_limiter() -> None:
    from dataclasses import replace

    from avo.cli.progress import State
    from avo.events import Committed, Started, Verdict
    from avo.plugins import load
    from avo.testing import judged
    from evaluators.evaluation import Evaluation, GateResult, Status

    target = load("target", "softmax")
    seed, better = judged(target, seconds=2e-3), judged(target, k=1, seconds=1e-3)
    wrong = Evaluation(status=Status.INCORRECT, gates=(GateResult(gate="correctness", passed=False),))
    state = State()
    for event in (
        Started(run=1, done=0, pending=0, steps=10, minutes=None, jobs=1, wall_s=0.0),
        Verdict(seed, 1.0),
        Committed(seed, None, True),
        Verdict(replace(better, k=2, evaluation=wrong), 1.0),
        Verdict(better, 1.0),
        Committed(better, None, True),
    ):
        state.see(event)
    assert state.count() == "2/10" and state.failed() == "correctness 1"
    assert "2.00x the seed" in state.scored() and "predicted" in state.scored()
    assert state.room() == "10.00x the floor's time, limited by latency"
    assert state.left_s is not None and state.left_s >= 0


def test_the_pace_is_that_of_candidates_and_not_of_the_winners_second_judgement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dataclasses import replace

    from avo.cli import progress
    from avo.events import Started, Verdict
    from avo.plugins import load
    from avo.testing import judged

    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    one = judged(load("target", "softmax"), seconds=1e-3)
    state = progress.State(started=clock.now)
    state.see(Started(run=1, done=0, pending=0, steps=10, minutes=None, jobs=1, wall_s=0.0))
    for k in range(4):  # one every second
        environment = {**one.evaluation.environment, "busy_share": 0.9}
        measured = one.evaluation.model_copy(update={"environment": environment})
        state.see(Verdict(replace(one, k=k, evaluation=measured), 1.0))
        clock.now += 1.0
    clock.now += 30.0  # judging the best again
    assert state.pace() == "60 candidates a minute, device 90% busy"


def test_the_best_of_a_run_is_a_candidate_like_any_other(cli: Callable[..., Any], evolved: Path) -> None:
    import avo
    from archive.archive import open_archive

    with open_archive(evolved / "avo.db", readonly=True) as store:
        top = store.best(1)
    assert top is not None
    named, verb = cli("show", f"1/{top.k}"), cli("best")
    assert verb.code == 0 and verb.out == named.out == cli("best", "1").out == cli("show", "1/best").out
    assert cli("best", "--program").out == top.text.rstrip() + "\n"
    assert json.loads(cli("best", "--json").out)["digest"] == top.digest
    assert cli("diff", "1/best", f"1/{top.k}").code == 0
    for two in (("--program", "--json"), ("--triton", "--program"), ("--json", "--triton")):
        answer = cli("best", *two)
        assert answer.code == 2 and "are answers of their own; ask for one" in answer.err
    assert avo.load("1/best", archive="avo.db").text.split() == top.text.split()
    assert "avo.db holds no run 9" in cli("best", "9").err and "no run 9" in cli("show", "9/best").err


def test_a_run_where_none_is_accepted_has_no_best(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no.py").write_text(
        "from avo import Evaluation, Status\n"
        "class No:\n"
        "    def evaluate(self, text, target, hardware):\n"
        "        return Evaluation(status=Status.INCORRECT, unit=target.unit, message='no')\n"
        "    def close(self): ...\n"
    )
    cli("evolve", *PARTS[:4], "--evaluator", "no.py", "--steps", "1", "--jobs", "1")
    answer = cli("best")
    assert answer.code == 2 and "run 1 has no best candidate: none is accepted and has a time" in answer.err
