"""The corrected interpreter against torch, on random and on awkward values; guard zones; what a run reports.

Every kernel here is emitted source that runs alone, through a worker, as a candidate's does.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import re

import numpy as np
import pytest
import torch

from dsl.rounding import round_to
from evaluators.cpu import Tensor, interpret
from evaluators.pool import Crash, OutOfMemory, Reply, TaskError, Timeout, WorkerPool

if importlib.util.find_spec("triton") is None:
    pytest.skip("interpreting needs triton, whose wheels are for Linux only", allow_module_level=True)

HEAD = """import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


"""
NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.int8: "int8",
    torch.int32: "i32",
    torch.bool: "bool",
}
TYPES = {name: dtype for dtype, name in NAMES.items()}
TRITON = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8e4nv",
    "e5m2": "float8e5",
    "f64": "float64",
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1, memory_bytes=3 << 30) as pool:
        yield pool


def run(pool, source, *inputs, entry="entry", timeout=60, **params):
    """The outputs as torch tensors, and the report of the run."""
    given = [
        Tensor(f"x{i}", NAMES[x.dtype], tuple(x.shape), x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        for i, x in enumerate(inputs)
    ]
    report = interpret(pool, HEAD + source, entry, given, params, timeout)
    tensors = [
        torch.frombuffer(bytearray(o.data), dtype=torch.uint8).view(TYPES[o.dtype]).reshape(o.shape)
        if o.data
        else torch.zeros(o.shape, dtype=TYPES[o.dtype])
        for o in report.outputs
    ]
    return (*tensors, report)


def elementwise(expression: str, out: str, n: int = 2) -> str:
    """Source of `entry(*n tensors)` that computes an expression over a, b, c of all elements in blocks of 64."""
    names = "abc"[:n]
    arguments = ", ".join(f"{x}_ptr" for x in names)
    loads = "".join(f"    {x} = tl.load({x}_ptr + i, mask=i < N, other=0.0)\n" for x in names)
    return (
        f"@triton.jit\ndef f({arguments}, o_ptr, N, B: tl.constexpr):\n"
        f"    i = tl.program_id(0) * B + tl.arange(0, B)\n{loads}    o = {expression}\n"
        f"    tl.store(o_ptr + i, o, mask=i < N)\n\n\n"
        f"def entry({', '.join(names)}):\n    o = torch.empty(a.shape, dtype=torch.{str(TYPES[out])[6:]})\n"
        f"    f[(triton.cdiv(a.numel(), 64),)]({', '.join(names)}, o, a.numel(), 64)\n    return o\n"
    )


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Bitwise, but that any NaN is as good as another."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    a, b = ours.double(), theirs.double()
    wrong = ~((a == b) & (torch.signbit(a) == torch.signbit(b)) | (a.isnan() & b.isnan()))
    assert not wrong.any(), (a[wrong][:5], b[wrong][:5])


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    error = (ours.double() - theirs.double()).norm() / theirs.double().norm()
    assert error <= tolerance, error


def awkward(seed: int = 0) -> torch.Tensor:
    """float32 of every size: ties of each narrow format and their neighbours, subnormals, largest values, inf, NaN."""
    rng = np.random.default_rng(seed)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 448.0, 464.0, 464.1, 480.0, 1e6, 57344.0, 61440.0, 65504.0, 65519.9]
    special += [65520.0, 3.3895e38, 3.3962e38, -1e9, 2.0**-9, 2.0**-10, 3 * 2.0**-10, 2.0**-16, 2.0**-17, 1e-40]
    powers = np.ldexp(1.0, rng.integers(-30, 20, 200))
    ties = [p * (1 + (2 * k + 1) / 2.0 ** (m + 1)) for p in powers[:40] for m in (2, 3, 7, 10) for k in range(0, 4)]
    values = np.array([*special, *ties, *(rng.standard_normal(200) * powers), *rng.standard_normal(400)], np.float32)
    values = np.concatenate(
        [values, np.nextafter(values, np.float32(0)), np.nextafter(values, np.float32(np.inf)), -values]
    )
    return torch.from_numpy(values)


# -- casts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bf16", "f16", "e4m3", "e5m2"])
def test_f32_is_rounded_to_nearest_even(pool, name):
    x = awkward()
    got, _ = run(pool, elementwise(f"a.to(tl.{TRITON[name]})", name, 1), x)
    if name in ("bf16", "f16"):
        same(got, x.to(TYPES[name]))
        return
    # The 8-bit formats saturate on the chips' own instructions, infinities too; torch's casts do not.
    largest = torch.finfo(TYPES[name]).max
    same(got, x.clamp(-largest, largest).to(TYPES[name]))
    expected = torch.from_numpy(round_to(x.double().numpy(), name))
    same(got.double(), torch.where(x.isnan(), x.double(), expected))
    assert got[x.isnan()].double().isnan().all() and got.double()[~x.isnan()].abs().max() == largest


@pytest.mark.parametrize("name", ["bf16", "f16", "e4m3", "e5m2"])
def test_every_code_widens(pool, name):
    wide = TYPES[name].itemsize == 2
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int16) if wide else torch.arange(256).to(torch.uint8)
    x = codes.view(TYPES[name])
    x = x[:: 7 if wide else 1].contiguous()
    got, _ = run(pool, elementwise("a.to(tl.float32)", "f32", 1), x)
    same(got, x.float())
    back, _ = run(pool, elementwise(f"a.to(tl.float32).to(tl.{TRITON[name]})", name, 1), x)
    finite = x.float().isfinite()
    same(back[finite], x[finite])


@pytest.mark.parametrize(
    ("source", "to"), [("f16", "bf16"), ("bf16", "f16"), ("bf16", "e4m3"), ("f16", "e5m2"), ("f64", "bf16")]
)
def test_other_float_casts(pool, source, to):
    x = (torch.randn(999) * 8).to(TYPES[source])
    got, _ = run(pool, elementwise(f"a.to(tl.{TRITON[to]})", to, 1), x)
    same(got, x.float().to(TYPES[to]))


def test_casts_with_integers(pool):
    i = torch.randint(-(2**31), 2**31 - 1, (300,), dtype=torch.int32)
    same(run(pool, elementwise("a.to(tl.bfloat16)", "bf16", 1), i)[0], i.float().to(torch.bfloat16))
    same(run(pool, elementwise("a.to(tl.float32)", "f32", 1), i)[0], i.float())
    x = (torch.randn(300) * 50).to(torch.bfloat16)
    assert torch.equal(run(pool, elementwise("a.to(tl.int8)", "int8", 1), x)[0], x.to(torch.int8))
    b = torch.randint(-128, 128, (300,), dtype=torch.int8)
    same(run(pool, elementwise("a.to(tl.bfloat16) * 0.5", "bf16", 1), b)[0], b.to(torch.bfloat16) * 0.5)


def test_rounding_toward_zero_and_bits(pool):
    x = awkward()[awkward().abs() < 400]
    got, _ = run(pool, elementwise('a.to(tl.bfloat16, fp_downcast_rounding="rtz")', "bf16", 1), x)
    same(got, (x.view(torch.int32) & -65536).view(torch.float32).to(torch.bfloat16))
    got, _ = run(pool, elementwise('a.to(tl.float16, fp_downcast_rounding="rtz")', "f16", 1), x)
    assert (got.double().abs() <= x.double().abs()).all()
    assert ((got.double() - x.double()).abs() <= torch.maximum(x.double().abs() * 2**-10, torch.tensor(2.0**-24))).all()
    h = torch.randn(300).to(torch.bfloat16)
    got, _ = run(pool, elementwise("a.to(tl.int16, bitcast=True).to(tl.int32)", "i32", 1), h)
    assert torch.equal(got, h.view(torch.int16).int())
    got, _ = run(pool, elementwise("a.to(tl.int16, bitcast=True).to(tl.bfloat16, bitcast=True)", "bf16", 1), h)
    same(got, h)


# -- arithmetic --------------------------------------------------------------------------------------------------------

OPERATIONS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "tl.maximum(a, b)": torch.maximum,
    "tl.minimum(a, b)": torch.minimum,
    "tl.where(a > b, a, b * 2)": lambda a, b: torch.where(a > b, a, b * 2),
    "tl.abs(a) - (-b)": lambda a, b: a.abs() - (-b),
    "a * 0.3 + b": lambda a, b: a * 0.3 + b,
    "tl.clamp(a, -0.5, 0.5) + b * 1.7": lambda a, b: a.clamp(-0.5, 0.5) + b * 1.7,
}


@pytest.mark.parametrize("name", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("expression", OPERATIONS)
def test_arithmetic_rounds_once_per_operation(pool, expression, name):
    a, b = (torch.randn(1000) * 3).to(TYPES[name]), torch.randn(1000).to(TYPES[name])
    if "0.3" in expression or "1.7" in expression:  # torch multiplies by a float32 number, Triton by a rounded one
        c = torch.tensor(0.3 if "0.3" in expression else 1.7).to(TYPES[name])
        half = torch.tensor(0.5).to(TYPES[name])
        expected = a * c + b if "0.3" in expression else torch.minimum(torch.maximum(a, -half), half) + b * c
    else:
        expected = OPERATIONS[expression](a, b)
    got, _ = run(pool, elementwise(expression, name), a, b)
    same(got, expected)


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_comparisons(pool, name):
    a = torch.randn(1000).to(TYPES[name]).round(decimals=1)
    b = torch.randn(1000).to(TYPES[name]).round(decimals=1)
    b[::50], a[::70] = float("nan"), float("inf")
    code = "(a < b).to(tl.int32) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a >= b) + 32 * (a > b)"
    got, _ = run(pool, elementwise(code, "i32"), a, b)
    parts = [a < b, a <= b, a == b, a != b, a >= b, a > b]
    assert torch.equal(got, sum(part.int() << i for i, part in enumerate(parts)).int())


def test_integers_wrap_and_divide_as_in_c(pool):
    a = torch.randint(-(2**31), 2**31 - 1, (500,), dtype=torch.int32)
    b = torch.randint(-50, 50, (500,), dtype=torch.int32)
    b[b == 0] = 7
    assert torch.equal(run(pool, elementwise("a + a * b", "i32"), a, b)[0], a + a * b)
    quotient = torch.div(a, b, rounding_mode="trunc")
    assert torch.equal(run(pool, elementwise("a // b", "i32"), a, b)[0], quotient)
    assert torch.equal(run(pool, elementwise("a % b", "i32"), a, b)[0], a - quotient * b)


FUNCTIONS = {
    **{"tl.math.exp2(a)": torch.exp2, "tl.exp(a)": torch.exp, "tl.math.log2(tl.abs(a))": lambda a: a.abs().log2()},
    **{"tl.log(tl.abs(a))": lambda a: a.abs().log(), "tl.math.rsqrt(tl.abs(a))": lambda a: a.abs().rsqrt()},
    **{
        "tl.sqrt(tl.abs(a))": lambda a: a.abs().sqrt(),
        "tl.math.erf(a)": torch.erf,
        "tl.sin(a) + tl.cos(a)": lambda a: a.sin() + a.cos(),
    },
    **{"tl.sigmoid(a)": torch.sigmoid, "tl.math.floor(a) + tl.math.ceil(a)": lambda a: a.floor() + a.ceil()},
    **{
        "tl.math.fma(a, a, a)": lambda a: (a.double() * a.double() + a.double()).float(),
        "-a": torch.neg,
        "1 / a": lambda a: 1 / a,
    },
}


@pytest.mark.parametrize("expression", FUNCTIONS)
def test_functions(pool, expression):
    x = torch.randn(2000) * 3
    got, _ = run(pool, elementwise(expression, "f32", 1), x)
    torch.testing.assert_close(got, FUNCTIONS[expression](x.double()).float(), rtol=3e-7, atol=2e-7)


DEVICE = {
    "tanh(a)": torch.tanh,
    "erf(a)": torch.erf,
    "erfinv(a)": torch.erfinv,
    "erfcinv(a * a)": lambda a: torch.erfinv(1 - (a * a).double()).float(),
    "rsqrt(a * a + 1)": lambda a: torch.rsqrt(a * a + 1),
    "pow(a * a, 1.5)": lambda a: torch.pow(a * a, 1.5),
    "fast_expf(a)": torch.exp,
    "log1p(a * a)": lambda a: torch.log1p(a * a),
    "atan2(a, 2.0)": lambda a: torch.atan2(a, torch.tensor(2.0)),
    "fmod(a, 0.3)": lambda a: torch.fmod(a, torch.tensor(0.3)),
    "tgamma(a)": lambda a: torch.tensor([math.gamma(x) for x in a.tolist()]),
    "round(a * 4)": lambda a: torch.tensor([math.copysign(math.floor(abs(4 * x) + 0.5), x) for x in a.tolist()]),
    "float2int_rz(a * 100).to(tl.float32)": lambda a: torch.trunc(a * 100),
    "isnan(a / 0.0 * 0.0).to(tl.float32)": lambda a: torch.ones_like(a),
    "fma(a, a, a)": lambda a: (a.double() * a + a).float(),
    "popc(float_as_int(a)).to(tl.float32)": lambda a: torch.tensor(
        [float(bin(x & 0xFFFFFFFF).count("1")) for x in a.view(torch.int32).tolist()]
    ),
}


def test_functions_of_libdevice(pool):
    """Under both names, by module or alone; what is not there says so."""
    head = "from triton.language.extra import libdevice as d\nfrom triton.language.extra.cuda import libdevice as e\n"
    a = torch.rand(200) * 1.9 - 0.95
    a[a == 0] = 0.5
    for k, (expression, wanted) in enumerate(DEVICE.items()):
        module = rf"{'de'[k % 2]}.\1("
        said = re.sub(r"\b(?!to\b)([a-z][a-z0-9_]+)\(", module, expression)
        found, _ = run(pool, head + elementwise(said, "f32", 1), a)
        close(found, wanted(a), 4e-7)
    for said, word in (
        ("d.add_ru(a, a)", "__nv_fadd_ru"),
        ("tl.extra.cuda.libdevice.jn(1, a)", "only a device can judge"),
    ):
        with pytest.raises(TaskError, match=word):
            run(pool, head + elementwise(said, "f32", 1), a)


# -- dots --------------------------------------------------------------------------------------------------------------

DOT = """@triton.jit
def f(a_ptr, b_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr, P: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + n[:, None] * K + k[None, :])
    acc = tl.full((M, N), 1, OUT)
    acc = tl.dot(a, b.T, acc, input_precision=P, out_dtype=OUT)
    acc = tl.dot(a, tl.trans(b), acc, input_precision=P, out_dtype=OUT)
    tl.store(o_ptr + m[:, None] * N + n[None, :], acc)


def entry(a, b, precision, out):
    o = torch.empty((a.shape[0], b.shape[0]), dtype=getattr(torch, out))
    f[(1,)](a, b, o, a.shape[0], b.shape[0], a.shape[1], getattr(tl, out), precision)
    return o
"""


@pytest.mark.parametrize("name", ["bf16", "f16", "e4m3", "e5m2", "f32"])
def test_float_dots_add_in_float32(pool, name):
    a, b = torch.randn(64, 128).to(TYPES[name]), torch.randn(32, 128).to(TYPES[name])
    got, _ = run(pool, DOT, a, b, precision="ieee", out="float32")
    close(got, 1 + 2 * a.double() @ b.double().T, 5e-7)


def test_a_tf32_dot_loses_low_bits(pool):
    a, b = torch.randn(64, 128), torch.randn(32, 128)
    got, _ = run(pool, DOT, a, b, precision="tf32", out="float32")
    cut = [(x.view(torch.int32) & -8192).view(torch.float32).double() for x in (a, b)]
    close(got, 1 + 2 * cut[0] @ cut[1].T, 5e-7)
    exact = 1 + 2 * a.double() @ b.double().T
    assert (got - exact).norm() / exact.norm() > 1e-4


def test_int8_dots_are_exact(pool):
    a, b = (torch.randint(-128, 128, (n, 256), dtype=torch.int8) for n in (64, 32))
    got, _ = run(pool, DOT, a, b, precision="ieee", out="int32")
    assert torch.equal(got, (1 + 2 * a.long() @ b.long().T).int())


def test_an_f16_accumulator_rounds(pool):
    a, b = torch.randn(32, 64).half(), torch.randn(32, 64).half()
    got, _ = run(pool, DOT, a, b, precision="ieee", out="float16")
    step = (1 + a.double() @ b.double().T).half()
    close(got, step.double() + a.double() @ b.double().T, 1e-3)
    assert got.dtype == torch.float16


def test_a_scaled_dot(pool):
    if tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) < (3, 8):
        pytest.skip("before 3.8 the interpreter refuses tl.dot_scaled before it reaches the arithmetic")
    source = """@triton.jit
def f(a_ptr, sa_ptr, b_ptr, sb_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    p, g = tl.arange(0, K // 2), tl.arange(0, K // 32)
    a = tl.load(a_ptr + m[:, None] * (K // 2) + p[None, :])
    sa = tl.load(sa_ptr + m[:, None] * (K // 32) + g[None, :])
    b = tl.load(b_ptr + n[None, :] * K + k[:, None])
    sb = tl.load(sb_ptr + n[:, None] * (K // 32) + g[None, :])
    o = tl.dot_scaled(a, sa, "e2m1", b, sb, "e4m3")
    tl.store(o_ptr + m[:, None] * N + n[None, :], o)


def entry(a, sa, b, sb):
    o = torch.empty((a.shape[0], b.shape[0]))
    f[(1,)](a.view(torch.uint8), sa.view(torch.uint8), b, sb.view(torch.uint8), o, a.shape[0], b.shape[0], b.shape[1])
    return o
"""
    low, high = torch.randint(0, 16, (16, 32)), torch.randint(0, 16, (16, 32))
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]).double()
    a = torch.stack([table[low], table[high]], -1).reshape(16, 64)
    b = torch.randn(16, 64).to(torch.float8_e4m3fn)
    sa, sb = torch.randint(120, 130, (16, 2)), torch.randint(120, 130, (16, 2))
    packed = (low | high << 4).to(torch.uint8).view(torch.int8)
    got, _ = run(pool, source, packed, sa.to(torch.int8), b, sb.to(torch.uint8).view(torch.int8))

    def wide(x, s):
        return x.double() * torch.exp2(s.double() - 127).repeat_interleave(32, 1)

    close(got, wide(a, sa) @ wide(b, sb).T, 1e-6)


# -- reductions --------------------------------------------------------------------------------------------------------

REDUCE = """@triton.jit
def larger(a, ia, b, ib):
    first = (a > b) | ((a == b) & (ia < ib))
    return tl.where(first, a, b), tl.where(first, ia, ib)


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def f(x_ptr, o_ptr, i_ptr, s_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :])
    w = x.to(tl.float32)
    tl.store(o_ptr + m, tl.sum(w, 1))
    tl.store(o_ptr + M + m, tl.max(x, 1).to(tl.float32))
    tl.store(o_ptr + 2 * M + m, tl.min(x, axis=1, keep_dims=True).reshape(M).to(tl.float32))
    value, index = tl.reduce((w, tl.broadcast_to(n[None, :], (M, N))), 1, larger)
    tl.store(o_ptr + 3 * M + m, value)
    tl.store(i_ptr + m, index)
    tl.store(i_ptr + M + m, tl.argmax(w, 1))
    tl.store(o_ptr + 4 * M + m, tl.reduce(w, 1, product))
    tl.store(o_ptr + 5 * M + n, tl.sum(w, 0), mask=n < M)
    tl.store(o_ptr + 6 * M + m, tl.sum(w) + tl.max(w, 0).sum() + m)
    tl.store(s_ptr + m[:, None] * N + n[None, :], tl.cumsum(w, 1) + tl.associative_scan(w, 0, product))


def entry(x):
    M, N = x.shape
    o, i, s = torch.empty((7, M)), torch.empty((2, M), dtype=torch.int32), torch.empty((M, N))
    f[(1,)](x, o, i, s, M, N)
    return o, i, s
"""


@pytest.mark.parametrize("name", ["bf16", "f32"])
def test_reductions_and_scans(pool, name):
    x = torch.randn(32, 64).to(TYPES[name])
    o, i, s, _ = run(pool, REDUCE, x)
    w = x.double()
    rows = [w.sum(1), w.max(1).values, w.min(1).values, w.max(1).values, w.prod(1), w.sum(0)[:32]]
    rows.append(w.sum() + w.max(0).values.sum() + torch.arange(32))
    for ours, theirs in zip(o, rows, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-6, atol=2e-6)
    assert torch.equal(i[0], i[1]) and torch.equal(x[torch.arange(32), i[0].long()].double(), rows[1])
    torch.testing.assert_close(s.double(), w.cumsum(1) + w.cumprod(0), rtol=1e-5, atol=1e-5)


def in_halves(x):
    """Each addition rounded to the dtype, as a device adds."""
    while len(x) > 1:
        half = len(x) // 2
        x = x[:half] + x[half:]
    return x[0]


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_a_narrow_sum_is_rounded_at_each_addition(pool, name):
    # One rounding at the end would hide what a device loses.
    draws = ((torch.rand(64) + 0.5).to(TYPES[name]) for _ in range(100))
    x = next(x for x in draws if in_halves(x * x) != (x * x).float().sum().to(TYPES[name]))
    total = in_halves(x * x)
    got, _ = run(pool, elementwise("a + tl.sum(a * a)", name, 1), x)
    same(got, x + total)
    got, _ = run(pool, elementwise("tl.cumsum(a, 0)", name, 1), x)
    steps = [x[0]]
    for value in x[1:]:
        steps.append(steps[-1] + value)
    same(got, torch.stack(steps))


# -- memory ------------------------------------------------------------------------------------------------------------

COPY = """@triton.jit
def f(x_ptr, o_ptr, M, N, sm, sn, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < M)[:, None] & (n < N)[None, :]
    x = tl.load(x_ptr + m[:, None] * sm + n[None, :] * sn, mask=inside, other=3.0)
    tl.store(o_ptr + m[:, None] * tl.num_programs(1) * BN + n[None, :], x)


def entry(x, transposed):
    x = x.T if transposed else x
    o = torch.empty((32, 48), dtype=x.dtype)
    f[(2, 3)](x, o, *x.shape, *x.stride(), 16, 16)
    return o
"""


@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "f64", "e4m3", "e5m2", "int8", "i32"])
@pytest.mark.parametrize("transposed", [False, True])
def test_masked_loads(pool, name, transposed):
    x = (torch.randn(33, 21) * 9).to(TYPES[name]) if transposed else (torch.randn(21, 33) * 9).to(TYPES[name])
    got, _ = run(pool, COPY, x, transposed=transposed)
    expected = torch.full((32, 48), 3.0).to(TYPES[name]).double()
    expected[:21, :33] = (x.T if transposed else x).double()
    assert torch.equal(got.double(), expected)


DESCRIPTOR = """@triton.jit
def f(x, y, o, dm, dn):
    block = x.load([1, dm, dn])
    o.store([0, 0], block.reshape(16, 32))
    y.store([1, dm, dn], block + block)


@triton.jit
def g(x_ptr, o_ptr, A, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [A, M, N], [M * N, N, 1], [1, BM, BN])
    o = tl.make_tensor_descriptor(o_ptr, [A, M, N], [M * N, N, 1], [1, BM, BN])
    for a in tl.range(0, A):
        for m in range(0, M, BM):
            for n in tl.range(0, N, BN):
                o.store([a, m, n], x.load([a, m, n]))


def entry(x, dm, dn):
    y, o, z = torch.zeros_like(x), torch.empty((16, 32), dtype=x.dtype), torch.empty_like(x)
    d = lambda t: TensorDescriptor(t, list(t.shape), list(t.stride()), [1, 16, 32])
    f[(1,)](d(x), d(y), TensorDescriptor.from_tensor(o, [16, 32]), dm, dn)
    g[(1,)](x, z, *x.shape, 16, 32)
    return o, y, z
"""


@pytest.mark.parametrize("name", ["bf16", "f32", "f16", "int8"])
@pytest.mark.parametrize(("dm", "dn"), [(0, 0), (16, 32), (-4, -16), (24, 16), (64, 0), (-16, 0)])
def test_descriptors_fill_with_zero_and_clip(pool, name, dm, dn):
    x = (torch.randn(3, 21, 48) * 9).to(TYPES[name])
    o, y, z, report = run(pool, DESCRIPTOR, x, dm=dm, dn=dn)
    padded = torch.zeros(3, 200, 200, dtype=x.dtype)
    padded[:, 64 : 64 + 21, 64 : 64 + 48] = x
    at = slice(64 + dm, 64 + dm + 16), slice(64 + dn, 64 + dn + 32)
    assert torch.equal(o, padded[1][at])
    expected = torch.zeros_like(padded)
    expected[1][at] = padded[1][at] + padded[1][at]
    assert torch.equal(y, expected[:, 64 : 64 + 21, 64 : 64 + 48])
    assert torch.equal(z, x) and report.strayed == ()


def test_descriptors_of_8_bit_floats(pool):
    x = torch.randn(3, 21, 48).to(torch.float8_e4m3fn)
    source = DESCRIPTOR.replace("block + block", "block")
    o, _, z, _ = run(pool, source, x, dm=16, dn=32)
    assert torch.equal(z.float(), x.float()) and torch.equal(o[:5, :16].float(), x[1, 16:, 32:].float())
    assert not o.float()[5:].any() and not o.float()[:, 16:].any()


def test_atomics(pool):
    source = """@triton.jit
def f(x_ptr, o_ptr, h_ptr, c_ptr, e_ptr):
    i = tl.arange(0, 64)
    old = tl.atomic_xchg(e_ptr + tl.arange(0, 2), tl.program_id(0) + 1.5)
    tl.store(e_ptr + 2 + tl.program_id(0), tl.sum(old))
    tl.atomic_cas(c_ptr + tl.arange(0, 2), 5, 9)
    x = tl.load(x_ptr + i)
    tl.atomic_add(o_ptr + i % 4, x.to(tl.float32))
    tl.atomic_add(h_ptr + i % 4, x, mask=i < 32)


def entry(x):
    o, h, c = torch.zeros(4), torch.zeros(4, dtype=torch.bfloat16), torch.tensor([5, 6], dtype=torch.int32)
    e = torch.tensor([-1.0, 0.25, 0, 0])
    f[(2,)](x, o, h, c, e)
    return o, h, c, e
"""
    x = torch.randn(64).to(torch.bfloat16)
    o, h, c, e, _ = run(pool, source, x)
    assert c.tolist() == [9, 6] and e.tolist() == [2.5, 2.5, -0.75, 3.0]
    torch.testing.assert_close(o, 2 * x.float().view(16, 4).sum(0))
    expected = torch.zeros(4, dtype=torch.bfloat16)
    for row in [*x.view(16, 4)[:8]] * 2:
        expected += row
    same(h, expected)


def test_loops_with_tensor_bounds(pool):
    source = """@triton.jit
def f(n_ptr, o_ptr, B: tl.constexpr):
    hi = tl.load(n_ptr)
    total = tl.zeros((B,), tl.int32)
    for j in range(0, hi, B):
        total += j
    for j in tl.range(hi, 2 * hi, 2, num_stages=2):
        total += j
    for j in tl.static_range(3):
        total += j
    k = 0
    while k < hi:
        k += 3
    tl.store(o_ptr + tl.arange(0, B), total + k)


def entry(n):
    o = torch.empty(16, dtype=torch.int32)
    f[(1,)](n, o, 16)
    return o
"""
    got, _ = run(pool, source, torch.tensor([50], dtype=torch.int32))
    assert got.tolist() == [sum(range(0, 50, 16)) + sum(range(50, 100, 2)) + 3 + 51] * 16


# -- whole kernels -----------------------------------------------------------------------------------------------------

ATTENTION = """@triton.jit
def inner(q, k, v, top, norm, acc, live, scale):
    s = tl.where(live, tl.dot(q, k.T) * scale, -float("inf"))
    new = tl.maximum(top, tl.max(s, 1))
    p = tl.math.exp2(s - new[:, None])
    alpha = tl.math.exp2(top - new)
    return new, norm * alpha + tl.sum(p, 1), tl.dot(p.to(v.dtype), v, acc * alpha[:, None])


@triton.jit
def descriptors(q_d, k_d, v_d, o_d, H, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m0, bh = tl.program_id(0) * BM, tl.program_id(1)
    b, h = bh // H, bh % H
    q = q_d.load([b, h, m0, 0]).reshape(BM, D)
    top, norm = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    m = m0 + tl.arange(0, BM)
    for n0 in tl.range(0, tl.minimum(N, m0 + BM), BN):
        n = n0 + tl.arange(0, BN)
        k, v = k_d.load([b, h, n0, 0]).reshape(BN, D), v_d.load([b, h, n0, 0]).reshape(BN, D)
        top, norm, acc = inner(q, k, v, top, norm, acc, (m[:, None] >= n[None, :]) & (n < N)[None, :], scale)
    o_d.store([b, h, m0, 0], (acc / norm[:, None]).to(tl.bfloat16).reshape(1, 1, BM, D))


@triton.jit
def pointers(q_p, k_p, v_p, o_p, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m, d, base = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.program_id(1) * N * D
    at = base + m[:, None] * D + d[None, :]
    q = tl.load(q_p + at, mask=(m < N)[:, None], other=0.0)
    top, norm = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n0 in range(0, tl.minimum(N, (tl.program_id(0) + 1) * BM), BN):
        n = n0 + tl.arange(0, BN)
        there = base + n[:, None] * D + d[None, :]
        k = tl.load(k_p + there, mask=(n < N)[:, None], other=0.0)
        v = tl.load(v_p + there, mask=(n < N)[:, None], other=0.0)
        top, norm, acc = inner(q, k, v, top, norm, acc, (m[:, None] >= n[None, :]) & (n < N)[None, :], scale)
    tl.store(o_p + at, (acc / norm[:, None]).to(tl.bfloat16), mask=(m < N)[:, None])


def entry(q, k, v, tma):
    b, h, n, d = q.shape
    o, scale = torch.empty_like(q), 1.4426950408889634 / d**0.5
    grid = (triton.cdiv(n, 64), b * h)
    if tma:
        t = [TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 64, d]) for x in (q, k, v, o)]
        descriptors[grid](*t, h, n, scale, 64, 64, d, num_warps=4, num_stages=2)
    else:
        pointers[grid](q, k, v, o, n, scale, 64, 64, d, num_warps=4)
    return o
"""


@pytest.mark.parametrize("tma", [True, False])
@pytest.mark.parametrize("n", [200, 512])
def test_attention(pool, n, tma):
    q, k, v = (torch.randn(1, 4, n, 64).to(torch.bfloat16) for _ in range(3))
    o, report = run(pool, ATTENTION, q, k, v, tma=tma)
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    honest = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(o, exact, 1.5 * ((honest.double() - exact).norm() / exact.norm()).item())
    (output,) = report.outputs
    assert output.unwritten == 0 and output.alias is None and output.strides == tuple(q.stride())
    assert report.mutated == () and report.strayed == ()
    assert report.seconds < 10  # 0.3 s on an idle core


KEPT_PLACE = (
    HEAD
    + """
@triton.jit
def place(a_ptr, out_ptr):
    tl.store(out_ptr, a_ptr.to(tl.int64))


@triton.jit
def read(at_ptr, y_ptr):
    tl.store(y_ptr, tl.load(tl.load(at_ptr).to(tl.pointer_type(tl.float32))))


def entry(a):
    at, y = torch.zeros(1, dtype=torch.int64), torch.zeros(1)
    place[(1,)](a.clone(), at)
    read[(1,)](at, y)
    return y
"""
)


def test_a_launch_may_touch_what_it_was_given_itself(pool):
    """What the launch before was given is free by then."""
    with pytest.raises(TaskError, match="outside of every tensor"):
        run(pool, KEPT_PLACE, torch.ones(8))


# -- what a run reports ------------------------------------------------------------------------------------------------


def test_a_read_outside_is_an_error_with_its_place(pool):
    source = elementwise("a", "bf16", 1).replace(", mask=i < N, other=0.0", "")
    with pytest.raises(TaskError) as failure:
        run(pool, source, torch.randn(100).to(torch.bfloat16))
    assert re.fullmatch(
        r"line \d+: a = tl\.load\(a_ptr \+ i\)\nreads 28 elements outside of every tensor, "
        r"the first of them at byte 200 of one that has 200 \(program \(1, 0, 0\)\)",
        str(failure.value),
    )
    with pytest.raises(TaskError, match="writes 28 elements outside of every tensor"):
        run(pool, elementwise("a", "f32", 1).replace("o, mask=i < N", "o"), torch.randn(100))
    with pytest.raises(TaskError, match=r"reads 64 elements.* 256 bytes before the start"):
        run(pool, elementwise("a", "f32", 1).replace("tl.load(a_ptr + i", "tl.load(a_ptr + i - 64"), torch.randn(100))
    with pytest.raises(TaskError, match="reaches outside its tensor"):
        run(pool, DESCRIPTOR.replace("[A, M, N], [M * N", "[A, M + 1, N], [M * N"), torch.randn(3, 16, 48), dm=0, dn=0)


@pytest.mark.parametrize(
    ("shape", "strides"), [("[2, 2, 16]", "[K, -K, 1]"), ("[1, 2, 16]", "[K, -K, 1]")], ids=["between", "before"]
)
def test_a_descriptor_reaches_nowhere_by_negative_strides(pool, shape, strides):
    """Its last element may lie inside of the tensor, and one between anywhere in memory."""
    source = f"""@triton.jit
def f(x, K):
    d = tl.make_tensor_descriptor(x, {shape}, {strides}, [1, 1, 16])
    d.store([0, 1, 0], tl.full([1, 1, 16], 7.0, tl.float32))


def entry(x):
    f[(1,)](x, 1 << 12)
    return x + 0
"""
    with pytest.raises(TaskError, match="none may be negative"):
        run(pool, source, torch.zeros(64))


def test_a_write_around_a_tensor_is_reported(pool):
    source = """import ctypes


def entry(x, y):
    o = torch.empty(8)
    o.fill_(1.0)
    ctypes.memset(o.data_ptr() + o.numel() * 4, 0, 4)
    ctypes.memset(y.data_ptr() - 1, 0, 1)
    return o
"""
    _, report = run(pool, source, torch.randn(8), torch.randn(8))
    assert report.strayed == ("x1", "output 0")
    assert report.mutated == ()


def test_what_is_not_written_is_poison(pool):
    source = elementwise("a", "bf16", 1).replace("mask=i < N)\n\n", "mask=(i < N) & (i != 3))\n\n")
    got, report = run(pool, source, torch.randn(100).to(torch.bfloat16))
    assert got[3].isnan() and got.isnan().sum() == 1
    assert report.outputs[0].unwritten == 1
    for make in ("torch.empty_like(x)", "x.new_empty(x.shape)", "torch.empty_strided((4, 6), (1, 4))"):
        got, report = run(pool, f"def entry(x):\n    return {make}\n", torch.randn(4, 6))
        assert got.isnan().all() and report.outputs[0].unwritten == 24
    assert report.outputs[0].strides == (1, 4) and report.outputs[0].shape == (4, 6)
    got, report = run(pool, "def entry(x):\n    return torch.empty(5, dtype=torch.int8)\n", torch.randn(4))
    assert (got == -128).all() and report.outputs[0].unwritten == 5


def test_mutation_and_aliases_are_reported(pool):
    source = "def entry(x, y):\n    y += 1\n    return x, y * 2, x.view(2, 4)[1]\n"
    x, y = torch.randn(8), torch.randn(8)
    first, second, third, report = run(pool, source, x, y)
    assert torch.equal(first, x) and torch.equal(second, (y + 1) * 2) and torch.equal(third, x[4:])
    assert report.mutated == ("x1",)
    assert [output.alias for output in report.outputs] == ["x0", None, "x0"]


def test_empty_and_scalar_tensors(pool):
    source = "def entry(x, y):\n    return torch.empty((0, 3)), x + y, y\n"
    empty, total, scalar, _ = run(pool, source, torch.zeros(0, 4), torch.tensor(2.5))
    assert empty.shape == (0, 3) and total.shape == (0, 4) and scalar.item() == 2.5


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def other(x):\n    return x\n", "the source has no function 'entry'"),
        ("def entry(x):\n    return 1.0\n", "entry returned float as its output 0, not a tensor"),
        (
            "class T(torch.Tensor):\n    pass\n\n\ndef entry(x):\n    return x.as_subclass(T)\n",
            "entry returned T as its output 0",
        ),
        ("def entry(x):\n    raise SystemExit('bye')\n", "line 8: raise SystemExit('bye')\nSystemExit: bye"),
        ("def entry(x):\n    return x.view(3, 3)\n", "line 8: return x.view(3, 3)\nRuntimeError: shape '[3, 3]'"),
        ("def entry():\n    return 1\n", "TypeError: entry() takes 0 positional arguments"),
        ("1 / 0\n", "the source does not load: line 7: ZeroDivisionError"),
        (
            elementwise("g(a)", "f32", 1)
            + "\n\n@triton.jit\ndef g(a):\n    b = a + 1\n    return b + tl.arange(0, 32)\n",
            "return b + tl.arange(0, 32)\nValueError: Cannot make_shape_compatible",
        ),
        (elementwise("tl.static_assert(B < 3, 'too large')", "f32", 1), "AssertionError: too large"),
    ],
)
def test_an_error_has_its_place(pool, source, message):
    with pytest.raises(TaskError) as failure:
        run(pool, source, torch.randn(8))
    assert message in str(failure.value) and "Traceback" not in str(failure.value)


def test_a_hang_and_a_glutton(pool):
    with pytest.raises(Timeout, match=r"interpret took more than 0.5 s"):
        run(pool, "def entry(x):\n    while True:\n        pass\n", torch.randn(8), timeout=0.5)
    with pytest.raises(OutOfMemory):
        run(pool, "def entry(x):\n    return torch.ones(1 << 46)\n", torch.randn(8))
    got, _ = run(pool, "def entry(x):\n    return x\n", torch.ones(3))
    assert got.tolist() == [1, 1, 1]


@pytest.mark.parametrize("change", [{"shape": [5]}, {"strides": []}, {"alias": 7, "unwritten": None}, {"shape": None}])
def test_a_lying_worker_is_a_crash(change):
    class Lying:
        def call(self, *args, **rest):
            row = {"dtype": "f32", "shape": [4], "strides": [1], "unwritten": 0, "alias": None, **change}
            return Reply({"outputs": [row], "mutated": [], "strayed": [], "seconds": 0.1}, (bytes(16),), 0.1)

    with pytest.raises(Crash, match="answered nonsense"):
        interpret(Lying(), "", "entry", [])


def test_params_arrive_as_they_are(pool):
    types = "(type(n), type(s), type(flag)) == (int, float, bool)"
    source = f"def entry(x, n, s, flag):\n    assert {types}\n    return x * s + n\n"
    got, _ = run(pool, source, torch.ones(3), n=2, s=0.5, flag=True)
    assert got.tolist() == [2.5] * 3
