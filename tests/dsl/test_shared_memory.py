"""What a block takes of shared memory, told from the schedule, beside what Triton allocated."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsl.anatomy import anatomies
from dsl.check import errors
from dsl.edits import explicit
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.schedule import resolve
from dsl.shared_memory import allocated_bytes

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SIZES = {"b": 2, "h": 8, "g": 4, "m": 1024, "n": 1024, "d": 128, "e": 128, "f": 1024, "r": 2048, "c": 2048, "k": 2048}
SIZES |= {"v": 4096, "s": 512}
GEMM = "tile m=128 n=256 k=64\ngrid m n\norder grouped(8)\npersistent\nstream k stages={}\nload tma\nwarps {}"
ROWS = "tile m={} n={}\ngrid b h m\nstream n stages={}\nwarps {}"
# name, schedule, what `benchmarks/shared_memory.py` printed on sm_90 (Triton 3.6.0)
ALLOCATED = [
    ("gemm", GEMM.format(4, 8), 262176),  # the tile that leaves has a buffer of its own beside the four stages
    ("gemm", GEMM.format(4, 2), 213016),  # too few warps for products that run by themselves: three blocks in flight
    ("gemm", GEMM.format(6, 8), 360496),
    ("gemm", "tile m=32 n=256 k=64\ngrid m n\npersistent\nstream k stages=4\nload tma\nwarps 8", 127000),
    ("batched_gemm", "tile m=16 n=128 k=64\ngrid b m n\nstream k stages=3\nwarps 8", 36864),
    ("int8_gemm", "tile m=256 n=128\ngrid m n\nwarps 8", 786432),  # nothing is streamed: whole rows of both
    ("fp8_gemm", "tile m=128 n=128 k=256\ngrid m n\nstream k stages=2\nwarps 1", 65536),
    ("fp8_gemm", "tile m=256 n=128 k=32\ngrid m n\nstream k stages=4\nload tma\nwarps 2", 65536),
    ("swiglu", "tile r=64 f=64\ngrid r f\nload tma\nwarps 4", 524296),
    ("numa_attention", ROWS.format(128, 256, 2, 1), 163840),
    ("numa_attention", ROWS.format(16, 64, 2, 16), 38912),  # probabilities change hands between the warps
    ("numa_attention", "tile m=64\ngrid b h m\nwarps 16", 278528),
    ("sliding_window", "tile m=32\ngrid b h m", 327680),
    ("attention_sinks", ROWS.format(32, 32, 4, 4), 59392),
    ("attention_lse", "tile m=32 n=64\ngrid b h m\nstream n", 28672),
    ("linear_cross_entropy", "tile r=64 v=16 c=256\ngrid r\nstream v stages=2\nwarps 8", 81920),  # an inner loop
    ("linear_cross_entropy", "tile r=64 v=128 c=64\ngrid r\nstream v stages=4\nwarps 8", 98304),
    ("grouped_gemm", "tile t=64 n=128 k=64\ngrid t n\nstream k stages=3\nwarps 4", 73728),  # weights of a whole block
    ("conv2d", "tile q=32 o=64 u=1 v=1 c=256\ngrid b p q o\nstream u\nwarps 4", 49152),
]
# chip, name, schedule, what Triton 3.9.0 allocated
ON_OTHERS = [
    ("rtx5090", "alibi", ROWS.format(64, 64, 2, 4), 57344),  # fewer rows than columns: probabilities change hands
    ("a100", "alibi", ROWS.format(128, 64, 2, 4), 65536),
    ("mi300x", "alibi", ROWS.format(64, 64, 3, 4), 73728),  # two rows of matrix instructions, four waves
    ("mi300x", "alibi", ROWS.format(64, 64, 2, 4) + "\nmatrix_instr 16", 32768),
    ("mi300x", "alibi", ROWS.format(256, 64, 2, 4), 65536),  # the rows of q, before the loop
    ("mi300x", "alibi", ROWS.format(128, 128, 4, 4), 65536),  # four stages of two products: one block of each
    ("mi355x", "alibi", ROWS.format(64, 64, 4, 4), 75712),
    ("mi355x", "gemm", "tile m=128 n=128 k=64\ngrid m n\nstream k stages=2", 68016),  # rows with room between them
    (
        "h200",
        "sla",
        "kernels qp | kp | crit marg | hn zn | hm zm | o\ntile m=64 n=64\nstream n stages=3\nskip crit",
        49152,
    ),
]
WEIGHTS = """kernel w8
in  x[m k] bf16, b[k n] int8, scale[k] f32
out y[m n] bf16
w[k n] bf16 = b * scale
y = sum[k](x * w)

schedule
tile m=128 n=128 k=64
grid m n
stream k stages=3
"""
BIASED = """kernel biased
in  q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16, bias[b h m n] bf16
out o[b h m e] bf16
o = sum[n](softmax[n](sum[d](q * k) + bias) * v)

schedule
tile m=128 n=64
grid b h m
stream n stages=3
"""
RUNNING = """kernel running
in  x[n r] f32
out y[n r] f32
y = runsum[n](x)

schedule
tile r=64 n=all
grid r
"""


def told(name: str, schedule: str, chip: str = "h200") -> int:
    return of_text((EXAMPLES / f"{name}.avo").read_text().split("\nschedule")[0] + f"\nschedule\n{schedule}\n", chip)


def of_text(text: str, chip: str) -> int:
    program, hw = explicit(parse(text)), hardware(chip)
    kernels = anatomies(program)
    plan = resolve(program, len(kernels) - 1, hw.arch, hw.name)
    return allocated_bytes(kernels[-1], plan, hw, SIZES)


@pytest.mark.parametrize("name, schedule, allocated", ALLOCATED)
def test_what_is_told_is_what_is_allocated(name: str, schedule: str, allocated: int) -> None:
    assert 0.98 * allocated <= told(name, schedule) <= 1.02 * allocated


@pytest.mark.parametrize("chip, name, schedule, allocated", ON_OTHERS)
def test_so_it_is_on_other_chips(chip: str, name: str, schedule: str, allocated: int) -> None:
    assert 0.98 * allocated <= told(name, schedule, chip) <= 1.03 * allocated


@pytest.mark.parametrize(
    "text, chip, allocated",
    [
        (WEIGHTS, "h200", 82432),  # three blocks of x, two of the narrow weights, one of the wide ones
        (WEIGHTS, "rtx5090", 49664),
        (WEIGHTS, "mi355x", 74752),
        (BIASED, "h200", 163840),
        (BIASED, "mi300x", 98304),
        (RUNNING, "h200", 131072),  # what each stretch of a warp adds up to
        (RUNNING, "mi300x", 65536),
    ],
)
def test_what_operands_are_computed_from_and_scans_are_counted(text: str, chip: str, allocated: int) -> None:
    assert 0.98 * allocated <= of_text(text, chip) <= 1.02 * allocated


def test_eight_bits_across_the_sum_are_not_fetched_ahead() -> None:
    """sage2pp's v: 16 KiB of q, three blocks of k, one of v (Triton: 49160), what scales them among it."""
    program = explicit(parse((EXAMPLES / "sage2pp.avo").read_text()))
    hw = hardware("h200")
    assert allocated_bytes(anatomies(program)[-1], resolve(program, 4, hw.arch, hw.name), hw, SIZES) == 49160


def test_what_does_not_fit_is_rejected_before_it_is_compiled() -> None:
    text = (EXAMPLES / "gemm.avo").read_text()
    assert not errors(parse(text), hardware("h200"), SIZES)
    (wrong,) = errors(parse(text.replace("stages=3", "stages=4")), hardware("h200"), SIZES)
    assert wrong.message == "tile m=128 n=256 k=64 stages=4 needs 256 KiB of shared memory; h200 has 227 KiB"
    assert wrong.fix == "stages=3 fits"
