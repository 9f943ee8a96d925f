"""KernelBench's evaluator on the products of `kernelbench_compare.py`, in a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

FRESH = 5  # trials for correctness
PROBLEM = "KernelBench/level1/1_Square_matrix_multiplication_.py"
MODEL = """

import torch as _torch

class ModelNew(_torch.nn.Module):
    def forward(self, A, B):
        return {entry}(A, B)
"""


def evaluator(checkout: Path) -> Any:
    """KernelBench's module `eval`, from a checkout; what it needs for language models alone is stood in for."""
    for name, names in {"dotenv": ("load_dotenv",), "openai": ("OpenAI",), "litellm": ("completion",)}.items():
        try:
            __import__(name)
        except ImportError:
            stand_in: Any = types.ModuleType(name)
            for each in names:
                setattr(stand_in, each, lambda *a, **k: None)
            sys.modules[name] = stand_in
    sys.path.insert(0, str(checkout / "src"))
    from kernelbench import eval as found

    return found


def commit(checkout: Path) -> str:
    """Of the checkout; of a copy, what its file COMMIT says. A copy inside of another repository is not that one."""
    if (checkout / "COMMIT").is_file():
        return (checkout / "COMMIT").read_text().strip()
    command = ["git", "-C", str(checkout), "rev-parse", "--show-toplevel", "HEAD"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return said[1] if len(said) == 2 and Path(said[0]).samefile(checkout) else "unknown"


def through_kernelbench(checkout: Path, sources: list[dict[str, str]], minutes: float, out: Path) -> None:
    """In this process, one after another; a line for each as soon as it is known."""
    import torch

    began = time.monotonic()
    module = evaluator(checkout)
    reference = (checkout / PROBLEM).read_text()
    torch.ones(1, device="cuda")
    start_s = time.monotonic() - began
    with out.open("w") as file:
        file.write(json.dumps({"start_s": round(start_s, 2)}) + "\n")
        began = time.monotonic()
        for each in sources:
            if time.monotonic() - began > 60 * minutes:
                break
            one = time.monotonic()
            row: dict[str, Any] = {"program": each["program"]}
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    found = module.eval_kernel_against_ref(
                        reference,
                        each["source"] + MODEL.format(entry=each["entry"]),
                        num_correct_trials=FRESH,
                        num_perf_trials=100,
                        measure_performance=True,
                        backend="triton",
                        precision=torch.bfloat16,
                        device=torch.device("cuda:0"),
                    )
                    row |= {"compiled": found.compiled, "correct": found.correctness, "us": found.runtime * 1e3}
                    row["stats"] = found.runtime_stats
                    row["message"] = str(
                        {k: v for k, v in found.metadata.items() if "error" in k or "issue" in k or "exc" in k}
                    )[:160]
                    row["trials"] = found.metadata.get("correctness_trials")
                except Exception as error:
                    row |= {"raised": f"{type(error).__name__}: {error}"[:160]}
            row |= {"seconds": round(time.monotonic() - one, 3), "at_s": round(time.monotonic() - began, 2)}
            file.write(json.dumps(row) + "\n")
            file.flush()


def beside(checkout: Path, sources: list[dict[str, str]], minutes: float, folder: Path) -> dict[str, Any]:
    """KernelBench's part in a process of its own: a fault of a candidate ends it, and the next process goes on."""
    rows: list[dict[str, Any]] = []
    starts, ends, lost = 0.0, time.monotonic() + 60 * minutes, 0
    began = time.monotonic()
    while len(rows) < len(sources) and time.monotonic() < ends:
        rest, file = sources[len(rows) :], folder / "kernelbench.part.jsonl"
        listed = folder / "kernelbench.sources.json"
        listed.write_text(json.dumps(rest))
        command = [sys.executable, __file__, "--kernelbench", str(checkout), "--sources", str(listed)]
        command += ["--out", str(file), "--minutes", f"{(ends - time.monotonic()) / 60:.3f}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=max(5.0, ends - time.monotonic() + 30), check=False)
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        if not lines:
            break
        starts += lines[0]["start_s"]
        rows += lines[1:]
        if len(rows) < len(sources) and time.monotonic() < ends:
            lost += 1
            rows.append({"program": sources[len(rows)]["program"], "raised": "its process ended"})
        for each in (file, listed):
            each.unlink(missing_ok=True)
    inside = sum(r.get("seconds", 0.0) for r in rows)
    return {"rows": rows, "seconds": inside, "start_s": starts, "wall_s": time.monotonic() - began, "lost": lost}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    through_kernelbench(flags.kernelbench, json.loads(flags.sources.read_text()), flags.minutes, flags.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
