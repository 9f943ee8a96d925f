"""A target of one's own: what is left out is derived, what is wrong is one clear error."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dsl.parser import parse
from evaluators.inputs import extents
from evaluators.loading import complete, ready
from evaluators.target import Target, TargetError, Workload
from evaluators.targets import target

SEED = """kernel scale
in  x[r c] bf16, w[c] f32
out y[r c] bf16
param power int = 1
y = x * w
"""


def mine(
    reference: Callable[..., Any] = lambda x, w, power=1: x * w, seed: str = SEED, **sizes: int | object
) -> Target:
    return Target("mine", reference, seed, (Workload({"r": 4096, "c": 1000}, {"power": 1}),), **sizes)  # type: ignore[arg-type]


def test_reference_seed_and_workloads_are_enough() -> None:
    job = ready(mine())
    assert job.checks and job.tiny and job.hidden
    assert [w.name for w in job.checks] == ["r=200,c=152,power=1", "r=152,c=328,power=1", "r=256,c=256,power=1"]
    assert [w.name for w in job.tiny] == ["r=6,c=10,power=1"]
    assert [w.name for w in job.hidden] == ["r=3072,c=1000,power=1"]
    assert complete(job) is job


def test_derived_sizes_keep_grouped_heads_and_head_dims() -> None:
    job = complete(replace(target("attention"), checks=(), tiny=(), hidden=()))
    algorithm = parse(job.seed).algorithm
    assert {w.params["causal"] for w in job.checks} == {w.params["causal"] for w in job.tiny} == {True, False}
    for w in job.checks:
        assert w.sizes["d"] == w.sizes["e"] == 128 and w.sizes["n"] in (152, 200, 328, 256) and w.sizes["b"] in (1, 2)
    grouped = replace(job, workloads=(Workload({**job.workloads[0].sizes, "h": 32, "g": 4}, {"causal": True}),))
    derived = complete(replace(grouped, checks=(), tiny=(), hidden=()))
    assert (derived.checks[0].sizes["h"], derived.checks[0].sizes["g"]) == (8, 2)
    assert all(extents(algorithm, w)["g"] == w.sizes["g"] for w in derived.tiny)


def test_sizes_of_ones_own_are_checked_as_they_are_special() -> None:
    sizes = {**target("attention").workloads[0].sizes, "b": 4, "h": 32, "g": 8, "m": 1, "n": 8192}
    job = complete(replace(target("attention"), workloads=(Workload(sizes, {"causal": False}),)))
    (added,) = set(w.name for w in job.checks) - {w.name for w in target("attention").checks}
    assert added == "b=2,h=8,g=2,m=1,n=200,d=128,e=128,causal=0"


def test_an_axis_of_blocks_keeps_three_blocks_and_a_tail() -> None:
    seed = """kernel pooled
in  x[r n] bf16
out y[r nb] f32
axis nb = n // 16
y = mean[n in nb](x)
"""

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([part.mean(-1) for part in x.split(16, dim=-1)], dim=-1)

    job = ready(Target("pooled", reference, seed, (Workload({"r": 1024, "n": 4096}),)))
    for w in (*job.tiny, *job.checks):
        assert w.sizes["n"] > 3 * 16 and w.sizes["n"] % 16


def test_the_example_of_the_documentation_is_ready(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(# my_rope.py\n.*?)```", text, re.DOTALL)
    assert found
    (tmp_path / "my_rope.py").write_text(found[1], encoding="utf-8")
    job = ready(runpy.run_path(str(tmp_path / "my_rope.py"))["TARGET"])
    assert [w.name for w in job.tiny] == ["b=2,s=12,h=6,d=10"]


def raising(x: torch.Tensor, w: torch.Tensor, power: int = 1) -> torch.Tensor:
    raise RuntimeError("no such op")


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (mine(raising), r"the reference raised RuntimeError on r=6,c=10,power=1: no such op \(.*test_loading.py, line"),
        (mine(lambda x, w, power: x * float("nan")), "the reference returns NaN in y"),
        (mine(lambda x, w, power: (x * w).sum(-1)), r"y has shape \[6, 10\], the reference \[6\]"),
        (mine(lambda x, w, power: (x, w)), r"returns 2 tensors, the program has 1 output \(y\)"),
        (mine(lambda x, w, power: 3.0), "must return a tensor or a tuple of them, not float"),
        (mine(lambda x, w: x * w), "the reference raised TypeError"),
        (mine(lambda x, w, power: x * w * 1.001), "the seed program does not compute what the reference does"),
        (mine(seed="kernel ]]]"), "the seed program does not parse"),
        (mine(seed=SEED.replace("y = x * w", "y = x * v")), "the seed program is wrong"),
        (replace(mine(), workloads=()), "needs at least one workload"),
        (replace(mine(), name=""), "a target needs a name"),
        (replace(mine(), reference=None), "the reference is no function but NoneType"),  # type: ignore[arg-type]
        (
            replace(mine(), workloads=(Workload({"r": 4, "cc": 8}),)),
            r"no axis 'cc'; did you mean 'c'\?|no axis 'cc'; it",
        ),
        (replace(mine(), workloads=(Workload({"r": 4}),)), "the extent of axis c is not given"),
        (
            replace(mine(), workloads=(Workload({"r": 4, "c": 0}),)),
            "extent of c is a whole number of at least 1, got 0",
        ),
        (replace(mine(), workloads=(Workload({"r": 4, "c": 4}, {"causal": 1}),)), "no param 'causal'; it has power"),
        (
            replace(mine(seed=SEED.replace(" = 1", "")), workloads=(Workload({"r": 4, "c": 4}),)),
            "param 'power' has no value",
        ),
        (replace(mine(), make_inputs=lambda *_: {}), "make_inputs must give exactly x, w"),
    ],
)
def test_what_is_wrong_with_a_target_is_one_clear_error(job: Target, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        ready(job)
    assert "target mine" in str(caught.value) or not job.name


def test_coarse_extents_must_divide() -> None:
    attention = target("attention")
    sizes = {**attention.workloads[0].sizes, "g": 3}
    with pytest.raises(TargetError, match="g=3 must divide h=16"):
        complete(replace(attention, workloads=(Workload(sizes, {"causal": True}),)))
