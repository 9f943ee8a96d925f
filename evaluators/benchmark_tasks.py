"""What a device's worker does for `avo bench`: runs programs and baselines on one workload, judges what each returns,
and times all of them against each other. It hands over figures and raw samples; the parent draws the conclusions.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dsl.wording import counted
from evaluators import baselines
from evaluators.baselines import Call, CannotRun, Setting
from evaluators.benchmark import ARM_MARK
from evaluators.compiler import load_source
from evaluators.device_inputs import answers, draw, figures, take, torch_dtype
from evaluators.device_prepared import function
from evaluators.device_tasks import _guarded
from evaluators.sustained import LOAD, measure, rotation, sync
from evaluators.timing import Regime
from evaluators.tolerance import BLOCK, SMALL_ROW
from evaluators.worker import CandidateError

Answer = tuple[dict[str, Any], Sequence[bytes]]

CEILING = 8192  # of the square products that say what this card sustains
COPY_BYTES = 2 << 30


def ceilings_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """What this card sustains: FLOP/s of a square product by dtype, bytes/s of a copy; each measured as all else is."""
    regime, rounds, small = Regime(**payload["regime"]), payload["rounds"], not torch.cuda.is_available()
    n, count = (64, 1 << 12) if small else (CEILING, COPY_BYTES // 4)
    device = "cpu" if small else "cuda"
    reasons: dict[str, str] = {}
    arms: dict[str, Any] = {}
    for dtype in payload["dtypes"]:
        call = _square(dtype, n, device)
        try:
            call(0)
            sync()
        except Exception as error:
            reasons[dtype] = f"{type(error).__name__}: {error}"[:300]
        else:
            arms[dtype] = call
    source = torch.zeros(count, dtype=torch.bfloat16, device=device)
    sink = torch.empty_like(source)
    arms["copy"] = lambda place: sink.copy_(source)
    found = measure(arms, regime=regime, rounds=rounds, graphs=False)
    flops = {dtype: 2.0 * n**3 / found.seconds(dtype) for dtype in arms if dtype != "copy"}
    states = {name: found.clocks(name).model_dump() for name in arms}
    return {
        "flops": flops,
        "bytes_per_s": 4 * count / found.seconds("copy"),
        "extent": n,
        "states": states,
        "reasons": reasons,
        "heat": found.heat,
    }, ()


def _square(dtype: str, n: int, device: str) -> Any:
    wide = [torch.randn((n, n), device=device) for _ in range(2)]
    a, b = (x.to(torch_dtype(dtype)) for x in wide)
    if dtype in ("e4m3", "e5m2"):
        one = torch.ones((), device=device)
        transposed = b.t()
        return lambda place: torch._scaled_mm(
            a, transposed, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    out = torch.empty((n, n), device=device, dtype=a.dtype)
    return lambda place: torch.mm(a, b, out=out)


def compare_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """One workload: payload has job (evaluators.device_jobs.job), arms, target, bytes, regime, rounds.

    An arm that cannot run, or whose answer is wrong, stands in the result with its reason and is not timed.
    """
    job = payload["job"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scale = baselines.scales(payload["target"], job["sizes"])
    LOAD.resume()  # what rests runs faster for a while; arms that time choices of their own find the card free
    inputs = _inputs(job, device, scale, job["seed"])
    size = sum(x.numel() * x.element_size() for x in inputs)
    sets = [inputs] + [_inputs(job, device, scale, job["seed"] + turn) for turn in range(1, rotation(size))]
    setting = Setting(inputs, job["params"], payload["bytes"], len(sets))
    right = _answers(job, inputs)
    rows: list[dict[str, Any]] = []
    calls: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    with torch.no_grad():
        for arm in payload["arms"]:
            row: dict[str, Any] = {"name": arm["name"], "kind": arm["kind"]}
            rows.append(row)
            print(f"{ARM_MARK}{arm['name']}", file=sys.stderr, flush=True)  # whom the parent blames for a crash
            if _tunes(arm, payload["target"]):
                LOAD.pause()
            else:
                LOAD.resume()
            try:
                with _guarded():
                    try:
                        call = _call(arm, payload["target"], setting)
                        result = call(0, sets[0])
                        sync()
                    except CannotRun as why:
                        row["reason"] = str(why)
                        continue
                    if arm["kind"] != "limit":
                        row["figures"] = _figures(result, job, right)
                    del result
                    calls[arm["name"]] = call
            except CandidateError as error:
                row["reason"] = str(error)
            except MemoryError:
                row["reason"] = "out of memory"
        found = None
        LOAD.pause()
        if calls:
            found = measure(
                {name: _on(sets, call, name, kept) for name, call in calls.items()},
                sets=len(sets),
                regime=Regime(**payload["regime"]),
                rounds=payload["rounds"],
            )
            sync()
            for row in rows:
                if "figures" in row and row["name"] in kept:
                    row["again"] = _figures(kept[row["name"]], job, right)
    return {"rows": rows, "measurement": None if found is None else found.model_dump(mode="json")}, ()


def _on(sets: Sequence[Sequence[torch.Tensor]], call: Call, name: str, kept: dict[str, Any]) -> Any:
    def one(place: int) -> Any:
        result = call(place, sets[place])
        if place == 0:
            kept[name] = result
        return result

    return one


def _inputs(job: Mapping[str, Any], device: str, scale: Mapping[str, float], seed: int) -> list[torch.Tensor]:
    """Normal inputs, made on the device: what a whole workload takes on the host would take minutes."""
    rng = torch.Generator(device=device).manual_seed(seed)
    found = []
    for t in job["inputs"]:
        x = draw(tuple(t["shape"]), t["dtype"], "normal", rng, device, t["index"])
        found.append(x.mul_(scale[t["name"]]) if t["name"] in scale else x)
    return found


def _answers(job: Mapping[str, Any], inputs: list[torch.Tensor]) -> list[list[tuple[torch.Tensor, ...]]]:
    reference = function(job["reference"])
    found = []
    for cut in job["slices"]:
        wide = any(t["dtype"] in ("f32", "f64") for t in job["outputs"])
        keep = torch.float64 if wide else torch.float32
        pairs = answers(job, inputs, cut, reference)
        found.append([tuple(x.to(keep) if x.is_floating_point() else x for x in pair) for pair in pairs])
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found


def _call(arm: Mapping[str, Any], target: str, setting: Setting) -> Call:
    params = dict(setting.params)
    if arm["kind"] == "program":
        entry = getattr(load_source(arm["source"]), arm["entry"])
        return lambda place, inputs: entry(*inputs, **params)
    if arm["kind"] == "function":
        function = _loaded(arm["module"], arm["name"])
        return lambda place, inputs: function(*inputs, **params)
    return next(b for b in baselines.of(target) if b.name == arm["name"]).make(setting)


def _tunes(arm: Mapping[str, Any], target: str) -> bool:
    if arm["kind"] in ("program", "function"):
        return False
    return next(b for b in baselines.of(target) if b.name == arm["name"]).tunes


def _loaded(module: str, name: str) -> Any:
    """A person's own baseline, `module:function` or `file.py:function`."""
    where, _, attribute = name.rpartition(":")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location("avo_own_baseline", module)
        assert spec is not None and spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        spec.loader.exec_module(made)
    else:
        made = importlib.import_module(module)
    found = getattr(made, attribute, None)
    if not callable(found):
        raise CannotRun(f"{where} has no function {attribute}")
    return found


def _figures(result: Any, job: Mapping[str, Any], right: Sequence[Sequence[tuple[torch.Tensor, ...]]]) -> list[Any]:
    """Per output and slice the sums that `evaluators.errors.judge` asks for; a word where it has another form."""
    outputs = tuple(result) if isinstance(result, tuple | list) else (result,)
    if len(outputs) != len(job["outputs"]):
        return [{"form": f"{counted(len(outputs), 'output')}, declared {len(job['outputs'])}"}]
    found: list[Any] = []
    for place, (x, t) in enumerate(zip(outputs, job["outputs"], strict=True)):
        if not isinstance(x, torch.Tensor) or list(x.shape) != list(t["shape"]):
            found.append({"form": f"{t['name']} has the shape {list(getattr(x, 'shape', ()))}, not {t['shape']}"})
            continue
        if x.dtype != torch_dtype(t["dtype"]):
            found.append({"form": f"{t['name']} is {x.dtype}, declared {t['dtype']}"})
            continue
        for cut, pairs in zip(job["slices"], right, strict=True):
            oracle, honest = (y.double() if y.is_floating_point() else y for y in pairs[place])
            part = take(x, t["axes"], cut)
            found.append({"output": place, **figures(part, oracle, honest, BLOCK, SMALL_ROW)})
    return found
