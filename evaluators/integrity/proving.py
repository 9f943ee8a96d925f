"""Whose work a raw candidate's answers are: the steps of a call, played where it has never been; calls without kernels.

See `tape` for the steps and `mixing` for what glue may do among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from evaluators.failures import TaskError, Unavailable, WorkerFailure, quoted
from evaluators.gates import Rejected
from evaluators.inputs import generator
from evaluators.integrity.calls import _asked, _Case, _drawn, _one, _raised, _returned, _started
from evaluators.pool import Session, WorkerPool
from evaluators.target import Workload


def _without_kernels(case: _Case, pool: WorkerPool) -> str:
    """ "right" where calls in a fresh process in which no kernel runs are right all the same, else "wrong"."""
    kinds = {call.distribution: call for call in case.calls if not call.planted}
    for call in list(kinds.values())[:2]:
        with _started(case, pool) as session:
            copy = replace(call, row=dict(call.row))
            try:
                if _one(case, session, copy, {"odd": [], "late": []}, ghost=True):
                    return "wrong"
            except WorkerFailure as failure:
                if isinstance(failure, Unavailable):
                    raise
                return "wrong"  # it cannot do without them
    return "right"


PROVED = "proved"
OWN_CLOCK = "its own process"  # who told a candidate's time, where nobody else could


def _whose_work(case: _Case, pool: WorkerPool) -> tuple[str, str]:
    """(PROVED, and whether it is "right" when no kernel runs) where the steps that a call consists of, played in a
    process without the candidate, give right answers on inputs that were drawn afterwards, and on those of judged calls
    the very bits that the candidate's process returned; else why that is open. See `tape`."""
    found = _played(case, pool, case.told)
    if found[0] == PROVED:
        return found
    try:  # what calls before have made and kept is in no step: a fresh process tells from its first call on
        with _started(case, pool, recorded=True) as session:
            told = _told(case, session, ghost=False)
    except Rejected as no:
        told = f"not proved: {no.message}"
    again = _played(case, pool, told)
    return again if again[0] == PROVED else found


def _told(case: _Case, session: Session, ghost: bool = True) -> list[tuple[Workload, dict[str, Any]]] | str:
    """The steps of a call at each size whose work is to be proved, or why there are none. ghost: without a device no
    kernel runs meanwhile, which would take long and is in no step; who looks at what it computes is asked again."""
    ghost = ghost and case.started is None
    rng = generator(case.seed, "tape", case.target.name, case.text)
    try:
        sizes = _to_prove(case, rng)
        return [(size, _told_at(case, session, size, rng, ghost)) for size in sizes]
    except Unavailable:
        raise
    except (_NotTaped, WorkerFailure) as no:
        return f"not proved: {no}"


def told_early(case: _Case, pool: WorkerPool) -> dict[str, dict[str, Any]]:
    """The steps of a call at each size that is long, told in a process of its own, in which no kernel runs, before any
    call of that size was made: those calls' inputs are then as good as new ones, and each of them need be interpreted
    only twice."""
    rng = generator(case.seed, "told early", case.target.name, case.text)
    found: dict[str, dict[str, Any]] = {"": {}}  # asked for
    try:
        with _started(case, pool, recorded=True) as session:
            for call in case.calls:
                if call.long and call.workload.name not in found:
                    with suppress(_NotTaped):
                        found[call.workload.name] = _told_at(case, session, call.workload, rng, ghost=True)
    except Unavailable:
        raise
    except (Rejected, WorkerFailure):
        pass
    return found


def _told_at(case: _Case, session: Session, size: Workload, rng: np.random.Generator, ghost: bool) -> dict[str, Any]:
    asked, blobs = _asked(case, _drawn(case, size, "normal", rng))
    return _taped(case, session, {**asked, "ghost": ghost}, blobs)


def _as_judged(case: _Case, session: Session, workload: Workload) -> bool:
    """Whether the steps that the process plays give on judged calls' inputs the very bits that came then."""
    judged = [call for call in case.calls if call.made and call.workload.name == workload.name]
    some = judged if case.thorough else judged[-1:]
    return all(tuple(o.data for o in _returned(case, session, call).outputs) == call.answers for call in some)


def _proved_early(case: _Case, session: Session, workload: Workload) -> bool:
    if not case.early.get(workload.name):
        return False
    try:
        _load_tape(case, session, case.early[workload.name])
        return _as_judged(case, session, workload)
    except (_NotTaped, TaskError):
        return False


def _played(case: _Case, pool: WorkerPool, told: list[tuple[Workload, dict[str, Any]]] | str) -> tuple[str, str]:
    if isinstance(told, str):
        return told[:300], ""
    rng = generator(case.seed, "played", case.target.name, case.text)
    seen: dict[str, Any] = {"odd": [], "late": []}
    ghost = "wrong"
    try:
        with pool.session(case.kind) as session:
            for workload, tape in told:
                if not _proved_early(case, session, workload):
                    _load_tape(case, session, tape)
                    wrong = _one(case, session, _drawn(case, workload, "large_logits", rng), seen)
                    if wrong:
                        return _played_wrong(wrong[0]), ""
                    if not _as_judged(case, session, workload):
                        return _OTHER_BITS, ""
                if not _one(case, session, _drawn(case, workload, "normal", rng), seen, ghost=True):
                    ghost = "right"
        return PROVED, ghost
    except _NotTaped as no:
        return f"not proved: {no}"[:300], ""
    except (Rejected, WorkerFailure) as failure:
        if isinstance(failure, Unavailable):
            raise
        return f"not proved: {failure.message}"[:300], ""


_OTHER_BITS = (
    "not proved: on a judged call's inputs its steps give other bits than it returned, so that came by another way"
)


def _played_wrong(reason: str) -> str:
    if reason.startswith("it raised"):
        return f"not proved: played again, {reason}"[:300]
    more = (
        "something beside its glue and kernels works too (NumPy, memory by address), or they need what was there before"
    )
    return f"not proved: played again it is wrong, {reason[:120]}; {more}"


def _ghost(case: _Case, session: Session) -> str:
    """Whether one more call in the candidate's own process is "right" or "wrong" when no kernel runs."""
    rng = generator(case.seed, "ghost", case.target.name, case.text)
    call = _drawn(case, _to_prove(case, rng)[0], "normal", rng)
    try:
        return "wrong" if _one(case, session, call, {"odd": [], "late": []}, ghost=True) else "right"
    except Unavailable:
        raise
    except (Rejected, WorkerFailure):
        return "wrong"  # it cannot do without them


def _to_prove(case: _Case, rng: np.random.Generator) -> list[Workload]:
    """Sizes of which the work is to be proved: one of the smaller half and one of the larger, or all where it is to be
    thorough."""
    calls = sorted(case.calls, key=lambda call: sum(x.size for x in call.inputs.values()))
    every = list(dict.fromkeys(call.workload.name for call in calls if case.thorough or not call.long))
    if not case.thorough and len(every) > 1:
        half = len(every) // 2
        every = [every[int(rng.integers(half))], every[half + int(rng.integers(len(every) - half))]]
    named = {call.workload.name: call.workload for call in calls}
    return [named[name] for name in every]


class _NotTaped(Exception):
    pass


def _taped(case: _Case, session: Session, asked: dict[str, Any], blobs: Sequence[bytes]) -> dict[str, Any]:
    """The steps of a call, as the candidate's process tells them."""
    try:
        reply = session.call("raw_tape", asked, blobs, case.timeout)
    except TaskError as error:
        raise _NotTaped(_raised(error.message)) from None
    tape = reply.result.get("tape")
    if not isinstance(tape, dict):
        raise _NotTaped(quoted(str(reply.result.get("missing")), 200))
    return tape


def _load_tape(case: _Case, session: Session, tape: dict[str, Any]) -> None:
    """From now on the process plays it. Raises _NotTaped."""
    asked = {"tape": tape, "library": case.target.torch == "any"}
    reply = session.call("raw_play", asked, (), case.timeout)
    if "launches" not in reply.result:
        raise _NotTaped(quoted(str(reply.result.get("missing")), 200))
