"""The verbs that need a program and no archive: check, fmt, knobs, lower, sol, targets, hardware, init."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from avo.cli.console import printable, table, tame

GOOD = """\
kernel attention
in  q[b h m d] bf16, k[b g n d] bf16, v[b g n e] bf16
out o[b h m e] bf16
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(not causal or m >= n, s, -inf)
o = sum[n](softmax[n](c) * v)

schedule
tile m=128 n=64
grid b h m
stream n stages=2
warps 4
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "attention.avo"
    path.write_text(GOOD)
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.avo"
    path.write_text(GOOD.replace("tile m=128", "tiel m=128").replace("warps 4", "warps 5"))
    return path


def test_check_accepts(cli: Callable[..., Any], program: Path) -> None:
    answer = cli("check", program, "--hw", "b200")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("ok on b200: ")
    found = json.loads(cli("check", program, "--json").out)
    assert found["ok"] is True and len(found["digest"]) == 16 and found["diagnostics"] == []


def test_check_says_everything_at_once(cli: Callable[..., Any], broken: Path) -> None:
    answer = cli("check", broken, "--hw", "b200")
    assert answer.code == 1
    assert f"{broken}:11:1: error[unknown-directive]: unknown directive `tiel`" in answer.out
    assert "    tiel m=128 n=64\n    ^^^^" in answer.out
    assert "fix: `tile`" in answer.out
    found = json.loads(cli("check", broken, "--json").out)
    assert found["ok"] is False
    keys = {"rule", "line", "column", "end_column", "legal", "fix", "message", "severity"}
    assert set(found["diagnostics"][0]) == keys


def test_check_reads_standard_input(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(GOOD.encode())))
    assert cli("check", "-").code == 0


@pytest.mark.parametrize("verb", ["check", "fmt", "knobs", "lower", "eval"])
def test_a_file_that_is_not_there_is_one_message(cli: Callable[..., Any], verb: str, tmp_path: Path) -> None:
    more = ["--hw", "b200"] if verb in ("knobs", "lower", "eval") else []
    answer = cli(verb, tmp_path / "none.avo", *more)
    assert (answer.code, answer.err) == (2, f"error: no such file: {tmp_path / 'none.avo'}\n")
    answer = cli(verb, tmp_path, *more)
    assert answer.code == 2 and "is a directory" in answer.err
    (tmp_path / "binary.avo").write_bytes(b"\xff\xfe\x00")
    answer = cli(verb, tmp_path / "binary.avo", *more)
    assert answer.code == 2 and "is not UTF-8 text" in answer.err


@pytest.mark.parametrize("verb", ["fmt", "knobs", "lower"])
def test_a_broken_program_is_rejected_with_its_diagnostics(cli: Callable[..., Any], verb: str, tmp_path: Path) -> None:
    path = tmp_path / "worse.avo"
    path.write_text(GOOD.replace("sum[d](q * k)", "sum(q * k, axis=d)"))
    more = ["--hw", "b200"] if verb != "fmt" else []
    answer = cli(verb, path, *more)
    assert answer.code == 1
    assert f"{path}:6:" in answer.err and "error[" in answer.err


@pytest.mark.parametrize(
    "arguments", [("check", "FILE"), ("knobs", "FILE"), ("lower", "FILE"), ("eval", "FILE"), ("sol",)]
)
def test_an_unknown_chip_names_the_nearest(cli: Callable[..., Any], program: Path, arguments: tuple[str, ...]) -> None:
    answer = cli(*[program if a == "FILE" else a for a in arguments], "--hw", "b20")
    assert answer.code == 2
    assert answer.err.startswith("error: unknown hardware 'b20'; did you mean 'b200'? known: b200,")


def test_an_unknown_option_and_an_unknown_verb_are_mistakes(cli: Callable[..., Any], program: Path) -> None:
    assert cli("check", program, "--hww", "b200").code == 2
    assert cli("chek", program).code == 2
    assert cli("check").code == 2


def test_fmt_prints_rewrites_and_compares(cli: Callable[..., Any], program: Path, tmp_path: Path) -> None:
    canonical = cli("fmt", program).out
    untidy = tmp_path / "untidy.avo"
    untidy.write_text(GOOD.replace("tile m=128 n=64", "tile   m=128, n=64"))
    assert cli("fmt", untidy, "--check").code == 1
    assert cli("fmt", untidy, "-w").code == 0
    assert untidy.read_text() == canonical
    assert cli("fmt", untidy, "--check").code == 0
    untidy.write_text(canonical.replace("tile m=128 n=64", "tile m=128 n=64  # a remark"))
    assert cli("fmt", untidy, "--check").code == 0
    old = cli("fmt", untidy, "--upgrade")
    assert old.code == 0 and old.out.startswith("# avo 1\n") and "# a remark" in old.out
    untidy.chmod(0o444)
    untidy_again = tmp_path / "gone" / "x.avo"
    assert cli("fmt", untidy_again, "-w").code == 2


def test_several_programs_at_once(cli: Callable[..., Any], program: Path, tmp_path: Path) -> None:
    untidy, wrong = tmp_path / "untidy.avo", tmp_path / "wrong.avo"
    untidy.write_text(GOOD.replace("tile m=128 n=64", "tile   m=128, n=64"))
    wrong.write_text(GOOD.replace("q * k", "q * kk"))
    assert cli("check", program, untidy).code == 0
    answer = cli("check", wrong, untidy)
    assert answer.code == 1 and f"{wrong}:6:" in answer.out and "ok: " in answer.out
    assert [a["ok"] for a in json.loads(cli("check", wrong, untidy, "--json").out)] == [False, True]
    assert "are not printed one after another" in cli("fmt", untidy, program).err
    assert cli("fmt", untidy, program, "--write").code == 0
    assert cli("fmt", untidy, program, "--check").code == 0
    untidy.write_text(GOOD.replace("tile m=128 n=64", "tile   m=128, n=64"))
    answer = cli("fmt", program, untidy, "--check")
    assert answer.code == 1 and f"{program} is canonical" in answer.out and f"{untidy} is not canonical" in answer.out


def test_knobs_of_a_wrong_schedule_are_not_listed(cli: Callable[..., Any], program: Path) -> None:
    program.write_text(program.read_text() + "wraps 4\n")
    answer = cli("knobs", program, "--hw", "b200")
    assert answer.code == 1 and answer.out == "" and "fix: `warps`" in answer.err


def test_knobs_leaves_out_what_does_not_fit_the_sizes(cli: Callable[..., Any], program: Path) -> None:
    def tiles(*more: str) -> list[int]:
        found = json.loads(cli("knobs", program, "--hw", "b200", *more, "--json").out)
        return next(k["legal"] for k in found if k["name"] == "tile n")

    program.write_text(GOOD.replace("tile m=128", "tile m=256").replace("stages=2", "stages=3"))
    wide = "b=1,h=8,g=8,m=4096,n=4096,d=128,e=128,causal=0"
    assert 128 in tiles() and 64 in tiles("--workload", wide) and 128 not in tiles("--workload", wide)
    for more in ((), ("--workloads", "grouped")):
        assert 128 not in tiles("--target", "attention", *more)
    assert "known: " in cli("knobs", program, "--hw", "b200", "--target", "attention", "--workload", "nosuch").err


def test_check_takes_a_set_by_name_and_the_chip_that_is_here(cli: Callable[..., Any], program: Path) -> None:
    wide = GOOD.replace("tile m=128 n=64", "tile m=128 n=128").replace("stages=2", "stages=4")
    program.write_text(wide)
    answer = cli("check", program, "--hw", "h200", "--target", "attention", "--workloads", "grouped")
    assert answer.code == 1 and answer.out.count("error[shared-memory]") == 1  # once for all sizes of the set
    assert "no device was found here" in cli("check", program, "--hw", "auto").err


def test_check_says_that_a_program_does_not_lower_yet(cli: Callable[..., Any], program: Path) -> None:
    program.write_text("kernel f\nin a[m k] mxfp4, b[n k] mxfp4\nout c[m n] bf16\nc = sum[k](a * b)\n")
    answer = cli("check", program, "--hw", "a100")
    assert answer.code == 0 and "ok on a100, but it does not lower yet: " in answer.out


def test_a_run_whose_seed_does_not_lower_is_not_begun(cli: Callable[..., Any], tmp_path: Path) -> None:
    seed = "kernel mx\nin a[m k] mxfp4, b[n k] mxfp4\nout c[m n] bf16\nc = sum[k](a * b)\n"
    (tmp_path / "mx.py").write_text(
        "from avo import Target, Workload\n"
        "sizes = Workload({'m': 256, 'n': 256, 'k': 256})\n"
        "MX = Target(name='mx', reference=lambda a, b: a @ b.T, workloads=(sizes,),\n"
        f"            seed={seed!r})\n"
    )
    archive = tmp_path / "runs.db"
    answer = cli("evolve", "--target", f"{tmp_path}/mx.py:MX", "--hw", "b200", "--steps", "1", "--archive", archive)
    assert answer.code == 2 and not archive.exists()
    assert "the seed program of mx has no lowering for b200: line 4: `mxfp4`" in answer.err


def test_a_run_whose_seed_the_check_refuses_on_its_chip_is_not_begun(cli: Callable[..., Any], tmp_path: Path) -> None:
    seed = "kernel mm\nin a[m k] bf16, b[n k] bf16\nout c[m n] bf16\nc = sum[k](a * b)\n"
    seed += "\nschedule\ntile m=128 n=128 k=64\ngrid m n\nstream k stages=4\nwarps 8\n"
    (tmp_path / "mm.py").write_text(
        "from avo import Target, Workload\n"
        "sizes = Workload({'m': 256, 'n': 256, 'k': 256})\n"
        "MM = Target(name='mm', reference=lambda a, b: a @ b.T, workloads=(sizes,),\n"
        f"            seed={seed!r})\n"
    )
    archive = tmp_path / "runs.db"
    answer = cli("evolve", "--target", f"{tmp_path}/mm.py:MM", "--hw", "mi300x", "--steps", "1", "--archive", archive)
    assert answer.code == 2 and not archive.exists()
    assert answer.err.startswith("error: the seed program of mm is refused on mi300x\n<seed of mm>:7:1: error")
    assert "fix: stages=3 fits" in answer.err and "`for gfx942:`" in answer.err


def test_knobs_lists_legal_values(cli: Callable[..., Any], program: Path) -> None:
    answer = cli("knobs", program, "--hw", "b200")
    assert answer.code == 0 and "stream stages  2" in answer.out
    found = {k["name"]: k for k in json.loads(cli("knobs", program, "--hw", "b200", "--json").out)}
    assert found["warps"]["value"] == 4 and 8 in found["warps"]["legal"]


def test_lower_prints_triton_that_compiles_as_python(cli: Callable[..., Any], program: Path, tmp_path: Path) -> None:
    answer = cli("lower", program, "--hw", "b200")
    assert answer.code == 0
    compile(answer.out, "kernel.py", "exec")
    written = tmp_path / "kernel.py"
    assert cli("lower", program, "--hw", "b200", "-o", written).code == 0
    assert written.read_text().strip() == answer.out.strip()
    again = cli("lower", program, "--hw", "b200", "-o", written)
    assert again.code == 2 and "is there already" in again.err
    assert cli("lower", program, "--hw", "b200", "-o", written, "--force").code == 0
    found = json.loads(cli("lower", program, "--hw", "b200", "--json").out)
    assert found["kernels"] == ["attention_kernel"] and found["emit"] == "triton"


BLOCKS = "kernel f\nin  a[m k] mxfp4, b[n k] mxfp4\nout c[m n] f32\nc = sum[k](a * b)\n"


def test_what_has_no_lowering_is_named_with_its_file_and_what_there_is(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block scales: lowering refuses; on the host too the meaning is judged before."""
    monkeypatch.chdir(tmp_path)
    Path("f.avo").write_text(BLOCKS)
    answer = cli("lower", "f.avo", "--hw", "b200")
    assert answer.code == 1 and answer.err.startswith("f.avo:4:12: error[not-lowered]")
    assert "it is checked, counted and has a meaning" in answer.err
    Path("job.py").write_text(
        "from avo import Target, Workload\nSIZES = {'m': 64, 'n': 64, 'k': 64}\n"
        f"TARGET = Target(name='f', reference=lambda a, b: a @ b.T, seed={BLOCKS!r},\n"
        "    workloads=(Workload(SIZES),), unit='TFLOP/s', summary='f', tier=0.5)\n"
    )
    answer = cli("eval", "f.avo", "--target", "job.py", "--hw", "cpu")
    assert answer.code == 1 and "status: not_lowered" in answer.out and "meaning  ok" in answer.out


def test_lower_says_what_a_chip_has_not(cli: Callable[..., Any], program: Path) -> None:
    answer = cli("lower", program, "--hw", "mi300x", "--emit", "sass")
    assert answer.code == 2 and "mi300x has no sass; --emit takes triton, ttgir, amdgcn there" in answer.err
    answer = cli("lower", program, "--hw", "cpu", "--emit", "ptx")
    assert answer.code == 2 and "--emit takes triton there" in answer.err
    answer = cli("lower", program, "--hw", "b200", "--emit", "ptx")
    assert answer.code == 2 and "name a --target" in answer.err
    answer = cli("lower", program, "--hw", "b200", "--workload", "n=3")
    assert answer.code == 2 and "name the --target" in answer.err
    assert cli("lower", program, "--hw", "b200", "--emit", "wasm").code == 2


@pytest.mark.parametrize(
    ("hw", "emit", "sign"),
    [
        ("b200", "ptx", ".target sm_100"),
        pytest.param("b200", "sass", "EXIT", marks=pytest.mark.slow),
        pytest.param("h200", "ttgir", "ttg.", marks=pytest.mark.slow),
        pytest.param("mi300x", "amdgcn", "gfx942", marks=pytest.mark.slow),
    ],
)
def test_lower_prints_what_the_compiler_makes(
    cli: Callable[..., Any], program: Path, hw: str, emit: str, sign: str
) -> None:
    answer = cli("lower", program, "--hw", hw, "--emit", emit, "--target", "attention", "--workload", "b=1,m=256,n=256")
    assert answer.code == 0, answer.err
    assert sign in answer.out and "m=256,n=256" in answer.out


def test_sol_names_the_bottleneck(cli: Callable[..., Any]) -> None:
    answer = cli("sol", "--target", "attention", "--hw", "b200")
    assert answer.code == 0 and "matrix bf16" in answer.out and "floor" in answer.out
    found = json.loads(cli("sol", "--hw", "h200", "--workload", "b=4,h=32,g=8,m=1,n=8192,causal=1", "--json").out)
    (one,) = found["workloads"]
    assert one["workload"].startswith("b=4,h=32,g=8,m=1,n=8192,d=128") and one["bottleneck"] == "memory"
    assert one["floor_s"] == max(one["times_s"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "bb=4"], "unknown axis or param of attention: 'bb'; did you mean 'b'?"),
        (["--workload", "b=0"], "the extent b is a whole number of at least 1, got 0"),
        (["--workload", "causal=3"], "causal is 0 or 1, got 3"),
        (["--workload", "b"], "unknown set of workloads of attention 'b'"),
        (["--workload", "h=6,g=4"], "g=4 must divide h=6"),
        (["--target", "atention"], "unknown target 'atention'; did you mean 'attention'?"),
        (["--hw", "cpu"], "cpu makes no speed claim"),
    ],
)
def test_sol_says_what_is_wrong(cli: Callable[..., Any], arguments: list[str], message: str) -> None:
    answer = cli("sol", *arguments)
    assert answer.code == 2 and message in answer.err


def test_targets_and_hardware_list_and_show(cli: Callable[..., Any]) -> None:
    assert "attention" in cli("targets").out
    assert "seed program" in cli("targets", "gemm").out
    listed = json.loads(cli("targets", "--json").out)
    assert {"name", "unit", "workloads", "seed", "hidden", "checks"} <= set(listed[0])
    assert json.loads(cli("targets", "gemm", "--json").out)["name"] == "gemm"
    assert "mi355x" in cli("hardware").out
    shown = cli("hardware", "h200").out
    assert "hbm_bytes_per_s" in shown and "[1] " in shown
    facts = json.loads(cli("hardware", "h200", "--json").out)
    assert facts["sms"] == 132 and facts["sources"]["sms"]
    assert len(json.loads(cli("hardware", "--json").out)) >= 8
    assert cli("targets", "gem").code == 2 and cli("hardware", "h20").code == 2


def test_init_writes_a_target_that_works(cli: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    answer = cli("init", folder)
    assert answer.code == 0 and "avo evolve -c run.toml" in answer.out
    assert cli("targets", folder / "my_target.py").code == 0
    assert cli("sol", "--target", folder / "my_target.py", "--hw", "b200").code == 0
    again = cli("init", folder)
    assert again.code == 2 and "are there already; --force overwrites them" in again.err
    assert cli("init", folder, "--force").code == 0
    (tmp_path / "file").write_text("")
    assert cli("init", tmp_path / "file" / "x").code == 2


def test_everything_fits_80_columns(cli: Callable[..., Any], program: Path, broken: Path) -> None:
    for arguments in (["sol"], ["targets"], ["hardware"], ["hardware", "b200"], ["knobs", program, "--hw", "b200"]):
        long = [line for line in cli(*arguments).out.splitlines() if len(line) > 80]
        assert not long, (arguments, long)


def test_text_of_others_cannot_drive_the_terminal() -> None:
    assert tame("a\x1b[2Jb\x07\x9bc") == "a�[2Jb��c"
    assert printable("\x1b[31mred\x1b[0m\tx\n") == "\x1b[31mred\x1b[0m\tx\n"
    assert tame("\u202eturned\u2028line\x1b[31mred") == "�turned�line�[31mred"
    assert printable("\x1b[2Jgone\x1b[31mred") == "�[2Jgone\x1b[31mred", "of all controls only our own colours"
    assert table(["a", "b"], [["1", "x" * 10]], right=(0,)) == "a  b\n1  xxxxxxxxxx"


def test_help_needs_no_argument_and_the_version_is_told(cli: Callable[..., Any]) -> None:
    assert cli().code == 0 and "evolve" in cli().out
    assert cli("--version").out.startswith("avo 0.")
