"""The emitted Triton, as committed in tests/golden: read the difference before you accept it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from family import FAMILY

from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.parser import parse

SIZES = {"d": 128, "e": 128}
CASES = [
    ("attention", "b200"), ("attention", "a100"), ("attention", "mi300x"), ("gemm", "h200"), ("gemm", "mi300x"),
    ("rmsnorm", "b200"), ("softmax", "h200"), ("swiglu", "rtx5090"), ("cross_entropy", "mi355x"), ("window", "h200"),
    ("lse", "h200"), ("layernorm", "a100"), ("rope", "b200"), ("polynomial", "h200"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_emitted_source(name: str, chip: str, golden: Callable[[str, str], None]) -> None:
    text = FAMILY[name].text
    if (name, chip) == ("attention", "a100"):
        text = text.replace("load tma", "load pointer")
    golden(f"{name}.{chip}.py", lower(parse(text), hardware(chip), SIZES).source)


def test_a_causal_loop_visits_no_block_above_the_diagonal() -> None:
    (kernel,) = lower(parse(FAMILY["attention"].text), hardware("h200"), SIZES).kernels
    sizes = {"b": 1, "h": 1, "g": 1, "m": 512, "n": 512, "d": 128, "e": 128}
    trips = {s.name: s.trips for s in kernel.profile(sizes, {"causal": True}).segments}
    assert trips["loop"] == (6, 4, 2, 0)  # in launch order: longest first
    assert trips["masked loop"] == (2,)
    trips = {s.name: s.trips for s in kernel.profile(sizes, {"causal": False}).segments}
    assert trips["loop"] == (8,) and trips["masked loop"] == (0,)


def test_a_launch_is_what_the_jit_would_choose() -> None:
    (kernel,) = lower(parse(FAMILY["attention"].text), hardware("h200"), SIZES).kernels
    sizes = {"b": 1, "h": 16, "g": 16, "m": 4000, "n": 4096, "d": 128, "e": 128}
    launch = kernel.specialise(sizes, {"causal": True})
    assert launch.signature["q_desc"] == "tensordesc<bf16[1, 1, 128, 128]>"
    assert launch.constexprs["CAUSAL"] is True and launch.constexprs["TAIL_N"] is False
    assert launch.programs == 16 * 32 and launch.options == {"num_warps": 4, "num_stages": 2}
    assert "N" in launch.divisible and launch.signature["M"] == "i32"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "kernel t\nin x[r c] f32\nout y[r cb] i32\naxis cb = c // 8\ny = argmax[c in cb](x)\n",
            "`argmax` within blocks of `cb` has no lowering yet",
        ),
        (
            "kernel t\nin x[r c] mxfp4\nout y[r c] f32\ny = x\n",
            "`mxfp4` (one scale for 32 elements, which takes scaled matrix instructions) has no lowering yet",
        ),
    ],
)
def test_what_has_no_lowering_says_so(text: str, said: str) -> None:
    with pytest.raises(ProgramError) as wrong:
        lower(parse(text), hardware("h200"))
    (diagnostic,) = wrong.value.diagnostics
    assert diagnostic.rule == "not-lowered" and diagnostic.message == said


def test_the_source_is_the_same_in_every_process() -> None:
    """Sets of names have an order of their own in each process; what is emitted must not follow it."""
    lines = (
        "from pathlib import Path; from dsl.hardware import hardware; from dsl.lowering import lower",
        "from dsl.parser import parse",
        "for f in ('attention', 'flash_decoding', 'attention_backward'):",
        "    print(lower(parse(Path(f'docs/examples/{f}.avo').read_text()), hardware('h200')).source)",
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", "\n".join(lines)], env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
        ).stdout
        for seed in range(3)
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize("dtypes, name", [(("int8", "i32"), "int32"), (("f16", "f16"), "float16")])
def test_a_sum_that_is_not_f32_is_named_beside_its_accumulator(dtypes: tuple[str, str], name: str) -> None:
    """Triton 3.6 refuses an accumulator of another dtype than `out_dtype`, which is float32 where nothing is said."""
    operand, total = dtypes
    text = (
        f"kernel f\nin a[m k] {operand}, b[k n] {operand}\nout c[m n] {total}\n"
        f"s[m n] {total} = sum[k](a * b)\nc = s\nschedule\ntile m=64 n=64 k=64\nstream k\n"
    )
    source = lower(parse(text), hardware("h200")).source
    assert f"acc = tl.dot(a, b, acc, out_dtype=tl.{name})" in source


@pytest.mark.parametrize("roles", ["", "load tma\nroles load=1 mma=1\n"])
def test_axes_whose_positions_would_be_words_of_python(roles: str) -> None:
    """The positions along `i` and `a` were named `is` and `as`."""
    text = (
        "kernel f\nin x[i k] bf16, b[k a] bf16\nout c[i a] bf16\nc = sum[k](x * b)\n"
        f"schedule\ntile i=64 a=64 k=64\nstream k stages=2\n{roles}"
    )
    lowered = lower(parse(text), hardware("h200"))
    assert lowered.language == ("gluon" if roles else "triton")
    compile(lowered.source, "f.py", "exec")
    compile(lowered.interpretable, "f.py", "exec")


def test_operands_that_are_read_by_position_are_masked_once() -> None:
    """Merged heads: the load reads 0 past the end of d, so that nothing stands between it and the product."""
    text = (
        "kernel merged\nin  q[m c] bf16, k[n c] bf16\nout s[h m n] f32\naxis h = 4\naxis d = C // 4\n"
        "s = sum[d](q[m (h * D + d)] * k[n (h * D + d)])\n\nschedule\ntile m=64 n=64\ngrid h m n\n"
    )
    source = lower(parse(text), hardware("h200")).source
    assert "tl.dot(q, k.T)" in source and "tl.where" not in source
