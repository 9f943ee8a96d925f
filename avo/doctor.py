"""Is everything here that a run needs? Each finding says ok, warn or fail, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

from avo.compiling import has_torch, has_triton
from dsl.wording import counted
from evaluators import installed


@dataclass(frozen=True)
class Finding:
    """`advice` is empty where there is nothing to do."""

    name: str
    verdict: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def examine(archive: str, quick: bool = False) -> list[Finding]:
    """Look at everything; a check that breaks is itself a failed finding. `quick` starts no worker process."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("python", _python),
        ("installation", _installation),
        ("torch", _torch),
        ("triton", _triton),
        ("gpu", _gpu),
        ("archive", lambda: _archive(archive)),
        ("temporary files", _temporary),
        ("plug-ins", _plugins),
    ]
    if not quick:
        checks[5:5] = [("compiler", _compiler), ("interpreter", _interpreter), ("sandbox", _sandbox)]
    found: list[Finding] = []
    for name, check in checks:
        try:
            found += check()
        except Exception as error:
            found.append(Finding(name, "fail", f"the check broke: {type(error).__name__}: {error}", "report this"))
    return found


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    where = f"{version} on {platform.system()} {platform.machine()}, {counted(os.cpu_count() or 1, 'core')}"
    yield Finding("python", "ok", where)  # older than 3.11 does not get this far


def _installation() -> Iterator[Finding]:
    """PyPI has another `avo`, and `dsl`, `archive` are plain words: is what gets imported ours?"""
    home = Path(__file__).resolve().parent.parent
    try:
        version = metadata.version("avo-kernels")
    except metadata.PackageNotFoundError:
        yield Finding("installation", "warn", f"avo-kernels is not installed; running from {home}", "pip install -e .")
    else:
        yield Finding("installation", "ok", f"avo-kernels {version} in {home}")
    rivals = {d.name: d.version for d in metadata.distributions() if d.name and d.name.lower() == "avo"}
    if rivals:
        rival = f"the unrelated distribution avo {rivals.popitem()[1]} is installed too"
        advice = "pip uninstall avo, then reinstall avo-kernels"
        yield Finding("name clash", "fail", rival, advice)
    for package in ("avo", "archive", "evaluators", "dsl"):
        spec = util.find_spec(package)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin is None or origin.parent.parent != home:
            advice = "rename or remove that one, or start avo from another folder"
            yield Finding("shadowed", "fail", f"`import {package}` finds {origin or 'nothing'}, not avo's own", advice)


def _torch() -> Iterator[Finding]:
    if not has_torch():
        advice = "pip install torch; without it targets cannot be judged (parse, check, sol and report work)"
        yield Finding("torch", "fail", "not installed", advice)
        return
    version = metadata.version("torch")
    old = tuple(int(p) for p in version.split("+")[0].split(".")[:2]) < (2, 9)
    yield Finding("torch", "fail" if old else "ok", version, "pip install 'torch>=2.9'" if old else "")


def _triton() -> Iterator[Finding]:
    if not has_triton():
        linux = sys.platform == "linux"
        advice = "pip install 'triton>=3.6'" if linux else "compile and evolve need Linux (WSL2 or a container will do)"
        yield Finding("triton", "fail" if linux else "warn", "not installed: nothing can be compiled or run", advice)
        return
    version = installed.version("triton")
    if version is None:
        yield Finding("triton", "warn", "importable, but installed as no known package: its version is not known")
        return
    old = tuple(int(p) for p in version.split("+")[0].split(".")[:2]) < (3, 6)
    newer = _ROCM_TRITON if _rocm() else "pip install 'triton>=3.6'"
    yield Finding("triton", "fail" if old else "ok", version, newer if old else "")


_ROCM_TRITON = "the one that comes with a ROCm build of torch (pip install torch --index-url of that ROCm)"


def _rocm() -> bool:
    """Whether torch is built for AMD's devices: PyPI's Triton is not its own."""
    return "+rocm" in (installed.version("torch") or "")


def _gpu() -> Iterator[Finding]:
    """What is here to measure on, and what is missing for it."""
    from evaluators.device import chip_of, cut_up, local_devices

    devices = local_devices()
    if not devices:
        tools = [t for t in ("nvidia-smi", "amd-smi", "rocm-smi") if shutil.which(t)]
        nodes = [p for p in ("/dev/nvidia0", "/dev/kfd") if os.path.exists(p)]
        if not tools and not nodes:
            told = "none: times are predicted, kernels run in the interpreter; avo bench and avo profile need one"
            yield Finding("gpu", "ok", told)
            return
        amd = "/dev/kfd" in nodes
        smi, mask = ("amd-smi", "HIP_VISIBLE_DEVICES") if amd else ("nvidia-smi", "CUDA_VISIBLE_DEVICES")
        advice = f"look at {smi}, at {mask}, and whether this torch is built for the driver"
        yield Finding("gpu", "warn", f"found {', '.join([*tools, *nodes])}, but no device answers", advice)
        return
    for device in devices:
        chip = chip_of(device)
        memory = f"{device.memory_bytes >> 30} GiB"
        name = f"gpu {device.index}"
        if chip is None:
            yield Finding(
                name, "warn", f"{device.name}, {memory}: avo knows no peaks of it, so nothing is measured on it"
            )
            continue
        driver = f", driver {device.driver}" if device.driver else ""
        cut = cut_up(device, chip)
        trouble = device.warnings() + ([f"it is cut up by {cut}: a slice is no {chip.name}"] if cut else [])
        told = f"{device.name} ({chip.name}), {memory}{driver}" + "".join(f"; {w}" for w in trouble)
        yield Finding(
            name, "warn" if trouble else "ok", told, "times will be worse than those of a free card" if trouble else ""
        )
    yield from _measuring(devices[0].vendor)


def _measuring(vendor: str) -> Iterator[Finding]:
    """The software that a measurement needs beside the device."""
    if not has_torch():
        return  # said already
    build = metadata.version("torch")
    if "+cpu" in build:
        yield Finding(
            "torch for the gpu", "fail", f"torch {build} is built for the CPU", "install the build that fits the driver"
        )
    compilers = [c for c in (os.environ.get("CC"), "gcc", "clang", "cc") if c and shutil.which(c)]
    if compilers:
        yield Finding("launchers", "ok", f"{compilers[0]} compiles the launcher of a kernel")
    else:
        yield Finding(
            "launchers", "fail", "no C compiler: Triton compiles a little launcher for each kernel", "install gcc"
        )
    from avo.profiling_access import access

    found = access(vendor)
    if found.path:
        yield Finding("profiler", "ok", f"{found.title}: {found.path}")
    else:
        other = "Proton and events are used" if found.proton else "events alone are used"
        yield Finding("profiler", "warn", f"avo profile: {other}, for {found.why_not}")


def _temporary() -> Iterator[Finding]:
    """Workers compile and cache in the temporary folder."""
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"avo")
    if free < 1 << 30:
        yield Finding("temporary files", "warn", f"{folder} has {free >> 20} MiB free", "free some; 1 GiB is enough")
    else:
        yield Finding("temporary files", "ok", f"{folder} is writable, {free >> 30} GiB free")


def _plugins() -> Iterator[Finding]:
    from avo import plugins

    broken = plugins.broken()
    others = [p for kind in plugins.KINDS for p in plugins.installed(kind) if p.owner != "avo"]
    for item in broken:
        name = f"plug-in {item.plugin.name}"
        yield Finding(name, "warn", f"{item.plugin.owner}: {item.reason}", "reinstall or uninstall that package")
    good = [p for p in others if p not in [b.plugin for b in broken]]
    listed = ", ".join(f"{p.kind} {p.name} ({p.owner})" for p in good)
    yield Finding("plug-ins", "ok", listed or "none installed beside avo's own")


def _archive(where: str) -> Iterator[Finding]:
    from archive.archive import open_archive
    from archive.errors import ArchiveError
    from archive.opening import locate

    try:
        path = locate(where)
        if isinstance(path, Path) and not path.exists():
            folder = next(p for p in (path.resolve().parent, *path.resolve().parents) if p.exists())
            writable = os.access(folder, os.W_OK)
            advice = "" if writable else "name another place with --archive"
            yield Finding(
                "archive",
                "ok" if writable else "fail",
                f"{path} is not there yet; {folder} is {'writable' if writable else 'not writable'}",
                advice,
            )
            return
        with open_archive(where, readonly=True) as archive:
            found = f"{archive.where}, {counted(len(archive.runs()), 'run')}"
    except ArchiveError as error:
        yield Finding("archive", "fail", str(error))
        return
    if not isinstance(path, Path) or (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)):
        yield Finding("archive", "ok", found)
    else:
        yield Finding("archive", "fail", f"{found}, read-only", "change its permissions or use --archive")


def _compiler() -> Iterator[Finding]:
    """Compile one small kernel for one chip of each vendor, exactly as a run does."""
    if not has_triton():
        return
    from dsl.hardware import hardware
    from dsl.lowering import lower
    from dsl.parser import parse
    from evaluators.compiler import Compiler
    from evaluators.failures import WorkerFailure
    from evaluators.pool import WorkerPool
    from evaluators.targets import target

    job = target("softmax")
    sizes = job.checks[0]
    with WorkerPool(1) as pool:
        for name in ("b200", "mi300x"):
            chip = hardware(name)
            try:
                lowered = lower(parse(job.seed), chip)
                kernel = lowered.kernels[0]
                launch = kernel.specialise(sizes.sizes, sizes.params)
                code = Compiler(pool).compile(lowered.source, kernel.name, launch, chip)
            except WorkerFailure as failure:
                if _rocm() and chip.vendor == "nvidia":
                    advice = f"predict for {name} elsewhere: the Triton of a ROCm build may lack NVIDIA's half"
                    yield Finding(f"compile {name}", "warn", failure.message, advice)
                    continue
                advice = _ROCM_TRITON if _rocm() else "pip install --force-reinstall 'triton>=3.6'"
                yield Finding(f"compile {name}", "fail", failure.message, f"reinstall triton: {advice}")
            else:
                facts = f"softmax compiled: {code.registers} registers, {code.code_bytes} bytes of code"
                yield Finding(f"compile {name}", "ok", facts)


def _interpreter() -> Iterator[Finding]:
    """Judge one bf16 program on the host: as Triton ships it, its interpreter is wrong on bf16, so ours corrects it."""
    if not has_triton() or not has_torch():
        return
    import dataclasses

    from dsl.hardware import hardware
    from evaluators.evaluation import Status
    from evaluators.judge import LocalEvaluator
    from evaluators.targets import target

    job = target("softmax")
    with LocalEvaluator(jobs=1) as judge:
        found = judge.evaluate(job.seed, dataclasses.replace(job, checks=job.checks[:1]), hardware("cpu"))
    if found.status is Status.OK:
        yield Finding("interpreter", "ok", "a bf16 softmax agrees with its meaning")
    else:
        yield Finding("interpreter", "fail", f"a bf16 softmax: {found.status}: {found.message}", "report this")


def _sandbox() -> Iterator[Finding]:
    """Enter each level of the sandbox for raw Python candidates in a process, and try to get out."""
    if sys.platform != "linux":
        return
    from evaluators.integrity.sandbox import LEVELS, best, probed

    there = {level: probed(level) for level in LEVELS}
    for level, (problem, held) in there.items():
        if not problem:
            layers = ", ".join(f"{layer} {count}" for layer, count in held.items())
            yield Finding(f"sandbox {level}", "ok", f"{sum(held.values())} ways out tried, none led out: {layers}")
    missing = [problem for problem, _ in there.values() if problem]
    found = f"raw Python is judged at level {best()}" + (f"; not here: {'; '.join(missing)}" if missing else "")
    if best() == "process":
        advice = "only for .py candidates: use a kernel with Landlock or user namespaces, or --accept-sandbox process"
        yield Finding("sandbox", "warn", found, advice)
    else:
        yield Finding("sandbox", "ok", found)
