"""How well the predicted times of a measured run order its candidates: Spearman and the regret of the first choice.

python benchmarks/prediction_on_run.py                            the runs committed under benchmarks/data/runs
python benchmarks/prediction_on_run.py --take ARCHIVE RUN NAME [--printed "37 candidates a minute, ..."]
                                                                  takes a measured run up into that folder, with the
                                                                  pace that it printed
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from evaluators.evaluation import Evaluation

RUNS = Path(__file__).parent / "data" / "runs"


def take(archive: str, run: int, name: str, printed: str = "") -> Path:
    """The schedules of a run with both times of each workload, its device, versions, date, command and promotion; the
    algorithm too of those that changed it."""
    from archive import open_archive
    from avo.report import build_model

    with open_archive(archive, readonly=True) as opened:
        model = build_model(opened, run)
        record = opened.run(run)
        listed = sorted((c for c in opened.candidates(run) if c.judged_at), key=lambda c: c.judged_at)
        found = [e.environment for c in listed if (e := opened.evaluation(c)) is not None]
        environment = next((e for e in found if e.get("device")), {})
        paced = {**_pace([c.judged_at for c in listed], found), **({"printed": printed} if printed else {})}
        promoted = _promoted(opened.promotions(run))
    judged = [c for c in model.candidates if c.status is not None]
    workloads = [w.workload for w in next(c for c in judged if c.workloads).workloads]
    seed = _halves(judged[0].text)[0]
    rows = [
        {
            "k": c.k,
            **({} if _halves(c.text)[0] == seed else {"algorithm": _halves(c.text)[0]}),
            "schedule": _halves(c.text)[1],
            "status": str(c.status),
            "measured_s": [w.measured_s for w in c.workloads],
            "predicted_s": [w.predicted_s for w in c.workloads],
        }
        for c in judged
    ]
    device = environment.get("device", {})
    kept = ("name", "driver", "power_limit_w", "max_sm_mhz", "sms", "torch", "cudnn")
    data = {
        "target": model.target.name,
        "chip": model.chip.name,
        "device": {k: device[k] for k in kept if k in device},
        "regime": {**(environment.get("regime") or {}), "rounds": "a look, then a race in pairs (docs/measuring.md)"},
        "versions": {k: v for k, v in model.versions.items() if k not in ("platform", "executable")},
        "date": str(record.created_at)[:10],
        "command": _command(record.config.get("given") or {}),
        "pace": paced,
        "promotion": promoted,
        "workloads": workloads,
        "rows": rows,
    }
    RUNS.mkdir(parents=True, exist_ok=True)
    path = RUNS / f"{name}.json"
    path.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")
    return path


def _halves(text: str) -> tuple[list[str], list[str]]:
    """(lines of the algorithm, lines of the schedule)"""
    algorithm, _, schedule = text.partition("\nschedule\n")
    return algorithm.strip().splitlines(), schedule.strip().splitlines()


def _pace(judged_at: list[dt.datetime], environments: list[dict[str, Any]]) -> dict[str, float]:
    """Candidates a minute between the first verdict and the last, and the device's busy share at the end."""
    passed = (judged_at[-1] - judged_at[0]).total_seconds() / 60
    shares = [e["busy_share"] for e in environments if e.get("busy_share") is not None]
    return {"a_minute": round((len(judged_at) - 1) / passed, 1), "busy_share": shares[-1] if shares else 0.0}


def _promoted(promotions: dict[str, Evaluation]) -> dict[str, Any] | None:
    """What came of the winner: speed over the seed, and both arms' seconds at every size. host: sizes whose calls are
    too short to be launched by the host, and were all the same."""
    from avo.report.promotion import rows
    from evaluators.sustained import GRAPH_BELOW_S

    for digest, evaluation in promotions.items():
        timing = evaluation.gate("timing")
        if timing is None or not timing.passed:
            continue
        e = timing.evidence
        graphs = {w.workload: w.detail.get("graphs") for w in evaluation.workloads}
        kept = ("workload", "hidden", "seconds", "seed_seconds", "speedup", "low", "high")
        found = [{k: r[k] for k in kept} for r in rows(evaluation)]
        return {
            "digest": digest,
            "speedup": {"value": 1 / e["ratio"], "low": 1 / e["high"], "high": 1 / e["low"]},
            "rows": [{k: float(f"{x:.6g}") if isinstance(x, float) else x for k, x in r.items()} for r in found],
            "host": [r["workload"] for r in found if r["seconds"] < GRAPH_BELOW_S and not graphs[r["workload"]]],
        }
    return None


def _command(given: dict[str, Any]) -> str:
    """What was asked for, as a command line."""
    said = ["avo evolve", f"--target {given['target']}", f"--hw {given['hw']}"]
    named = [w for w in (given.get("workloads") or {}).values() if isinstance(w, str)]  # sets of sizes
    said += [f"--workloads {name}" for name in named]
    said += [f"--{name} {given[name]}" for name in ("steps", "minutes", "seed", "jobs") if given.get(name) is not None]
    return " ".join(said)


def ranks(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.argsort(np.argsort(x))


def figures(data: dict[str, Any]) -> list[tuple[str, int, float, float]]:
    """(size, points, Spearman, regret of the first choice) of each size of a run that has more than two points."""
    ok = [r for r in data["rows"] if r["status"] == "ok"]
    found = []
    for i, workload in enumerate(data["workloads"]):
        pairs = [(r["predicted_s"][i], r["measured_s"][i]) for r in ok if r["predicted_s"][i] and r["measured_s"][i]]
        if len(pairs) > 2:
            predicted, measured = (np.array(x) for x in zip(*pairs, strict=True))
            spearman = float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1])
            regret = float(measured[predicted.argmin()] / measured.min() - 1)
            found.append((workload, len(pairs), spearman, regret))
    return found


def table(data: dict[str, Any]) -> list[str]:
    ok = sum(r["status"] == "ok" for r in data["rows"])
    device = data["device"].get("name", data["chip"])
    return [
        f"{data['target']} on {device}, {data['date']}: {len(data['rows'])} judged, {ok} accepted",
        *(
            f"  {workload:55} {points:4} points  Spearman {spearman:.3f}  regret {regret:6.1%}"
            for workload, points, spearman, regret in figures(data)
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", nargs=3, metavar=("ARCHIVE", "RUN", "NAME"))
    parser.add_argument("--printed", default="", help="with --take: the pace as the run printed it")
    chosen = parser.parse_args()
    if chosen.take:
        archive, run, name = chosen.take
        print(f"wrote {take(archive, int(run), name, chosen.printed)}")
    for path in sorted(RUNS.glob("*.json")):
        print("\n".join(table(json.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
