"""The learnability tasks: each can be answered, and a wrong answer is told why at the right stage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "learnability"
sys.path.insert(0, str(FOLDER))
try:
    from run import TASKS, prompt, table  # type: ignore[import-not-found]
    from task import judge  # type: ignore[import-not-found]
finally:
    sys.path.remove(str(FOLDER))

BLOCKS = (Path(__file__).parent / "learnability_answers.txt").read_text().split("== ")[1:]
ANSWERS = {name: text for name, _, text in (b.partition("\n") for b in BLOCKS)}
BY_NAME = {task.name: task for task in TASKS}


def test_there_are_tasks_enough_and_each_has_an_answer():
    assert len(TASKS) >= 20 and len(BY_NAME) == len(TASKS)
    assert set(ANSWERS) == set(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_right_answer_passes(name):
    verdict = judge(BY_NAME[name], ANSWERS[name])
    assert verdict.passed, verdict.message
    assert judge(BY_NAME[name], f"Here it is:\n```avo\n{ANSWERS[name]}```\n").passed


@pytest.mark.parametrize("name", [t.name for t in TASKS if t.given])
def test_the_given_program_alone_does_not_pass(name):
    assert not judge(BY_NAME[name], BY_NAME[name].given).passed


@pytest.mark.parametrize(
    "name, old, new, stage, says",
    [
        ("softmax_rows", "softmax[c](x)", "softmax(x, axis=c)", "parse", "the axis of a reduction stands in brackets"),
        ("softmax_rows", "softmax[c](x)", "exp(x) / sum[r](exp(x))", "meaning", "y is another function"),
        ("softmax_rows", "softmax[c](x)", "sum[c](x)", "check", ""),
        ("softmax_rows", "in x[r c] bf16", "in x[r c] f16", "signature", "`in x[r c] bf16` is asked for"),
        ("window_attention", "m - n < window", "m - n <= window", "meaning", "window"),
        ("block_max", "c // 4", "c // 5", "meaning", "shape"),
        ("gemm_transposed", "stages=3", "stages=2", "asked", "`stream k stages=3` was asked for"),
        ("softmax_scheduled", "for gfx942: warps 16", "", "asked", "on gfx942"),
        ("mlp_in_two_kernels", "schedule\nkernels hidden | y", "", "asked", "no kernel writes just `hidden`"),
        ("mlp_in_two_kernels", "hidden[r f] bf16", "hidden[r f]", "asked", "declared bf16"),
        ("two_level_sums", "f16 =", "=", "asked", "no sum over blocks"),
        ("fuse", "1e-6", "1e-5", "meaning", "another function"),
        ("tune_gemm", "c = sum[k](a * b)", "c = sum[k](b * a)", "asked", "the algorithm was to stay"),
        ("scale_by_blocks", "// 64", "// 32", "asked", "blocks of 64"),
        ("int8_linear", ", int8)", ", e4m3)", "asked", "quantize(..., int8)"),
    ],
)
def test_a_wrong_answer_is_told_why(name, old, new, stage, says):
    assert old in ANSWERS[name]
    verdict = judge(BY_NAME[name], ANSWERS[name].replace(old, new))
    assert verdict.stage == stage, verdict
    assert says in verdict.message


def test_the_prompt_has_every_task_and_no_answer():
    text = prompt()
    for task in TASKS:
        assert f" {task.name}\n" in text and task.signature in text
    assert "where(topk[c](p, 2), p, 0)" not in text


def test_the_runner_prints_the_table_and_says_what_is_missing(tmp_path):
    for name in ("softmax_rows", "fuse"):
        (tmp_path / f"{name}.avo").write_text(ANSWERS[name])
    command = [sys.executable, str(FOLDER / "run.py"), str(tmp_path), "--errors"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parents[1], check=False)
    assert done.returncode == 1 and f"2 of {len(TASKS)} passed" in done.stdout
    assert "fuse                       passed" in done.stdout and "no such file" in done.stdout
    assert table([judge(t, ANSWERS[t.name]) for t in TASKS[:3]]).endswith("3 of 3 passed (100%)")
