"""Targets and variants to export, without a judge: their times are made up and say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from avo.export import Package, Variant, build, write
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.printer import digest
from evaluators.loading import complete
from evaluators.target import Target, Workload

H200 = hardware("h200")
SCALE = 0.5
ROWS = """
kernel scaled
in  x[r c] f16, w[c] f32
out y[r c] f16
param shift f32 = 0.0
y = x * w * 0.5 + shift

schedule
tile r=4 c=all
grid r
warps 4
"""


def doubled(x: Any) -> Any:
    return x * SCALE


def rows(x, w, shift=0.0):  # type: ignore[no-untyped-def]
    """x w / 2 + shift."""
    return doubled(x) * w + shift


def target_of_rows() -> Target:
    sizes = ({"r": 4096, "c": 1024}, {"r": 64, "c": 8192})
    return complete(
        Target(
            name="scaled",
            reference=rows,
            seed=ROWS,
            workloads=tuple(Workload(s, {"shift": 0.0}) for s in sizes),
            unit="GB/s",
        )
    )


def variant(job: Target, text: str, seconds: dict[str, float] | float, mode: Any = "predicted") -> Variant:
    program = parse(text)
    times = seconds if isinstance(seconds, dict) else {w.name: seconds for w in job.workloads}
    return Variant(
        text=text, program=program, digest=digest(program), target=job.name, hardware="h200", mode=mode, seconds=times,
        floors=dict.fromkeys(times, 1e-6), provenance={"program": text, "made up": True},
    )  # fmt: skip


def made(job: Target, *variants: Variant, **more: Any) -> Package:
    return build(job, H200, variants, **more)


def tried(package: Package, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Writes it, and runs its own tests in a process that has never heard of avo."""
    write(package, folder)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TRITON_INTERPRET": "1", "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments, str(folder)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
