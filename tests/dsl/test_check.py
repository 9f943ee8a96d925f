"""Every error of the schedule half: its rule, place, exact text, legal values and fix."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import dsl.check
from dsl.check import check, errors
from dsl.hardware import HARDWARE, hardware
from dsl.parser import parse

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
GOLDEN = Path(__file__).parent / "check_errors.txt"
SIZES = {"d": 128, "e": 128, "n": 4096, "m": 4096, "k": 4096, "r": 4096, "c": 4096, "f": 128}


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.avo").read_text()


# (example, what is replaced, by what, chip); the rendered diagnostics of each stand in check_errors.txt
CASES = [
    ("attention", "tile m=128 n=64", "tiles m=128 n=64", "b200"),
    ("attention", "warps 4", "warps 4\nwarps 8", "b200"),
    ("attention", "stream n stages=2", "stream n stage=2", "b200"),
    ("attention", "stream n stages=2", "stream n 2", "b200"),
    ("attention", "stream n stages=2", "stream stages=2", "b200"),
    ("attention", "stream n stages=2", "stream n stages=12", "b200"),
    ("attention", "stream n stages=2", "stream nn stages=2", "b200"),
    ("attention", "stream n stages=2", "stream d stages=2", "b200"),
    ("attention", "stream n stages=2", "stream m stages=2", "b200"),
    ("attention", "tile m=128 n=64", "tile m=96 n=64", "b200"),
    ("attention", "tile m=128 n=64", "tile m=128 n=64 n=32", "b200"),
    ("attention", "tile m=128 n=64", "tile m=128 q=64", "b200"),
    ("attention", "tile m=128 n=64", "tile m=128 g=2 n=64", "b200"),
    ("attention", "tile m=128 n=64", "tile m=128", "b200"),
    ("attention", "tile m=128 n=64", "tile m=128 n=all", "b200"),
    ("attention", "tile m=128 n=64", "tile m=128 n=64 e=64", "b200"),
    ("attention", "tile m=128 n=64", "tile m=all n=64", "b200"),
    ("attention", "grid b h m", "grid b h m n", "b200"),
    ("attention", "grid b h m", "grid b h m d", "b200"),
    ("attention", "grid b h m", "grid b h m m", "b200"),
    ("attention", "grid b h m", "grid b h w", "b200"),
    ("attention", "order longest_first", "order longest", "b200"),
    ("attention", "order longest_first", "order reverse(e)", "b200"),
    ("attention", "order longest_first", "order grouped", "b200"),
    ("attention", "order longest_first", "order grouped(3)", "b200"),
    ("attention", "order longest_first", "swizzle dies", "b200"),
    ("attention", "split masked", "split mask", "b200"),
    ("attention", "load tma", "load tma", "a100"),
    ("attention", "load tma", "load dma", "a100"),
    ("attention", "rescale lazy(8)", "rescale lazy(40)", "b200"),
    ("attention", "rescale lazy(8)", "rescale speculative", "b200"),
    ("attention", "warps 4", "roles load=1 mma=2\nbuffers q 3", "h200"),
    ("attention", "exponent exp2", "exponent 2", "b200"),
    ("attention", "exponent exp2", "exponent poly", "b200"),
    ("attention", "exponent exp2", "exponent poly(3)", "b200"),
    ("attention", "exponent exp2", "exponent poly(16)", "b200"),
    ("attention", "exponent exp2", "exponent poly(n)", "b200"),
    ("attention", "exponent exp2", "exponent polynomial", "b200"),
    ("attention_lse", "exponent exp2", "exponent poly(4)", "b200"),
    ("gemm", "load tma", "exponent poly(4)", "b200"),
    ("attention", "warps 4", "warps 6", "b200"),
    ("attention", "warps 4", "warps four", "b200"),
    ("attention", "warps 4", "waves_per_eu 2", "b200"),
    ("attention", "for gfx942 gfx950:", "for gfx942 gfx95:", "b200"),
    ("attention", "warps 4", "warps 4\nskip c", "b200"),
    ("attention", "warps 4", "warps 4\nskip causal", "b200"),
    ("attention", "warps 4", "warps 4\nlaunch queue", "b200"),
    ("attention", "schedule\n", "schedule oo\n", "b200"),
    ("attention", "schedule\n", "schedule\nkernels s | ss\n", "b200"),
    ("attention", "schedule\n", "schedule\nkernels s | s\n", "b200"),
    ("gemm", "load tma", "rescale lazy(8)", "b200"),
    ("gemm", "load tma", "exponent exp2", "b200"),
    ("gemm", "load tma", "order longest_first", "b200"),
    ("gemm", "load tma", "warps ?", "b200"),
    ("gemm", "load tma", "load ?", "b200"),
    ("gemm", "in  a[m k] bf16", "in  a[m k] f16", "b200"),
    ("gemm", "in  a[m k] bf16, b[k n] bf16", "in  a[m k] e4m3, b[k n] e4m3", "a100"),
    ("gemm", "in  a[m k] bf16, b[k n] bf16", "in  a[m k] e4m3, b[k n] e4m3", "mi300x"),
    ("rmsnorm", "tile r=1 c=all", "tile r=1 c=64", "b200"),
    ("rmsnorm", "grid r", "grid r c", "b200"),
    ("rmsnorm", "grid r", "split masked", "b200"),
    ("rmsnorm", "grid r", "stream c", "b200"),
    ("rope", "grid b s h", "split masked", "b200"),
    ("attention", "warps 4", "tile_size 4", "b200"),
    ("rmsnorm", "grid r", "order grouped(8)", "b200"),
    ("sage2pp", "tile m=128 n=64", "tile m=128 n=128", "b200"),
    ("sage2pp", "kernels km | q8 qs |", "kernels km | q8 | qs |", "b200"),
    ("sage2pp", "kernels km | q8 qs | k8 ks |", "kernels q8 qs | k8 ks | km |", "b200"),
    ("sage2pp", "warps 4", "rescale lazy(4)", "b200"),
    ("sla", "skip crit", "skip marg", "b200"),
    ("attention_backward", "tile m=64 e=all", "tile m=64 n=64", "b200"),
    ("gemm", "stream k stages=3\n", "split masked\n", "b200"),
    ("gemm", "warps 8", "num_warps 8", "b200"),
    ("softmax", "tile r=1 c=all", "tile r=1 c=al", "b200"),
    ("sla", "stream n stages=3\n", "", "b200"),
    ("sage2pp", "warps 4", "warps 4\n\nschedule s\nwarps 8", "b200"),
    ("mxfp4_gemm", "b[n k] mxfp4", "b[k n] mxfp4", "b200"),
    ("mxfp4_gemm", "b[n k] mxfp4", "b[n k] nvfp4", "b200"),
    ("mxfp4_gemm", "warps 8", "warps 8", "h200"),
    ("nvfp4_linear", "ws[] f32", "ws[] nvfp4", "b200"),
    ("nvfp4_linear", "sum[k](q * w)", "sum[k](nvfp4(x) * w)", "b200"),
    ("nvfp4_linear", "warps 8", "warps 8", "a100"),
    ("attention_backward", "schedule gk gv", "schedule gk", "b200"),
    ("attention_backward", "tile m=64 n=128", "tile m=64 n=128 h=2", "b200"),
    ("softmax", "softmax[c](x)", "cumsum[c](x)", "b200"),
    ("softmax", "softmax[c](x)", "dropout(x, 0.1)", "b200"),
    ("layernorm", "rsqrt(mean[c](z * z)", "rsqrt(var[c](x)", "b200"),
    ("softmax", "softmax[c](x)", "y[(r - 1) c] * 0.5 + x", "b200"),
    ("cross_entropy", "loss = z", "loss[t] = z", "b200"),
]


def rendered() -> str:
    """Every case with all that the check says about it. To accept new texts: `python tests/dsl/test_check.py`."""
    parts = []
    for name, old, new, chip in CASES:
        source = example(name)
        assert old in source
        changed = source.replace(old, new, 1)
        found = check(parse(changed), hardware(chip), SIZES)
        said = "\n".join(d.render(changed, name) for d in found)
        parts.append(f"## {name} on {chip}: {old!r} -> {new!r}\n{said}\n")
    return "\n".join(parts)


def test_the_exact_text_and_place_of_every_error() -> None:
    assert rendered() == GOLDEN.read_text()


def test_every_rule_is_shown_once() -> None:
    shown = set(re.findall(r"(?:error|warning|hint)\[([a-z-]+)\]", GOLDEN.read_text()))
    elsewhere = {
        "shared-memory",
        "tile-too-large",
        "plain-lowering",
        "bad-name",
        "misplaced-directive",
        "block-twice",
        "stream-ordered",
        "tma-rows",
    }
    sources = (Path(dsl.check.__file__).parent / f for f in ("check.py", "schedule_form.py", "schedule_rules.py"))
    written = {r for f in sources for r in re.findall(r'Diagnostic\(\s*"([a-z-]+)"', f.read_text())}
    assert written - elsewhere <= shown


def test_shared_memory_is_rejected_before_compiling() -> None:
    source = example("attention").replace("m=128 n=64", "m=256 n=128").replace("stages=2", "stages=4")
    (found,) = check(parse(source), hardware("b200"), SIZES)
    assert found.message == "tile m=256 n=128 stages=4 needs 321 KiB of shared memory; b200 has 227 KiB"
    assert found.fix == "stages=2 fits"
    assert found.render(source, "attention.avo") == (
        "attention.avo:11:1: error[shared-memory]: "
        "tile m=256 n=128 stages=4 needs 321 KiB of shared memory; b200 has 227 KiB\n"
        "    tile m=256 n=128\n"
        "    ^^^^^^^^^^^^^^^^\n"
        "  fix: stages=2 fits"
    )
    # what would fit is found by dropping stages, then halving blocks; the advice is right
    source = source.replace("stages=4", "stages=2")
    assert not check(parse(source), hardware("b200"), SIZES)


def test_a_tile_beyond_what_triton_takes() -> None:
    source = example("rmsnorm").replace("r=1", "r=512")
    (found,) = check(parse(source), hardware("h200"), SIZES)
    assert found.message == "a value over r c has 2,097,152 elements in one tile; 1,048,576 is the most"
    assert found.fix == "r=256 fits"


def test_rows_that_no_descriptor_takes() -> None:
    program = parse(example("attention"))
    (found,) = errors(program, hardware("b200"), {**SIZES, "e": 100})
    assert found.rule == "tma-rows" and found.fix == "`load pointer`"
    assert found.message == "`load tma` needs rows of whole 16 bytes; a row of `v` is 100 bf16"
    assert found.legal == "E a multiple of 8"


def test_nothing_streams_what_a_scan_goes_along() -> None:
    source = "kernel t\nin x[r c] f32, w[r k] f32\nout y[r] i32\ny = argmax[c](x) + i32(sum[k](w))\n\nschedule\n"
    (found,) = errors(parse(source + "tile r=1 c=1024\ngrid r\nstream c\n"), hardware("b200"))
    assert found.rule == "stream-ordered" and found.fix == "`tile c=all`, without `stream`"
    assert not errors(parse(source + "tile r=1 k=1024\ngrid r\nstream k\n"), hardware("b200"))


def test_a_kernel_that_says_nothing_is_checked_as_it_lowers() -> None:
    program = parse("kernel wide\nin x[r c] f32\nout y[r c] f32\ny = softmax[c](x)\n")
    assert not errors(program, hardware("b200"))
    assert [d.rule for d in errors(program, hardware("b200"), {"r": 4, "c": 2**21})] == ["tile-too-large"]


def test_everything_at_once() -> None:
    source = (
        example("attention")
        .replace("tile m=128", "tile m=96")
        .replace("stages=2", "stage=2")
        .replace("load tma", "load dma")
        .replace("warps 4", "num_warps 4")
    )
    found = errors(parse(source), hardware("b200"))
    assert [d.rule for d in found] == ["bad-number", "unknown-key", "unknown-word", "unknown-directive"]
    assert found[-1].fix == "`warps`"
    assert [d.span.line for d in found] == [11, 14, 16, 19]


def test_an_error_of_the_algorithm_hides_none_of_the_schedule() -> None:
    source = example("gemm").replace("gelu(", "gelo(").replace("warps 8", "warps 7")
    found = errors(parse(source), hardware("b200"))
    assert [d.rule for d in found] == ["unknown-function", "bad-number"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.avo")), ids=lambda p: p.stem)
def test_examples_are_legal_on_their_chips(path: Path) -> None:
    program = parse(path.read_text())
    assert not errors(program)
    chip = "h200" if path.stem == "attention_sm90" else "b200"
    assert not errors(program, hardware(chip), SIZES)
    rules = {d.rule for d in check(program, hardware(chip)) if d.severity == "warning"}
    late = ("decode_queue", "gather_gemm", "mxfp4_gemm", "nvfp4_linear")
    assert rules == ({"not-lowered"} if path.stem in late else set())


@pytest.mark.parametrize("chip", [c for c in HARDWARE if c not in ("cpu",)])
def test_a_knob_of_one_chip_under_its_for_line_is_no_error_elsewhere(chip: str) -> None:
    source = example("numa_attention")
    assert not errors(parse(source), hardware(chip))


def test_a_for_line_is_checked_on_its_own_chips() -> None:
    source = example("numa_attention").replace("for gfx942 gfx950:", "for h200 gfx950:")
    for chip in (None, hardware("b200")):
        found = errors(parse(source), chip)
        assert {d.rule for d in found} == {"chip-lacks"}
        assert found[1].message == "`waves_per_eu` is an AMD knob; h200 has none"


def test_a_for_line_overrides() -> None:
    source = example("attention") + "for a100: load pointer\n"
    assert not errors(parse(source), hardware("a100"), SIZES)
    assert [d.rule for d in errors(parse(source), hardware("rtx4090"), SIZES)] == ["chip-lacks"]


def test_checking_takes_milliseconds() -> None:
    program = parse(example("attention"))
    check(program, hardware("b200"), SIZES)
    best = min(_seconds(program) for _ in range(10))
    assert best < 0.010  # of processor time


def _seconds(program) -> float:  # type: ignore[no-untyped-def]
    start = time.process_time()
    check(program, hardware("b200"), SIZES)
    return time.process_time() - start


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lambda", "`lambda` is a word of Python and cannot be an input"),
        ("tl", "`tl` has a meaning in the module that comes out and cannot be an input"),
        ("C", "`C` is the extent of axis `c` and cannot be an input"),
        ("y_ptr", "`y_ptr` has a meaning in the module that comes out and cannot be an input"),
        ("pid2", "`pid2` has a meaning in the module that comes out and cannot be an input"),
        ("BLOCK_C", "`BLOCK_C` has a meaning in the module that comes out and cannot be an input"),
        ("t_kernel", "`t_kernel` has a meaning in the module that comes out and cannot be an input"),
    ],
)
def test_names_that_the_module_could_not_say(name: str, said: str) -> None:
    program = parse(f"kernel t\nin {name}[r c] f32\nout y[r c] f32\ny = {name} * 2\n")
    (found,) = errors(program)
    assert found.message == said and found.rule in ("name-reserved", "name-clash")


if __name__ == "__main__":
    GOLDEN.write_text(rendered())


# What sizes make impossible ------------------------------------------------------------------------


TWO = "kernel f\nin x[r c] bf16\nout y[r c] bf16\ny = x * 2\n\nschedule\ntile r={} c=64\ngrid r c\n"


@pytest.mark.parametrize("chip", ["b200", "mi300x"])
def test_offsets_within_a_tensor_are_of_32_bits_where_a_kernel_holds_several_rows(chip):
    def found(rows, length, tile=4):
        hw = hardware(chip)
        return [d.message for d in errors_of(check(parse(TWO.format(tile)), hw, {"r": rows, "c": length}))]

    assert not found(2**19, 4096 - 1)
    assert [m[:26] for m in found(2**19, 4096)] == ["`x` has 2,147,483,648 elem", "`y` has 2,147,483,648 elem"]
    assert not found(2**19, 4096, tile=1)  # each row by an address of 64 bits
    assert "positions are of 32 bits" in found(2**31, 1)[0]
    assert "positions are of 32 bits" in found(10**30, 1)[0]


def errors_of(found):
    return [d for d in found if d.severity == "error"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("axis b = r // 0\ny = x + sum[r in b](x)", "a block of `b` would have 0 of `r`"),
        (
            "axis b = r // (2 - 4)\ny = x * b",
            "a block of `b` would have `2 - 4`, which is -2 here, of `r`",
        ),
        (
            "axis b = r // (R // 64)\ny = x * b",
            "a block of `b` would have `R // 64`, which is 0 here, of `r`",
        ),
        ("y = x + (r // 0)", "`//` divides by 0"),
        ("y = x + r % (R // 64)", "`%` divides by `R // 64`, which is 0 here"),
        ("param w int = 0\ny = x + r % max(w, 1)", ""),
        ("y = x / 0 + r // R", ""),
    ],
)
def test_a_divisor_that_is_zero_is_an_error(line, said):
    program = parse(f"kernel f\nin x[r] f32\nout y[r] f32\n{line}\n")
    for sizes, there in (({"r": 32}, bool(said)), (None, bool(said) and "R // 64" not in line)):
        found = check(program, hardware("b200"), sizes)
        assert [d.message for d in found if d.rule == "zero-divisor"] == [said] * there


HEADS = """kernel heads
in  x[t c] bf16, w[c h d] bf16
out y[t h d] bf16
q[t h d] bf16 = sum[c](x * w)
y = q * rsqrt(mean[d](q * q)) {}

schedule
"""


def test_what_to_store_is_named():
    """A product inside a norm, and a value that is read elsewhere: a line `kernels` is the way out, and is said."""
    inner = HEADS.format("") + "tile t=64 h=1 d=16 c=64\ngrid t h\nstream c\n"
    found = errors(parse(inner), hardware("b200"))[-1]
    assert found.fix == "`stream d`, or `q` in `kernels`, which stores it for this kernel"
    read = HEADS.format("+ q[t h (D - 1 - d)]") + "tile t=16 h=1 d=all\ngrid t h\n"
    (late,) = check(parse(read), hardware("b200"))
    assert late.message == "reading `q` by a computed index needs it stored"
    assert late.fix == "`kernels q`, so that an earlier kernel stores it"
    assert not check(parse(read.replace("schedule\n", "schedule\nkernels q\n")), hardware("b200"))
