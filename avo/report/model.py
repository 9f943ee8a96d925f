"""What a report says about one run: frozen facts, complete, independent of how they are drawn.

`ReportModel` is what the terminal table, the JSON and the HTML page are pure functions of. Its JSON form is documented
in docs/report.md. Rates are in `target.unit` (TFLOP/s or GB/s), times in seconds, money in US dollars.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evaluators.evaluation import GATES, GateResult, Score, Status, WorkloadResult

SCHEMA: Literal["avo.report/1"] = "avo.report/1"

Kind = Literal["measured", "predicted"]
KINDS: tuple[Kind, ...] = ("measured", "predicted")

# The gate that ends the judgement where a candidate's evidence does not name one itself (a worker that died, say).
GATE_OF_STATUS = {
    Status.PARSE_ERROR: "parse",
    Status.CHECK_ERROR: "check",
    Status.NOT_LOWERED: "check",
    Status.MEANING_ERROR: "meaning",
    Status.COMPILE_ERROR: "compile",
    Status.RESOURCE: "compile",
    Status.INCORRECT: "correctness",
    Status.TIMEOUT: "correctness",
    Status.CRASH: "correctness",
    Status.OUT_OF_MEMORY: "correctness",
    Status.GAMING: "integrity",
    Status.SUSPICIOUS: "floor",
    Status.NOT_RECORDED: "check",
}


FLAGGED = (Status.GAMING, Status.SUSPICIOUS)


def outcome(status: Status | None, repeat: bool, failed_gate: str | None, committed: bool) -> str:
    """In one word what came of a candidate: see `Candidate.outcome`."""
    if status is None:
        return "pending"
    return "repeat" if repeat else failed_gate or ("committed" if committed else "passed")


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become the words "nan", "inf" and "-inf", which a reader can still see."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


Facts = Annotated[dict[str, Any], BeforeValidator(finite)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunInfo(_Frozen):
    """Which search this was. `created`: ISO 8601 in UTC. `jobs`: J of the proposal rule. `ended`: why it stopped."""

    id: int
    state: str = ""
    ended: str = ""
    agent: str = ""
    seed: int | None = None
    jobs: int | None = None
    created: str = ""


class TargetInfo(_Frozen):
    name: str
    summary: str = ""
    unit: Literal["TFLOP/s", "GB/s"] = "TFLOP/s"


class ChipInfo(_Frozen):
    name: str
    arch: str = ""
    facts: Facts = Field(default_factory=dict)


class BudgetInfo(_Frozen):
    """Limits that were set (None: no limit) and what was spent. `spend` sums the ledger by its own unit names."""

    steps: int | None = None
    steps_used: int = 0
    minutes: float | None = None
    minutes_used: float | None = None
    spend: Facts = Field(default_factory=dict)


class WorkloadInfo(_Frozen):
    """A public workload and its speed of light. `label` leaves out what all workloads share (`ReportModel.shared`)."""

    name: str
    label: str
    work: float
    floor_s: float
    bottleneck: str


class Candidate(_Frozen):
    """One proposal and what came of it.

    `k` counts proposals from 0 (the seed program) and names it in the run; `parents` are such numbers. `digest` names
    the program, `id` is a prefix of it that is unique in the run. `repeats`: the earlier proposal that is the same
    program, if any. `status` is None while it is not judged. `committed`: it was not slower than the best of its
    lineage. `model`: whom the agent asked for it, "" where nobody was. `change` names the edit against the first parent
    in one line, `diff` is the unified line difference to it. `source` is the emitted Triton where the candidate got
    that far. `promotion`: what came of it when it was judged again as the run's best (`status`, `headline`, and a row a
    workload), empty for all others.
    """

    digest: str
    id: str
    k: int
    parents: tuple[int, ...] = ()
    repeats: int | None = None
    agent: str = ""
    model: str = ""
    status: Status | None
    failed_gate: str | None = None
    message: str = ""
    committed: bool = False
    score: Score = Score()
    text: str = ""
    change: str = ""
    diff: str = ""
    rationale: str = ""
    hypothesis: Facts = Field(default_factory=dict)
    cost: Facts = Field(default_factory=dict)
    promotion: Facts = Field(default_factory=dict)
    gates: tuple[GateResult, ...] = ()
    workloads: tuple[WorkloadResult, ...] = ()
    source: str = ""

    @property
    def outcome(self) -> str:
        """committed, passed, pending, repeat, or the gate that it failed at ("harness": nobody's verdict)."""
        return outcome(self.status, self.repeats is not None, self.failed_gate, self.committed)

    @property
    def flagged(self) -> bool:
        """Somebody should look at it: it gamed the judge, or was faster than the speed of light."""
        return self.status in FLAGGED


class Commit(_Frozen):
    """A step of a lineage. `gain` is the ratio to its lineage's best before (1.12: 12% faster), None for the seed.

    `gain_low` and `gain_high` bound it where it was measured with an interval. `kind` says what `score` and `gain` are.
    `line`: it is the best or one of the best's ancestors, so it belongs to what won.
    """

    digest: str
    k: int
    kind: Kind
    score: float
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    over_seed: float | None = None
    line: bool = True
    change: str = ""
    reason: str = ""


class Decision(_Frozen):
    """A program that decided something otherwise than the best: `instead` says what it has, `ratio` is its score over
    the best's (0.95: 5% slower). `others`: in how many more items it differs; 0 where the ratio is the decision's."""

    instead: str
    k: int
    ratio: float
    others: int = 0


class Tried(_Frozen):
    """A hypothesis and what came of it. `expected` and `actual` are ratios to the parent (1.05: 5% faster); `actual` is
    None where the candidate has no score, `k` where it was nominated and never tried."""

    k: int | None
    claim: str
    bottleneck: str = ""
    expected: float | None = None
    actual: float | None = None


class Cost(_Frozen):
    """What one stage, or one model in it, used over the run. `entries`: lines of the ledger. `usd` None: a price is
    unknown. `gained`: the product of the gains of the winning line's commits that were proposed with it."""

    stage: str
    model: str = ""
    entries: int
    usd: float | None = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    device_s: float = 0.0
    wall_s: float = 0.0
    gained: float | None = None


class BestPoint(_Frozen):
    """From proposal `k` on, `digest` with `score` was the best so far."""

    k: int
    score: float
    digest: str


class RunningBest(_Frozen):
    measured: tuple[BestPoint, ...] = ()
    predicted: tuple[BestPoint, ...] = ()


class ReportModel(_Frozen):
    """The whole report; of a long run, what a page has room for (`omitted`, `above`: the rest, counted).

    `kind` says which of the two scores decided in this run; "measured" and "predicted" never mix.

    `speed_of_light` is the score of a kernel that reaches the floor on every workload. `baseline` is the number
    of the seed program, the one that the run started from and every ratio here is over.
    """

    schema_: Literal["avo.report/1"] = Field(SCHEMA, alias="schema")
    run: RunInfo
    target: TargetInfo
    chip: ChipInfo
    mode: Literal["predicted", "measured", "none"] = "none"
    mode_reason: str = ""
    budget: BudgetInfo = BudgetInfo()
    versions: dict[str, str] = Field(default_factory=dict)
    workloads: tuple[WorkloadInfo, ...] = ()
    shared: str = ""
    speed_of_light: float | None = None
    baseline: int | None = None
    candidates: tuple[Candidate, ...] = ()
    commits: tuple[Commit, ...] = ()
    running_best: RunningBest = RunningBest()
    decisions: tuple[Decision, ...] = ()
    tried: tuple[Tried, ...] = ()
    costs: tuple[Cost, ...] = ()
    # Of a long run, candidates that are only counted: outcome -> how many, and each one's first parent (None: a seed).
    omitted: dict[str, int] = Field(default_factory=dict)
    above: dict[int, int | None] = Field(default_factory=dict)
    tried_total: int = 0

    @property
    def kind(self) -> Kind:
        return "measured" if self.mode == "measured" else "predicted"

    @property
    def total(self) -> int:
        """How many candidates the run has, those that are only counted among them."""
        return len(self.candidates) + len(self.above)

    @property
    def ks(self) -> list[int]:
        """The numbers of all of them, in order."""
        return sorted([*(c.k for c in self.candidates), *self.above])

    def by_k(self, k: int | None) -> Candidate | None:
        return next((c for c in self.candidates if c.k == k), None)

    def best(self, kind: Kind) -> Candidate | None:
        """The candidate with the highest score of one kind, the earliest of equals; None where there is none."""
        points = getattr(self.running_best, kind)
        return self.by_k(points[-1].k) if points else None

    def outcomes(self) -> dict[str, int]:
        """Outcome -> how many candidates, failures in the order of the gates and last."""
        order = {name: i for i, name in enumerate(("committed", "passed", "repeat", "pending", *GATES, "harness"))}
        counts = Counter(c.outcome for c in self.candidates) + Counter(self.omitted)
        return dict(sorted(counts.items(), key=lambda kv: (order.get(kv[0], len(order)), kv[0])))
