"""Exported packages on the chip they were made for: their own tests, which kernel a size gets, its answer and its time.

python benchmarks/export_on_device.py --out DIR       on a machine with an H200 (elsewhere the kernels stand aside)

Each package is made by `avo export` and then used by a process that cannot import avo.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHAMPIONS, TABLES = ROOT / "configs" / "champions" / "h200", ROOT / "benchmarks" / "data" / "bench" / "h200"
PACKAGES = {
    "matmul_h200": ("matmul_public_persistent", "matmul_public_stages4", "--bench", "matmul_public"),
    "rmsnorm_h200": ("rmsnorm_public_w8", "rmsnorm_public_w16", "--bench", "rmsnorm_public"),
    "attention_h200": ("attention_public_causal", "--bench", "attention_public"),
    "attention_judged_now": ("attention_roles_lazy", "--target", "attention", "--hw", "h200"),
}

USE = """
import importlib, json, sys, time, torch
folder, package = sys.argv[1:3]
sys.path.insert(0, folder)
for name in ("avo", "archive", "evaluators", "dsl"):
    sys.modules[name] = None  # importing it raises
module = importlib.import_module(package)
dispatch, facts, ops, reference = (importlib.import_module(f"{package}.{n}") for n in
                                   ("dispatch", "facts", "ops", "reference"))
call = getattr(module, [n for n in module.__all__ if n != "set_unseen"][0]) if hasattr(module, "__all__") else None
call = call or getattr(module, facts.NAME)
device = "cuda" if torch.cuda.is_available() else "cpu"
rows = []

def timed(f, *args, **more):
    if device == "cpu":
        return None
    for _ in range(3): f(*args, **more)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20): f(*args, **more)
    end.record(); end.synchronize()
    return begin.elapsed_time(end) / 20

for row in sorted(facts.TABLE, key=lambda row: max(row["sizes"].values()))[: 2 if device == "cuda" else 1]:
    sizes = row["sizes"] if device == "cuda" else {a: min(n, 64) for a, n in row["sizes"].items()}
    rng = torch.Generator(device=device).manual_seed(1)
    inputs = [torch.randn([sizes[a] for a in axes], generator=rng, device=device).to(getattr(torch, dtype))
              for _, axes, dtype in facts.INPUTS]
    chosen = dispatch.choose(inputs, row["params"])
    found = call(*inputs, **row["params"])
    right = ops.in_torch(inputs, row["params"])
    error = float((found.float() - right.float()).norm() / right.float().norm())
    fast = torch.compile(lambda *x: call(*x, **row["params"]) * 2, fullgraph=True,
                         backend="inductor" if device == "cuda" else "aot_eager")
    doubled = fast(*inputs)
    rows.append({"sizes": sizes, "kernel": chosen, "error": error, "ms": timed(call, *inputs, **row["params"]),
                 "compiled_agrees": bool(torch.equal(doubled, found * 2)), "params": row["params"]})
print(json.dumps({"here": bool(dispatch.here(inputs[0])), "rows": rows}))
"""


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    alone = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    site = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and Path(p).resolve() != ROOT]
    if site:  # other packages stay, avo's own source does not
        alone["PYTHONPATH"] = os.pathsep.join(site)
    found, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, words in PACKAGES.items():
            began, place = time.monotonic(), Path(folder) / name
            made = [str(CHAMPIONS / f"{w}.avo") for w in words if (CHAMPIONS / f"{w}.avo").is_file()]
            rest = list(words[len(made) :])
            if rest[0] == "--bench":
                rest[1] = str(TABLES / f"{rest[1]}.json")
            command = [sys.executable, "-m", "avo", "export", *made, *rest, "-o", str(place)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
            row: dict[str, object] = {"export_exit": done.returncode, "export_s": round(time.monotonic() - began, 1)}
            found[name] = row
            if done.returncode:
                row["said"] = (done.stdout + done.stderr)[-600:]
                failed += 1
                continue
            package = next(p.parent.name for p in place.glob("*/facts.py"))
            asked = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
            tests = _run(asked, place, alone)
            row["tests"] = tests.stdout.strip().splitlines()[-1:]
            if tests.returncode:
                row["failures"] = tests.stdout[-3000:]
            use = [sys.executable, "-c", USE, str(place), package]
            used = _run(use, Path(folder), alone)
            row["use"] = json.loads(used.stdout.splitlines()[-1]) if used.stdout.strip() else used.stderr[-1500:]
            failed += bool(tests.returncode or used.returncode)
            print(f"{name}: {json.dumps(row)}"[:1500], flush=True)
            (flags.out / "export_on_device.json").write_text(json.dumps(found, indent=1) + "\n")
    (flags.out / "export_on_device.json").write_text(json.dumps(found, indent=1) + "\n")
    for name, row in found.items():
        print(name, {k: v for k, v in row.items() if k != "use"})
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
