"""Judging on a real Ray cluster of several node processes on this machine, one of which is killed half way."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evaluators.cluster import ClusterEvaluator
from evaluators.evaluation import Evaluation, Status
from evaluators.failures import Unavailable

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
ray = pytest.importorskip("ray", reason="no Ray (pip install 'avo-kernels[ray]')")
ROOT = Path(__file__).parents[2]


class Slow:
    """Takes a moment, and says on which node it was."""

    key = "slow"

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def evaluate(self, text: str, target: Any, hardware: Any) -> Evaluation:
        import ray

        time.sleep(0.5)
        if text == "raise":
            raise ValueError("the target is wrong")
        node = ray.get_runtime_context().get_node_id()
        return Evaluation(status=Status.OK, mode="none", message=text, environment={"node": node, "jobs": self.jobs})

    def close(self) -> None: ...


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three nodes of two processors each; `ray` as an address finds it."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=2)
    made.wait_for_nodes()
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    yield made
    ray.shutdown()
    made.shutdown()
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def judge(evaluator: ClusterEvaluator, texts: list[str]) -> list[Evaluation]:
    from evaluators.targets import target

    job = target("rmsnorm")
    with ThreadPoolExecutor(12) as threads:
        return list(threads.map(lambda text: evaluator.evaluate(text, job, None), texts))  # type: ignore[arg-type]


def test_a_node_that_is_killed_costs_no_verdict(cluster: Any) -> None:
    evaluator = ClusterEvaluator("ray", Slow)
    try:
        assert evaluator.slots == 6 and evaluator.stands_for.key == "slow"
        assert not hasattr(evaluator, "preview") and not hasattr(evaluator, "promote")
        texts = [f"candidate {n}" for n in range(48)]
        first = judge(evaluator, texts[:12])
        nodes = Counter(e.environment["node"] for e in first)
        assert len(nodes) == 3, "every node has its share"
        victim = next(n for n in cluster.worker_nodes)
        threading.Timer(1.0, lambda: cluster.remove_node(victim, allow_graceful=False)).start()
        found = judge(evaluator, texts)
        assert [e.message for e in found] == texts and {e.status for e in found} == {Status.OK}
        late = {e.environment["node"] for e in judge(evaluator, texts[:8])}
        assert len(late) == 2 and evaluator.slots == 4
        cluster.add_node(num_cpus=2)  # one that comes is used
        deadline = time.monotonic() + 60
        while evaluator.slots < 6 and time.monotonic() < deadline:
            judge(evaluator, texts[:4])
        assert evaluator.slots == 6
        with pytest.raises(ValueError, match="the target is wrong"):
            judge(evaluator, ["raise"])
    finally:
        evaluator.close()


def test_a_run_on_a_cluster_is_the_run_that_it_is_here(cluster: Any, tmp_path: Path) -> None:
    """By the command, in a process of its own: the same digests, parents, statuses and predicted scores."""
    import subprocess

    from archive import open_archive

    def evolve(name: str, *jobs: str) -> list[tuple[Any, ...]]:
        command = [sys.executable, "-m", "avo", "evolve", "--target", "rmsnorm", "--hw", "b200", "--steps", "8"]
        done = subprocess.run(
            [*command, "--archive", name, "--workload", "r=4096,c=4096", *jobs],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        with open_archive(tmp_path / name, readonly=True) as archive:
            run = archive.run()
            assert run.jobs == 6
            return [(c.k, c.digest, c.parents, c.status, c.score.predicted) for c in archive.candidates(run.id)]

    assert evolve("there.db", "--jobs", "ray") == evolve("here.db", "--jobs", "6")


AGENT = """
from avo import Proposal


class Writer:
    \"\"\"Writes raw Python: the file that the run began with, in other words; every third one is wrong.\"\"\"

    name = "writer"

    def propose(self, brief):
        text = brief.candidates[0].text.rstrip() + f"\\n# {brief.k}\\n"
        if brief.k % 3 == 2:
            text = text.replace("def run(*inputs, **params):", "def run(*inputs, **params):\\n    return inputs[0] * 0")
        return Proposal(text, rationale="other words")
"""


def test_raw_python_is_judged_on_the_nodes_and_one_may_be_lost(cluster: Any, tmp_path: Path) -> None:
    """By the command, beside the same run here: equal verdicts, in the sandboxes of the nodes; one is killed."""
    import subprocess

    from archive import ArchiveError, open_archive

    (tmp_path / "writer.py").write_text(AGENT)

    def begin(name: str, *jobs: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "avo", "evolve", "--target", "rmsnorm", "--hw", "h200", "--steps", "12"]
        command += ["--language", "python", "--agent", "writer.py", "--archive", name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        return subprocess.Popen([*command, *jobs], cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)

    def ended(run: subprocess.Popen[str], name: str) -> list[tuple[Any, ...]]:
        out, errors = run.communicate(timeout=500)
        assert run.returncode == 0, out + errors
        with open_archive(tmp_path / name, readonly=True) as archive:
            return [(c.k, c.digest, c.parents, c.status, c.failed_gate) for c in archive.candidates(archive.run().id)]

    there = begin("there.db", "--jobs", "ray")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and there.poll() is None:  # until some verdicts are in
        with contextlib.suppress(ArchiveError), open_archive(tmp_path / "there.db", readonly=True) as archive:
            if archive.runs() and archive.counts(1).get("ok", 0) >= 2:
                break
        time.sleep(0.1)
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    found = ended(there, "there.db")
    assert found == ended(begin("here.db", "--jobs", "6"), "here.db")
    assert {status for _, _, _, status, _ in found} == {Status.OK, Status.INCORRECT}


def test_no_cluster_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "")
    with pytest.raises(Unavailable, match="no Ray cluster at"):
        ClusterEvaluator("ray://127.0.0.1:1", Slow)
