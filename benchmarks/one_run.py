"""What programs with roles gain over cuDNN and cuBLAS, from the rounds of one run of `gluon_device.py --part sweep`.

    python benchmarks/one_run.py [ROUNDS.json]      prints the claims and the table

A ratio is how much faster: the geometric mean of the rounds' ratios to the library's kernel in the same rounds, with
the 95% interval of its bootstrap. Over several sizes: the geometric mean, half widths added by their squares.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from evaluators.timing import Ratio, bootstrap

ROUNDS = Path(__file__).resolve().parent / "data" / "gluon_one_run_h200.json"
EIGHT = tuple(f"{kind} {n}" for kind in ("full", "causal") for n in ("8x4096", "4x8192", "2x16384", "1x32768"))
GROUPED = tuple(f"grouped {kind} 32/{g} 4x4096" for kind in ("full", "causal") for g in (4, 8))
D64 = tuple(f"dim64 {kind} 4x32x8192" for kind in ("full", "causal"))
D256 = tuple(f"dim256 {kind} 4x8x8192" for kind in ("full", "causal"))
RISING = tuple(f"rising {kind} 2x16384" for kind in ("full", "causal"))


@dataclass(frozen=True)
class Claim:
    """What is wanted of one form (the name of its arm) over some sizes. each: of every size, else of their mean."""

    what: str
    arm: str
    labels: tuple[str, ...]
    wanted: float
    each: bool = False


CLAIMS = (
    Claim("eight MHA sizes, running maximum", "lazy", EIGHT, 1.08),
    Claim("the slowest of them", "lazy", EIGHT, 1.03, each=True),
    Claim("eight MHA sizes, speculative", "spec", EIGHT, 1.14),
    Claim("the slowest of them", "spec", EIGHT, 1.03, each=True),
    Claim("grouped heads, running maximum", "lazy", GROUPED, 1.08),
    Claim("grouped heads, speculative", "spec", GROUPED, 1.08),
    Claim("head dim 64, running maximum, the slower", "lazy_shared@64", D64, 1.0, each=True),
    Claim("head dim 64, speculative, the slower", "spec_shared@64", D64, 1.0, each=True),
    Claim("head dim 256, running maximum, the slower", "d256_lazy@256", D256, 1.0, each=True),
    Claim("head dim 256, speculative, the slower", "d256_spec@256", D256, 1.0, each=True),
    Claim("rising maxima, speculative, the slower", "spec", RISING, 1.0, each=True),
    Claim("product 4096", "matmul", ("product 4096",), 1.0),
    Claim("product 8192", "matmul", ("product 8192",), 1.0),
    Claim("product 4096, bias and relu", "gemm", ("product 4096",), 1.0),
    Claim("product 8192, bias and relu", "gemm", ("product 8192",), 1.0),
)


def read(path: Path = ROUNDS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def sweep_facts(path: Path) -> dict[str, Any]:
    """A sweep as the results page takes it: of one whose file names its `rounds`, the rest is read from there."""
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "rounds" not in facts:
        return facts
    run = read(ROUNDS.parent / facts["rounds"])
    measured = run["measured"]
    own = {"device": measured["chip"].partition(",")[0], "driver": measured["driver"], "date": measured["date"]}
    versions = {k: measured[k].partition("+")[0] for k in ("torch", "triton")}
    count = len(run["rounds"][0]["seconds"]["theirs"])
    return (
        own | {"versions": versions, "command": run["command"], "lines": lines(run), "count": count, "run": run} | facts
    )


def rounds_of(facts: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Label -> arm -> seconds a call of each round."""
    return {r["label"]: r["seconds"] for r in facts["rounds"]}


def ratio(seconds: dict[str, list[float]], arm: str, over: str = "theirs") -> Ratio:
    """How much faster an arm is than the library's in the same rounds."""
    return bootstrap([math.log(a / b) for a, b in zip(seconds[over], seconds[arm], strict=True)], seed=0)


def mean(found: Sequence[Ratio]) -> Ratio:
    middle = sum(math.log(r.value) for r in found) / len(found)
    low = math.sqrt(sum(math.log(r.value / r.low) ** 2 for r in found)) / len(found)
    high = math.sqrt(sum(math.log(r.high / r.value) ** 2 for r in found)) / len(found)
    return Ratio(math.exp(middle), math.exp(middle - low), math.exp(middle + high))


def told(r: Ratio) -> str:
    return f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]"


def judged(claim: Claim, facts: dict[str, Any]) -> tuple[Ratio, str] | None:
    """(the figure, reached, reached within noise or missed); None where not all of it was measured."""
    rounds = rounds_of(facts)
    if not all(label in rounds and claim.arm in rounds[label] for label in claim.labels):
        return None
    each = [ratio(rounds[label], claim.arm) for label in claim.labels]
    found = min(each, key=lambda r: r.value) if claim.each else mean(each)
    if found.low >= claim.wanted:
        return found, "reached"
    if found.value >= claim.wanted:
        return found, "reached, the interval holds less"
    return found, "missed" if found.high < claim.wanted else "missed, the interval holds it"


def claims(facts: dict[str, Any]) -> list[str]:
    lines = ["| over cuDNN, cuBLAS | form | wanted | found | |", "|---|---|---:|---|---|"]
    for claim in CLAIMS:
        if (found := judged(claim, facts)) is not None:
            lines.append(f"| {claim.what} | `{claim.arm}` | {claim.wanted:.2f} | {told(found[0])} | {found[1]} |")
    return lines


def table(facts: dict[str, Any], labels: Iterable[str] | None = None) -> list[str]:
    """One row a form and size: TFLOP/s (the median round), and the ratio with its interval."""
    wanted = None if labels is None else set(labels)
    lines = ["| size | form | TFLOP/s | over the library |", "|---|---|---:|---|"]
    for r in facts["rounds"]:
        if wanted is not None and r["label"] not in wanted:
            continue
        for arm, seconds in r["seconds"].items():
            over = "" if arm == "theirs" else told(ratio(r["seconds"], arm))
            lines.append(f"| {r['label']} | {arm} | {r['flops'] / middle(seconds) / 1e12:.0f} | {over} |")
    return lines


def lines(facts: dict[str, Any]) -> list[str]:
    """As the sweep prints them: the median of the rounds' ratios, and the ratio of the medians."""
    found = []
    for r in facts["rounds"]:
        theirs, cells = r["seconds"]["theirs"], []
        for arm, seconds in r["seconds"].items():
            ratios = (middle([a / b for a, b in zip(theirs, seconds, strict=True)]), middle(theirs) / middle(seconds))
            cells.append(f"{arm} {r['flops'] / middle(seconds) / 1e12:.0f} ({ratios[0]:.3f}, {ratios[1]:.3f})")
        found.append(f"{r['label']}: " + ", ".join(cells))
    return found


def middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def sampled(facts: dict[str, Any], label: str, arm: str) -> dict[str, Any]:
    """What a champion's figures gain where every round was kept: its samples, and the interval of the ratio."""
    if "run" not in facts:
        return {}
    seconds = rounds_of(facts["run"])[label]
    found = ratio(seconds, arm)
    over = {"value": found.value, "low": found.low, "high": found.high}
    return {"samples_s": seconds[arm], "speed_over_it": {k: float(f"{x:.4g}") for k, x in over.items()}}


def section(run: dict[str, Any]) -> list[str]:
    """What the results page shows of a run: the claims, then every size."""
    return [*claims(run), "", f"Regime: {run['regime']}.", "", *table(run), ""]


if __name__ == "__main__":
    given = read(Path(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
    print("\n".join([*claims(given), "", *table(given)]))
