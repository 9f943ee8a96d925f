"""Work falls out of the algorithm: FLOPs, exponentials, bytes, and what a mask leaves of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.masks import NOWHERE, Reader, share
from dsl.parser import parse
from dsl.syntax import Program
from dsl.terms import Graph, Term
from dsl.work import Work, work

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
B, H, G, N, D = 2, 16, 4, 512, 128

SIZES = {
    "attention": {"b": B, "h": H, "g": G, "m": N, "n": N, "d": D, "e": D},
    "attention_sm90": {"b": B, "h": H, "g": H, "m": N, "n": N, "d": D, "e": D},
    "attention_backward": {"b": B, "h": H, "g": G, "m": N, "n": N, "d": D, "e": D},
    "numa_attention": {"b": B, "h": H, "m": N, "n": N, "d": D, "e": D},
    "sage2pp": {"b": B, "h": H, "m": N, "n": N, "d": D, "e": D},
    "sla": {"b": B, "h": H, "m": 64 * 40, "n": 64 * 40, "d": D, "e": D, "f": D},
    "gemm": {"m": 512, "n": 256, "k": 1024},
    "gather_gemm": {"r": 8, "m": 256, "k": 512, "n": 128},
    "rmsnorm": {"r": 100, "c": 4096},
    "rope": {"b": B, "s": 64, "h": 4, "d": D},
    "cross_entropy": {"r": 100, "c": 32000},
    "decode_queue": {"r": 16, "c": 1024, "f": 4096},
    "layernorm": {"r": 100, "c": 4096},
    "softmax": {"r": 100, "c": 4096},
    "swiglu": {"r": 512, "c": 1024, "f": 256},
    "linear_cross_entropy": {"r": 512, "c": 1024, "v": 4096},
    "batched_gemm": {"b": 4, "m": 512, "n": 256, "k": 1024},
    "split_k_gemm": {"m": 16, "n": 256, "k": 8192},
    "int8_gemm": {"m": 512, "n": 256, "k": 1024},
    "fp8_gemm": {"m": 512, "n": 256, "k": 1024},
    "flash_decoding": {"b": B, "h": H, "g": G, "m": 1, "n": 4096, "d": D, "e": D},
    "sliding_window": {"b": B, "h": H, "g": G, "m": N, "n": N, "d": D, "e": D},
    "attention_lse": {"b": B, "h": H, "g": G, "m": N, "n": N, "d": D, "e": D},
    "alibi": {"b": B, "h": H, "g": G, "m": N, "n": N, "d": D, "e": D},
    "softcap": {"b": B, "h": H, "g": G, "m": N, "n": N, "d": D, "e": D},
    "linear_attention": {"b": B, "h": H, "n": N, "d": D, "e": D},
    "decay_attention": {"b": B, "h": H, "n": N, "d": D, "e": D},
    "int4_linear": {"m": 16, "n": 256, "k": 1024},
    "paged_attention": {"b": B, "h": H, "g": G, "p": 512, "s": 16, "t": 64, "d": D, "e": D},
    "mxfp4_gemm": {"m": 512, "n": 256, "k": 1024},
    "nvfp4_linear": {"m": 512, "n": 256, "k": 1024},
    "grouped_gemm": {"t": 512, "n": 256, "k": 1024, "e": 8},
    "conv2d": {"b": B, "i": 56, "j": 56, "c": 64, "u": 3, "v": 3, "o": 128},
    "attention_sinks": {"b": B, "h": H, "g": G, "m": N, "n": N, "d": D, "e": D},
}


def example(name: str) -> Program:
    return parse((EXAMPLES / f"{name}.avo").read_text(), name)


def count(name: str, **params: bool | int) -> Work:
    return work(example(name), SIZES[name], params)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.avo")), ids=lambda p: p.stem)
def test_every_example_has_its_work_counted(path: Path) -> None:
    program = parse(path.read_text(), path.name)
    wanted = {p.name for p in program.algorithm.params if p.default is None}
    params = {n: v for n, v in {"causal": True, "cap": 30.0}.items() if n in wanted}
    w = work(program, SIZES[path.stem], params)
    assert w.bytes_in > 0 and w.bytes_out > 0
    assert w.total_flops + w.alu > 0
    assert len(w.kernels) == max(1, len(program.schedule.kernels) + (not _all_written(program)))
    for k in w.kernels:
        assert k.total_flops + k.alu > 0 and k.bytes_out > 0


def _all_written(program: Program) -> bool:
    named = {w for k in program.schedule.kernels for w in k}
    return all(t.name in named for t in program.algorithm.outputs)


def test_attention_is_four_b_h_n_squared_d() -> None:
    w = count("attention", causal=False)
    assert w.flops == {"bf16": 4 * B * H * N * N * D}
    assert w.exps == B * H * N * N + B * H * N  # one reciprocal a row
    assert w.bytes_in == 2 * (B * H * N * D + 2 * B * G * N * D)
    assert w.bytes_out == 2 * B * H * N * D
    # scale, maximum, difference, sum for each pair; the division after the sum and its rounding for each output
    assert w.alu == 4 * B * H * N * N + 2 * B * H * N * D
    assert w.kept == 1


def test_a_causal_mask_halves_by_the_convention_and_counts_the_diagonal_exactly() -> None:
    w, dense = count("attention", causal=True), count("attention", causal=False)
    assert w.total_flops == dense.total_flops / 2
    assert w.kept == 0.5
    assert w.exact_flops == {"bf16": 4 * B * H * D * N * (N + 1) / 2}
    assert w.dense_flops == dense.flops
    assert w.exps == pytest.approx(B * H * N * N / 2, rel=0.01)
    assert w.bytes == dense.bytes


def test_a_sliding_window_keeps_its_band() -> None:
    text = """kernel window
in  q[m d] bf16, k[n d] bf16, v[n e] bf16
out o[m e] bf16
param window int = 128
s[m n] = where(m >= n and m - n < window, sum[d](q * k), -inf)
o = sum[n](softmax[n](s) * v)
"""
    n, w = 1024, 100
    counted = work(parse(text), {"m": n, "n": n, "d": 64, "e": 64}, {"window": w})
    pairs = n * w - w * (w - 1) / 2
    assert counted.exact_flops["bf16"] == 4 * 64 * pairs
    assert counted.flops["bf16"] == pytest.approx(4 * 64 * (n * w - w * w / 2))
    default = work(parse(text), {"m": n, "n": n, "d": 64, "e": 64})
    assert default.exact_flops["bf16"] == 4 * 64 * (n * 128 - 128 * 127 / 2)


def test_bottom_right_masks_of_unequal_lengths() -> None:
    text = """kernel tail
in  q[m d] bf16, k[n d] bf16, v[n e] bf16
out o[m e] bf16
s[m n] = where(m + N - M >= n, sum[d](q * k), -inf)
o = sum[n](softmax[n](s) * v)
"""
    m, n = 64, 256
    counted = work(parse(text), {"m": m, "n": n, "d": 32, "e": 32})
    assert counted.exact_flops["bf16"] == 4 * 32 * (m * (n - m) + m * (m + 1) / 2)
    assert counted.kept == pytest.approx((n - m + m / 2) / n)


def test_gemm_counts_two_a_multiply_add_and_each_tensor_once() -> None:
    m, n, k = (SIZES["gemm"][a] for a in "mnk")
    w = count("gemm")
    assert w.flops == {"bf16": 2 * m * n * k}
    assert w.bytes_in == 2 * (m * k + k * n) + 4 * n
    assert w.bytes_out == 2 * m * n
    assert w.exps == m * n  # gelu's exponential


def test_backward_of_attention_is_five_products_and_two_are_run_twice() -> None:
    w = count("attention_backward")
    assert w.flops == {"bf16": 10 * B * H * N * N * D}
    delta, gq, gkv = w.kernels
    assert delta.flops == {} and delta.alu == 2 * B * H * N * D
    assert gq.flops == {"bf16": 6 * B * H * N * N * D}
    assert gkv.flops == {"bf16": 8 * B * H * N * N * D}


def test_stored_intermediates_are_written_and_read() -> None:
    r, c, f = (SIZES["decode_queue"][a] for a in "rcf")
    w = count("decode_queue")
    xn, a, y = w.kernels
    assert (xn.writes, a.writes, y.writes) == (("xn",), ("a",), ("y",))
    assert xn.bytes_out == 2 * r * c
    assert a.bytes_in == 2 * (r * c + 2 * c * f) and a.bytes_out == 2 * r * f
    assert y.bytes_in == 2 * (r * f + f * c + r * c)
    assert w.bytes == 2 * (r * c + c + 3 * c * f + r * c)  # fused: inputs and outputs alone


def test_quantised_attention_names_its_dtypes() -> None:
    w = count("sage2pp")
    assert w.flops == {"int8": 2 * B * H * N * N * D, "e4m3": 2 * B * H * N * N * D}


def test_a_selection_keeps_its_share_also_where_it_is_stored() -> None:
    w = count("sla")
    blocks = SIZES["sla"]["n"] // 64
    sparse = 4 * B * H * SIZES["sla"]["n"] ** 2 * D * (5 * blocks // 100) / blocks
    assert sparse < w.total_flops < 3 * sparse  # and the linear branch
    assert sparse < w.kernels[-1].total_flops < 3 * sparse
    assert w.kept < 0.15


def test_memory_bound_programs_have_no_contraction() -> None:
    r, c = SIZES["rmsnorm"]["r"], SIZES["rmsnorm"]["c"]
    w = count("rmsnorm")
    assert w.flops == {} and w.kept == 1
    assert w.bytes == 2 * (2 * r * c + c)
    w = count("cross_entropy")
    assert w.exps == pytest.approx(100 * 32000, rel=0.01)
    assert w.bytes_in == 2 * 100 * 32000 + 4 * 100


def test_a_gather_touches_what_it_reads_at_most() -> None:
    w = work(parse("kernel pick\nin x[r c] bf16, t[r] i32\nout y[r] f32\ny = x[r t]\n"), {"r": 10, "c": 1000})
    assert w.bytes_in == 2 * 10 + 4 * 10
    small = work(parse("kernel pick\nin x[c] bf16, t[r] i32\nout y[r] f32\ny = x[t]\n"), {"r": 1000, "c": 10})
    assert small.bytes_in == 2 * 10 + 4 * 1000


def test_collectives_count_one_rank() -> None:
    w = count("gather_gemm")
    assert w.flops == {"bf16": 2 * 8 * 256 * 512 * 128}
    assert w.bytes_out == 2 * 8 * 256 * 128


def test_an_unknown_extent_is_named() -> None:
    with pytest.raises(ValueError, match="axis k"):
        work(example("gemm"), {"m": 1, "n": 1})


atoms = st.tuples(
    st.sampled_from([">=", ">", "<", "<=", "==", "!="]), st.integers(-3, 3), st.integers(-3, 3), st.integers(-20, 20)
)
trees = st.recursive(
    atoms,
    lambda t: st.one_of(st.tuples(st.just("not"), t), st.tuples(st.sampled_from(["and", "or"]), t, t)),
    max_leaves=3,
)


@settings(max_examples=150, deadline=None)
@given(trees, st.integers(1, 17), st.integers(1, 17))
def test_exact_shares_equal_enumeration(tree: tuple, m: int, n: int) -> None:  # type: ignore[type-arg]
    graph = Graph()
    i, j = np.arange(m)[:, None], np.arange(n)[None, :]

    def build(t: tuple) -> tuple[Term, np.ndarray]:  # type: ignore[type-arg]
        if t[0] == "not":
            term, value = build(t[1])
            return graph.map("not", term), ~value
        if t[0] in ("and", "or"):
            (a, x), (b, y) = build(t[1]), build(t[2])
            return graph.map(t[0], a, b), (x & y if t[0] == "and" else x | y)
        op, a, b, c = t
        left = graph.map("+", graph.map("*", graph.index("m"), graph.const(a)), graph.const(c))
        right = graph.map("*", graph.const(b), graph.index("n"))
        x, y = a * i + c + 0 * j, b * j + 0 * i
        value = {">=": x >= y, ">": x > y, "<": x < y, "<=": x <= y, "==": x == y, "!=": x != y}[op]
        return graph.map(op, left, right), value

    term, value = build(tree)
    reader = Reader({"m": m, "n": n}, {}, {}, {})
    region = reader.region(term)
    assert share(region, {"m": m, "n": n}, exact=True) == pytest.approx(value.mean())
    assert share(reader.region(term, False), {"m": m, "n": n}, exact=True) == pytest.approx(1 - value.mean())
    assert share(NOWHERE, {"m": m, "n": n}) == 0


def test_block_formats_are_counted_with_their_scales() -> None:
    m, n, k = 512, 256, 1024
    mx, nv = count("mxfp4_gemm"), count("nvfp4_linear")
    assert mx.flops == {"mxfp4": 2 * m * n * k} and nv.flops == {"nvfp4": 2 * m * n * k}
    assert mx.bytes_in == (m + n) * k * (0.5 + 1 / 32)
    assert nv.bytes_in == 2 * m * k + n * k * (0.5 + 1 / 16) + 4


def test_a_convolution_is_its_products() -> None:
    assert count("conv2d").flops == {"f16": 2 * B * 56 * 56 * 128 * 64 * 9}
