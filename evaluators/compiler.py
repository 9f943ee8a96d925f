"""Cross-compiles emitted Triton for a chip that need not be there, and reads the facts of the machine code.

`Compiler` is the parent's side: it sends the work to the pool and remembers what came back by content.
`compile_source` and `compile_task` run inside a worker of kind "compile"; only there are torch and triton imported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dsl.lowering.lowered import Launch
from evaluators.complaints import clean_error, heard, telling_lines
from evaluators.failures import Crash, TaskError
from evaluators.installed import version
from evaluators.machine import (
    MachineCode,
    find_loops,
    matrix_instructions,
    mix,
    read_amdgcn,
    read_sass,
    with_occupancy,
)
from evaluators.worker import CandidateError

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from evaluators.pool import WorkerPool

FORMATS = ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")


# -- the parent's side -------------------------------------------------------------------------------------------------


class Compiler:
    """Compiles through a pool; thread-safe. One specialisation is compiled once, however many workloads share it.

    timeout: seconds for one kernel. cache: a folder that keeps the facts between runs, or None to remember them in this
    object alone; a folder that cannot be written is as good as none.
    """

    def __init__(self, pool: WorkerPool, *, timeout: float = 120.0, cache: Path | None = None) -> None:
        self._pool = pool
        self._timeout = timeout
        self._cache = cache
        self._lock = threading.Lock()
        self._known: dict[str, MachineCode | TaskError] = {}
        self._running: dict[str, threading.Event] = {}
        self._filled: set[str] = set()

    def compile(self, source: str, kernel: str, launch: Launch, hw: Hardware, emit: Sequence[str] = ()) -> MachineCode:
        """The facts of one kernel on one chip; `emit` names texts to bring along (`FORMATS`).

        Raises TaskError with the compiler's own words where it refuses, Timeout, Crash, OutOfMemory, Unavailable.
        """
        request = compile_request(source, kernel, launch, hw, emit)
        key = hashlib.sha256(json.dumps([request, _versions()], sort_keys=True).encode()).hexdigest()
        found = self._claim(key)
        try:
            if found is None:
                found = self._read(key) or self._ask(request)
                if isinstance(found, MachineCode):
                    self._write(key, found)
                with self._lock:
                    self._known[key] = found
        finally:
            with self._lock:
                if (event := self._running.pop(key, None)) is not None:
                    event.set()
        if isinstance(found, TaskError):
            raise TaskError(found.message, found.log)
        return with_occupancy(found, hw)

    def fill(self, source: str, kernel: str, launch: Launch, hw: Hardware) -> None:
        """Has the worker's Triton cache hold this kernel, for whoever launches from it; no facts are read off it, which
        is two fifths of the work. Nothing is done where it was asked for before. Raises as `compile` does."""
        request = compile_request(source, kernel, launch, hw)
        key = hashlib.sha256(json.dumps([request, _versions()], sort_keys=True).encode()).hexdigest()
        with self._lock:
            if key in self._known or key in self._running or key in self._filled:
                return
            self._filled.add(key)
        self._pool.call("fill", request, timeout=self._timeout)

    def _claim(self, key: str) -> MachineCode | TaskError | None:
        """What is known, or None: then the caller is the one to find out."""
        while True:
            with self._lock:
                if key in self._known:
                    return self._known[key]
                event = self._running.get(key)
                if event is None:
                    self._running[key] = threading.Event()
                    return None
            event.wait()

    def _ask(self, request: dict[str, Any]) -> MachineCode | TaskError:
        try:
            reply = self._pool.call("compile", request, timeout=self._timeout)
        except TaskError as error:
            return error
        except Crash as crash:  # LLVM gives up by abort(); its last words say on what
            words = "; ".join(telling_lines(crash.log)[:2])
            raise Crash(f"the compiler crashed: {words}" if words else crash.message, crash.log) from None
        try:
            return MachineCode.model_validate(reply.result)
        except ValidationError:  # only a source that meddles with its worker can bring this about
            raise Crash("the compile worker answered nonsense", reply.log) from None

    def _read(self, key: str) -> MachineCode | None:
        if self._cache is None:
            return None
        try:
            return MachineCode.model_validate_json((self._cache / f"{key}.json").read_text())
        except (OSError, ValueError):
            return None

    def _write(self, key: str, found: MachineCode) -> None:
        if self._cache is None:
            return
        with contextlib.suppress(OSError):
            self._cache.mkdir(parents=True, exist_ok=True)
            part = self._cache / f"{key}.{os.getpid()}.{threading.get_ident()}"
            part.write_text(found.model_dump_json())
            part.replace(self._cache / f"{key}.json")


def compile_request(source: str, kernel: str, launch: Launch, hw: Hardware, emit: Sequence[str] = ()) -> dict[str, Any]:
    """The payload of the task "compile". The number of programs does not stand in it: the code is the same."""
    if hw.triton_arch is None:
        raise ValueError(f"{hw.name} is not a chip to compile for; kernels run there in the interpreter")
    if unknown := set(emit) - set(FORMATS):
        raise ValueError(f"unknown format {min(unknown)!r}; there are {', '.join(FORMATS)}")
    return {
        "source": source,
        "kernel": kernel,
        "signature": launch.signature,
        "constexprs": launch.constexprs,
        "divisible": list(launch.divisible),
        "small": list(launch.small),
        "options": launch.options,
        "backend": "hip" if hw.vendor == "amd" else "cuda",
        "triton_arch": hw.triton_arch,
        "arch": hw.arch,
        "warp_size": hw.warp_size,
        "emit": sorted(set(emit)),
    }


def _versions() -> list[str]:
    triton = version("triton")
    return ["1", triton] if triton else ["1"]


# -- the worker's side -------------------------------------------------------------------------------------------------


def compile_source(source: str, kernel: str, launch: Launch, hw: Hardware, emit: Sequence[str] = ()) -> MachineCode:
    """Compiles in this process. Raises CandidateError with the compiler's message."""
    return with_occupancy(_compile(compile_request(source, kernel, launch, hw, emit)), hw)


def compile_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    return _compile(payload).model_dump(mode="json"), ()


def fill_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    _build(payload)
    return {}, ()


def _compile(request: dict[str, Any]) -> MachineCode:
    import triton

    return _facts(request, _build(request), f"triton {triton.__version__}")


def _build(request: dict[str, Any]) -> Any:
    """Triton's compiled kernel, which its cache then holds."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    module = load_source(request["source"])
    function = _kernel(module, request["kernel"])
    names, signature = list(function.arg_names), dict(request["signature"])
    if names != list(signature):
        raise CandidateError(f"{request['kernel']} takes ({', '.join(names)}), not ({', '.join(signature)})")
    target = GPUTarget(request["backend"], request["triton_arch"], request["warp_size"])
    try:
        known = make_backend(target).parse_options(dict(request["options"]))
    except Exception as error:
        raise CandidateError(f"the options {request['options']} are refused: {error}") from None
    for option in request["options"]:
        if not hasattr(known, option):  # Triton would ignore it without a word
            raise CandidateError(f"{request['arch']} has no option {option!r}")
    aligned: dict[tuple[int], list[list[Any]]] = {}
    for place, (name, type_) in enumerate(signature.items()):
        if function.params[place].do_not_specialize:
            continue
        if name in request["divisible"]:
            small = [["tt.pointer_range", 32]] if name in request["small"] else []
            aligned[(place,)] = [["tt.divisibility", 16], *small]
        elif type_.startswith(("*", "i", "u")) or (type_ == "constexpr" and _lists_constexprs()):
            aligned[(place,)] = []  # says nothing, but the JIT's cache key has it: a launch finds what is compiled here
    kind = _source_kind(function)
    with heard() as told:
        try:
            # By keyword: the order and the defaults of these have moved between versions.
            code = triton.compile(
                kind(fn=function, signature=signature, constexprs=dict(request["constexprs"]), attrs=aligned),
                target=target,
                options=dict(request["options"]),
            )
        except MemoryError:
            raise
        except Exception as error:
            raise CandidateError(clean_error(error, told(), request["source"])) from None
    return code


def _source_kind(function: Any) -> Any:
    """The class of sources that a function is compiled as: Gluon has its own."""
    if getattr(function, "is_gluon", lambda: False)():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource
    from triton.compiler import ASTSource

    return ASTSource


@functools.lru_cache(maxsize=1)
def _lists_constexprs() -> bool:
    """Whether this Triton's JIT names constexprs among the attributes too."""
    from triton.runtime.jit import JITFunction

    with contextlib.suppress(AttributeError, OSError, TypeError):
        return re.search(r"""\bif x\[0\] == ['"]constexpr['"]""", inspect.getsource(JITFunction._pack_args)) is not None
    return False


def _facts(request: dict[str, Any], code: Any, compiler: str) -> MachineCode:
    texts = {name: code.asm[name] for name in request["emit"] if isinstance(code.asm.get(name), str)}
    common = {
        "kernel": request["kernel"],
        "arch": request["arch"],
        "compiler": compiler,
        "shared_bytes": code.metadata.shared,
        "threads": code.metadata.num_warps * request["warp_size"],
    }
    if request["backend"] == "hip":
        text = code.asm["amdgcn"]
        listing = read_amdgcn(text)

        def fact(pattern: str) -> int:
            found = re.search(pattern, text)
            return int(found[1]) if found else 0

        extra: dict[str, Any] = {
            "registers": fact(r"; TotalNumVgprs: (\d+)") or fact(r"\.vgpr_count: +(\d+)"),
            "scalar_registers": fact(r"\.sgpr_count: +(\d+)"),
            "spills": fact(r"\.private_segment_fixed_size: +(\d+)") // 4,
            "scalar_spills": fact(r"\.sgpr_spill_count: +(\d+)"),
            "code_bytes": fact(r"; codeLenInByte = (\d+)"),
        }
    else:
        sass, usage = _disassemble(code.asm["cubin"])
        listing = read_sass(sass)
        if "sass" in request["emit"]:
            texts["sass"] = sass
        extra = {
            "registers": usage["REG"],
            "spills": (usage["STACK"] + usage["LOCAL"]) // 4,
            "code_bytes": 16 * len(listing),
            "tensor_memory_columns": getattr(code.metadata, "tmem_size", 0) or 0,
        }
    return MachineCode(
        **common,
        **extra,
        instructions=mix(listing),
        matrix=matrix_instructions(listing),
        loops=find_loops(listing),
        texts=texts,
    )


def _disassemble(cubin: bytes) -> tuple[str, dict[str, int]]:
    """(SASS listing, resource usage by the tool's names) from the cuobjdump that the triton wheel carries."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-sass", "-res-usage", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    usage = {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", done.stdout.partition("code for")[0])}
    return done.stdout, usage


@functools.cache
def _sources(process: int) -> Path:
    """A folder of this process alone for emitted sources, gone with it: where all may write, another could have laid a
    file of the same name. A fork makes its own."""
    folder = Path(tempfile.mkdtemp(prefix="avo-sources-"))

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


_loaded: dict[str, ModuleType] = {}
_LOADED_MOST = 16


def load_source(source: str) -> ModuleType:
    """The module of an emitted source, from a real file, for Triton reads functions back through `inspect`.

    Raises CandidateError where the source does not load.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    if digest in _loaded:
        return _loaded[digest]
    name = f"kernel_{digest}"
    path = _sources(os.getpid()) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except MemoryError:
        raise
    except BaseException as error:  # whatever it raises is its own fault, SystemExit too
        sys.modules.pop(name, None)
        line = next((f.lineno for f in reversed(_frames(error)) if f.filename == str(path)), None)
        line = error.lineno if isinstance(error, SyntaxError) else line
        raise CandidateError(f"the source does not load: line {line}: {type(error).__name__}: {error}") from None
    while len(_loaded) >= _LOADED_MOST:
        sys.modules.pop(_loaded.pop(next(iter(_loaded))).__name__, None)
    _loaded[digest] = module
    return module


def _frames(error: BaseException) -> list[inspect.FrameInfo]:
    return inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []


def _kernel(module: ModuleType, name: str) -> Any:
    from triton.runtime.jit import JITFunction

    def bare(value: Any) -> Any:
        while not isinstance(value, JITFunction) and hasattr(value, "fn"):  # autotuners, heuristics
            value = value.fn
        return value

    function = bare(getattr(module, name, None))
    if not isinstance(function, JITFunction):
        known = [key for key, value in vars(module).items() if isinstance(bare(value), JITFunction)]
        raise CandidateError(f"the source has no @triton.jit function {name!r}; it has {', '.join(known) or 'none'}")
    return function
