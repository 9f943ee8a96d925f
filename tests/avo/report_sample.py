"""Hand-made runs for the report's tests: every status, a lineage with branches, and hostile text on request."""

from __future__ import annotations

import hashlib
import random

from avo.report.derive import complete
from avo.report.model import BudgetInfo, Candidate, ChipInfo, Cost, ReportModel, RunInfo, TargetInfo, Tried
from evaluators.evaluation import GATES, Evaluation, GateResult, Score, Status, WorkloadResult, score

ALGORITHM = """kernel attention
in q[b h m d] bf16, k[b g n d] bf16, v[b g n e] bf16
out o[b h m e] bf16
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(not causal or m >= n, s, -inf)
o = sum[n](softmax[n](c) * v)
"""

HOSTILE = "</script><img src=x onerror=alert(1)><!-- &amp; \u2028 \u202e \u0007 ünï©ode 核 🚀"

FAILURES = [
    (Status.PARSE_ERROR, "parse"),
    (Status.CHECK_ERROR, "check"),
    (Status.MEANING_ERROR, "meaning"),
    (Status.COMPILE_ERROR, "compile"),
    (Status.RESOURCE, "compile"),
    (Status.INCORRECT, "correctness"),
    (Status.TIMEOUT, "correctness"),
    (Status.GAMING, "integrity"),
    (Status.SUSPICIOUS, "floor"),
    (Status.UNAVAILABLE, None),
]


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def program(m: int, n: int, stages: int, warps: int, extra: str = "") -> str:
    return ALGORITHM + f"\nschedule\ntile m={m} n={n}\ngrid b h m\nstream n stages={stages}\n{extra}warps {warps}\n"


def triton(m: int, n: int, stages: int) -> str:
    body = "\n".join(f"        acc_{i} = tl.dot(q_{i}, k_{i}, acc_{i})  # line {i}" for i in range(60))
    return f'''"""attention for b200, tile m={m} n={n}."""
import triton
import triton.language as tl

@triton.jit
def attention(q, k, v, o, M, N, BLOCK_M: tl.constexpr = {m}, BLOCK_N: tl.constexpr = {n}):
    for start in tl.range(0, N, BLOCK_N, num_stages={stages}):
{body}
'''


def _gates(upto: str | None, message: str, m: int, n: int) -> tuple[GateResult, ...]:
    evidence = {
        "meaning": {"exact_rel": 3.1e-16, "limit": 1e-10, "rounded_rel_l2": 2.4e-3, "tier": 2e-2},
        "compile": {
            "kernels": [
                {
                    "name": "attention",
                    "registers": 168 + 8 * causal,
                    "spills": 0,
                    "shared_bytes": m * n * 8,
                    "threads": 128,
                    "occupancy": 0.25,
                    "instructions": {"tcgen05.mma": 24, "ex2": 64, "ffma": 412 + causal, "ldg": 96, "bar": 9},
                    "constexprs": {"BLOCK_M": m, "BLOCK_N": n, "causal": causal},
                    "workloads": [f"b={b},h=16,g=16,m=4096,n=4096,d=128,e=128,causal={int(causal)}" for b in (8, 4)],
                }
                for causal in (False, True)
            ],
            "warnings": [],
        },
        "correctness": {
            "cases": [
                {
                    "workload": f"b=1,h=2,g=1,m={size},n={size},d=64,e=64,causal=1",
                    "distribution": distribution,
                    "outputs": {
                        "o": {
                            "rms": 2.4,
                            "relative_l2": {"value": 0.37 if upto else 0.0017, "limit": 0.0041, "honest": 0.0021},
                            "largest_error": {"value": 0.08, "limit": 0.37, "honest": 0.18, "at": "[0, 1, 3, 112]"},
                        }
                    },
                }
                for size in (128, 193)
                for distribution in ("normal", "outliers", "large_logits")
            ]
        },
        "prediction": {"limiter": "exponentials", "parts": {"mma_s": 3.1e-4, "exp_s": 4.4e-4, "hbm_s": 4.1e-5}},
    }
    gates = []
    for name in ("parse", "check", "meaning", "compile", "correctness", "integrity", "prediction", "floor"):
        failed = name == upto
        gates.append(
            GateResult(
                gate=name,
                passed=not failed,
                message=message if failed else "",
                evidence=evidence.get(name, {}),
                seconds=0.01 * (1 + GATES.index(name)),
            )
        )
        if failed:
            break
    return tuple(gates)


def _timing(seconds: float) -> dict[str, object]:
    one = {"seconds": seconds, "calls": 40, "sm_mhz": 1755, "watts": 640}
    return {"regime": "sustained", "interval_s": [seconds * 0.997, seconds * 1.003], "samples": [one] * 12}


def _workloads(speed: float, measured: bool) -> tuple[WorkloadResult, ...]:
    rows = []
    for causal in (0, 1):
        for b, n in ((8, 4096), (4, 8192), (2, 16384), (1, 32768)):
            work = 4.0 * b * 16 * n * n * 128 * (0.5 if causal else 1.0)
            floor = work / 2.2e15
            time = work / (speed * 1e12) * (1.25 if causal else 1.0) * (1 + 2000 / n / 8)
            rows.append(
                WorkloadResult(
                    workload=f"b={b},h=16,g=16,m={n},n={n},d=128,e=128,causal={causal}",
                    work=work,
                    floor_s=floor,
                    bottleneck="matrix units bf16",
                    predicted_s=time,
                    measured_s=time * 1.07 if measured else None,
                    limiter="exponentials" if speed > 600 else "load latency",
                    detail={
                        "parts": {"matrix units": time * 0.6, "exponentials": time * 0.9, "tail wave": time * 0.1},
                        "floor": {"matrix bf16": floor, "memory": floor / 7},
                        **(_timing(time * 1.07) if measured else {}),
                    },
                )
            )
    return tuple(rows)


def untimed(count: int = 12) -> ReportModel:
    """A run that judged correctness alone, as on the host's CPU."""
    timed = sample(count)
    bare = [c.model_copy(update={"workloads": (), "score": Score(), "committed": False}) for c in timed.candidates]
    reason = "correctness alone, no claim of speed"
    return complete(
        bare, run=timed.run, target=timed.target, chip=ChipInfo(name="cpu"), mode="none", mode_reason=reason
    )


def sample(count: int = 60, seed: int = 1, measured: bool = False, hostile: bool = False) -> ReportModel:
    """A run of `count` proposals: the parent is mostly the best so far, a third fail, some are children of failures."""
    rng = random.Random(seed)
    mode = "measured" if measured else "predicted"
    candidates: list[Candidate] = []
    settings: dict[int, tuple[int, int, int, int, str]] = {}
    best, best_speed = 0, 0.0
    speed = 310.0
    for k in range(count):
        if k == 0:
            m, n, stages, warps, extra, parents = 64, 64, 1, 4, "", ()
        else:
            parent = best if rng.random() < 0.7 else rng.choice(candidates).k
            m, n, stages, warps, extra = settings[parent]
            match rng.randrange(4):
                case 0:
                    m, n = rng.choice([(64, 64), (128, 64), (128, 128), (256, 64)])
                case 1:
                    stages = rng.choice([1, 2, 3, 4, 5])
                case 2:
                    warps = rng.choice([2, 4, 8, 16])
                case _:
                    extra = rng.choice(["split masked\n", "load tma\n", "exponent exp2\n", "rescale lazy(8)\n"])
            parents = (parent,)
        text = program(m, n, stages, warps, extra) + f"# proposal {k}\n"
        status, gate, message = Status.OK, None, ""
        if k and rng.random() < 0.36:
            status, gate = FAILURES[rng.randrange(len(FAILURES))]
            message = {
                "check": f"tile m={m} n={n} stages={stages} needs 320 KiB of shared memory; b200 has 227 KiB\n"
                "    tile m=256 n=128\n         ^^^^^\n  legal: stages 1 to 2\n  fix: stages=2",
                "correctness": "rel L2 0.37 > 0.0044 on n=193, large_logits",
            }.get(gate or "", f"stopped at {gate or 'the harness'}")
        else:
            speed = min(1450.0, 310.0 * (1 + 3 * (1 - 0.97**k)) * rng.uniform(0.75, 1.08)) if k else 310.0
        if hostile and k in (1, 2):
            text, message = text + f"# {HOSTILE}\n", HOSTILE
            status, gate = (Status.INCORRECT, "correctness") if k == 1 else (Status.OK, None)
        ok = status is Status.OK
        reached = ok or gate in ("correctness", "integrity", "floor")
        evaluation = Evaluation(
            status=status,
            mode=mode if ok or status is Status.SUSPICIOUS else "none",
            gates=_gates(gate, message, m, n) if status is not Status.UNAVAILABLE else (),
            workloads=_workloads(speed, measured) if ok else (),
            source=triton(m, n, stages) + (f"# {HOSTILE}\n" if hostile else "") if reached else "",
            message=message,
        )
        value = score(evaluation) if status is not Status.UNAVAILABLE else Score()
        decisive = (value.measured if measured else value.predicted) or 0.0
        committed = ok and decisive > best_speed
        digest = digest_of(text)
        if committed:
            best, best_speed = k, decisive
        settings[k] = (m, n, stages, warps, extra)
        candidates.append(
            Candidate(
                digest=digest,
                id="",
                k=k,
                parents=parents,
                agent="heuristic" if k % 5 else "sampler",
                model="m-large" if k % 5 == 1 else "",
                status=status,
                failed_gate=evaluation.failed_gate,
                message=evaluation.message,
                committed=committed,
                score=value,
                text=text,
                rationale=HOSTILE
                if hostile
                else ""
                if k == 0
                else "load latency limits n=4096: a deeper pipeline hides it behind the matrix units",
                gates=evaluation.gates,
                workloads=evaluation.workloads,
                source=evaluation.source,
            )
        )
    return complete(
        candidates,
        run=RunInfo(
            id=3, state="ended", ended="steps", agent="heuristic", seed=0, jobs=2, created="2026-11-29T16:52:41Z"
        ),
        target=TargetInfo(
            name="attention", summary=HOSTILE if hostile else "softmax(q k / sqrt(d)) v, grouped heads", unit="TFLOP/s"
        ),
        chip=ChipInfo(name="b200", arch="sm_100"),
        mode=mode,
        mode_reason="" if measured else "no b200 in this machine",
        budget=BudgetInfo(steps=count, steps_used=count, minutes=8, minutes_used=5.4),
        versions={"avo": "0.1.0", "triton": "3.9.0", "python": "3.11.9"},
        tried=_tried(candidates, "measured" if measured else "predicted", hostile),
        costs=(
            Cost(stage="evaluate", entries=count, wall_s=312.5, device_s=41.0 if measured else 0.0),
            Cost(stage="propose", model="m-large", entries=9, usd=0.31, tokens_in=41_000, tokens_out=3_200, gained=1.4),
            Cost(stage="propose", model=HOSTILE if hostile else "m-free", entries=2, usd=None, tokens_in=800),
        ),
    )


def _tried(candidates: list[Candidate], kind: str, hostile: bool) -> tuple[Tried, ...]:
    """Every proposal expected 20%, the last nomination was never tried."""
    scores = {c.k: getattr(c.score, kind) for c in candidates}
    rows = [
        Tried(
            k=c.k,
            claim=HOSTILE if hostile else f"a deeper pipeline hides latency ({c.k})",
            bottleneck="load latency",
            expected=1.2,
            actual=scores[c.k] / scores[c.parents[0]] if scores[c.k] and scores[c.parents[0]] else None,
        )
        for c in candidates
        if c.parents
    ]
    return (*rows, Tried(k=None, claim="two tiles at once", expected=1.1))
