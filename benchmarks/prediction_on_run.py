"""How well the predicted times of a measured run order its candidates: Spearman and the regret of the first choice.

python benchmarks/prediction_on_run.py                            the runs committed under benchmarks/data/runs
python benchmarks/prediction_on_run.py --take ARCHIVE RUN NAME    takes a measured run up into that folder
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

RUNS = Path(__file__).parent / "data" / "runs"


def take(archive: str, run: int, name: str) -> Path:
    """The schedules of a run with both times of each workload, its device, versions, date and command."""
    from archive import open_archive
    from avo.report import build_model

    with open_archive(archive, readonly=True) as opened:
        model = build_model(opened, run)
        record = opened.run(run)
        found = [e.environment for c in opened.candidates(run) if (e := opened.evaluation(c)) is not None]
        environment = next((e for e in found if e.get("device")), {})
    judged = [c for c in model.candidates if c.status is not None]
    workloads = [w.workload for w in next(c for c in judged if c.workloads).workloads]
    rows = [
        {
            "k": c.k,
            "schedule": c.text.partition("\nschedule\n")[2].strip().splitlines(),
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
        "workloads": workloads,
        "rows": rows,
    }
    RUNS.mkdir(parents=True, exist_ok=True)
    path = RUNS / f"{name}.json"
    path.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")
    return path


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
    chosen = parser.parse_args()
    if chosen.take:
        archive, run, name = chosen.take
        print(f"wrote {take(archive, int(run), name)}")
    for path in sorted(RUNS.glob("*.json")):
        print("\n".join(table(json.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
