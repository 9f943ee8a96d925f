"""How many candidates a minute, how busy the device, and where each one's time goes, in a heuristic run.

python benchmarks/throughput.py --minutes 2.5 --jobs 24 [--target attention]   (on a machine with a GPU)
python benchmarks/throughput.py --simulate --minutes 1 [--compile-s 1.5] [--look-s 0.35] [--block-s 0.9] [--devices 1]
                                [--known]
python benchmarks/throughput.py --minutes 1 --devices 1,2,4      (a run on each number of devices, and the scaling)

Simulated (for attention) are compilation and the device: they take the seconds that are given, and times come from a
hash of the program, or with --known from what is known of it (`known_attention.py`); then each verdict is shown as it
comes, with the program's speed over cuDNN's. Everything else is real: the loop, the agent, parsing, checks, meaning,
lowering, the race, the archive. So it shows what the parent's own work leaves of the device's time, and what a search
proposes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsl.wording import counted

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from avo import evolve
from avo.events import Event, Proposed, Verdict
from benchmarks.known_attention import Known
from dsl.hardware import hardware
from dsl.knobs import settings
from dsl.parser import parse
from evaluators.device import local_devices, matching
from evaluators.gates import Bench, Case, Evidence, lower_step
from evaluators.measured import MeasuredEvaluator
from evaluators.simulated import SimulatedPool, SimulatedSlot
from evaluators.targets import target


class Watch:
    """Counts verdicts as they come, and flushes them to a file."""

    def __init__(self, file: Path | None) -> None:
        self.began = self.first = time.monotonic()
        self.rows: list[dict[str, Any]] = []
        self.proposed: list[float] = []
        self._file = file.open("w") if file else None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self.proposed.append(time.monotonic())
        if not isinstance(event, Verdict):
            return
        found = event.candidate.evaluation
        if event.candidate.k == 0:
            self.first = time.monotonic()
        timing = found.gate("timing")
        row = {"k": event.candidate.k, "at": round(time.monotonic() - self.began, 2), "status": str(found.status)}
        row |= {"wall_s": round(event.wall_s, 2), "value": event.candidate.value}
        row |= {"gates": {g.gate: round(g.seconds, 3) for g in found.gates}}
        row |= {"verdict": timing.evidence.get("verdict") if timing else None, "message": found.message[:120]}
        row |= {"pairs": timing.evidence.get("pairs") if timing else None}
        row |= {"device_s": found.environment.get("device_s"), "busy": found.environment.get("busy_share")}
        row |= {"noise": found.environment.get("noise_floor")}
        if found.workloads and found.mode == "measured":
            last = found.workloads[0].detail.get("samples", [{}])
            row |= {"sm_mhz": last[-1].get("sm_mhz"), "watts": last[-1].get("watts")}
        self.rows.append(row)
        if self._file:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()


class Rehearsal(MeasuredEvaluator):
    """Knows of each source which settings it comes from, so that its speed can be looked up."""

    def __init__(self, *rest: Any, **more: Any) -> None:
        super().__init__(*rest, **more)
        self.known, self.sources = Known(), dict[str, Any]()

    def _compile_gate(self, case: Case, bench: Bench) -> Evidence:
        self.sources[lower_step(case).source] = settings(case.sure, case.hardware)
        return super()._compile_gate(case, bench)

    def speed(self, source: str, job: Any) -> float:
        return self.known.seconds(self.sources[source], job["sizes"], bool(job["params"].get("causal")))

    def told(self, event: Event, since: float) -> None:
        if isinstance(event, Verdict):
            c, timing = event.candidate, event.candidate.evaluation.gate("timing")
            speed = self.known.over_cudnn(settings(parse(c.text), self.chip))
            found = f"{timing.evidence['verdict']} after {timing.evidence['pairs']} pairs" if timing else c.status
            print(f"{time.monotonic() - since:6.1f} s  {c.k:3}  {speed:.3f} of cuDNN  {found}: {c.rationale[:160]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="attention")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=24, help="candidates under way, for each device")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--compile-s", type=float, default=1.5)
    parser.add_argument("--compilers", type=int, default=None, help="for each device; as many as cores, shared out")
    parser.add_argument("--look-s", type=float, default=0.35)
    parser.add_argument("--block-s", type=float, default=0.9)
    parser.add_argument("--devices", default="1", help="how many, one run for each number: 1,2,4")
    parser.add_argument("--known", action="store_true")
    flags = parser.parse_args()
    folder = flags.out or Path(tempfile.mkdtemp(prefix="avo-throughput-"))
    counts = [int(n) for n in flags.devices.split(",")]
    if not flags.simulate and len(here := matching(local_devices(), hardware("h200"))) < max(counts):
        parser.error(f"{max(counts)} devices were asked for, {len(here)} are here")
    found = [one(flags, count, max(counts), folder / str(count)) for count in counts]
    if len(found) > 1:
        print("\ndevices  candidates a minute     over the first  device busy  the run's own CPU a candidate")
        for count, (rate, busy, cpu) in zip(counts, found, strict=True):
            linear = rate / found[0][0] / count * counts[0]
            print(f"{count:7}  {rate:19.1f}  {linear:11.0%} linear  {busy:11.0%}  {cpu:.3f} s")


def one(flags: argparse.Namespace, count: int, most: int, folder: Path) -> tuple[float, float, float]:
    """One run on so many devices, with their share of the cores: candidates a minute, busy share, CPU s a candidate."""
    from evaluators.process import cores

    chip = hardware("h200")
    jobs = flags.jobs * count
    compilers = (
        flags.compilers or max(1, (14 if flags.simulate else cores()) // (1 if flags.simulate else most))
    ) * count
    judge: MeasuredEvaluator
    if flags.simulate:
        slots = [SimulatedSlot(i, flags.look_s, flags.block_s) for i in range(count)]
        judge = (Rehearsal if flags.known else MeasuredEvaluator)(
            chip,
            jobs=jobs,
            seed=flags.seed,
            slots=slots,  # type: ignore[arg-type]
            pool=SimulatedPool(compilers, flags.compile_s),  # type: ignore[arg-type]
            compilers=compilers,
            simulate=True,
        )
        for slot in slots if isinstance(judge, Rehearsal) else ():
            slot._speed = judge.speed
    else:
        here = matching(local_devices(), chip)[:count]
        judge = MeasuredEvaluator(chip, jobs=jobs, seed=flags.seed, devices=here, compilers=compilers)
    folder.mkdir(parents=True, exist_ok=True)
    watch = Watch(folder / "verdicts.jsonl")
    cpu = time.process_time()

    def seen(event: Event) -> None:
        watch(event)
        if isinstance(judge, Rehearsal):
            judge.told(event, watch.began)

    # With several numbers of devices promotions are kept short: without hidden sizes.
    job = replace(target(flags.target), hidden=()) if "," in flags.devices else target(flags.target)
    with evolve(
        job,
        chip,
        minutes=flags.minutes,
        seed=flags.seed,
        jobs=jobs,
        evaluator=judge,
        archive=folder / "avo.db",
        observer=seen,
    ) as run:
        cpu_s = time.process_time() - cpu
        print(
            f"\n== {counted(count, 'device')}, {counted(jobs, 'candidate')} at a time, "
            f"{counted(compilers, 'compile worker', 'compile workers')}"
        )
        rate = report(watch, judge, cpu_s)
        best = run.best
        if best is not None:
            print(f"best: {best.value:.4g}, proposal {best.k}")
    return rate, busy_share(watch), cpu_s / max(1, len(watch.rows))


def busy_share(watch: Watch) -> float:
    """Of the devices, from the seed's first visit to the last verdict: what follows, the winner's second judgement, has
    one device whatever their number."""
    return float(next((r["busy"] for r in reversed(watch.rows) if r["busy"] is not None), 0.0))


def report(watch: Watch, judge: MeasuredEvaluator, cpu_s: float) -> float:
    """The table; candidates a minute."""
    rows = watch.rows[1:]
    wall = watch.began + watch.rows[-1]["at"] - watch.first  # what comes after is the promotion of the best
    print(f"\n{len(rows)} candidates after the seed in {wall:.0f} s: {60 * len(rows) / wall:.1f} a minute")
    waits = [round(at - watch.first, 1) for at in watch.proposed[1:]]
    print(f"seconds from the seed's verdict to proposals: 1st {waits[:1]}, 24th {waits[23:24]}, last {waits[-1:]}")
    print(
        f"device busy share {busy_share(watch):.0%} to the last verdict, {judge.busy_share:.0%} with the second "
        f"judgement of the best; the parent's own CPU {cpu_s:.0f} s"
    )
    print("statuses:", dict(Counter(r["status"] for r in watch.rows)))
    print("verdicts:", dict(Counter(r["verdict"] for r in rows if r["verdict"])), end="; ")
    pairs = [r["pairs"] for r in rows if r["pairs"] is not None]
    print(f"pairs: {sum(pairs)} for {len(pairs)} candidates that were timed; noise {watch.rows[0]['noise']}")
    device = [r["device_s"] for r in rows if r["device_s"]]
    if device:
        print(f"device seconds a candidate that came so far: {sum(device) / len(device):.2f}")
    print("seconds a candidate by gate, waiting included (mean, most):")
    for gate in ("parse", "check", "meaning", "compile", "prediction", "correctness", "timing", "floor"):
        spent = [r["gates"][gate] for r in rows if gate in r["gates"]]
        if spent:
            print(f"    {gate:<14}{sum(spent) / len(spent):8.2f}{max(spent):8.2f}   {len(spent)} candidates")
    print("the device's worker, seconds in all and a candidate that came so far:")
    for part, spent in sorted(judge.parts_s.items(), key=lambda p: -p[1]):
        print(f"    {part:<28}{spent:8.2f}{spent / max(1, len(device)):8.3f}")
    for slot in judge.slots:
        print("    heated:", slot.heats[:3], "faults:", slot.faults, "compiled on the device:", slot.misses)
    return 60 * len(rows) / wall


if __name__ == "__main__":
    main()
