"""One call of a raw candidate: what is asked of its process, what comes back, and what is wrong with that.

Nothing that the process says is believed further than its form allows: names are names, counts are counts, and words
stand as quotations. The outputs' bytes are judged.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dsl.meaning import evaluate
from dsl.syntax import Program
from evaluators.cpu import _BYTES, Output
from evaluators.evaluation import Status, WorkloadResult
from evaluators.failures import Crash, TaskError, gist, quoted
from evaluators.gates import Rejected, _contiguous
from evaluators.inputs import Array, decode, draw_inputs, encode, extents
from evaluators.integrity import compiling, sandbox
from evaluators.integrity.narrow_sums import PLANTED, leaning
from evaluators.oracle import Answer, answers
from evaluators.pool import Reply, Session, WorkerPool
from evaluators.target import Target, Workload
from evaluators.tolerance import form, small_rows, verdict

if TYPE_CHECKING:
    from dsl.hardware import Hardware

_ROOM = 1 << 20  # bytes of outputs beyond twice the widest dtype: a wrong shape is told, a flood is not read
_MOST = 8  # entries of a list that the child reports
FAINT = "some rows tiny, zero or of one value"
_AXES = 64  # of an output; torch has no more


@dataclass
class _Call:
    """One call of the plan: inputs that nobody else has seen, what came of it."""

    workload: Workload
    distribution: str
    inputs: Mapping[str, Array]
    row: dict[str, Any]
    reasons: list[str] = field(default_factory=list)
    made: bool = False
    reused: bool = False  # an output of a call before was overwritten
    answers: tuple[bytes, ...] = ()  # the outputs, as they were returned
    long: bool = False  # one axis is far longer than in any check
    limit: float = math.inf  # seconds, where it is to be shorter than the case's
    spent: float = 0.0  # seconds that its process was charged with
    planted: bool = False  # so that sums in less than float32 show; see `narrow_sums`
    fault: Status = Status.INCORRECT  # what it is where there are reasons


@dataclass
class _Case:
    """thorough: every check meets every distribution. facts: what `rules` judge by; it becomes the integrity gate's
    evidence. told: sizes with the steps of a call of them, or why there are none; early: steps that were told before
    the calls of that size were made. open: what ends with the judgement. session: the process of the calls, where it is
    kept for more; started: is told when it is there. ahead: what is launched is compiled too; see `ahead`."""

    text: str
    target: Target
    program: Program
    seed: int
    level: sandbox.Level
    timeout: float
    hardware: Hardware
    kind: str
    thorough: bool = False
    calls: list[_Call] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    results: list[WorkloadResult] = field(default_factory=list)
    told: list[tuple[Workload, dict[str, Any]]] | str = ""
    early: dict[str, dict[str, Any]] = field(default_factory=dict)
    open: ExitStack = field(default_factory=ExitStack)
    session: Session | None = None
    started: Callable[[], None] | None = None
    ahead: bool = False


def _drawn(case: _Case, workload: Workload, distribution: str, rng: np.random.Generator) -> _Call:
    inputs = draw_inputs(case.target, case.program.algorithm, workload, distribution, rng)
    return _Call(workload, distribution, inputs, {})


def _asked(case: _Case, call: _Call) -> tuple[dict[str, Any], list[bytes]]:
    """{inputs: their form, params} and the inputs' bytes."""
    algorithm = case.program.algorithm
    rows, blobs = [], []
    for tensor in algorithm.inputs:
        dtype, value = tensor.dtype or "f32", call.inputs[tensor.name]
        rows.append({"name": tensor.name, "dtype": dtype, "shape": list(value.shape)})
        blobs.append(encode(value, dtype))
    return {"inputs": rows, "params": _params(case, call.workload)}, blobs


def _params(case: _Case, workload: Workload) -> dict[str, Any]:
    defaults = {p.name: p.default for p in case.program.algorithm.params if p.default is not None}
    return {**defaults, **workload.params}


class _started:
    """A fresh process with the candidate loaded. recorded: the steps of its calls will be asked for."""

    def __init__(self, case: _Case, pool: WorkerPool, recorded: bool = False) -> None:
        self._case, self._pool, self._stack = case, pool, ExitStack()
        self._asked = {"source": case.text, "recorded": recorded}

    def __enter__(self) -> Session:
        with ExitStack() as opening:
            session = opening.enter_context(self._pool.session(self._case.kind))
            try:
                session.call("raw_load", self._asked, (), self._case.timeout)
            except TaskError as error:
                if (elsewhere := _elsewhere(self._case, error.message)) is not None:
                    raise elsewhere from None
                said = _said(error.message)
                raise Rejected(Status.COMPILE_ERROR, quoted(said[0]), {"error": "\n".join(said)}) from None
            self._stack = opening.pop_all()
        return session

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _one(case: _Case, session: Session, call: _Call, seen: dict[str, Any], ghost: bool = False) -> list[str]:
    """What is wrong with one call's outputs; what else was seen goes to `seen`. ghost: no kernel runs."""
    try:
        facts = _returned(case, session, call, ghost)
    except TaskError as error:
        if (elsewhere := _elsewhere(case, error.message)) is not None:
            raise elsewhere from None
        call.fault = _fault(error.message)
        return [_raised(error.message)]
    call.answers = tuple(output.data for output in facts.outputs)
    seen["odd"] += facts.odd
    seen["late"] += facts.late
    seen["aten"], seen["launches"] = facts.calls, facts.launches
    if facts.odd:
        return list(facts.odd)
    reasons = [f"input {name} was written to" for name in facts.mutated]
    reasons += [f"something was written outside of {name}" for name in facts.strayed]
    call.reused = bool(facts.reused)
    reasons += [f"output {i} of a call before was overwritten; outputs have to be new tensors" for i in facts.reused]
    wrong = _numbers(case, call, facts.outputs)
    if wrong and _turns(case, call, _asked(case, call)[1]):
        wrong[0] += _OTHER_ORDER
    return reasons + wrong


_OTHER_ORDER = (
    "; in this call the programs of launches with atomics ran in another order than that of their numbers, as they may "
    "on a device"
)


# By Triton's and torch's own words: inline assembly, and atomics of types for which the interpreter has none; a driver,
# or a device's properties, asked for where none is.
_NOT_HERE = re.compile(
    r"not supported in interpreter mode|ValueError: Unsupported data type|unsupported rmwOp|no atomic [\w.-]+ on "
    r"|Torch not compiled with CUDA|0 active drivers|No CUDA GPUs are available"
    r"|Found no NVIDIA driver|HIP GPUs are available|no CUDA-capable device"
)


def _elsewhere(case: _Case, message: str) -> Rejected | None:
    """The verdict where it asks for a device that is not here."""
    if case.started is not None or not _NOT_HERE.search(message):
        return None
    said = f"it cannot be judged without its device: {quoted(gist(message)[:200])}"
    return Rejected(Status.NOT_LOWERED, said, {"error": quoted(message)})


def _returned(case: _Case, session: Session, call: _Call, ghost: bool = False) -> _Facts:
    """What one call returns. Raises TaskError where it raises."""
    algorithm = case.program.algorithm
    asked, blobs = _asked(case, call)
    sizes = extents(algorithm, call.workload)
    most = _ROOM + 16 * sum(math.prod(sizes[a] for a in t.axes or ()) for t in algorithm.outputs)
    asked |= {"inplace": sorted(case.target.inplace.values()), "ghost": ghost, "most": most}
    asked["turns"] = _turns(case, call, blobs)
    before = session.charged
    reply = session.call("raw_run", asked, blobs, min(case.timeout, call.limit), most)
    call.spent = session.charged - before
    try:
        return _Facts.read(reply)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        # Only a candidate that meddles with its process can bring this about.
        raise Crash("the candidate's process answered nonsense", reply.log) from None


def _turns(case: _Case, call: _Call, blobs: Sequence[bytes]) -> int:
    """In which order the programs of launches with atomics run in this call: half of the calls by their numbers, the
    others backwards or shuffled; the same for the same call wherever it is made. 0 where the order is a device's, and
    in long calls, whose programs are many."""
    if case.started is not None or call.long or "atomic" not in case.text:
        return 0
    drawn = zlib.crc32(blobs[0][:4096] if blobs else b"", case.seed & 0xFFFFFFFF)
    return (0, drawn | 2, 0, 1)[drawn & 3]


def _later(case: _Case, session: Session) -> list[int]:
    """Outputs of the last call that have changed since it returned."""
    reply = session.call("raw_look", {}, (), case.timeout)
    try:
        return [_whole(i) for i in reply.result["late"][:_MOST]]
    except (LookupError, TypeError, ValueError, ArithmeticError):
        raise Crash("the candidate's process answered nonsense", reply.log) from None


def _raised(message: str) -> str:
    """What went wrong in a call, in a line. An exception's own words are the candidate's, and are quoted as such."""
    line = gist("\n".join(_said(message)))
    kind, colon, words = line.partition(": ")
    if not (colon and kind.isidentifier()):
        return quoted(line)
    if kind in _FAULTS_SAID:
        return f"{_FAULTS_SAID[kind]}: {quoted(words)}"
    forbidden = " (the sandbox: no sockets, so no asyncio either; no processes, no files but in its own folder)"
    return f"it raised {kind[:80]}: {quoted(words)}{forbidden if kind == 'PermissionError' else ''}"


_FAULTS_SAID = {compiling.REFUSED: "it does not compile", compiling.TOO_LARGE: "it needs more than the device has"}


def _fault(message: str) -> Status:
    """What a candidate is that raised."""
    return compiling.FAULTS.get(gist("\n".join(_said(message))).partition(": ")[0], Status.INCORRECT)


def _said(message: str) -> list[str]:
    """The lines of a message that the candidate may have made up, of a size for people."""
    return [line[:400] for line in message[:4000].splitlines()[:12]] or ["it raised an exception"]


def _numbers(case: _Case, call: _Call, outputs: Sequence[Output]) -> list[str]:
    wanted = right(case.program, call.inputs, _params(case, call.workload))
    if len(outputs) != len(wanted):
        return [f"{len(outputs)} outputs, declared {len(wanted)}"]
    reasons: list[str] = []
    figures: dict[str, Any] = {}
    for (name, answer), output in zip(wanted.items(), outputs, strict=True):
        wrong = list(form(output.dtype, output.shape, answer.dtype, answer.oracle.shape))
        if not _contiguous(output.shape, output.strides):
            wrong.append(f"strides {list(output.strides)}, declared row-major")
        if output.alias != case.target.inplace.get(name):
            if output.alias is None:
                wrong.append(
                    f"it is a new tensor; the target wants it in the memory of input {case.target.inplace[name]}"
                )
            else:
                wrong.append(f"it is the memory of input {output.alias}")
        if not wrong:
            got = decode(output.data, answer.dtype, output.shape)
            found = verdict(got, answer.oracle, answer.honest, answer.dtype)
            figures[name] = found.evidence
            wrong += found.reasons
            if call.row.get("places") == FAINT and not wrong:
                wrong += filter(None, [small_rows(got, answer.oracle, answer.honest, answer.dtype)])
            if call.planted and not wrong:
                wrong += filter(None, [leaning(got, answer)])
            if call.planted and wrong:
                wrong[0] += "; " + PLANTED
            if found.reasons and output.unwritten:
                wrong.append(f"{output.unwritten} elements were never written")
        reasons += [f"{name}: {w}" for w in wrong]
    call.row["outputs"] = figures
    return reasons


def right(
    program: Program, inputs: Mapping[str, Array], params: Mapping[str, Any], representable: bool = False
) -> dict[str, Answer]:
    """The exact value in float64, and beside it the honest low-precision one as the yardstick of its error.

    A raw kernel knows nothing of the roundings that a program names; it may come nearer to the truth than those.
    """
    exact = evaluate(program, dict(inputs), dict(params), mode="exact")
    named = answers(program, inputs, params, representable)
    return {n: replace(a, oracle=np.asarray(exact[n])) for n, a in named.items()}


@dataclass(frozen=True)
class _Facts:
    outputs: tuple[Output, ...] = ()
    odd: tuple[str, ...] = ()
    mutated: tuple[str, ...] = ()
    strayed: tuple[str, ...] = ()
    late: tuple[int, ...] = ()
    reused: tuple[int, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    launches: int = 0

    @classmethod
    def read(cls, reply: Reply) -> _Facts:
        """Raises LookupError, TypeError, ValueError or ArithmeticError for what is no such reply."""
        result = reply.result
        if odd := result["odd"]:
            return cls(odd=tuple(quoted(str(o), 200) for o in odd[:_MOST]))
        outputs = []
        for row, data in zip(result["outputs"], reply.blobs, strict=True):
            dtype, shape, strides = (
                _name(row["dtype"]),
                tuple(map(_whole, row["shape"])),
                tuple(map(_whole, row["strides"])),
            )
            if len(shape) != len(strides) or len(shape) > _AXES or min(shape, default=0) < 0:
                raise ValueError(f"no shape: {len(shape)} axes, {len(strides)} strides")
            if row.get("withheld"):
                data = b""  # larger than anything that could be right
                dtype = f"{dtype} of another size"
            elif dtype in _BYTES and len(data) != math.prod(shape) * _BYTES[dtype]:
                raise ValueError(f"{len(data)} bytes for {dtype}{list(shape)}")
            alias = None if row["alias"] is None else _name(row["alias"])
            outputs.append(Output(dtype, shape, strides, data, _whole(row["unwritten"]), alias))
        mutated, strayed = (tuple(_name(n) for n in result[key][:_MOST]) for key in ("mutated", "strayed"))
        late, reused = (tuple(_whole(i) for i in result[key][:_MOST]) for key in ("late", "reused"))
        calls = {_name(name): _whole(n) for name, n in list(dict(result["calls"]).items())[:_MOST]}
        return cls(tuple(outputs), (), mutated, strayed, late, reused, calls, _whole(result["launches"]))


def _name(value: Any) -> str:
    """Of a dtype, a tensor ("output 3") or an operator. Raises ValueError: other words would stand in a brief."""
    name = str(value)
    if not _NAME.fullmatch(name):
        raise ValueError("no name")
    return name


_NAME = re.compile(r"[\w:.]{1,80}|output \d{1,9}", re.ASCII)


def _whole(value: Any) -> int:
    """A number that a count or a size can be. Raises ValueError: one of a thousand digits would stand in a verdict."""
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("a whole number of more than 64 bits")
    return number
