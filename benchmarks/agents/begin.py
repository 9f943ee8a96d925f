"""Begins a run on a recorded table: for an operator who answers `avo ask`, or with a model that an agent asks.

The judge is the table, so no GPU is needed and every answer was measured. The operator sees the brief alone. It lists
the knobs of the table with their values, as every arm of the benchmark has them.

python benchmarks/agents/begin.py benchmarks/data/tables/gemm_4096.json --archive run.db
avo ask --archive run.db > brief.md;  avo tell answer.md --archive run.db;  ...

python benchmarks/agents/begin.py TABLE.json --archive run.db --agent mantis --model http://127.0.0.1:8399/v1#NAME
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from avo.config import RunConfig
from avo.launch import start
from avo.outside import begin
from dsl.hardware import hardware
from dsl.knobs import knob_named, set_knob
from dsl.printer import print_program
from evaluators.recorded import read_tables


def config(table: Path, archive: str, folder: Path) -> RunConfig:
    """Of a run on a table, from the first point of its grid that was measured: small tiles, few stages."""
    (found,) = read_tables(table)
    hw = hardware(found.chip)
    setting = next(s for s, row in found.rows.items() if row.seconds)
    seed = found.program
    for name, value in zip(found.knobs, setting, strict=True):
        seed = set_knob(seed, knob_named(seed, hw, name), value)
    program = folder / f"{found.name}.avo"
    program.write_text(print_program(seed), encoding="utf-8")
    return RunConfig(
        target=found.target,
        hw=found.chip,
        evaluator=f"recorded:{table.resolve()}",
        archive=archive,
        program=str(program.resolve()),
        workloads={"1": {**found.workload.sizes, **found.workload.params}},
        agent_options={"knobs": {name: list(values) for name, values in found.knobs.items()}},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--agent", help="avo or mantis; without it proposals come by `avo tell`")
    parser.add_argument("--model", help="whom the agent asks")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of agent_options, in JSON")
    given = parser.parse_args()
    settings = config(given.table, given.archive, Path(given.archive).resolve().parent)
    if given.agent is None:
        print(f"run {begin(settings)} of {given.archive}")
        return 0
    more = {key: json.loads(value) for key, _, value in (text.partition("=") for text in given.set)}
    options = settings.agent_options | more
    # Runs are compared at the same number of proposals, so nothing stops them earlier.
    changed = {"agent": given.agent, "model": given.model, "steps": given.steps, "jobs": 1, "agent_options": options}
    with start(settings.model_copy(update=changed | {"epsilon": 0.0, "window": 0})) as run:
        print(f"run {run.id} of {given.archive}: best {run.history().best().value:.5g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
