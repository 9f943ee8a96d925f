"""Seconds of attention schedules on an H200 that stand in for a device, so that a search can be rehearsed without one.

Plain schedules: the recorded tables of `benchmarks/data/tables` (the nearest point of the grid, with a stated loss for
what the grid does not hold). Warps with roles: TFLOP/s of the measured example (docs/gluon.md) times what single
decisions gave there. What was never measured is a guess and marked so. None of it is a measurement of a program: it
says whether a search finds what is known to be there, and nothing about speed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

TABLES = Path(__file__).resolve().parent / "data" / "tables"
# TFLOP/s of cuDNN and of `lazy(8)`, q in registers, by causal and length (docs/gluon.md).
CUDNN = {False: {4096: 585, 8192: 602, 16384: 609, 32768: 606}, True: {4096: 513, 8192: 543, 16384: 566, 32768: 574}}
ROLES = {False: {4096: 623, 8192: 641, 16384: 626, 32768: 642}, True: {4096: 586, 8192: 614, 16384: 629, 32768: 650}}
SPECULATIVE = 1.082  # of `lazy(8)`, geometric mean of the eight
AXES = ("tile m", "tile n", "stream stages", "warps", "load", "split", "exponent")

Setting = Mapping[str, int | str]


class Known:
    """What is known of attention with head dim 128 over AVO's eight sizes."""

    def __init__(self) -> None:
        self._tables = {}
        for causal, name in ((False, "attention_2x16384"), (True, "attention_2x16384_causal")):
            table = json.loads((TABLES / f"{name}.json").read_text())
            sizes, knobs = table["sizes"], table["knobs"]
            flops = 4.0 * sizes["b"] * sizes["h"] * sizes["m"] * sizes["n"] * sizes["d"] * (0.5 if causal else 1.0)
            lengths = [len(knobs[a]) for a in AXES]
            assert list(knobs) == list(AXES) and math.prod(lengths) == len(table["points"])
            rates = []
            for point in table["points"]:
                times = sorted(point.get("s") or ())
                rates.append(flops / times[len(times) // 2] / 1e12 if times else None)
            self._tables[causal] = (knobs, lengths, rates)

    def rate(self, s: Setting, causal: bool, n: int) -> float:
        """TFLOP/s at one of the eight sizes; 0 where the compiler or the device would refuse."""
        if s.get("roles mma"):
            return self._roles(s, causal, n)
        return self._plain(s, causal, n)

    def _plain(self, s: Setting, causal: bool, n: int) -> float:
        knobs, lengths, rates = self._tables[causal]
        loss, place = 1.0, 0
        for axis, length in zip(AXES, lengths, strict=True):
            values, value = list(knobs[axis]), s.get(axis, 1 if axis == "stream stages" else "")
            if value not in values:
                if isinstance(value, int):
                    near = min(values, key=lambda v: abs(math.log2(v / max(1, value))))
                    if axis == "warps" and value == 16 and s["tile m"] == 256:
                        loss *= 1.0  # 256 rows in 16 warps did as well as in 8 (benchmarks/data/runs)
                    elif axis == "stream stages":
                        loss *= 0.99
                    else:
                        loss *= 0.7 ** abs(math.log2(near / max(1, value)))
                else:
                    near = "exp2" if str(value).startswith("poly") else values[0]
                    loss *= 0.97
                value = near
            place = place * length + values.index(value)
        rate = rates[place]
        if rate is None:
            rate = 150.0  # not reached in the table: it was among the slow
        loss *= {4096: 0.97, 8192: 0.99}.get(n, 1.0)
        if s.get("persistent") == "on":
            loss *= 0.98
        if causal and s.get("order") not in ("longest_first", "reverse(m)"):
            loss *= 0.95
        if str(s.get("rescale", "always")).startswith("lazy"):
            loss *= 0.99
        return rate * loss

    def _roles(self, s: Setting, causal: bool, n: int) -> float:
        rate = float(ROLES[causal][min(ROLES[causal], key=lambda known: abs(known - n))])
        rescale = str(s.get("rescale", "always"))
        rate *= 1.0 if rescale.startswith("lazy") else SPECULATIVE if rescale == "speculative" else 1 / 1.03
        rate *= 1.0 if s.get("hold q") == "registers" else 1 / 1.03
        rate *= {128: 1.0, 64: 0.88, 32: 0.65, 16: 0.4}.get(int(s["tile n"]), 0.4)
        rate *= {2: 1.0, 1: 0.62, 3: 0.8, 4: 0.6}[int(s["roles mma"])]
        rate *= {128: 1.0, 64: 0.6, 256: 0.35}.get(int(s["tile m"]), 0.3)
        rate *= {1: 0.7}.get(int(s.get("stream stages", 1)), 1.0)
        rate *= 0.98 if s.get("reduce rows") == "across" else 1.0
        rate *= 0.9 if s.get("issue") == "in_order" else 1.0  # a guess
        rate *= 0.93 if s.get("exponent") == "exp" else 1.0  # a guess
        rate *= 0.95 if s.get("hold o") == "registers" else 1.0  # a guess
        rate *= (0.85 if causal else 1.0) if s.get("split") != "masked" else 1.0  # a guess
        if s.get("persistent") != "on":
            rate *= 0.95  # a guess
        if causal and s.get("order") not in ("longest_first", "reverse(m)"):
            rate *= 0.97 if s.get("persistent") == "on" else 0.93
        return rate

    def seconds(self, s: Setting, sizes: Mapping[str, int], causal: bool) -> float:
        flops = 4.0 * sizes["b"] * sizes["h"] * sizes["m"] * sizes["n"] * sizes["d"] * (0.5 if causal else 1.0)
        return flops / self.rate(s, causal, sizes["n"]) / 1e12

    def over_cudnn(self, s: Setting) -> float:
        """Geometric mean over the eight sizes."""
        logs = [math.log(self.rate(s, c, n) / r) for c, row in CUDNN.items() for n, r in row.items()]
        return math.exp(sum(logs) / len(logs))
