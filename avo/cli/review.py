"""`avo review`: what waits for a person's eyes, with its evidence; what a person decides about it, and takes back."""

from __future__ import annotations

import getpass
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption
from dsl.wording import counted

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Candidate
    from evaluators.evaluation import Evaluation

_SHOWN = 1500  # characters of a candidate's evidence


def review(
    candidate: Annotated[
        str | None, typer.Argument(help="Decide about this one: RUN/K or a digest.", metavar="[CANDIDATE]")
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="It is honest: it counts from now on.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="It cheats: it is gaming from now on.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last decision about it back.")] = False,
    reason: Annotated[str, typer.Option(help="Why, for those who come later.", metavar="TEXT")] = "",
    by: Annotated[str | None, typer.Option(help="Who decides. [default: the user]", metavar="NAME")] = None,
    run: Annotated[int | None, typer.Option(help="Only this run.", metavar="RUN", min=1)] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Apply today's rules to what is stored; nothing is run again.")
    ] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what the judge calls suspicious or gaming, with its evidence; decide about one, or take that back.

    A decision stands beside the judge's verdict and holds in every run that shares it.

    Example: avo review 1/17 --accept --reason "the clock of this card is above its datasheet"
    """
    from avo.cli.ask import existing
    from avo.cli.console import say
    from avo.cli.options import reading
    from avo.errors import UserMistake

    if sum((accept, reject, undo, rules)) > 1:
        raise UserMistake("--accept, --reject, --undo and --rules exclude each other")
    if rules:
        with existing(archive) as store:
            _rejudge(store, run, as_json)
        return
    if candidate is None:
        if accept or reject or undo:
            raise UserMistake("say which candidate: avo review RUN/K --accept")
        with reading(archive) as store:
            _list(store, run, as_json)
        return
    if not (accept or reject or undo):
        with reading(archive) as store:
            found = store.candidate(candidate)
            say(_page(store, found, store.evaluation(found)))
        return
    if not undo and not reason.strip():
        raise UserMistake('a decision needs a reason: --reason "why"')
    with existing(archive) as store:
        found = store.candidate(candidate)
        if undo:
            taken = store.undo_review(found)
            say(f"undone: {taken.by} had decided {taken.status}; {_name(found)} is {_status(store, found)} again")
            return
        verdict = _decided(store, found, accept, by or _user(), reason)
        store.review(found, verdict, by=by or _user(), reason=reason)
        say(f"{_name(found)} is {verdict.status} now; avo review {_name(found)} --undo takes it back")


def _decided(store: Archive, found: Candidate, accept: bool, by: str, reason: str) -> Evaluation:
    from avo.errors import UserMistake
    from evaluators.evaluation import Status

    evaluation = store.evaluation(found)
    if evaluation is None:
        raise UserMistake(f"{_name(found)} is not judged yet")
    if evaluation.status not in (Status.SUSPICIOUS, Status.GAMING, Status.OK) or (
        accept and evaluation.status is Status.OK
    ):
        raise UserMistake(
            f"{_name(found)} is {evaluation.status}: a decision is about what is suspicious or gaming, or rejects what "
            "was accepted"
        )
    if not accept:
        said = f"{by} decided: {reason}"
        return evaluation.model_copy(update={"status": Status.GAMING, "message": said})
    gates = tuple(
        g if g.passed else g.model_copy(update={"passed": True, "message": f"accepted by {by}: {reason}"})
        for g in evaluation.gates
    )
    return evaluation.model_copy(update={"status": Status.OK, "message": "", "gates": gates})


def _waiting(store: Archive, run: int | None) -> list[Candidate]:
    runs = [store.run(run)] if run is not None else store.runs()
    found = [c for r in runs for c in store.candidates(r.id, text=False) if c.status is not None and not c.reused]
    return [c for c in found if c.status in ("suspicious", "gaming")]


def _list(store: Archive, run: int | None, as_json: bool) -> None:
    from avo.cli.console import say, show_json, table, tame

    found = [(c, e) for c in _waiting(store, run) if (e := store.evaluation(c)) is not None]
    if as_json:
        show_json([_facts(store, c, e) for c, e in found])
        return
    if not found:
        say("nothing is suspicious or gaming")
        return
    rows = [[_name(c), c.digest[:8], str(c.status), _rule(e), tame(e.message)] for c, e in found]
    say(table(["candidate", "digest", "status", "rule", "what was seen"], rows))
    suspicious = [(c, e) for c, e in found if c.status == "suspicious"]
    for c, e in suspicious:
        say("\n" + _page(store, c, e))
    if suspicious:
        say('\navo review CANDIDATE --accept (or --reject) --reason "why" decides; --undo takes it back')


def _page(store: Archive, found: Candidate, evaluation: Evaluation | None) -> str:
    from avo.cli.console import tame

    if evaluation is None:
        return f"{_name(found)} is not judged yet"
    lines = [
        f"{_name(found)} {found.digest}: {evaluation.status}"
        + (f": {tame(evaluation.message)}" * bool(evaluation.message))
    ]
    for gate in evaluation.gates:
        if not gate.passed or gate.gate == "integrity":
            text = json.dumps(gate.evidence, indent=1, default=str)
            more = " ..." if len(text) > _SHOWN else ""
            lines.append(f"evidence of {gate.gate}: {tame(text[:_SHOWN])}{more}")
    for decision in store.reviews(found):
        state = f", undone {decision.undone_at:%Y-%m-%d %H:%M}" if decision.undone_at else ""
        when = f"{decision.decided_at:%Y-%m-%d %H:%M}"
        lines.append(f"{when} {tame(decision.by)} decided {decision.status}: {tame(decision.reason)}{state}")
    return "\n".join(lines)


def _facts(store: Archive, found: Candidate, evaluation: Evaluation) -> dict[str, Any]:
    failed = evaluation.gate(evaluation.failed_gate) if evaluation.failed_gate else None
    return {
        "candidate": _name(found),
        "digest": found.digest,
        "status": evaluation.status,
        "rule": _rule(evaluation),
        "message": evaluation.message,
        "evidence": failed.evidence if failed else {},
        "decisions": [
            {"by": d.by, "status": d.status, "reason": d.reason, "undone": d.undone_at is not None}
            for d in store.reviews(found)
        ],
    }


def _rejudge(store: Archive, run: int | None, as_json: bool) -> None:
    """Today's rules on what is stored. Decisions of people stay as they are."""
    from archive.reviewing import RULES
    from avo.cli.console import say, show_json, tame
    from evaluators.integrity.rules import rejudged

    runs = [store.run(run)] if run is not None else store.runs()
    seen: set[int] = set()
    changed: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    judged = 0
    for r in runs:
        for c, evaluation in store.evaluations(store.candidates(r.id, text=False)):
            if c.evaluation_id in seen or c.evaluation_id is None:
                continue
            seen.add(c.evaluation_id)
            if any(d.by != RULES and d.undone_at is None for d in store.reviews(c)):
                continue
            judged += 1
            found = rejudged(evaluation)
            if found.missing:
                missing.append({"candidate": _name(c), "rules": list(found.missing)})
            if found.verdict is not None:
                reason = found.verdict.message or "no rule of today's is broken"
                store.review(c, found.verdict, by=RULES, reason=reason)
                row = {"candidate": _name(c), "was": evaluation.status, "is": found.verdict.status, "why": reason}
                changed.append(row)
    if as_json:
        show_json({"judged": judged, "changed": changed, "missing": missing})
        return
    for row in changed:
        say(f"{row['candidate']}: {row['was']} -> {row['is']}: {tame(str(row['why']))}")
    for row in missing:
        say(f"{row['candidate']}: what {', '.join(row['rules'])} asks about was not recorded: avo reproduce runs it")
    say(f"{counted(judged, 'verdict')} looked at, {len(changed)} changed, {len(missing)} would need a run")


def _rule(evaluation: Evaluation) -> str:
    failed = evaluation.gate(evaluation.failed_gate) if evaluation.failed_gate else None
    rule = failed.evidence.get("rule") if failed is not None else None
    return str(rule or evaluation.failed_gate or "a person's decision")


def _status(store: Archive, found: Candidate) -> str:
    again = store.candidates(found.run, ks=[found.k], text=False)[0]
    return str(again.status)


def _name(found: Candidate) -> str:
    return f"{found.run}/{found.k}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
