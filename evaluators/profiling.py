"""What limits a program on the device that is here: by counters (Nsight Compute, on AMD rocprofv3), Proton, or events.

Counters name the busiest unit, as Nsight Compute's own speed-of-light section has it. Without them the measured time is
held against the time that each pipe needs at its peak (`evaluators.roofline`): the pipe that is busy for the largest
share is named, and where none is busy for 60% of the time, latency is.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from evaluators.device import DeviceFacts, Lease, local_devices, mask_for, matching
from evaluators.failures import TaskError, Timeout
from evaluators.inputs import extents, generator
from evaluators.timing import Regime

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from dsl.lowering.lowered import Lowered
    from dsl.syntax import Program
    from evaluators.target import Target, Workload

Tool = Literal["ncu", "rocprofv3", "proton", "events"]
BUSY = 60.0  # percent; below it Nsight Compute's own rule calls a kernel bound by latency
_SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "WarpStateStats")
_UNITS = {  # metric of the speed-of-light section, or of rocprofv3 -> what people call it
    "DRAM Throughput": "memory (HBM)",
    "L2 Cache Throughput": "memory (L2)",
    "L1/TEX Cache Throughput": "shared memory and L1",
    "Compute (SM) Throughput": "compute (SM pipes)",
    "MfmaUtil": "matrix units",
    "VALUBusy": "vector units",
    "MemUnitBusy": "loads and stores",
    "HBM": "memory (HBM)",  # of FetchSize and WriteSize
}
_COUNTERS = ("MfmaUtil", "VALUBusy", "MemUnitBusy", "OccupancyPercent", "FetchSize", "WriteSize")
_DENIED = ("ERR_NVGPUCTRPERM", "permission")


class Kernel(BaseModel):
    """One kernel of the program. metrics: name -> (value, unit), as the tool prints them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    seconds: float | None = None
    metrics: dict[str, tuple[float, str]] = {}
    bottleneck: str = ""


class Profile(BaseModel):
    """bottleneck: in a few words. why: the figures behind it. shares: pipe -> share of the measured time at its peak.

    tried: tools that could not be used here, with the reason.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    hardware: str
    device: str
    date: str
    tool: Tool
    bottleneck: str
    why: str
    seconds: float | None = None
    shares: dict[str, float] = {}
    kernels: tuple[Kernel, ...] = ()
    state: dict[str, Any] = {}
    tried: dict[str, str] = {}


def profile(
    target: Target,
    program: Program,
    lowered: Lowered,
    workload: Workload,
    hardware: Hardware,
    *,
    tools: Sequence[Tool] = ("ncu", "proton", "events"),
    counters: str | None = None,
    why_no_counters: str = "",
    devices: Sequence[DeviceFacts] | None = None,
    simulate: bool = False,
    regime: Regime | None = None,
) -> Profile:
    """Profiles one workload with the first of `tools` that works here; time and shares come from events in any case.

    counters: the path of ncu (AMD: rocprofv3), None where it may not be used (`why_no_counters`). Raises NoDevice,
    Unavailable (the device is taken), TaskError for a program that does not run, Timeout for one that hangs.
    """
    from dsl.work import work
    from evaluators.device_jobs import job
    from evaluators.roofline import speed_of_light

    facts = (list(devices) if devices is not None else matching(local_devices(), hardware))[0]
    seed = parsed_seed(target)
    asked: dict[str, Any] = {
        "job": job(target, seed, workload, "normal", 1, generator(0, "profile", workload.name)),
        "target": target.name,
        "source": lowered.source,
        "entry": lowered.entry,
        "regime": asdict(regime or Regime()),
        "rounds": 3,
    }
    lease = Lease(facts.uuid)
    if not simulate:
        lease.take(wait_s=60.0)
    try:
        with tempfile.TemporaryDirectory(prefix="avo-profile-") as folder:
            place = Path(folder)
            timed = _child(asked | {"mode": "events"}, place, facts, simulate)
            kernels: tuple[Kernel, ...] = ()
            used: Tool = "events"
            tried: dict[str, str] = {}
            for tool in tools:
                if tool == "events":
                    break
                try:
                    if tool == "proton":
                        kernels = _by_proton(asked, place, facts)
                    elif (tool == "rocprofv3") != (facts.vendor == "amd"):
                        raise _Denied(f"{facts.name} is a device of another vendor")
                    elif counters is None:
                        raise _Denied(why_no_counters or "not here")
                    elif tool == "ncu":
                        kernels = _by_ncu(asked, place, facts, counters)
                    else:
                        names = [kernel.name for kernel in lowered.kernels]
                        kernels = _by_rocprof(asked, place, facts, counters, names, hardware)
                except _Denied as reason:
                    tried[tool] = str(reason)
                else:
                    used = tool
                    break
    finally:
        lease.release()
    floor = speed_of_light(work(seed, extents(seed.algorithm, workload), workload.params), hardware)
    seconds = float(timed["seconds"])
    shares = {pipe: t / seconds for pipe, t in sorted(floor.times.items(), key=lambda one: -one[1])}
    bottleneck, why = _named(kernels, shares) if used in ("ncu", "rocprofv3") else by_shares(shares)
    return Profile(
        workload=workload.name,
        hardware=hardware.name,
        device=facts.name,
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        tool=used,
        bottleneck=bottleneck,
        why=why,
        seconds=seconds,
        shares=shares,
        kernels=kernels,
        state=timed["state"],
        tried=tried,
    )


def parsed_seed(target: Target) -> Program:
    from dsl.parser import parse

    return parse(target.seed)


def by_shares(shares: Mapping[str, float]) -> tuple[str, str]:
    """The pipe that is busy for the largest share of the measured time at its peak; latency where none is for 60%."""
    pipe, share = max(shares.items(), key=lambda one: one[1])
    told = ", ".join(f"{name} {part:.0%}" for name, part in shares.items() if part >= 0.01)
    if share * 100 >= BUSY:
        return pipe, f"busy for {share:.0%} of the time if at its peak ({told})"
    return "latency", f"no pipe is busy for {BUSY:.0f}% of the time, even at its peak: {told}"


# Nsight Compute -----------------------------------------------------------------------------------


class _Denied(Exception):
    """Why a tool cannot be used here."""


def _by_ncu(asked: Mapping[str, Any], place: Path, facts: DeviceFacts, ncu: str) -> tuple[Kernel, ...]:
    command = [ncu, "--csv", "--page", "details", "--profile-from-start", "off", "--target-processes", "all"]
    for section in _SECTIONS:
        command += ["--section", section]
    done = _run([*command, *_python({**asked, "mode": "ncu"}, place)], facts, place)
    text = done.stdout + done.stderr
    if any(word in text for word in _DENIED) and "Metric Name" not in done.stdout:
        line = next((x for x in text.splitlines() if any(w in x for w in _DENIED)), "counters are denied")
        raise _Denied(line.strip("= ").strip())
    kernels = read_ncu(done.stdout)
    if not kernels:
        raise _Denied(f"ncu brought no kernel: {_last(text)}")
    return kernels


def read_ncu(text: str) -> tuple[Kernel, ...]:
    """Kernels from `ncu --csv --page details`: rows of one metric each, below lines of the profiled process."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"') and '"Metric Name"' in line), None)
    if start is None:
        return ()
    names: dict[str, str] = {}
    metrics: dict[str, dict[str, tuple[float, str]]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        key, metric = row.get("ID") or "", row.get("Metric Name") or ""
        names[key] = row.get("Kernel Name") or ""
        try:
            value = float((row.get("Metric Value") or "").replace(",", ""))
        except ValueError:
            continue  # a word, such as a cache's configuration
        if metric:
            metrics.setdefault(key, {})[metric] = (value, row.get("Metric Unit") or "")
    found = []
    for key, name in names.items():
        mine = metrics.get(key, {})
        bottleneck, _ = by_units(mine)
        found.append(Kernel(name=name, seconds=_duration(mine), metrics=mine, bottleneck=bottleneck))
    return tuple(found)


def _duration(metrics: Mapping[str, tuple[float, str]]) -> float | None:
    value, unit = metrics.get("Duration", (None, ""))
    scale = {
        "ns": 1e-9,
        "nsecond": 1e-9,
        "us": 1e-6,
        "usecond": 1e-6,
        "ms": 1e-3,
        "msecond": 1e-3,
        "s": 1.0,
        "second": 1.0,
    }
    return None if value is None or unit not in scale else value * scale[unit]


def by_units(metrics: Mapping[str, tuple[float, str]]) -> tuple[str, str]:
    """The busiest unit of one kernel by its counters; latency where none is busy for 60%."""
    units = {told: metrics[name][0] for name, told in _UNITS.items() if name in metrics}
    if not units:
        return "unknown", "the counters of its units are missing"
    told = ", ".join(f"{name} {value:.0f}%" for name, value in sorted(units.items(), key=lambda one: -one[1]))
    unit, value = max(units.items(), key=lambda one: one[1])
    occupancy = metrics.get("Achieved Occupancy") or metrics.get("OccupancyPercent")
    more = f"; occupancy {occupancy[0]:.0f}%" if occupancy else ""
    if value >= BUSY:
        return unit, f"busy for {value:.0f}% of its peak ({told}){more}"
    return "latency", f"no unit is busy for {BUSY:.0f}% of its peak: {told}{more}"


def _named(kernels: Sequence[Kernel], shares: Mapping[str, float]) -> tuple[str, str]:
    """Of the kernel that takes longest."""
    if not kernels:
        return by_shares(shares)
    longest = max(kernels, key=lambda k: k.seconds or 0.0)
    bottleneck, why = by_units(longest.metrics)
    return bottleneck, f"{longest.name}: {why}"


# rocprofv3 ----------------------------------------------------------------------------------------


def _by_rocprof(
    asked: Mapping[str, Any],
    place: Path,
    facts: DeviceFacts,
    rocprof: str,
    names: Sequence[str],
    hardware: Hardware,
) -> tuple[Kernel, ...]:
    """A pass for each counter: which of them fit together differs from chip to chip."""
    wanted, results = place / "counters.txt", place / "rocprof"
    wanted.write_text("".join(f"pmc: {name}\n" for name in _COUNTERS))
    command = [rocprof, "-i", str(wanted), "--output-format", "csv", "-d", str(results), "--"]
    done = _run([*command, *_python({**asked, "mode": "rocprofv3"}, place)], facts, place)
    texts = [file.read_text() for file in sorted(results.rglob("*counter_collection.csv"))]
    kernels = read_rocprof(texts, names, hardware.hbm_bytes_per_s)
    if not kernels:  # it may well have ended with 0: a counter that the chip lacks leaves nothing but a missing file
        raise _Denied(f"rocprofv3 brought no kernel: {_last(done.stderr or done.stdout)}")
    return kernels


def read_rocprof(texts: Sequence[str], names: Sequence[str], hbm_bytes_per_s: float) -> tuple[Kernel, ...]:
    """Kernels of these names from the CSV files of rocprofv3's passes: a row for each counter of each launch, of which
    the last is warm. Sizes are in KiB, timestamps in ns."""
    last: dict[tuple[str, str], tuple[int, float, float]] = {}  # kernel, counter -> launch, value, seconds
    for text in texts:
        for row in csv.DictReader(io.StringIO(text)):
            name = (row.get("Kernel_Name") or "").split(".")[0]
            if name not in names:
                continue
            try:
                launch, value = int(row["Dispatch_Id"]), float(row["Counter_Value"])
                seconds = (int(row["End_Timestamp"]) - int(row["Start_Timestamp"])) * 1e-9
            except (KeyError, ValueError, TypeError):
                continue
            key = name, row.get("Counter_Name") or ""
            if key not in last or launch > last[key][0]:
                last[key] = launch, value, seconds
    found = []
    for name in names:
        mine = {counter: told for (kernel, counter), told in last.items() if kernel == name}
        if not mine:
            continue
        seconds = min(s for _, _, s in mine.values())
        metrics = {c: (value, "KiB" if c.endswith("Size") else "%") for c, (_, value, _) in mine.items()}
        if seconds > 0 and {"FetchSize", "WriteSize"} <= set(metrics):
            moved = 1024 * (metrics["FetchSize"][0] + metrics["WriteSize"][0])
            metrics["HBM"] = (100 * moved / seconds / hbm_bytes_per_s, "%")
        found.append(Kernel(name=name, seconds=seconds, metrics=metrics, bottleneck=by_units(metrics)[0]))
    return tuple(found)


# Proton -------------------------------------------------------------------------------------------


def _by_proton(asked: Mapping[str, Any], place: Path, facts: DeviceFacts) -> tuple[Kernel, ...]:
    name = place / "proton"
    done = _run(_python({**asked, "mode": "proton", "proton": str(name)}, place), facts, place)
    file = name.with_suffix(".hatchet")
    if done.returncode or not file.exists():
        raise _Denied(f"Proton: {_last(done.stderr or done.stdout)}")
    calls = json.loads((place / "reply.json").read_text())["calls"]
    kernels = read_proton(json.loads(file.read_text()), calls)
    if not kernels:
        raise _Denied("Proton saw no kernel")
    return kernels


def read_proton(tree: Any, calls: int) -> tuple[Kernel, ...]:
    """Kernels with their seconds a call, from Proton's hatchet tree: leaves carry "time (ns)"."""
    seconds: dict[str, float] = {}

    def walk(node: Any) -> None:
        if isinstance(node, list):
            for one in node:
                walk(one)
        elif isinstance(node, dict) and "frame" in node:
            time = (node.get("metrics") or {}).get("time (ns)")
            children = node.get("children") or []
            if time and not children:
                name = str(node["frame"].get("name", "?"))
                seconds[name] = seconds.get(name, 0.0) + float(time) * 1e-9
            walk(children)

    walk(tree)
    return tuple(Kernel(name=name, seconds=s / max(1, calls)) for name, s in seconds.items())


# Processes ----------------------------------------------------------------------------------------


def _child(asked: Mapping[str, Any], place: Path, facts: DeviceFacts, simulate: bool) -> dict[str, Any]:
    done = _run(_python(asked, place), facts, place, simulate)
    reply = place / "reply.json"
    if done.returncode or not reply.exists():
        raise TaskError(f"the program does not run: {_last(done.stderr or done.stdout)}", done.stderr)
    found: dict[str, Any] = json.loads(reply.read_text())
    return found


def _python(asked: Mapping[str, Any], place: Path) -> list[str]:
    (place / "request.json").write_text(json.dumps(asked))
    reply = place / "reply.json"
    reply.unlink(missing_ok=True)
    return [sys.executable, "-m", "evaluators.profile_child", str(place / "request.json"), str(reply)]


def _run(
    command: Sequence[str], facts: DeviceFacts, place: Path, simulate: bool = False, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    from evaluators.process import environment

    settings = {"TRITON_INTERPRET": "1"} if simulate else mask_for(facts)
    home = place / "home"
    home.mkdir(exist_ok=True)
    made = environment("device", home, settings) | {"PATH": os.environ.get("PATH", "")}
    try:
        return subprocess.run(
            command, env=made, cwd=place, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise Timeout(f"the profiled process took more than {timeout:.0f} s") from None


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
