"""Emitted Gluon, role by role on the CPU, and as machine code for sm_90."""

from __future__ import annotations

import importlib.util
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from dsl.hardware import hardware
from dsl.knobs import knobs, set_knob
from dsl.lowering import lower
from dsl.lowering.lowered import Lowered
from dsl.parser import parse
from dsl.printer import print_program
from evaluators.compiler import compile_source, load_source
from evaluators.gluon_emulator import Misuse, Stuck, load

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "attention_sm90.avo"
SM90 = EXAMPLE.read_text(encoding="utf-8")
ALWAYS = SM90.replace("rescale speculative", "rescale always")
LSE = """kernel lse
in  q[b h m d] f16, k[b g n d] f16, v[b g n e] f16
out o[b h m e] f16, lse[b h m] f32
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(not causal or m >= n, s, -inf)
top[b h m] = max[n](c)
total[b h m] = sum[n](exp(c - top))
lse = log(total) + top
o = sum[n](exp(c - top) * v) / total
""" + SM90[SM90.index("\nschedule") :].replace("hold q registers\n", "")
WINDOW = """kernel window
in  q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16
out o[b h m e] bf16
param window int = 150
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(m >= n and m - n < window, s, -inf)
o = sum[n](softmax[n](c) * v)
""" + ALWAYS[ALWAYS.index("\nschedule") :].replace("n=128", "n=64")
GEMM = """kernel gemm
in  a[m k] bf16, b[k n] bf16, bias[n] f32
out c[m n] bf16
c = gelu(sum[k](a * b) + bias)

schedule
tile m=128 n=64 k=32
grid m n
order grouped(4)
persistent
stream k stages=3
load tma
roles load=1 mma=2
"""
VARIANTS = {
    "always": ALWAYS,
    "speculative": SM90,
    "lazy": SM90.replace("rescale speculative", "rescale lazy(8)"),
    "in order": ALWAYS.replace("issue next_contraction", "issue in_order").replace("hold q registers\n", ""),
    "short blocks": ALWAYS.replace("n=128", "n=64").replace("stages=2", "stages=3"),
    "one group": ALWAYS.replace("m=128", "m=64").replace("mma=2", "mma=1"),
    "one loop": ALWAYS.replace("split masked\n", ""),
    "one stage": ALWAYS.replace("stages=2", "stages=1"),
    "a tile a program": SM90.replace("persistent\n", ""),
    "sums first": SM90.replace("rescale speculative", "rescale lazy(8)").replace("per_thread", "per_thread sums=first"),
    "in turn": SM90.replace("issue next_contraction", "issue next_contraction turns=ping_pong"),
    "three buffers of keys": ALWAYS.replace("n=128", "n=64") + "buffers k 3\n",
    "one buffer of keys": SM90 + "buffers k 1\n",
    "polynomial": SM90.replace("exponent exp2", "exponent poly(4)"),
    "across": ALWAYS.replace("reduce rows=per_thread", "reduce rows=across"),
}


def lowered(text: str, **sizes: int) -> Lowered:
    found = lower(parse(text), hardware("h200"), {"d": 128, "e": 128, **sizes})
    assert found.language == "gluon"
    return found


def attended(q: Any, k: Any, v: Any, keep: Any) -> tuple[Any, Any]:
    k, v = (x.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = (q.double() @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~keep, -float("inf"))
    return torch.softmax(s, -1).nan_to_num(0.0) @ v, torch.logsumexp(s, -1)


def drawn(m: int, n: int, rising: bool, heads: tuple[int, int] = (2, 1), d: int = 128) -> list[torch.Tensor]:
    torch.manual_seed(m + n)
    q, k, v = (torch.randn(1, h, x, d) for h, x in zip((heads[0], heads[1], heads[1]), (m, n, n), strict=True))
    if rising:  # the maximum rises at every block of the walk, which goes from the last to the first
        q, k = q.abs(), k.abs() * torch.linspace(30, 0.1, n)[None, None, :, None]
    return [x.to(torch.bfloat16) for x in (q, k, v)]


def apart(a: Any, b: Any) -> float:
    return float((a.double() - b).norm() / b.norm())


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_roles_keep_the_value(variant: str, causal: bool) -> None:
    run = load(lowered(VARIANTS[variant]).source, seed=1).attention
    for m, n, rising in ((130, 290, False), (200, 200, True)):
        q, k, v = drawn(m, n, rising)
        keep = torch.arange(m)[:, None] >= torch.arange(n) if causal else torch.ones(m, n, dtype=torch.bool)
        assert apart(run(q, k, v, causal), attended(q, k, v, keep)[0]) < 4e-3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("variant", VARIANTS)
def test_whoever_goes_on_first(variant: str, seed: int) -> None:
    run = load(lowered(VARIANTS[variant]).source, seed).attention
    m, n = 100 + 37 * seed, 330 - 50 * seed
    q, k, v = drawn(m, n, bool(seed % 2), (4, 2))
    keep = torch.arange(m)[:, None] >= torch.arange(n)
    assert apart(run(q, k, v, True), attended(q, k, v, keep)[0]) < 4e-3


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["speculative", "lazy"])
def test_lengths_from_1_to_700(variant: str) -> None:
    run = load(lowered(VARIANTS[variant]).source, seed=3).attention
    for m in (
        *range(1, 20),
        *range(60, 70),
        *range(120, 136),
        191,
        192,
        193,
        *range(250, 262),
        383,
        385,
        511,
        513,
        640,
        700,
    ):
        for n in (m, 701 - m):
            q, k, v = drawn(m, n, bool(m % 2))
            keep = torch.arange(m)[:, None] >= torch.arange(n)
            assert apart(run(q, k, v, True), attended(q, k, v, keep)[0]) < 4e-3, (m, n)
            assert apart(run(q, k, v, False), attended(q, k, v, keep | True)[0]) < 4e-3, (m, n)


def test_a_row_that_sees_nothing_and_a_window_of_blocks() -> None:
    run = load(lowered(WINDOW).source).window
    m, n = 300, 130  # rows from 280 on see no key
    q, k, v = drawn(m, n, False, (2, 2))
    rows, columns = torch.arange(m)[:, None], torch.arange(n)
    found = run(q, k, v, window=150)
    assert apart(found, attended(q, k, v, (rows >= columns) & (rows - columns < 150))[0]) < 4e-3
    assert not found[:, :, 280:].any()


@pytest.mark.parametrize("d", [64, 256])
def test_other_head_dims(d: int) -> None:
    text = ALWAYS.replace("n=128", "n=64").replace("hold q registers\n", "")
    run = load(lowered(text, d=d, e=d).source).attention
    q, k, v = drawn(140, 150, False, d=d)
    assert apart(run(q, k, v, False), attended(q, k, v, torch.ones(140, 150, dtype=torch.bool))[0]) < 4e-3


def test_the_logarithm_of_the_sum() -> None:
    run = load(lowered(LSE).source).lse
    q, k, v = (x.to(torch.float16) for x in drawn(150, 140, False))
    o, lse = run(q, k, v, True)
    right, logs = attended(q, k, v, torch.arange(150)[:, None] >= torch.arange(140))
    assert apart(o, right) < 1e-3 and float((lse - logs).abs().max()) < 1e-4


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_a_product_with_its_epilogue(stages: int) -> None:
    run = load(lowered(GEMM.replace("stages=3", f"stages={stages}")).source).gemm
    a, b, bias = torch.randn(200, 72).bfloat16(), torch.randn(72, 136).bfloat16(), torch.randn(136)
    right = torch.nn.functional.gelu(a.double() @ b.double() + bias.double())
    assert apart(run(a, b, bias), right) < 4e-3


def test_a_product_of_narrow_operands() -> None:
    text = GEMM.replace("a[m k] bf16, b[k n] bf16", "a[m k] e4m3, b[n k] e4m3").replace("k=32", "k=64")
    run = load(lowered(text).source).gemm
    a, b, bias = (
        torch.randn(140, 80).to(torch.float8_e4m3fn),
        torch.randn(80, 80).to(torch.float8_e4m3fn),
        torch.randn(80),
    )
    right = torch.nn.functional.gelu(a.double() @ b.double().T + bias.double())
    assert apart(run(a, b, bias), right) < 4e-3


def test_a_product_of_integers() -> None:
    text = GEMM.replace("a[m k] bf16, b[k n] bf16", "a[m k] int8, b[n k] int8").replace("k=32", "k=64")
    run = load(lowered(text.replace("gelu(sum[k](a * b) + bias)", "sum[k](a * b) * 0.01 + bias")).source).gemm
    a, b = (torch.randint(-127, 128, (x, 80), dtype=torch.int8) for x in (140, 80))
    bias = torch.randn(80)
    assert apart(run(a, b, bias), (a.double() @ b.double().T) * 0.01 + bias.double()) < 4e-3


@pytest.mark.parametrize("dtype", ["e4m3", "int8"])
def test_narrow_scores(dtype: str) -> None:
    """Queries and keys in 8 bits, weights and values in 16: integers with a scale for each row and each key."""
    text = SM90.replace("q[b h m d] bf16, k[b g n d] bf16", f"q[b h m d] {dtype}, k[b g n d] {dtype}")
    q, k, v = drawn(150, 270, True)
    keep = torch.arange(150)[:, None] >= torch.arange(270)
    more = []
    if dtype == "int8":
        text = text.replace("v[b g n e] bf16", "v[b g n e] bf16, qs[b h m] f32, ks[b g n] f32")
        text = text.replace("rsqrt(D)", "qs * ks")
        scales = [x.float().abs().amax(-1) / 127 for x in (q, k)]
        q, k = ((x.float() / s[..., None]).round().to(torch.int8) for x, s in zip((q, k), scales, strict=True))
        more = [scales[0] / math.sqrt(128), scales[1]]
        meant = [x.double() * s.double()[..., None] for x, s in zip((q, k), scales, strict=True)]
    else:
        q, k = (x.to(torch.float8_e4m3fn) for x in (q, k))
        meant = [q, k]
    found = load(lowered(text).source, 2).attention(q, k, v, *more, True)
    assert apart(found, attended(*meant, v, keep)[0]) < 4e-3


def test_scores_with_a_scale_for_128_tokens() -> None:
    """The scales of a block are scalars, which meet before they meet a score."""
    text = SM90.replace("q[b h m d] bf16, k[b g n d] bf16", "q[b h m d] int8, k[b g n d] int8")
    text = text.replace("v[b g n e] bf16", "v[b g n e] bf16, qs[b h mb] f32, ks[b g nb] f32")
    text = text.replace("rsqrt(D)", "(qs * ks)").replace(
        "param causal", "axis mb = m // 128\naxis nb = n // 128\nparam causal"
    )
    found = lowered(text)
    assert found.language == "gluon" and "product2 * (qs * ks2)" in found.source
    q, k, v = drawn(150, 270, True)
    kept, meant, whole = [], [], []
    for x in (q, k):
        most = torch.nn.functional.pad(x.float().abs().amax(-1), (0, -x.shape[2] % 128))
        kept.append(most.unflatten(-1, (-1, 128)).amax(-1) / 127)
        scale = kept[-1].repeat_interleave(128, -1)[..., : x.shape[2], None]
        whole.append((x.float() / scale).round().to(torch.int8))
        meant.append(whole[-1].double() * scale.double())
    right = attended(*meant, v, torch.ones(150, 270, dtype=torch.bool))[0]
    got = load(found.source, 2).attention(*whole, v, kept[0] / math.sqrt(128), kept[1], False)
    assert apart(got, right) < 4e-3


# -- sm_100: compiled, never run ---------------------------------------------------------------------------------------

SM100 = ALWAYS.replace("m=128 n=128", "m=256 n=64").replace("hold q registers\n", "")


def for_sm_100(text: str) -> Lowered:
    found = lower(parse(text), hardware("b200"), {"d": 128, "e": 128}, untried=True)
    assert found.language == "gluon" and any("never run" in w.message for w in found.warnings)
    assert "# compiled for sm_100, never run" in found.source
    return found


def test_sm_100_gets_plain_triton_unless_it_is_asked_for() -> None:
    found = lower(parse(SM100), hardware("b200"), {"d": 128, "e": 128})
    assert found.language == "triton" and any("sm_90 alone" in w.message for w in found.warnings)


@pytest.mark.parametrize("rescale", ["always", "lazy(8)"])
@pytest.mark.parametrize("issue", ["next_contraction", "in_order"])
def test_products_in_tensor_memory_keep_the_value(rescale: str, issue: str) -> None:
    text = SM100.replace("rescale always", f"rescale {rescale}").replace("next_contraction", issue)
    run = load(for_sm_100(text).source, seed=3).attention
    q, k, v = drawn(300, 270, True)
    for causal in (True, False):
        keep = torch.arange(300)[:, None] >= torch.arange(270)
        assert apart(run(q, k, v, causal), attended(q, k, v, keep | (not causal))[0]) < 4e-3


PRODUCT100 = """
kernel gemm
in  a[m k] bf16, b[k n] bf16, bias[n] f32
out c[m n] bf16
c = relu(sum[k](a * b) + bias)

schedule
tile m=256 n=128 k=64
grid m n
order grouped(8)
persistent
stream k stages=3
load tma
roles load=1 mma=2
registers load=24 mma=240
"""
NARROW100 = PRODUCT100.replace("a[m k] bf16, b[k n] bf16", "a[m k] e4m3, b[n k] e4m3").replace("k=64", "k=128")


@pytest.mark.parametrize("text", [PRODUCT100, NARROW100, PRODUCT100.replace("stages=3", "stages=1")])
def test_a_matrix_product_in_tensor_memory_keeps_the_value(text: str) -> None:
    torch.manual_seed(1)
    a, b, bias = torch.randn(600, 208).bfloat16(), torch.randn(208, 264).bfloat16(), torch.randn(264)
    if text is NARROW100:
        a, b = a.to(torch.float8_e4m3fn), b.T.contiguous().to(torch.float8_e4m3fn)
    right = torch.relu(a.double() @ (b.double().T if text is NARROW100 else b.double()) + bias)
    found = for_sm_100(text)
    for seed in range(3):
        assert apart(load(found.source, seed).gemm(a, b, bias), right) < 4e-3
    wrong = 0
    for seed in range(4):  # a product that nobody waits for
        try:
            broken = load(re.sub(r"mbarrier\.wait\(sums_done.*\n", "pass\n", found.source), seed)
            wrong += not apart(broken.gemm(a, b, bias), right) < 4e-3
        except (Misuse, Stuck):
            wrong += 1
    assert wrong


@pytest.mark.parametrize("line", [r"mbarrier\.wait\(scores_done.*\n", r"mbarrier\.wait\(sums_done.*\n"])
def test_the_emulator_finds_a_product_in_tensor_memory_that_nobody_waits_for(line: str) -> None:
    source = re.sub(line, "pass\n", for_sm_100(SM100).source)
    q, k, v = drawn(300, 400, False)
    wrong = 0
    for seed in range(3):
        try:
            found = load(source, seed).attention(q, k, v, False)
            wrong += not apart(found, attended(q, k, v, torch.ones(300, 400, dtype=torch.bool))[0]) < 4e-3
        except (Misuse, Stuck):
            wrong += 1
    assert wrong


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("m=256", "m=128"), "each group has 128 rows"),
        (("n=64", "n=128"), "512 columns"),
        (("rescale always", "rescale speculative"), "needs 64 rows a group"),
    ],
)
def test_what_tensor_memory_has_no_room_for(change: tuple[str, str], why: str) -> None:
    found = lower(parse(SM100.replace(*change)), hardware("b200"), {"d": 128, "e": 128}, untried=True)
    assert found.language == "triton" and any(why in w.message for w in found.warnings)


def drawn_schedule(text: str, seed: int) -> str:
    """The program after eight legal edits of its schedule, roles kept."""
    rng = random.Random(seed)
    program, hw = parse(text), hardware("h200")
    for _ in range(8):
        open_ = [k for k in knobs(program, hw, None) if k.name not in ("roles mma", "load", "stream")]
        knob = rng.choice(open_)
        program = set_knob(program, knob, rng.choice(knob.legal))
    return print_program(program)


def keeps_the_value(text: str, seed: int) -> None:
    found = lower(parse(text), hardware("h200"), {"d": 128, "e": 128})
    if found.language != "gluon":  # a polynomial exponential, too few rows for each group
        assert found.warnings
        return
    run = getattr(load(found.source, seed), found.entry)
    torch.manual_seed(seed)
    if found.entry == "gemm":
        a, b, bias = torch.randn(150, 72).bfloat16(), torch.randn(72, 136).bfloat16(), torch.randn(136)
        right = torch.nn.functional.gelu(a.double() @ b.double() + bias.double())
        assert apart(run(a, b, bias), right) < 4e-3, text
        return
    q, k, v = drawn(140, 70 + 60 * (seed % 4), bool(seed % 2))
    keep = torch.arange(140)[:, None] >= torch.arange(k.shape[2])
    for causal in (True, False):
        assert apart(run(q, k, v, causal), attended(q, k, v, keep | (not causal))[0]) < 6e-3, text


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("text", [SM90, GEMM], ids=["attention", "gemm"])
def test_any_legal_schedule_with_roles_keeps_the_value(text: str, seed: int) -> None:
    keeps_the_value(drawn_schedule(text, seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("text", [SM90, GEMM], ids=["attention", "gemm"])
def test_many_more_legal_schedules_with_roles(text: str, seed: int) -> None:
    keeps_the_value(drawn_schedule(text, seed), seed)


WRONG = [
    (r"mbarrier\.wait\(v_full.*\n", 0),  # a product reads what has not arrived
    (r"mbarrier\.wait\(k_empty.*\n", 0),  # a load overwrites what is being read
    (r"acc = warpgroup_mma_wait\(0, deps=\(acc,\)\)\n", 0),  # an accumulator is read while a product adds to it
    (r"mbarrier\.arrive\(v_empty.*\n", 0),  # nobody hands a buffer back
    (r"tma\.store_wait\(0\)\n", 1),  # the kernel ends before its result has left
]


@pytest.mark.parametrize(("line", "which"), WRONG)
def test_the_emulator_finds_what_a_missing_line_does(line: str, which: int) -> None:
    source = lowered(ALWAYS).source
    found = list(re.finditer(line, source))
    broken = source[: found[-1].start()] + source[found[-1].end() :] if which else re.sub(line, "pass\n", source)
    assert broken != source
    q, k, v = drawn(200, 700, False)
    wrong = 0
    for seed in range(3):
        try:
            o = load(broken, seed).attention(q, k, v, False)
            wrong += not apart(o, attended(q, k, v, torch.ones(200, 700, dtype=torch.bool))[0]) < 4e-3
        except (Misuse, Stuck):
            wrong += 1
    assert wrong


def test_a_turn_that_is_not_waited_for() -> None:
    source = lowered(VARIANTS["in turn"]).source
    broken = source.replace("    take_turn(WG)\n", "    pass\n")
    assert broken != source
    q, k, v = drawn(200, 300, False)
    with pytest.raises(Misuse, match="a turn is given"):
        load(broken, 1).attention(q, k, v, False)


# -- machine code ------------------------------------------------------------------------------------------------------

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="compiling needs triton")
SIZES = {"b": 8, "h": 16, "g": 16, "m": 4096, "n": 4096, "d": 128, "e": 128}


@needs_triton
def test_the_machine_code_of_attention() -> None:
    found = lowered(ALWAYS)
    (kernel,) = found.kernels
    launch = kernel.specialise(SIZES, {"causal": True})
    assert launch.programs == 132 and launch.options == {"num_warps": 4, "maxnreg": 168}
    machine = compile_source(found.source, kernel.name, launch, hardware("h200"), ["sass"])
    assert machine.registers == 168 and machine.threads == 384 and machine.spills <= 8
    assert machine.shared_bytes < 227 * 1024
    # two groups, each with the code of the first block and of all others: eight wgmma for each of two products
    assert machine.matrix == {"HGMMA.64x128x16.F32.BF16": 64}
    assert 40 <= machine.instructions["mbarrier"] <= 80 and machine.instructions["tma"] == 10
    assert waits_behind_the_exponentials(machine.texts["sass"]) == 2  # in each group's loop


def waits_behind_the_exponentials(sass: str) -> int:
    """Loops in which more than half of the exponentials stand before the last wait for products: the second product
    runs beside them. ptxas would move the wait up if no barrier stood between."""
    code = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)(.*?);", sass, re.MULTILINE)
    loops = 0
    start: int | None = None
    seen: list[str] = []
    for name, _ in code:
        if name.startswith("HGMMA"):
            start = 0 if start is None else start
            if seen and "W" in seen:
                before = "".join(seen)
                last = before.rindex("W")
                loops += before[:last].count("E") > 32 > before[last:].count("E")
                seen = []
            seen.append("H")
        elif name.startswith("WARPGROUP.DEPBAR"):
            seen.append("W")
        elif name.startswith("MUFU.EX2"):
            seen.append("E")
    return loops


@needs_triton
def test_no_warp_waits_for_others_to_know_whether_its_rows_rose() -> None:
    """`lazy` branches by a vote of each warp: no reduction across warps, and as many barriers as `always`."""
    counts = {}
    for rescale in ("always", "lazy(8)"):
        text = SM90.replace("rescale speculative", f"rescale {rescale}")
        found = lowered(text)  # queries are held in registers, so sums come first
        (kernel,) = found.kernels
        launch = kernel.specialise(SIZES, {"causal": False})
        machine = compile_source(found.source, kernel.name, launch, hardware("h200"), ["sass"])
        counts[rescale] = len(re.findall(r"\bBAR\.", machine.texts["sass"]))
        assert waits_behind_the_exponentials(machine.texts["sass"]) == 2
        assert len(re.findall(r"\bVOTE\.ANY", machine.texts["sass"])) == (2 if rescale != "always" else 0)
    assert counts["lazy(8)"] == counts["always"]


@needs_triton
def test_a_bias_is_loaded_once_by_each_thread_and_spread() -> None:
    text = GEMM.replace("m=128 n=64 k=32", "m=128 n=256 k=64").replace("gelu", "relu")
    found = lowered(text)
    (kernel,) = found.kernels
    launch = kernel.specialise({"m": 4096, "n": 4096, "k": 4096}, {})
    machine = compile_source(found.source, kernel.name, launch, hardware("h200"), ["sass"])
    assert len(re.findall(r"\bLDG\.", machine.texts["sass"])) <= 4  # two groups, two elements of 256 a thread


@needs_triton
def test_the_machine_code_for_sm_100() -> None:
    found = for_sm_100(SM100)
    (kernel,) = found.kernels
    machine = compile_source(found.source, kernel.name, kernel.specialise(SIZES, {"causal": False}), hardware("b200"))
    # two groups; first block, all others, and the last second product: 8 steps of 16 of d, 4 of n
    assert machine.matrix == {"UTCHMMA": 48} and machine.spills <= 8 and machine.shared_bytes < 227 * 1024


@needs_triton
@pytest.mark.parametrize(("text", "matrix"), [(PRODUCT100, {"UTCHMMA": 8}), (NARROW100, {"UTCQMMA": 8})])
def test_the_machine_code_of_a_product_for_sm_100(text: str, matrix: dict[str, int]) -> None:
    found = for_sm_100(text)
    (kernel,) = found.kernels
    launch = kernel.specialise({"m": 4096, "n": 4096, "k": 4096}, {})
    machine = compile_source(found.source, kernel.name, launch, hardware("b200"))
    assert machine.matrix == matrix and machine.spills == 0 and machine.shared_bytes < 227 * 1024  # two groups


@needs_triton
@pytest.mark.slow
def test_the_machine_code_of_a_product() -> None:
    text = GEMM.replace("m=128 n=64 k=32", "m=128 n=256 k=64").replace("gelu", "relu")
    found = lowered(text)
    (kernel,) = found.kernels
    launch = kernel.specialise({"m": 8192, "n": 8192, "k": 8192}, {})
    machine = compile_source(found.source, kernel.name, launch, hardware("h200"))
    assert machine.spills == 0 and machine.matrix == {"HGMMA.64x256x16.F32.BF16": 8}


@needs_triton
@pytest.mark.slow
def test_the_machine_code_of_the_speculative_form() -> None:
    found = lowered(SM90)
    (kernel,) = found.kernels
    machine = compile_source(found.source, kernel.name, kernel.specialise(SIZES, {"causal": False}), hardware("h200"))
    assert machine.matrix == {"HGMMA.64x128x16.F32.BF16": 80}  # each group's loop can do a first product again
    assert machine.spills <= 8


@pytest.mark.parametrize("change", [("issue next_contraction", "issue in_order"), ("stages=2", "stages=1")])
def test_an_input_is_held_in_registers_in_turned_loops_alone(change: tuple[str, str]) -> None:
    """In order, ptxas gives its registers to the other product's operand: wrong results on an H200."""
    held = ".load(gl.DotOperandLayout(0, MN_LAYOUT, 2))"
    turned, plain = lowered(ALWAYS), lowered(ALWAYS.replace(*change))
    assert held in turned.source and held not in plain.source
    assert not any("hold" in w.message for w in turned.warnings)
    assert any("`hold ... registers` of an input has no effect" in w.message for w in plain.warnings)


@needs_triton
@pytest.mark.parametrize("text", [ALWAYS, GEMM.replace("k=32", "k=64")])
def test_a_launch_finds_what_was_compiled(text: str) -> None:
    """Triton's JIT makes the same signature, constants and attributes of a launch as `specialise` foretells."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    found = lowered(text)
    module = load_source(found.source)
    (kernel,) = found.kernels
    function = getattr(module, kernel.name)
    given: dict[str, Any] = {}

    class Launcher:
        def __getitem__(self, grid: object) -> Any:
            return lambda *args, **kwargs: given.update(args=args, kwargs=kwargs)

    setattr(module, kernel.name, Launcher())
    try:
        if text == ALWAYS:
            module.attention(*(torch.zeros(2, 16, 512, 128, dtype=torch.bfloat16) for _ in range(3)), True)
            sizes, params = SIZES | {"b": 2, "m": 512, "n": 512}, {"causal": True}
        else:
            module.gemm(torch.zeros(512, 64).bfloat16(), torch.zeros(64, 256).bfloat16(), torch.zeros(256))
            sizes, params = {"m": 512, "k": 64, "n": 256}, {}
    finally:
        setattr(module, kernel.name, function)
    backend = make_backend(GPUTarget("cuda", 90, 32))
    binder = create_function_from_signature(function.signature, function.params, backend)
    bound, specialization, options = binder(*given["args"], **given["kwargs"])
    options = {"debug": False, **given["kwargs"]}
    _, signature, constants, attributes = function._pack_args(backend, options, bound, specialization, options)
    launch = kernel.specialise(sizes, params)
    assert signature == launch.signature
    assert {function.arg_names[p[0]]: v for p, v in constants.items()} == launch.constexprs
    aligned = {function.arg_names[p[0]] for p, found in attributes.items() if found}
    assert aligned == set(launch.divisible)
