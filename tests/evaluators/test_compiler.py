"""Real cross-compilation through a worker: facts of the machine code per chip, and errors that people can read."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dsl.hardware import hardware
from dsl.lowering.lowered import Launch
from evaluators.compiler import Compiler, compile_request
from evaluators.machine import MATRIX_CLASSES, MachineCode, check_fits
from evaluators.pool import Crash, Reply, TaskError, WorkerPool

if importlib.util.find_spec("triton") is None:
    pytest.skip("compiling needs triton, whose wheels are for Linux only", allow_module_level=True)

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

ATTENTION = (
    HEAD
    + """@triton.jit
def attention(q_desc, k_desc, v_desc, o_desc, H, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m0, bh = tl.program_id(0) * BM, tl.program_id(1)
    b, h = bh // H, bh % H
    q = q_desc.load([b, h, m0, 0]).reshape(BM, D)
    top = tl.full((BM,), -float("inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n0 in tl.range(0, N, BN):
        k = k_desc.load([b, h, n0, 0]).reshape(BN, D)
        s = tl.dot(q, k.T) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        alpha = tl.math.exp2(top - new)
        norm = norm * alpha + tl.sum(p, 1)
        v = v_desc.load([b, h, n0, 0]).reshape(BN, D)
        acc = tl.dot(p.to(tl.bfloat16), v, acc * alpha[:, None])
        top = new
    o_desc.store([b, h, m0, 0], (acc / norm[:, None]).to(tl.bfloat16).reshape(1, 1, BM, D))
"""
)

GEMM = (
    HEAD
    + """@triton.jit
def gemm(a, b, c, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        x = tl.load(a + rm[:, None] * sa + (k0 + rk)[None, :])
        y = tl.load(b + (k0 + rk)[:, None] * sb + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * sc + rn[None, :], acc.to(tl.bfloat16))
"""
)


def attention(bm=128, bn=64, d=128, warps=4, stages=2) -> Launch:
    def tile(rows: int) -> str:
        return f"tensordesc<bf16[1, 1, {rows}, {d}]>"

    signature = {"q_desc": tile(bm), "k_desc": tile(bn), "v_desc": tile(bn), "o_desc": tile(bm)}
    signature |= {"H": "i32", "N": "i32", "scale": "fp32"} | dict.fromkeys(("BM", "BN", "D"), "constexpr")
    options = {"num_warps": warps, "num_stages": stages}
    return Launch(signature, {"BM": bm, "BN": bn, "D": d}, ("H", "N"), 4096, options)


def gemm(bm=64, bn=64, bk=32, warps=4, stages=2, dtype="bf16", **options) -> Launch:
    signature = dict.fromkeys("ab", f"*{dtype}") | {"c": "*bf16"} | dict.fromkeys(("K", "sa", "sb", "sc"), "i32")
    signature |= dict.fromkeys(("BM", "BN", "BK"), "constexpr")
    aligned = ("a", "b", "c", "K", "sa", "sb", "sc")
    options = {"num_warps": warps, "num_stages": stages, **options}
    return Launch(signature, {"BM": bm, "BN": bn, "BK": bk}, aligned, 4096, options)


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def compiler(pool):
    return Compiler(pool)


def test_attention_on_h200(compiler):
    """The plain kernel of this shape was measured on an H200 with 254 registers, no spills and 96 KiB of tiles."""
    hw = hardware("h200")
    facts = compiler.compile(ATTENTION, "attention", attention(), hw)
    assert 230 <= facts.registers <= 255
    assert facts.spills == 0
    assert 96 << 10 <= facts.shared_bytes <= 97 << 10
    assert facts.threads == 128 and facts.arch == "sm_90" and facts.compiler.startswith("triton 3.")
    assert (facts.occupancy_blocks, facts.occupancy) == (2, 0.125)
    assert facts.instructions["wgmma"] == sum(facts.matrix.values())
    assert any(name.startswith("HGMMA.64x128x16.F32.BF16") for name in facts.matrix)
    assert facts.instructions["tma"] >= 4 and "ldg" not in facts.instructions
    (loop,) = facts.loops
    # 128 x 64 scores over 128 threads, and a rescale for each row that a thread holds
    assert 64 <= loop["ex2"] <= 80
    assert loop["wgmma"] >= 16
    assert check_fits(facts, hw) == []
    assert facts.code_bytes == 16 * sum(facts.instructions.values())


def test_attention_on_b200(compiler):
    facts = compiler.compile(ATTENTION, "attention", attention(warps=8), hardware("b200"))
    assert facts.instructions["tcgen05.mma"] >= 8 and facts.instructions["tmem"] >= 2
    assert 0 < facts.tensor_memory_columns <= 512
    assert facts.spills == 0


def test_gemm_on_mi300x(compiler):
    hw = hardware("mi300x")
    facts = compiler.compile(GEMM, "gemm", gemm(waves_per_eu=2, matrix_instr_nonkdim=16), hw, ["amdgcn"])
    assert any(name.startswith("v_mfma_f32_16x16x16") for name in facts.matrix)
    assert facts.threads == 256 and 0 < facts.registers <= 256 and facts.scalar_registers > 0
    assert facts.occupancy_blocks >= 1
    assert facts.shared_bytes > 0 and facts.code_bytes > 0 and facts.loops
    assert "v_mfma" in facts.texts["amdgcn"]
    large = compiler.compile(GEMM, "gemm", gemm(128, 128, 128, stages=3), hw)
    assert "of shared memory a block; mi300x has 64 KiB" in check_fits(large, hw)[0]


def test_every_format_can_be_had(compiler):
    emit = ["ttir", "ttgir", "llir", "ptx", "sass"]
    facts = compiler.compile(GEMM, "gemm", gemm(), hardware("h200"), emit)
    assert list(facts.texts) and set(facts.texts) == set(emit)
    assert "tt.dot" in facts.texts["ttir"] and "ttg." in facts.texts["ttgir"]
    assert ".target sm_90a" in facts.texts["ptx"] and "EXIT" in facts.texts["sass"]
    with pytest.raises(ValueError, match="unknown format 'cubin'; there are ttir"):
        compiler.compile(GEMM, "gemm", gemm(), hardware("h200"), ["cubin"])


def test_one_specialisation_is_compiled_once(pool, tmp_path):
    calls = []

    class Counting:
        def call(self, task, payload, **rest):
            calls.append(task)
            return pool.call(task, payload, **rest)

    compiler = Compiler(Counting(), cache=tmp_path / "facts")
    hw, results = hardware("h200"), []
    launch = gemm(32, 32, 32, warps=2)
    other = dataclasses.replace(launch, programs=7)  # another workload, the same code
    threads = [
        threading.Thread(target=lambda item=item: results.append(compiler.compile(GEMM, "gemm", item, hw)))
        for item in (launch, other, launch)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and results[0] == results[1] == results[2]
    assert Compiler(Counting(), cache=tmp_path / "facts").compile(GEMM, "gemm", launch, hw) == results[0]
    assert len(calls) == 1
    assert compiler.compile(GEMM, "gemm", launch, hardware("h100")).arch == "sm_90"  # the same code, another chip
    assert len(calls) == 1
    for path in (tmp_path / "facts").iterdir():
        path.write_text("{broken")
    assert Compiler(Counting(), cache=tmp_path / "facts").compile(GEMM, "gemm", launch, hw) == results[0]
    assert len(calls) == 2
    (tmp_path / "file").write_text("")
    Compiler(Counting(), cache=tmp_path / "file").compile(GEMM, "gemm", launch, hw)  # cannot be a folder: no harm


def kernel(*body: str, before: str = "") -> str:
    return f"{HEAD}{before}@triton.jit\ndef f(x, y, N: tl.constexpr):\n" + "".join(f"    {line}\n" for line in body)


PLAIN = kernel("i = tl.arange(0, N)", "tl.store(y + i, tl.load(x + i) + 1)")
INNER = "@triton.jit\ndef g(a):\n    return a + undefined\n\n\n"
FP8 = (
    "i = tl.arange(0, 32)",
    "p = x + i[:, None] * 32 + i[None, :]",
    "a = tl.load(p).to(tl.float8e4nv)",
    "tl.dot(a, a)",
)
ASM = "tl.inline_asm_elementwise('nonsense $0, $1;', '=r,r', [tl.program_id(0)], dtype=tl.int32, is_pure=False, pack=1)"


@pytest.mark.parametrize(
    ("source", "chip", "launch", "message"),
    [
        (kernel("tl.store(y, z)"), "h200", {}, "line 8: tl.store(y, z)\nNameError('z is not defined')"),
        (
            kernel("i = tl.arange(0, 100)"),
            "h200",
            {},
            "line 8: i = tl.arange(0, 100)\narange's range must be a power of 2",
        ),
        (kernel("tl.store(y, g(N))", before=INNER), "mi300x", {}, "line 8: return a + undefined\nNameError('undefined"),
        (kernel(*FP8), "a100", {}, "line 10: a = tl.load(p).to(tl.float8e4nv)\ntype fp8e4nv not supported"),
        (kernel(ASM), "h200", {}, "Not a name of any known instruction: 'nonsense'"),
        (
            PLAIN,
            "h200",
            {"options": {"num_warps": 3}},
            "the options {'num_warps': 3} are refused: num_warps must be a power",
        ),
        (PLAIN, "h200", {"options": {"waves_per_eu": 2}}, "sm_90 has no option 'waves_per_eu'"),
        (PLAIN, "h200", {"kernel": "g"}, "the source has no @triton.jit function 'g'; it has f"),
        (PLAIN, "h200", {"signature": {"x": "*fp32"}}, "f takes (x, y, N), not (x)"),
        (HEAD + "x = 1 / 0\n", "h200", {}, "the source does not load: line 6: ZeroDivisionError: division by zero"),
        (HEAD + "raise SystemExit\n", "h200", {}, "the source does not load: line 6: SystemExit"),
        ("def f(:\n", "h200", {}, "the source does not load: line 1: SyntaxError: invalid syntax"),
    ],
)
def test_an_error_is_a_clean_message(compiler, source, chip, launch, message):
    signature = launch.get("signature", {"x": "*fp32", "y": "*fp32", "N": "constexpr"})
    made = Launch(signature, {"N": 128}, (), 1, launch.get("options", {"num_warps": 4}))
    with pytest.raises(TaskError) as failure:
        compiler.compile(source, launch.get("kernel", "f"), made, hardware(chip))
    text = str(failure.value)
    assert message in text
    assert "Traceback" not in text and "site-packages" not in text and len(text.splitlines()) <= 12


def test_a_crash_of_the_compiler_says_its_last_words():
    class Crashing:
        def call(self, *args, **rest):
            raise Crash(
                "the worker died under the task: it was killed by SIGABRT", "x\nLLVM ERROR: Cannot select: v4f8\n"
            )

    class Lying:
        def call(self, *args, **rest):
            return Reply({"registers": "many"}, (), 0.1)

    with pytest.raises(Crash, match=r"the compiler crashed: LLVM ERROR: Cannot select: v4f8"):
        Compiler(Crashing()).compile(GEMM, "gemm", gemm(), hardware("h200"))
    with pytest.raises(Crash, match="answered nonsense"):
        Compiler(Lying()).compile(GEMM, "gemm", gemm(), hardware("h200"))


def test_there_is_nothing_to_compile_for_on_the_cpu():
    with pytest.raises(ValueError, match="cpu is not a chip to compile for"):
        compile_request(GEMM, "gemm", gemm(), hardware("cpu"))


MATRIX = {"a100": "mma.sync", "rtx4090": "mma.sync", "h100": "wgmma", "h200": "wgmma", "b200": "tcgen05.mma"}
MATRIX |= {"rtx5090": "mma.sync", "mi300x": "mfma", "mi355x": "mfma"}


@pytest.mark.slow
@pytest.mark.parametrize("chip", MATRIX)
def test_every_chip(compiler, chip):
    hw = hardware(chip)
    facts = compiler.compile(GEMM, "gemm", gemm(128, 128, 32, warps=4, stages=2), hw)
    assert isinstance(facts, MachineCode)
    assert {kind for kind in facts.instructions if kind in MATRIX_CLASSES} == {MATRIX[chip]}
    assert "other" not in facts.instructions
    assert facts.loops and check_fits(facts, hw) == []
    if hw.has_tma:
        facts = compiler.compile(ATTENTION, "attention", attention(64, 64, 64), hw)
        assert facts.instructions["tma"] and facts.instructions["ex2"] and "other" not in facts.instructions


def test_a_loaded_source_lies_where_nobody_else_writes_and_goes_with_its_process(tmp_path):
    code = "from evaluators.compiler import load_source; print(load_source('x = 1\\n').__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    folder = Path(done.stdout.strip()).parent
    assert folder.parent == tmp_path and folder.name.startswith("avo-sources-"), done.stderr
    assert not any(tmp_path.iterdir())
