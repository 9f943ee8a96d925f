"""How a run scales over devices of a Ray cluster on this machine, where only the device's time is simulated.

python benchmarks/cluster_scaling.py [--devices 1 4 16] [--candidates 8]

Each device is a node of the cluster with one slot; a candidate takes 1 s there, as it would on a device, and everything
else is real: Ray, the way there and back, the archive, the loop's threads. Prints candidates a second, the share of
linear, and what the coordinator itself spends on a candidate (its CPU time).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from archive import open_archive
from evaluators.cluster import ClusterEvaluator
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult
from evaluators.targets import target

DEVICE_S = 1.0


class Simulated:
    """A device that takes its time, and a verdict of the size of a real one."""

    key = "simulated"

    def __init__(self, jobs: int) -> None:
        pass

    def evaluate(self, text: str, target: Any, hardware: Any) -> Evaluation:
        time.sleep(DEVICE_S)
        gates = (GateResult(gate="compile", passed=True, evidence={"registers": 64, "log": "x" * 4000}),)
        timed = [
            WorkloadResult(workload=w.name, work=1e12, floor_s=1e-3, bottleneck="matrix", measured_s=2e-3)
            for w in target.workloads
        ]
        return Evaluation(
            status=Status.OK, mode="measured", gates=gates, workloads=tuple(timed), source="# emitted\n" * 600
        )

    def close(self) -> None: ...


def run(devices: int, each: int) -> tuple[float, float]:
    """(candidates a second, CPU seconds of the coordinator a candidate)."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(devices - 1):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    evaluator = ClusterEvaluator("ray", Simulated)
    job, count = target("attention"), devices * each
    try:
        with tempfile.TemporaryDirectory() as folder, open_archive(Path(folder) / "avo.db") as archive:
            record = archive.create_run(target="t", hardware="h", agent="a", seed=0, jobs=devices, judge="j")
            with archive.claim(record.id) as writer, ThreadPoolExecutor(devices) as threads:

                def one(k: int) -> None:
                    text = f"program {k}\n" * 30
                    writer.add_candidate(k, f"{k:016x}", text, agent="a")
                    writer.record_evaluation(k, evaluator.evaluate(text, job, None))  # type: ignore[arg-type]

                list(threads.map(one, range(10_000, 10_000 + devices)))  # every node has started its judge
                began, spent = time.perf_counter(), time.process_time()
                list(threads.map(one, range(count)))
                wall, cpu = time.perf_counter() - began, time.process_time() - spent
    finally:
        evaluator.close()
        cluster.shutdown()
    return count / wall, cpu / count


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--devices", type=int, nargs="+", default=[1, 4, 16])
    options.add_argument("--candidates", type=int, default=8, help="for each device")
    given = options.parse_args()
    print("devices  candidates/s  of linear  coordinator CPU a candidate")
    for devices in given.devices:
        rate, cpu = run(devices, given.candidates)
        print(f"{devices:7d}  {rate:12.2f}  {rate * DEVICE_S / devices:9.2f}  {1e3 * cpu:8.1f} ms", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
