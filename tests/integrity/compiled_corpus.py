"""Whether a device's compiler takes the kernels of a corpus: each candidate is called as on a device, up to the launch.

    python tests/integrity/compiled_corpus.py tests/integrity [PARTS OF corpus/name ...] [--whole]

Without `--whole` kernels are compiled to Triton's own intermediate form, where the language's rules are checked; with
it to the machine code of sm_90. No device is needed: the JIT's driver is a stand-in, and nothing is launched. Each
candidate runs in a fork, for attacks are among them. Prints a line of JSON for each that has kernels: its name, how
many were compiled, and what was wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"
os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="avo-compiled-"))

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

from evaluators.cpu import TORCH_DTYPES
from evaluators.inputs import draw_inputs, encode, generator
from evaluators.integrity import corpus
from evaluators.integrity.ahead import Driver
from evaluators.loading import complete, seed_program

CHIP = GPUTarget("cuda", 90, 32)
SECONDS = 120  # for one candidate


class _Driver(Driver):
    """What the JIT and its autotuner ask of a device before they launch."""

    def get_benchmarker(self) -> Any:
        return _once


def _once(call: Any, quantiles: Any = None, **_: Any) -> Any:
    """For Triton's own timers: a call, and times as good as any."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0


class _Compiled:
    """In place of a compiled kernel."""

    def __getattr__(self, name: str) -> Any:
        return self

    def result(self) -> Any:
        return self


def _to_ir(src: Any, target: Any = None, options: Any = None, **_: Any) -> Any:
    """`triton.compile` as far as the language's rules reach."""
    from triton._C.libtriton import ir
    from triton.compiler import make_backend

    backend = make_backend(target or CHIP)
    parsed = backend.parse_options(dict(options or {}, **src.parse_options()))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = src.make_ir(CHIP, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
    stages: dict[str, Any] = {}
    with contextlib.suppress(TypeError):
        backend.add_stages(stages, parsed, src.language)
    if "ttir" in stages:
        stages["ttir"](module, {})
    return _Compiled()


def install(whole: bool, seen: dict[str, Any]) -> None:
    """Launches compile and do nothing else; what was compiled and what failed is counted in `seen`."""
    driver.set_active(_Driver(CHIP.backend, CHIP.arch, CHIP.warp_size))
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = _once
    if not whole:
        triton.compiler.compile = _to_ir
    run = jit.JITFunction.run

    def compiled(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        try:
            found = run(self, *args, grid=grid, warmup=True, **kwargs)
        except Exception as error:
            inner: BaseException = error
            while inner.__cause__ is not None:
                inner = inner.__cause__
            seen["wrong"].append(f"{self.fn.__name__}: {type(inner).__name__}: {inner}"[-600:])
            return None
        seen["kernels"].append(self.fn.__name__)
        return found

    jit.JITFunction.run = compiled


def compiled(item: corpus.Item, whole: bool) -> dict[str, Any]:
    """{name, kernels, wrong, ended: what its last call raised} of one candidate, in this process."""
    from evaluators.compiler import load_source

    seen: dict[str, Any] = {"name": f"{item.kind}/{item.name}", "kernels": [], "wrong": [], "ended": ""}
    install(whole, seen)
    job = complete(item.job)
    algorithm = seed_program(job).algorithm
    defaults = {p.name: p.default for p in algorithm.params if p.default is not None}
    try:
        run = load_source(item.path.read_text(encoding="utf-8")).run
        for check in job.checks:
            drawn = draw_inputs(job, algorithm, check, "normal", generator(1, "compiled", job.name))
            with torch.no_grad():
                run(
                    *(_tensor(drawn[t.name], t.dtype or "f32") for t in algorithm.inputs),
                    **{**defaults, **check.params},
                )
    except BaseException as error:
        seen["ended"] = "".join(traceback.format_exception_only(error)).strip()[:300]
    return {**seen, "kernels": len(seen["kernels"])}


def _tensor(value: Any, dtype: str) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(encode(value, dtype)), dtype=torch.uint8)
    return flat.view(getattr(torch, TORCH_DTYPES[dtype])).reshape(value.shape)


def each(items: list[corpus.Item], whole: bool) -> Iterator[dict[str, Any]]:
    """`compiled` of each, in a fork."""
    for item in items:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            import signal

            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            os.write(write, json.dumps(compiled(item, whole)).encode())
            os._exit(0)
        os.close(write)
        with open(read) as pipe:
            said = pipe.read()
        os.waitpid(pid, 0)
        ended = {"name": f"{item.kind}/{item.name}", "kernels": 0, "wrong": [], "ended": "it died"}
        yield json.loads(said) if said else ended


def with_kernels(folder: Path, parts: list[str]) -> list[corpus.Item]:
    items = [item for item in corpus.read(folder) if "triton.jit" in item.path.read_text(encoding="utf-8")]
    return [i for i in items if not parts or any(part in f"{i.kind}/{i.name}" for part in parts)]


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--whole"]
    for row in each(with_kernels(Path(given[0]), given[1:]), "--whole" in sys.argv):
        print(json.dumps(row), flush=True)
