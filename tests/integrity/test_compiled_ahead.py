"""What a tape launches is compiled while somebody else is timed: its player then compiles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.integrity import timed_calls
from evaluators.integrity.raw_device import RawDeviceEvaluator
from evaluators.target import Workload
from evaluators.targets import target

HERE = Path(__file__).parent
CODE = """
import json, sys
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit
from evaluators.compiler import load_source
from evaluators.integrity import tape
from evaluators.integrity.watching import Launches

class Driver:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=0): return 0

driver.set_active(Driver())
asked = []
knobs.compilation.listener = lambda *rest, **said: asked.append(1)
run = jit.JITFunction.run
jit.JITFunction.run = lambda self, *a, grid=None, warmup=False, **k: run(self, *a, grid=grid, warmup=True, **k)
launches = Launches()
launches.install()
recorder = launches.recorder = tape.Recorder()
names = {torch.bfloat16: "bf16"}
found = {}
for path, *shapes in json.loads(sys.argv[1]):
    with recorder:
        entry = load_source(open(path).read()).run
        inputs = [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes]
        recorder.begin(inputs)
        result = entry(*inputs)
    told = json.loads(json.dumps(recorder.tape([result])))
    launches.recorder = None
    forms = [{"name": str(i), "dtype": "bf16", "shape": list(x.shape)} for i, x in enumerate(inputs)]
    counts = []
    for step in (lambda: tape.compiled(told, False, forms), lambda: tape.Player(told, "cpu").run(*inputs)):
        asked.clear()
        step()
        counts.append(len(asked))
    found[path] = counts
    recorder = launches.recorder = tape.Recorder()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_player_finds_its_kernels_compiled(tmp_path: Path) -> None:
    long, wide = (64, 768), (768, 256)
    cases = [
        (HERE / "honest" / "base_two.py", long),
        (HERE / "honest" / "two_kernels.py", long),
        (HERE / "device" / "honest" / "host_descriptors.py", (256, 768), wide),
        (HERE / "device" / "honest" / "float32_sums.py", (256, 768), wide),
        (HERE / "device" / "honest" / "flash_rows.py", *([(1, 2, 256, 64)] * 3)),
    ]
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths, "TRITON_INTERPRET": "0"}
    given = json.dumps([[str(path), *shapes] for path, *shapes in cases])
    done = subprocess.run([sys.executable, "-c", CODE, given], capture_output=True, text=True, env=environment)
    found = {Path(path).stem: counts for path, counts in json.loads(done.stdout or "{}").items()}
    wanted = {"base_two": [1, 0], "two_kernels": [2, 0]}
    wanted |= {name: [1, 0] for name in ("host_descriptors", "float32_sums", "flash_rows")}
    assert found == wanted, done.stderr[-1500:]


@pytest.mark.slow
def test_a_spare_process_that_compiles_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter nothing is compiled, but it is asked for and answered, and the work is proved after it."""
    from dataclasses import replace

    asked: list[bool] = []
    compiled = timed_calls.Spare._compile

    def told(spare: timed_calls.Spare, what: dict[str, object]) -> None:
        compiled(spare, what)
        asked.append(spare._session is not None)

    monkeypatch.setattr(timed_calls.Spare, "_compile", told)
    monkeypatch.setattr(timed_calls, "_CORES", 1)
    monkeypatch.setattr(timed_calls, "MANY", 2)
    job = replace(target("softmax"), torch="glue", workloads=(Workload({"r": 16, "c": 128}),))
    with RawDeviceEvaluator(hardware("h200"), simulate=True, rounds=2, sizes=1) as judge:
        monkeypatch.setattr(judge, "_compiles", True)
        found = judge.evaluate((HERE / "honest" / "base_two.py").read_text(), job, hardware("h200"))
    assert found.status == "ok" and asked == [True], found.message
    evidence = found.gate("integrity").evidence  # type: ignore[union-attr]
    assert evidence["work"] == "proved", evidence["work"]
