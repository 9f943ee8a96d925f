"""`avo import`: what plain PyTorch functions become, and what is said of those that become nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from avo.errors import UserMistake
from avo.importing import import_function
from avo.importing.checking import Differs
from avo.importing.source import constant, tensors
from avo.importing.tracing import NotImported
from dsl.check import check
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.printer import print_program

FILE = Path(__file__).with_name("plain_functions.py")
H200 = hardware("h200")


def algorithm(name: str, **more: object) -> str:
    found = import_function(f"{FILE}:{name}", H200, **more)  # type: ignore[arg-type]
    text = print_program(found.program)
    sizes = found.target.workloads[0].sizes
    assert not found.wrong and not [d for d in check(parse(text), H200, sizes) if d.severity == "error"]
    return text.split("\nschedule")[0].strip()


EXPECTED = {
    "sdpa": """
kernel sdpa
in  q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16
out y[b h m e] bf16
s[b h m n] = sum[d](q * k) * rsqrt(D)
s2[b h m n] = where(m >= n, s, -inf)
y = sum[n](softmax[n](s2) * v)
""",
    "fused_sdpa": """
kernel fused_sdpa
in  q[b h m d] bf16, k[b g n d] bf16, v[b g n e] bf16
out y[b h m e] bf16
axis g = h // (H // G)
s[b h m n] = where(m >= n, sum[d](q * k) * rsqrt(D), -inf)
y = sum[n](softmax[n](s) * v)
""",
    "grouped": """
kernel grouped
in  q[b h m d] bf16, k[b g n d] bf16, v[b g n e] bf16
out y[b h m e] bf16
axis g = h // (H // G)
y = sum[n](softmax[n](sum[d](q * k) * rsqrt(D)) * v)
""",
    "rmsnorm": """
kernel rmsnorm
in  x[r c] bf16, w[c] bf16
out y[r c] bf16
v[r c] = x * rsqrt(mean[c](x * x) + 1e-06)
y = w * bf16(v)
""",
    "swiglu": """
kernel swiglu
in  x[m k] bf16, wg[k n] bf16, wu[k n] bf16
out y[m n] bf16
y = silu(sum[k](x * wg)) * sum[k](x * wu)
""",
    "cross_entropy": """
kernel cross_entropy
in  x[r c] bf16, t[r] i32
out y[] f32
z[r] = max[c](x)
y = mean[r](z + log(sum[c](exp(x - z))) - x[r t])
""",
    "linear_gelu": """
kernel linear_gelu
in  x[m k] bf16, w[n k] bf16, b[n] bf16
out y[m n] bf16
y = gelu(sum[k](x * w) + b)
""",
    "rope": """
kernel rope
in  x[b h s d] bf16, cos_[s d] f32, sin_[s d] f32
out y[b h s d] bf16
y = x * cos_ + where(d < D // 2, -x[b h s (d + D // 2)], x[b h s (d - D // 2)]) * sin_
""",
    "rope_pairs": """
kernel rope_pairs
in  x[b h s d] bf16, cos_[s c] f32, sin_[s c] f32
out y[b h s e] bf16
axis c = (D + 1) // 2
axis e = C * 2
y = where(e % 2 < 1, x[b h s (e // 2 * 2)] * cos_[s (e // 2)] - x[b h s (e // 2 * 2 + 1)] * sin_[s (e // 2)], x[b h s (e // 2 * 2)] * sin_[s (e // 2)] + x[b h s (e // 2 * 2 + 1)] * cos_[s (e // 2)])
""",  # noqa: E501
    "gram": """
kernel gram
in  x[m k] bf16
out y[m n] bf16
axis n = M
y = sum[k](x * x[n k])
""",
    "layernorm_by_hand": """
kernel layernorm_by_hand
in  x[r c] bf16, w[c] f32, b[c] f32
out y[r c] f32
mean_[r] = mean[c](x)
t[r c] = x - mean_
var[r] = mean[c](t * t)
y = t / sqrt(var + 1e-05) * w + b
""",
    "two_results": """
kernel two_results
in  x[m k] bf16, w[k n] bf16
out y[m n] bf16, y1[m] f32
y = sum[k](x * w)
y1 = mean[n](y * y)
""",
}
OTHERS = (
    *("window", "layernorm", "fused_rmsnorm", "block", "cross_entropy_rows", "embedding", "decode"),
    *("fp8_rows", "int4_like", "batch_norm", "pooled", "depthwise", "in_place_within"),
    "rmsnorm_as_torch_has_it",
)
SLOWER = (
    *("alibi", "softcap", "attention_layer", "linear_cross_entropy", "conv", "head_norm", "packed_attention"),
    *("capped_loss", "group_norm", "similarity"),
)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_function_becomes(name: str) -> None:
    assert algorithm(name) == EXPECTED[name].strip()


@pytest.mark.parametrize("name", [*OTHERS, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOWER)])
def test_others_are_imported_checked_and_lowered(name: str) -> None:
    """The import itself compares values with the function, in float64 and in its own dtypes."""
    algorithm(name)


def test_kernels_are_cut_where_fusing_would_compute_again() -> None:
    found = import_function(f"{FILE}:block", H200)
    assert found.program.schedule.kernels == (("h",), ("t",))
    assert import_function(f"{FILE}:sdpa", H200).program.schedule.kernels == ()


def test_a_long_product_whose_rows_are_normed_is_stored(tmp_path: Path) -> None:
    """Fused, the whole product would be computed once for the norm and once more for the result, column by column."""
    file = tmp_path / "heads.py"
    file.write_text(
        "import torch\n"
        "def heads(x, w):\n"
        "    q = torch.einsum('tc,chd->thd', x, w)\n"
        "    return q * torch.rsqrt(q.pow(2).mean(-1, keepdim=True) + 1e-6)\n"
        "def short(x, w):\n    return torch.softmax(x @ w.mT / 3, -1)\n"
    )
    shapes = "x[t=24 c={}] bf16, w[c h=3 d=8] bf16"
    found = import_function(f"{file}:heads", H200, shapes=shapes.format(320))
    assert found.program.schedule.kernels == (("q",),)
    assert import_function(f"{file}:heads", H200, shapes=shapes.format(48)).program.schedule.kernels == ()
    rows = import_function(f"{file}:short", H200, shapes="x[t=24 d=16] bf16, w[n=40 d] bf16").program
    assert "n=1 " not in print_program(rows) + " "


def test_names_and_lengths_from_shapes() -> None:
    text = algorithm("swiglu", shapes="x[rows=48 c=64] f16, wg[c f=40] f16, wu[c f] f16")
    assert "in  x[rows c] f16, wg[c f] f16, wu[c f] f16" in text
    found, names = tensors("x[64 c=8], t[64] i64", ["x", "t"])
    assert list(found["x"].shape) == [64, 8] and names["x"] == ("", "c") and str(found["t"].dtype) == "torch.int64"


def test_arguments_that_are_no_tensors() -> None:
    assert "m - n < 7" in algorithm("window", fixed={"w": 7})
    assert constant("w=7") == ("w", 7) and constant("eps=1e-6") == ("eps", 1e-6) and constant("c=true") == ("c", True)


def test_a_number_that_is_no_square_root_stays(tmp_path: Path) -> None:
    """0.25 equals 1/sqrt(16), and the trace fixes d at 16 for another reason: other sizes tell."""
    file = tmp_path / "scaled.py"
    file.write_text(
        "import torch, math\n"
        "def scores(q, k):\n    return q @ k.T * 0.25 + math.sqrt(q.shape[-1]) * 0\n"
        "def scores_inputs():\n    return torch.zeros(24, 16), torch.zeros(20, 16)\n"
    )
    found = import_function(f"{file}:scores", H200)
    assert "0.25" in print_program(found.program) and not found.guessed


def test_a_size_that_the_function_fixes_is_said(tmp_path: Path) -> None:
    file = tmp_path / "fixed.py"
    file.write_text(
        "import torch\ndef f(x):\n    return x * (3.0 if x.shape[0] == 24 else 4.0)\n"
        "def f_inputs():\n    return (torch.zeros(24, 16),)\n"
    )
    found = import_function(f"{file}:f", H200)
    assert "x * 3.0" in print_program(found.program) and found.checked.differs
    assert set(found.checked.sizes) == {"r=24,c=16"}
    assert {w.sizes["r"] for w in (*found.target.checks, *found.target.tiny)} == {24}


TROUBLES = {
    "several_troubles": ["fft_fft", "sort: the language has no sorting"],
    "in_place": ["add_", "it changes an argument in place"],
    "mask_index": ["indexing by a mask"],
    "branch": ["a branch or a shape depends on the values"],
    "closed_over": ["a tensor [64] that is no argument; make it one"],
    "random": ["the language has no random numbers"],
    "wide": ["float64"],
    "rope_filled": ["empty_permuted", "torch.stack((a, b), -1).flatten(-2)"],
    "one_row": ["an output has a dimension of length 1"],
}


@pytest.mark.parametrize("name", TROUBLES)
def test_what_cannot_be_said_is_named_with_its_line(name: str) -> None:
    with pytest.raises((NotImported, UserMistake)) as caught:
        import_function(f"{FILE}:{name}", H200)
    said = str(caught.value)
    source = FILE.read_text().splitlines()
    first = next(i for i, line in enumerate(source, 1) if line.startswith(f"def {name}("))
    for text in TROUBLES[name]:
        assert text in said
    if isinstance(caught.value, NotImported):
        assert all(first < t.line < first + 6 for t in caught.value.troubles)
    else:
        assert f":{first}" in said or f":{first + 1}" in said


def test_a_complex_input_says_what_to_pass_instead() -> None:
    with pytest.raises(UserMistake, match=r"take torch\.view_as_real of it, or two inputs"):
        import_function(f"{FILE}:rope_complex", H200)


MISTAKES = {
    "plain_functions.py": "name the function too",
    "plain_functions.py:swigluu": "did you mean 'swiglu'?",
    "nothing.py:f": "no such file",
    "../avo:f": "is a folder; name FILE.py:FUNCTION",
    "../../README.md:f": "README.md is no Python file; name FILE.py:FUNCTION",
}


@pytest.mark.parametrize("reference", MISTAKES)
def test_a_wrong_reference(reference: str) -> None:
    with pytest.raises(UserMistake, match=MISTAKES[reference].replace("?", r"\?")):
        import_function(str(FILE.parent / reference), H200)


SHAPES = {
    "x[64": "is no tensor",
    "z[4] bf16": "unknown argument 'z'",
    "x[64 96] b16": "unknown dtype 'b16'; did you mean 'bf16'?",
    "x[64 c] bf16": "axis c of x has no length yet",
    "x[c=4 c=5] bf16": "axis c is 4 long and 5 in x",
    "x[64 96] bf16": "swiglu needs `wg`",
    "x[r=512 c=99999999999999999999] bf16": "x has a length of 99,999,999,999,999,999,999; legal: 1 to 2,146,435,072",
    "x[r=2000000000 c=2000000000] bf16": "x of 2,000,000,000 x 2,000,000,000 does not fit into this machine's memory",
    "x[0 96] bf16": "x has a length of 0; legal: 1 to",
}


@pytest.mark.parametrize("text", SHAPES)
def test_wrong_shapes(text: str) -> None:
    with pytest.raises(UserMistake) as caught:
        import_function(f"{FILE}:swiglu", H200, shapes=text)
    assert SHAPES[text] in str(caught.value)


def test_a_difference_is_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were an operator translated wrongly, nothing would be written."""
    from avo.importing import operators

    monkeypatch.setitem(operators.OPERATORS, "silu", operators.OPERATORS["sigmoid"])
    with pytest.raises(Differs, match="off the function"):
        import_function(f"{FILE}:swiglu", H200)


def test_the_command(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Program and target file are written; the target judges the program by the function itself."""
    monkeypatch.setattr(os, "_exit", sys.exit)  # how the verb leaves where Triton is loaded; `test_json` sees it do so
    program, target = tmp_path / "norm.avo", tmp_path / "norm.py"
    command: list[object] = ["import", f"{FILE}:rmsnorm", "--hw", "h200"]
    wrong = cli(*command, "--set", "nothing=1")
    assert wrong.code == 2 and "unknown argument of rmsnorm 'nothing'" in wrong.err
    command += ["-o", program, "--target", target]
    done = cli(*command)
    assert done.code == 0, done.err
    assert "off the function in float64" in done.err and "next: avo evolve --target" in done.err
    again = cli(*command)
    assert again.code == 2 and "is there already" in again.err

    from avo import plugins
    from evaluators.loading import ready

    job = plugins.load("target", str(target))
    assert ready(job).seed == program.read_text()


def test_json() -> None:
    command = [sys.executable, "-m", "avo", "import", f"{FILE}:several_troubles", "--hw", "h200", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and not answer["ok"]
    assert [t["operator"] for t in answer["troubles"]] == ["fft_fft", "sort"]


def test_what_triton_says_of_itself_at_the_end_is_not_ours_to_print() -> None:
    command = [sys.executable, "-m", "avo", "import", f"{FILE}:branch", "--hw", "h200", "--shapes", "x[r=8 c=8] bf16"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_what_is_called_otherwise_in_the_program_is_told(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def scaled(x, w, cos):\n    return x * w[:, None] * cos\n")
    shapes = "x[w=4 c=64] bf16, w[w] bf16, cos[c] f32"
    answer = cli("import", tmp_path / "f.py:scaled", "--hw", "b200", "--shapes", shapes)
    assert answer.code == 0 and "in  x[r c] bf16, w[r] bf16, cos_[c] f32" in answer.out
    assert "f.py:1: argument cos is cos_ in the program" in answer.err
    assert "f.py:1: axis w is r in the program" in answer.err


@pytest.mark.parametrize(
    ("body", "shapes", "said"),
    [
        (
            "x @ w",
            "x[r=64 c=256] f32, w[k=128 n=32] f32",
            "got [x.shape[0], x.shape[1]] X [w.shape[0], w.shape[1]] "
            "(x.shape[0] is r=64, x.shape[1] is c=256, w.shape[0] is k=128, w.shape[1] is n=32)",
        ),
        ("x + w", "x[64 256] f32, w[64 128] f32", "(x.shape[1] is 256, w.shape[1] is 128)"),
        ("x.view(7, -1) + w", "x[r=64 c=256] f32, w[k=7] f32", "x.shape[0] is r=64"),
    ],
)
def test_lengths_in_what_torch_says_have_the_functions_own_names(
    tmp_path: Path, body: str, shapes: str, said: str
) -> None:
    (tmp_path / "f.py").write_text(f"import torch\ndef f(x, w):\n    return {body}\n")
    with pytest.raises(UserMistake) as caught:
        import_function(f"{tmp_path / 'f.py'}:f", hardware("b200"), shapes)
    told = str(caught.value)
    assert "f.py:3: f cannot be traced: " in told and said in told
    assert not re.search(r"\bs\d+\b", told)
