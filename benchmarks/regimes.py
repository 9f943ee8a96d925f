"""What the regime does to a figure: the same kernel against itself, after a rest and under load, with the card's state.

python benchmarks/regimes.py     (on a machine with a GPU; a minute)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from evaluators.device import held
from evaluators.sustained import METER, measure, rotation
from evaluators.timing import RACING, Measurement, Regime, in_pairs, noise_floor

SHORT = Regime("short look", untimed_s=0.0, timed_s=0.004, rounds=12)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n = 8192 if device == "cuda" else 256
    length = 8192 if device == "cuda" else 128

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).to(torch.bfloat16)

    sets = rotation(3 * 2 * n * n) if device == "cuda" else 2
    squares = [(normal(n, n), normal(n, n)) for _ in range(sets)]
    heads = [tuple(normal(4, 16, length, 128) for _ in range(3)) for _ in range(2)]
    arms: dict[str, Any] = {
        f"matmul {n}": (lambda i: squares[i][0] @ squares[i][1], sets, 2.0 * n**3),
        f"attention 4 x {length}": (
            lambda i: torch.nn.functional.scaled_dot_product_attention(*heads[i]),
            2,
            4.0 * 4 * 16 * length**2 * 128,
        ),
    }
    for name, (call, count, flops) in arms.items():
        for regime, heat, rest_s in ((SHORT, False, 3.0), (RACING, False, 3.0), (RACING, True, 0), (Regime(), True, 0)):
            time.sleep(rest_s)
            found = measure({"A": call, "B": call}, sets=count, regime=regime, rounds=12, heat=heat)
            say(name, "after a rest" if rest_s else "heated", found, flops)
    print(json.dumps({"state": METER.now()}))


def say(name: str, how: str, found: Measurement, flops: float) -> None:
    noise = noise_floor([in_pairs(found.samples)])
    first, last = found.samples[:4], found.samples[-4:]
    speeds = [flops / (sum(s.seconds for s in part) / len(part)) * 1e-12 for part in (first, last)]
    ratio, state = found.ratio("A", over="B"), found.clocks("A")
    print(
        f"{name:<22}{found.regime.name:<12}{how:<14}{flops / found.seconds('A') * 1e-12:7.1f} TFLOP/s "
        f"(first block {speeds[0]:.1f}, last {speeds[1]:.1f})"
        f"  A/A {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]"
        f"  pair {noise.deviation:.2%}  {state.sm_mhz} MHz {state.watts} W {state.celsius} C {state.throttles}"
        f"  heat {found.heat}",
        flush=True,
    )


if __name__ == "__main__":
    with held():
        main()
