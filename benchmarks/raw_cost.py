"""What judging raw Python costs, by layer and by level of the sandbox: `python benchmarks/raw_cost.py`, and
`--hw h200` with two public sizes timed, where such a device is here.

The same honest kernel is judged again and again with the pool warm: its processes wait, and what is made ready for the
next and cleared away of the last ("beside") is in no judgement. The least of the repeats is shown, since other work
only adds; "without waits for a core" is what judge and child computed and slept, the median. "oracle" is the judge's
own arithmetic, in this process, and no cost of isolation.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dsl.hardware import hardware
from evaluators.integrity import calls, raw_device, sandbox, timed_calls, timed_inputs
from evaluators.integrity.raw import RawEvaluator
from evaluators.pool import Session, WorkerPool
from evaluators.targets import target

KERNELS = Path(__file__).resolve().parents[1] / "tests" / "integrity" / "honest"
LAYERS = ("copies (beside)", "load", "calls", "steps of a call", "oracle", "end (beside)", "whole judgement")
TASKS = {
    **{"raw_load": "load", "raw_run": "calls", "raw_look": "calls"},
    **{"raw_tape": "steps of a call", "raw_play": "steps of a call"},
    **{"raw_put": "inputs of timed calls", "raw_time": "timed calls"},
}
DEVICE_LAYERS = (*LAYERS[:4], "drawing (beside)", "inputs of timed calls", "timed calls", *LAYERS[4:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--kernel", default="triton_rows")
    parser.add_argument("--hw", default="cpu", help="a chip that is here: judged and timed on it")
    parser.add_argument("--sizes", type=int, default=2, help="public sizes that are timed there")
    given = parser.parse_args()
    text = (KERNELS / f"{given.kernel}.py").read_text()
    job = replace(target("softmax"), torch="glue" if "triton" in text else "any")
    spent: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)

    @contextmanager
    def booked(layer: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            spent[layer] += time.perf_counter() - began
            counts[layer] += 1

    # The judge's own steps, wrapped where they are called.
    copy, call, right = WorkerPool._copy, Session.call, calls.right

    def timed_copy(self: WorkerPool, kind: str):  # type: ignore[no-untyped-def]
        with booked("copies (beside)"):
            worker = copy(self, kind)
        dispose = worker.dispose

        def timed_dispose() -> None:
            with booked("end (beside)"):
                dispose()

        worker.dispose = timed_dispose  # type: ignore[method-assign]
        return worker

    def timed_call(self: Session, task: str, *rest, **more):  # type: ignore[no-untyped-def]
        with booked(TASKS[task]):
            reply = call(self, task, *rest, **more)
        spent["own time"] += self._worker.charged
        return reply

    def timed_right(*rest, **more):  # type: ignore[no-untyped-def]
        with booked("oracle"):
            return right(*rest, **more)

    draw = timed_inputs.TimedInputs.__init__

    def timed_draw(self: timed_inputs.TimedInputs, *rest) -> None:  # type: ignore[no-untyped-def]
        with booked("drawing (beside)"):
            draw(self, *rest)

    WorkerPool._copy, Session.call = timed_copy, timed_call  # type: ignore[method-assign]
    calls.right = timed_calls.right = timed_right  # type: ignore[attr-defined]
    timed_inputs.TimedInputs.__init__ = timed_draw  # type: ignore[method-assign]
    table: dict[str, dict[str, float]] = {}
    chip = hardware(given.hw)
    layers = LAYERS if given.hw == "cpu" else DEVICE_LAYERS
    for level in sandbox.LEVELS if given.hw == "cpu" else ("process",):
        if sandbox.why_not(level):
            continue
        judge: RawEvaluator
        if given.hw == "cpu":
            judge = RawEvaluator(level=level)
        else:
            judge = raw_device.RawDeviceEvaluator(chip, sizes=given.sizes)
        with judge:
            began = time.perf_counter()
            judge._pool.warm((judge._kind,), wait=True)
            start = time.perf_counter() - began
            judge._pool.prepare(judge._kind, judge._processes)
            rows: list[dict[str, float]] = []
            for _ in range(given.repeats):
                judge._pool.settled()  # children wait, as a warm pool has them
                spent.clear()
                counts.clear()
                mine = time.thread_time()
                with booked("whole judgement"):
                    found = judge.evaluate(text, job, chip)
                spent["own time"] += time.thread_time() - mine
                judge._pool.settled()
                if found.status != "ok":
                    print(f"{found.status}: {found.message}")
                rows.append(dict(spent))
        table[level] = {layer: min(r.get(layer, 0.0) for r in rows) for layer in layers} | {"template": start}
        table[level]["own time"] = statistics.median(r["own time"] for r in rows)
        table[level]["median"] = statistics.median(r["whole judgement"] for r in rows)
        made = counts["calls"]
    print(f"{given.kernel}, {made} calls, {counts['copies (beside)']} processes; milliseconds, least of repeats")
    print(f"{'':28}" + "".join(f"{level:>14}" for level in table))
    names = {"median": "whole judgement (median)", "template": "template, once"}
    names["own time"] = "without waits for a core"
    for layer in (*layers, "median", *(("own time",) if given.hw == "cpu" else ()), "template"):
        name = names.get(layer, layer)
        print(f"{name:28}" + "".join(f"{1000 * table[level][layer]:>14.0f}" for level in table))


if __name__ == "__main__":
    main()
