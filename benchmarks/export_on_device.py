"""Exported packages on the chip they were made for: their own tests, which kernel a size gets, its answer and its time.

python benchmarks/export_on_device.py --out DIR [NAME...]  makes the packages (of PACKAGES those named, else all) and
                                                           uses each; the kernels stand aside where their chip is not
python benchmarks/export_on_device.py --use FOLDER         uses one that is there

A package is made by `avo export` and used by a process that cannot import avo: every size of its table is held against
the package's own reference and through torch.compile, and timed in turns beside the library's function.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CHAMPIONS, TABLES = ROOT / "configs" / "champions" / "h200", ROOT / "benchmarks" / "data" / "bench" / "h200"
OURS = ("avo", "archive", "evaluators", "dsl")
PACKAGES = {  # the table whose champions it has
    "matmul_h200": "matmul_public",
    "rmsnorm_h200": "rmsnorm_public",
    "attention_h200": "attention_public",
    "attention_roles_h200": "attention_public_b4",
    "attention_judged_now": "",
}
JUDGED_NOW = ("attention_roles_lazy", "attention", "h200")  # champion, target, chip
ROUNDS, CALLS = 6, 12  # the first round is left out
SMALL = 64  # the longest extent where there is no GPU

# Using one, without avo ---------------------------------------------------------------------------


def library(name: str, inputs: list[Any], params: dict[str, Any]) -> Callable[[], Any] | None:
    """What people call instead, on these inputs."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attention() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            grouped = inputs[0].shape[1] != inputs[1].shape[1]
            return F.scaled_dot_product_attention(*inputs, is_causal=params["causal"], enable_gqa=grouped)

    known = {
        "attention": attention,
        "matmul": lambda: torch.matmul(*inputs),
        "rmsnorm": lambda: F.rms_norm(inputs[0], inputs[0].shape[-1:], inputs[1], 1e-6),
    }
    return known.get(name)


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Median milliseconds a call of both."""
    import torch

    def ms(f: Callable[[], Any]) -> float:
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        for _ in range(CALLS):
            f()
        b.record()
        b.synchronize()
        return float(a.elapsed_time(b)) / CALLS

    rounds = []
    for r in range(ROUNDS):
        pair = {f: ms(f) for f in ((theirs, ours) if r % 2 else (ours, theirs))}
        rounds.append((pair[ours], pair[theirs]))
    return statistics.median(x[0] for x in rounds[1:]), statistics.median(x[1] for x in rounds[1:])


def use(folder: Path) -> dict[str, Any]:
    """Each size of the package's table: its kernel, how far it is off the reference, its time and the library's."""
    for ours in OURS:
        sys.modules[ours] = None  # type: ignore[assignment]  # importing it raises
    import torch

    package = next(p.parent.name for p in folder.glob("*/facts.py"))
    sys.path.insert(0, str(folder))
    module = importlib.import_module(package)
    dispatch, facts, ops = (importlib.import_module(f"{package}.{n}") for n in ("dispatch", "facts", "ops"))
    name = next(n for n in module.__all__ if n != "set_unseen")
    call = getattr(module, name)
    there = torch.cuda.is_available()
    device = "cuda" if there else "cpu"
    rows = []
    for row in facts.TABLE if there else facts.TABLE[:1]:
        sizes = {axis: n if there else min(n, SMALL) for axis, n in row["sizes"].items()}
        rng = torch.Generator(device=device).manual_seed(1)
        inputs = [
            torch.randn([sizes[a] for a in axes], generator=rng, device=device).to(getattr(torch, dtype))
            for _, axes, dtype in facts.INPUTS
        ]
        params = row["params"]
        fast = torch.compile(
            lambda *x, p=params: call(*x, **p) * 2, fullgraph=True, backend="inductor" if there else "aot_eager"
        )
        found = call(*inputs, **params)
        theirs = library(name, inputs, params)
        big = there and name == "attention"  # whose scores in torch are too much memory
        right = theirs() if big and theirs is not None else ops.in_torch(inputs, params)
        one = {"sizes": sizes, "params": params, "kernel": dispatch.choose(inputs, params)}
        one |= {"error": float((found.float() - right.float()).norm() / right.float().norm())}
        one |= {"against": "the library" if big else "its reference"}
        one |= {"compiled_agrees": bool(torch.equal(fast(*inputs), found * 2))}
        if there and theirs is not None:
            ours_ms, theirs_ms = in_turns(lambda x=inputs, p=params: call(*x, **p), theirs)
            one |= {"ms": ours_ms, "library_ms": theirs_ms}
        rows.append(one)
    wrong = [r for r in rows if r["error"] > 1e-2 or not r["compiled_agrees"] or (there and r["kernel"] is None)]
    return {"here": there and bool(dispatch.here(inputs[0])), "rows": rows, "wrong": len(wrong)}


# Making them --------------------------------------------------------------------------------------


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def words(name: str) -> list[str]:
    """What `avo export` is told of one of PACKAGES: the champions that its table has by now, and the table."""
    if not (stem := PACKAGES[name]):
        champion, target, chip = JUDGED_NOW
        return [str(CHAMPIONS / f"{champion}.avo"), "--target", target, "--hw", chip]
    table = TABLES / f"{stem}.json"
    arms = [arm["name"] for arm in json.loads(table.read_text(encoding="utf-8"))["benchmark"]["arms"]]
    programs = [str(path) for arm in arms if (path := CHAMPIONS / f"{stem}_{arm}.avo").is_file()]
    return [*programs, "--bench", str(table)]


def made(name: str, place: Path) -> subprocess.CompletedProcess[str]:
    """`avo export` of one of PACKAGES."""
    return _run([sys.executable, "-m", "avo", "export", *words(name), "-o", str(place)], ROOT, dict(os.environ))


def tested(name: str, place: Path, alone: dict[str, str]) -> dict[str, Any]:
    """Made, and its own tests."""
    began = time.monotonic()
    done = made(name, place)
    row: dict[str, Any] = {"export_exit": done.returncode, "export_s": round(time.monotonic() - began, 1)}
    if done.returncode:
        return row | {"said": (done.stdout + done.stderr)[-600:], "failed": True}
    tests = _run([sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"], place, alone)
    row["tests"] = tests.stdout.strip().splitlines()[-1:]
    if tests.returncode:
        row["failures"] = tests.stdout[-3000:]
    return row | {"failed": bool(tests.returncode)}


def used(place: Path, alone: dict[str, str], row: dict[str, Any]) -> dict[str, Any]:
    """What a process that uses it finds, beside what is known of it."""
    if row["export_exit"]:
        return row
    done = _run([sys.executable, str(Path(__file__).resolve()), "--use", str(place)], place, alone)
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else done.stderr[-1500:]
    return row | {"use": found, "failed": bool(row["failed"] or done.returncode)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PACKAGES, []], metavar="NAME")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--use", type=Path, metavar="FOLDER")
    flags = parser.parse_args()
    if flags.use:
        found = use(flags.use.resolve())
        print(json.dumps(found))
        return int(found["wrong"] > 0)
    if flags.out is None:
        parser.error("--out DIR is for what was found")
    flags.out.mkdir(parents=True, exist_ok=True)
    alone = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    site = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and Path(p).resolve() != ROOT]
    if site:  # other packages stay, avo's own source does not
        alone["PYTHONPATH"] = os.pathsep.join(site)
    rows = {}
    names = flags.names or list(PACKAGES)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(names)) as together:
        places = [Path(folder) / name for name in names]
        made_and_tested = list(together.map(tested, names, places, [alone] * len(names)))
        for name, place, row in zip(names, places, made_and_tested, strict=True):  # timed one at a time
            rows[name] = used(place, alone, row)
            (flags.out / "export_on_device.json").write_text(json.dumps(rows, indent=1) + "\n")
            print(name, {k: v for k, v in rows[name].items() if k != "use"}, flush=True)
            for r in rows[name]["use"]["rows"] if isinstance(rows[name].get("use"), dict) else ():
                ratio = f"{r['library_ms'] / r['ms']:.3f} of the library's speed" if "ms" in r else "not timed"
                print(
                    f"    {r['sizes']} {r['params']}: kernel {r['kernel']}, off {r['error']:.1e}, {ratio}", flush=True
                )
    return int(any(r["failed"] for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
