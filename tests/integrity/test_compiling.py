"""A kernel that no compiler takes is a compile error; one that is too large for the device, a matter of resources."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity.compiling import complaint
from evaluators.integrity.raw_device import RawDeviceEvaluator
from evaluators.targets import target

KERNEL = """
import math

import torch
import triton
import triton.language as tl


@triton.jit
def callee(v):
    return tl.dot(v, v)


@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    {line}
    tl.store(x + at, v)
"""


def refusal(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """What is said of a kernel with that line, compiled for sm_90."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from evaluators.compiler import load_source

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    module = load_source(KERNEL.format(line=line))
    source = ASTSource(fn=module.kernel, signature={"x": "*fp32", "BLOCK": "constexpr"}, constexprs={(1,): 64})
    with pytest.raises(Exception) as caught:
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return complaint(caught.value, str(module.__file__))


@pytest.mark.parametrize(
    ("line", "said", "at"),
    [
        (
            "v = tl.load(x + at, mask=at < COLUMNS)",
            "COLUMNS is not defined",
            ", at v = tl.load(x + at, mask=at < COLUMNS)",
        ),
        ("for i in range(2):\n        v = tl.sum(v, 0)", "Loop-carried variable v", ""),
        ("v = callee(v)", "", ", at return tl.dot(v, v)"),
        ("tl.static_assert(BLOCK > 64, 'too narrow')", "too narrow", ""),
        ("v = torch.softmax(v, 0)", "Unsupported function referenced", ""),
        ("v = math.exp(v)", "must be real number", ", at v = math.exp(v)"),
    ],
)
def test_what_a_compiler_refuses(
    line: str, said: str, at: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = refusal(line, monkeypatch, tmp_path)
    assert found.startswith("CompilationError: ") and said in found and at in found, found
    assert len(found.splitlines()) == 1


RAISES = """
import ast

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

TEXT = "def kernel(x):\\n    y = tl.arange(0, 100)"


def run(x):
    if x.shape[1] == {columns}:
        {raised}
    return torch.softmax(x.float(), -1).to(x.dtype)
"""
REFUSES = "raise CompilationError(TEXT, ast.parse(TEXT).body[0].body[0], 'arange has to be a power of two')"
EXCEEDS = "raise OutOfResources(300000, 232448, 'shared memory')"


@pytest.fixture(scope="module")
def judge():
    with RawDeviceEvaluator(hardware("h200"), simulate=True, rounds=2, sizes=1) as one:
        yield one


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (REFUSES, Status.COMPILE_ERROR, 'it does not compile: "arange has to be a power of two, at y = tl.arange'),
        (EXCEEDS, Status.RESOURCE, 'it needs more than the device has: "out of resource: shared memory'),
        ("raise ValueError('too wide')", Status.INCORRECT, 'it raised ValueError: "too wide"'),
    ],
)
@pytest.mark.parametrize("where", ["checks", "timed"])
def test_the_status_says_whose_refusal_it_was(judge, raised, status, said, where):
    from dataclasses import replace

    from evaluators.target import Workload

    job = replace(target("softmax"), torch="any", workloads=(Workload({"r": 64, "c": 768}),))
    columns = 768 if where == "timed" else job.checks[0].sizes["c"]
    found = judge.evaluate(RAISES.format(columns=columns, raised=raised), job, hardware("h200"))
    assert found.status is status and said in found.message, found.message
    assert ("at a timed size" in found.message) == (where == "timed")
