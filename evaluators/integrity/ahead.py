"""Whether a compiler takes what a raw candidate launches, asked without a device: the interpreter takes much that none
does (names that change their type in a loop, a return in one, seven warps).

The steps of a call, which are what was judged (`tape`), are played up to the launches with tensors without memory, in a
confined process of its own kind: no candidate was ever there, and Triton compiles there, instead of interpreting. The
assembler is left out, since it is another program, which a confined process may not start.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evaluators.failures import TaskError, Unavailable, WorkerFailure, quoted
from evaluators.integrity.calls import _asked, _Case
from evaluators.worker import CandidateError

if TYPE_CHECKING:
    from evaluators.pool import WorkerPool

TAKEN = "taken"
_CHIP = ("cuda", 90, 32, "sm_90")  # where the judged one is none to compile for
_SECONDS = 120.0  # for all kernels of a call
# Of an axis: LLVM takes 0.3 s for a row of 16,384 values in four warps, 11 s for one of 65,536, 90 s for a longer one.
_LONGEST = 32768
# Words of a compiler for what another chip may have.
_OF_ANOTHER = re.compile(
    r"architecture|\bsm_?\d|\bgfx\d|capability|\bhip\b|\bAMD|waves_per_eu|matrix_instr|Keyword argument|libdevice|"
    r"no attribute|intrinsic",
    re.IGNORECASE,
)


def taken(case: _Case, pool: WorkerPool) -> tuple[bool, str]:
    """(whether nothing speaks against it, what the compiler says) of the kernels of all steps that were told, but for
    those of very long axes: TAKEN; what a compiler refuses in them; or, as no fault, that this chip is another than
    they were written for, or that nothing was compiled."""
    tapes = [*case.told] if not isinstance(case.told, str) else []
    named = {call.workload.name: call for call in case.calls}
    tapes = [(w, t) for w, t in tapes if max(named[w.name].workload.sizes.values(), default=0) <= _LONGEST] or tapes[:1]
    hardware = case.hardware
    chip: tuple[str, Any, int, str] = _CHIP
    if hardware.triton_arch is not None:
        vendor = "hip" if hardware.vendor == "amd" else "cuda"
        chip = vendor, hardware.triton_arch, hardware.warp_size, hardware.arch
    try:
        with pool.session(f"{case.kind}-chip") as session:
            for workload, told in tapes:
                tape = case.early.get(workload.name) or told
                forms = _asked(case, named[workload.name])[0]["inputs"]
                asked = {"tape": tape, "library": case.target.torch == "any", "inputs": forms, "chip": list(chip)}
                session.call("raw_ahead", asked, (), _SECONDS)
    except TaskError as error:
        said = quoted(error.message, 500)
        if _OF_ANOTHER.search(error.message):
            return True, f"not for {chip[3]}: {said}"
        return False, f"it does not compile for {chip[3]}: {said}"
    except WorkerFailure as failure:
        if isinstance(failure, Unavailable):
            raise
        return True, f"not compiled: {quoted(failure.message, 200)}"
    return True, TAKEN


class Driver:
    """What Triton's JIT asks of a device before it launches."""

    def __init__(self, backend: str, arch: Any, lanes: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget(backend, arch, lanes)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


_FIRST = """
import triton
import triton.language as tl

@triton.jit
def first(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y + i, tl.exp(v - tl.max(v, 0)), mask=i < n)
"""


def begin() -> None:
    """Once, in the template: what compiling imports, and asks of programs beside it, while that is allowed."""
    import torch
    from triton.runtime import driver

    from evaluators.compiler import load_source

    _no_assembler()
    _cache_in_place()
    with contextlib.suppress(Exception):
        from triton.backends.nvidia.compiler import get_ptxas_version

        for arch in (90, 100):  # Blackwell has one of its own
            get_ptxas_version(arch)
    with contextlib.suppress(Exception):
        driver.set_active(Driver(*_CHIP[:3]))
        given = [torch.empty(64, device="meta"), torch.empty(64, device="meta"), 60]
        load_source(_FIRST).first.run(*given, B=64, grid=(1,), warmup=True)


def ahead_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{tape, library, inputs: their form, chip: [backend, arch, lanes of a warp, name]} -> {}. Raises CandidateError
    with the compiler's words."""
    from triton.runtime import driver

    from evaluators.integrity.compiling import REFUSED, complaint, is_compiling, of_compilers
    from evaluators.integrity.tape import NotTaped, compiled

    backend, arch, lanes, _ = payload["chip"]
    driver.set_active(Driver(backend, arch, lanes))
    try:
        compiled(payload["tape"], bool(payload["library"]), payload["inputs"])
    except MemoryError:
        raise
    except NotTaped:
        pass  # it was played, so this Triton has it elsewhere: no word of a compiler
    except Exception as error:
        if is_compiling(error):
            raise CandidateError(complaint(error, "")) from None
        if of_compilers(error):  # its options, say
            raise CandidateError(f"{REFUSED}: {error}"[:600]) from None
    return {}, []


def _no_assembler() -> None:
    """The last stage makes nothing: it would start another program."""
    from triton.backends import backends

    for found in backends.values():
        for stage in ("make_cubin", "make_hsaco"):
            with contextlib.suppress(AttributeError):
                getattr(found.compiler, stage)
                setattr(found.compiler, stage, _nothing)


def _cache_in_place() -> None:
    """Triton writes a file of its cache beside its place and moves it there, which Landlock's first version forbids.
    Nobody else reads this cache."""
    from triton import knobs
    from triton.runtime.cache import FileCacheManager

    class InPlace(FileCacheManager):
        def put(self, data: Any, filename: str, binary: bool = True) -> str:
            path = os.path.join(self.cache_dir, filename)
            os.makedirs(self.cache_dir, exist_ok=True)
            with open(path, "wb") as file:
                file.write(data if isinstance(data, bytes) else str(data).encode())
            return path

    knobs.cache.manager_class = InPlace


def _nothing(*_: Any, **__: Any) -> bytes:
    return b""
