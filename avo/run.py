"""A run: starting one, taking one up again, and looking at what came of it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from archive.archive import Archive, open_archive
from archive.records import Candidate, Spend
from archive.records import Run as Record
from avo.agents.protocol import Agent
from avo.budget import Budget
from avo.errors import UserMistake
from avo.events import Observer
from avo.history import History
from avo.judging import judge_of
from avo.loop import PATIENCE, Loop, Patience
from avo.plugin_answers import name_of
from dsl.wording import counted
from evaluators.evaluation import Evaluation

if TYPE_CHECKING:
    import os

    from dsl.hardware import Hardware
    from evaluators.protocol import Evaluator
    from evaluators.target import Target


def begin(
    archive: Archive,
    *,
    target: Target,
    hardware: Hardware,
    agent: Agent,
    evaluator: Evaluator,
    seed: int = 0,
    jobs: int = 1,
    config: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
    notes: int | None = None,
    together: Mapping[str, Any] | None = None,
) -> Run:
    """Records a new run and does not start it. config, versions: stored as they are, for people and for `--resume`.
    notes: the last note of other runs that its agent may read, by id; those that are there now where it is None.
    together: who shares a budget with it (avo.several)."""
    versions = dict(versions or {})
    judge = judge_of(target, hardware, evaluator, versions)
    last = archive.last_note() if notes is None else notes
    record = archive.create_run(
        target=target.name,
        hardware=hardware.name,
        agent=name_of(agent),
        seed=seed,
        jobs=jobs,
        judge=judge.new_key(),
        config={"given": dict(config or {}), "judge": dict(judge.parts), "notes": last}
        | ({"together": dict(together)} if together else {}),
        versions=versions,
    )
    return Run(archive, record.id)


def proceed(
    run: Run,
    *,
    target: Target,
    hardware: Hardware,
    agent: Agent,
    evaluator: Evaluator,
    budget: Budget,
    patience: Patience = PATIENCE,
    options: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
    guest: bool = False,
    join: bool = False,
) -> Run:
    """Goes on with a run, new or stopped or killed, until a limit of `budget` is reached; returns it.

    Seed and jobs are the run's own. guest: another agent proposes in it for a while, one proposal after the other, each
    from all verdicts; what it proposes is recorded under its own name. join: beside the processes that write the run
    now, on this host or others; they share its jobs, and each task is one process'. The caller closes the evaluator.

    Raises UserMistake where the run was judged otherwise than it would be now, or its seed program is not accepted;
    archive.Held where another process writes it; archive.ArchiveError; avo.errors.HarnessUnavailable; KeyboardInterrupt
    at the second Ctrl-C; and whatever an agent or an evaluator raised. In each case what was recorded stays, and the
    run can be taken up again.
    """
    record = run.record
    versions = dict(versions or record.versions)
    judge = judge_of(target, hardware, evaluator, versions)
    if not judge.agrees(record.judge):
        changes = "; ".join(judge.differences(record.config.get("judge", {})))
        raise UserMistake(
            f"run {run.id} cannot be taken up: its verdicts would not be comparable, because something has changed "
            f"since ({changes}). Undo the change, or start a new run"
        )
    if name_of(agent) != record.agent and not guest:
        raise UserMistake(f"run {run.id} was begun with the agent '{record.agent}', not '{name_of(agent)}'")
    writer = (run.archive.join if join else run.archive.claim)(run.id, versions=versions)
    try:
        loop = Loop(
            run.archive,
            writer,
            target=target,
            hardware=hardware,
            agent=agent,
            evaluator=evaluator,
            budget=budget,
            patience=patience,
            options=options,
            observer=observer,
            jobs=1 if guest else None,
        )
    except BaseException:
        writer.release("failed")
        raise
    loop.run()
    return run


def open_run(where: str | os.PathLike[str], id: int | None = None) -> Run:
    """A run of an archive to look at, the newest where no id is given. Reading only: it disturbs nobody."""
    archive = open_archive(where, readonly=True)
    return Run(archive, archive.run(id).id)


class Run:
    """A run in an archive. Everything is read when it is asked for, so it also shows a run that is under way."""

    def __init__(self, archive: Archive, id: int) -> None:
        self.archive = archive
        self.id = id

    @property
    def record(self) -> Record:
        """Configuration, versions, seed, state."""
        return self.archive.run(self.id)

    @property
    def best(self) -> Candidate | None:
        """The correct candidate with the best score, measured where anything was measured, else predicted."""
        return self.archive.best(self.id)

    @property
    def evaluation(self) -> Evaluation | None:
        """Of the best."""
        best = self.best
        return None if best is None else self.archive.evaluation(best)

    @property
    def candidates(self) -> list[Candidate]:
        return self.archive.candidates(self.id)

    @property
    def spend(self) -> Spend:
        return self.archive.spend(self.id)

    def history(self) -> History:
        """Every verdict in the order of k, with what was committed."""
        return History.of(self.archive, self.id, whole=True)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row a judged candidate, in the order of k. Scores in the target's unit; wall_s in seconds."""
        return [
            {
                "k": c.k,
                "digest": c.digest,
                "status": c.status.value,
                "failed_gate": c.evaluation.failed_gate,
                "predicted": c.score.predicted,
                "measured": c.score.measured,
                "headroom": c.score.headroom,
                "unit": c.evaluation.unit,
                "committed": c.committed,
                "reused": c.reused,
                "parents": list(c.parents),
                "agent": c.agent,
                "rationale": c.rationale,
                "message": c.evaluation.message,
                "text": c.text,
            }
            for c in self.history().all()
        ]

    def to_frame(self) -> Any:
        """`to_dicts` as a pandas DataFrame with k as its index. Raises ImportError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas: pip install pandas (to_dicts gives the rows without it)"
            ) from error
        return pandas.DataFrame(self.to_dicts()).set_index("k")

    def close(self) -> None:
        """Closes the archive."""
        self.archive.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        record = self.record
        return f"<avo run {self.id}: {record.target} on {record.hardware}, {record.standing}>"

    def _repr_html_(self) -> str:
        """For notebooks: what was committed, and the best program. All of it escaped."""
        record, rows = self.record, self.history().all()
        state = record.standing
        head = f"run {self.id}: {record.target} on {record.hardware}, {counted(len(rows), 'candidate')}, {state}"
        body = "".join(
            f"<tr><td>{c.k}</td><td><code>{html.escape(c.digest[:8])}</code></td><td>{c.value:.4g}</td>"
            f"<td>{html.escape(c.evaluation.mode)}</td><td>{html.escape(c.rationale)}</td></tr>"
            for c in rows
            if c.committed
        )
        unit = html.escape(rows[0].evaluation.unit) if rows else ""
        best = self.best
        program = "" if best is None else f"<pre>{html.escape(best.text)}</pre>"
        return (
            f"<div><p><b>{html.escape(head)}</b></p><table><thead><tr><th>k</th><th>committed</th><th>{unit}</th>"
            f"<th>mode</th><th>why</th></tr></thead><tbody>{body}</tbody></table>{program}</div>"
        )
