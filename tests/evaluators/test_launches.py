"""A launch on a device finds in Triton's cache what compile workers left there: Triton and Gluon, NVIDIA and AMD.

The JIT runs as on an H200 or an MI300X, up to the launch: its driver is a stand-in, and every call is a warm-up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "attention_sm90.avo"
CODE = """
import json, sys
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit
from dataclasses import replace
from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.parser import parse
from evaluators import gates
from evaluators.compiler import compile_request, fill_task, load_source
from evaluators.inputs import extents
from evaluators.loading import complete
from evaluators.targets import target

chip, job = hardware(sys.argv[2]), complete(target("attention"))

class Driver:
    def get_current_target(self):
        return GPUTarget("hip" if chip.vendor == "amd" else "cuda", chip.triton_arch, chip.warp_size)
    def get_current_device(self): return 0
    def get_current_stream(self, device=0): return 0

driver.set_active(Driver())
text = job.seed.partition("schedule")[0] + "schedule\\n" + sys.argv[1] if sys.argv[1] else job.seed
program = parse(text)
lowered = lower(program, chip, gates.exact_sizes(gates.Case(text, job, program, chip, program)))
first = job.workloads[0]
sizes = [replace(first, sizes={**first.sizes, "b": 1, "h": 2, "g": 2, "m": 512, "n": 512}), job.checks[0]]
for w in sizes:
    for kernel in lowered.kernels:
        launch = kernel.specialise(extents(program.algorithm, w), gates._params(program, w))
        fill_task(compile_request(lowered.source, kernel.name, launch, chip), ())
hits = []
knobs.compilation.listener = lambda *rest, **said: hits.append(said["cache_hit"])
run = jit.JITFunction.run
jit.JITFunction.run = lambda self, *a, grid=None, warmup=False, **k: run(self, *a, grid=grid, warmup=True, **k)
entry = getattr(load_source(lowered.source), lowered.entry)
for w in sizes:
    s = w.sizes
    shapes = [(s["b"], s["h"], s["m"], s["d"]), (s["b"], s["g"], s["n"], s["d"]), (s["b"], s["g"], s["n"], s["e"])]
    entry(*(torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes), **w.params)
print(json.dumps(hits))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "schedule"),
    [("h200", ""), ("h200", EXAMPLE.read_text().partition("\nschedule\n")[2]), ("mi300x", "")],
    ids=["triton", "gluon", "amd"],
)
def test_the_device_compiles_nothing(chip: str, schedule: str, tmp_path: Path) -> None:
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths, "TRITON_INTERPRET": "0"}
    environment["TRITON_DEFAULT_FP_FUSION"] = "1"
    command = [sys.executable, "-c", CODE, schedule, chip]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.strip() == "[true, true]", done.stderr[-1500:]
