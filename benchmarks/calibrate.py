"""How well predictions order what was measured: 80 settings of plain attention x 4 workloads on one H200.

The programs are docs/examples/attention.avo with the schedule of each setting, lowered and compiled by avo for the
chip; the measurements are those of a hand-written Triton kernel with the same five knobs. The constants of
`evaluators.prediction` were fitted on the two workloads of length 4096 alone; those of length 16384 were held out.

    python benchmarks/calibrate.py              the figures, from compiled facts that are kept in benchmarks/data
    python benchmarks/calibrate.py --recompute  compiles everything again first (about five minutes)
    python benchmarks/calibrate.py --rows       also every setting, measured and predicted
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsl.hardware import Hardware, hardware
from dsl.lowering import lower
from dsl.lowering.lowered import Lowered
from dsl.parser import parse
from dsl.work import Work, work
from evaluators.machine import MachineCode, check_fits, with_occupancy
from evaluators.prediction import FITTED, Constants, Prediction, predict

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks" / "data" / "plain_attention_h200.json"
FACTS = ROOT / "benchmarks" / "data" / "attention_sm90_machine.json"
KNOBS = ("bm", "bn", "stages", "warps", "lazy")
HELD_OUT = 16384  # the length that no constant was chosen by

Setting = tuple[int, int, int, int, int]

_GEMM = """kernel gemm
in  a[m k] bf16, b[k n] bf16
out c[m n] bf16
c = sum[k](a * b)

schedule
tile m={m} n={n} k={k}
grid m n
order {order}
stream k stages={stages}
load {load}
warps {warps}
"""
_RMSNORM = """kernel rmsnorm
in  x[r c] bf16, w[c] bf16
out y[r c] bf16
y = x * rsqrt(mean[c](x * x) + 1e-6) * w

schedule
tile r=1 c=all
grid r
warps 8
"""
_SOFTMAX = """kernel softmax
in  x[r c] bf16
out y[r c] bf16
y = softmax[c](x)

schedule
tile r=1 c=all
grid r
warps 4
"""
_SQUARE = {"m": 8192, "n": 8192, "k": 8192}

# Kernels without measurements here, to see that their order and size are plausible.
OTHERS: dict[str, tuple[str, dict[str, int]]] = {
    "gemm 64x64x32, 1 stage, pointers": (
        _GEMM.format(m=64, n=64, k=32, order="row", stages=1, load="pointer", warps=4),
        _SQUARE,
    ),
    "gemm 128x128x64, 3 stages, tma": (
        _GEMM.format(m=128, n=128, k=64, order="row", stages=3, load="tma", warps=4),
        _SQUARE,
    ),
    "gemm 128x256x64, 3 stages, tma": (
        _GEMM.format(m=128, n=256, k=64, order="grouped(8)", stages=3, load="tma", warps=8),
        _SQUARE,
    ),
    "rmsnorm 16384 x 8192": (_RMSNORM, {"r": 16384, "c": 8192}),
    "softmax 16384 x 4096": (_SOFTMAX, {"r": 16384, "c": 4096}),
}


@dataclass(frozen=True)
class Case:
    """One setting on one workload. Speeds in TFLOP/s; 0 where it does not fit the chip."""

    setting: Setting
    measured: float
    predicted: float
    prediction: Prediction | None


def text(setting: Setting) -> str:
    """The attention program with the table's knobs: what that kernel does, said as a schedule."""
    bm, bn, stages, warps, lazy = setting
    algorithm = (ROOT / "docs" / "examples" / "attention.avo").read_text().partition("\nschedule\n")[0]
    return f"""{algorithm}
schedule
tile m={bm} n={bn}
grid b h m
order longest_first
stream n stages={stages}
split masked
load tma
rescale {"lazy(8)" if lazy else "always"}
exponent exp2
warps {warps}
"""


def table() -> dict[tuple[bool, int, int], dict[Setting, float]]:
    """(causal, batch, length) -> setting -> measured TFLOP/s, 0 where it did not run."""
    found: dict[tuple[bool, int, int], dict[Setting, float]] = {}
    for row in json.loads(TABLE.read_text())["rows"]:
        setting: Setting = tuple(row[k] for k in KNOBS)
        found.setdefault((row["causal"], row["batch"], row["length"]), {})[setting] = row.get("tflops", 0.0)
    return found


def lowered(setting: Setting, hw: Hardware) -> Lowered:
    exact = {"d": 128, "e": 128}
    return lower(parse(text(setting)), hw, exact)


def sizes(batch: int, length: int) -> dict[str, int]:
    return {"b": batch, "h": 16, "g": 16, "m": length, "n": length, "d": 128, "e": 128}


def _read(hw: Hardware) -> list[tuple[dict[str, object], MachineCode]]:
    rows = json.loads(FACTS.read_text())["rows"]
    return [(r, with_occupancy(MachineCode.model_validate(r["machine"]), hw)) for r in rows]


def facts(hw: Hardware) -> dict[tuple[bool, Setting], MachineCode]:
    """(causal, setting) -> the machine code of that setting, as it was compiled last."""
    return {(bool(r["causal"]), tuple(r["setting"])): m for r, m in _read(hw) if "setting" in r}  # type: ignore[arg-type, misc]


def others() -> list[tuple[str, Prediction, Work]]:
    """The kernels of OTHERS: name, prediction, work."""
    hw = hardware("h200")
    machines = {r["name"]: m for r, m in _read(hw) if "name" in r}
    found = []
    for name, (program_text, size) in OTHERS.items():
        program = parse(program_text)
        kernel, needed = lower(program, hw, size).kernels[0], work(program, size)
        row = (kernel.specialise(size, {}), machines[name], kernel.profile(size, {}))
        found.append((name, predict([row], hw, needed), needed))
    return found


def stale(hw: Hardware) -> int:
    """How many settings are lowered to other source by now than the facts were compiled from."""
    now: dict[Setting, str] = {}
    count = 0
    for row, _ in _read(hw):
        if "setting" in row:
            setting: Setting = tuple(row["setting"])  # type: ignore[arg-type, assignment]
            now.setdefault(setting, _digest(lowered(setting, hw)))
            count += now[setting] != row["source"]
    return count


def _digest(low: Lowered) -> str:
    code = low.source.partition('"""\n\n')[2]  # without the heading, which names the program's digest
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def recompute(hw: Hardware) -> None:
    """Compiles everything for the chip, in this process, and writes the facts."""
    from evaluators.compiler import compile_source

    lines: list[str] = []

    def add(key: dict[str, object], low: Lowered, size: dict[str, int], params: dict[str, bool]) -> None:
        kernel = low.kernels[0]
        machine = compile_source(low.source, kernel.name, kernel.specialise(size, params), hw)
        kept = machine.model_dump(exclude={"occupancy_blocks", "occupancy", "occupancy_limit", "texts"})
        lines.append(json.dumps(key | {"source": _digest(low), "machine": kept}))
        print(f"{len(lines)}", *key.values(), machine.registers, machine.spills, flush=True)

    for name, (program_text, size) in OTHERS.items():
        add({"name": name}, lower(parse(program_text), hw, size), size, {})
    for causal in (False, True):
        for setting in dict.fromkeys(s for rows in table().values() for s in rows):
            key: dict[str, object] = {"causal": causal, "setting": setting}
            add(key, lowered(setting, hw), sizes(8, 4096), {"causal": causal})
    FACTS.write_text('{"rows": [\n' + ",\n".join(lines) + "\n]}\n")


def cases(workload: tuple[bool, int, int], constants: Constants = FITTED) -> list[Case]:
    """Every setting of the table on one workload, in the table's order."""
    hw = hardware("h200")
    causal, batch, length = workload
    size, params = sizes(batch, length), {"causal": causal}
    machines = facts(hw)
    needed = None
    found = []
    for setting, measured in table()[workload].items():
        machine = machines[causal, setting]
        if check_fits(machine, hw):
            found.append(Case(setting, measured, 0.0, None))
            continue
        program = parse(text(setting))
        needed = needed or work(program, size, params)
        kernel = lower(program, hw, size).kernels[0]
        launch, profile = kernel.specialise(size, params), kernel.profile(size, params)
        prediction = predict([(launch, machine, profile)], hw, needed, constants)
        found.append(Case(setting, measured, needed.total_flops / prediction.seconds / 1e12, prediction))
    return found


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation; ties get their mean rank."""

    def ranks(values: Sequence[float]) -> list[float]:
        order = sorted(range(len(values)), key=lambda i: values[i])
        found = [0.0] * len(values)
        i = 0
        while i < len(order):
            j = i
            while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
                j += 1
            for k in order[i : j + 1]:
                found[k] = (i + j) / 2
            i = j + 1
        return found

    x, y = ranks(a), ranks(b)
    mx, my = sum(x) / len(x), sum(y) / len(y)
    top = sum((p - mx) * (q - my) for p, q in zip(x, y, strict=True))
    return top / math.sqrt(sum((p - mx) ** 2 for p in x) * sum((q - my) ** 2 for q in y))


@dataclass(frozen=True)
class Figures:
    """Over the settings that ran. regret: how much slower the first choice is than the best measured, 0 is none.

    error: root mean square of log(predicted / measured).
    """

    spearman: float
    regret: float
    choice: Setting
    error: float


def figures(found: Sequence[Case]) -> Figures:
    ran = [c for c in found if c.measured > 0 and c.predicted > 0]
    choice = max(ran, key=lambda c: c.predicted)
    best = max(c.measured for c in found)
    error = math.sqrt(sum(math.log(c.predicted / c.measured) ** 2 for c in ran) / len(ran))
    return Figures(
        spearman([c.predicted for c in ran], [c.measured for c in ran]),
        1 - choice.measured / best,
        choice.setting,
        error,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recompute", action="store_true", help="compile every setting again first")
    parser.add_argument("--rows", action="store_true", help="print every setting of the workloads that were fitted on")
    options = parser.parse_args()
    if options.recompute:
        recompute(hardware("h200"))
    print("prediction against measurement on one H200; first choice: bm, bn, stages, warps, lazy")
    for half, held_out in (("fitted on", False), ("held out", True)):
        for workload in table():
            if (workload[2] == HELD_OUT) != held_out:
                continue
            found = cases(workload)
            f = figures(found)
            causal, batch, length = workload
            name = f"{'causal' if causal else 'full':6} B{batch} S{length}"
            agree = all((c.measured > 0) == (c.predicted > 0) for c in found)
            print(
                f"{half:9}  {name:18} spearman {f.spearman:.3f}  first choice {f.choice!s:22} "
                f"{100 * f.regret:4.1f}% below the best  error {100 * f.error:.0f}%  "
                f"{'same settings fit' if agree else 'OTHER SETTINGS FIT'}"
            )
            if options.rows and not held_out:
                for c in sorted(found, key=lambda c: -c.measured):
                    print(f"    {c.setting!s:22} {c.measured:4.0f} {c.predicted:4.0f}", end=" ")
                    print(c.prediction.limiter if c.prediction else "does not fit")
    print("other kernels, not measured here")
    for name, prediction, needed in others():
        rate = f"{needed.total_flops / prediction.seconds / 1e12:.0f} TFLOP/s" if needed.flops else ""
        rate = rate or f"{needed.bytes / prediction.seconds / 1e9:.0f} GB/s"
        print(f"    {name:34} {1e6 * prediction.seconds:7.1f} us  {rate:14} {prediction.limiter}")
    if changed := stale(hardware("h200")):
        print(f"note: {changed} of 160 kernels are lowered to other source by now; --recompute compiles them again")


if __name__ == "__main__":
    main()
