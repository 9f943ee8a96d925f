"""The configuration: what wins over what, and what each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from avo.config import DEFAULT_STEPS, RunConfig, pairs, read_config, versions
from avo.errors import UserMistake


def test_defaults_make_the_demo() -> None:
    config = read_config(None)
    assert (config.target, config.hw, config.agent, config.evaluator) == ("attention", "b200", "heuristic", "local")
    assert config.steps == DEFAULT_STEPS >= 40


def test_flags_win_over_set_and_set_over_the_file(tmp_path: Path) -> None:
    recipe = tmp_path / "run.toml"
    recipe.write_text('hw = "h200"\nseed = 1\nsteps = 7\n[workloads]\nlong = "n=65536"\n')
    config = read_config(str(recipe), ["seed=2", "steps=8", "agent_options.depth=3"], {"steps": 9, "hw": None})
    assert (config.hw, config.seed, config.steps) == ("h200", 2, 9)
    assert config.workloads == {"long": "n=65536"}
    assert config.agent_options == {"depth": 3}


def test_minutes_alone_lift_the_default_limit_of_steps() -> None:
    assert read_config(None, [], {"minutes": 3.0}).steps is None
    assert read_config(None, ["minutes=3"]).steps is None
    assert read_config(None, ["minutes=3", "steps=5"]).steps == 5


def test_a_config_is_frozen_and_comes_back_from_json() -> None:
    config = read_config(None, ["archive=sqlite:///x.db", "workloads.a={m=1, causal=true}"])
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["stpes=3"], "unknown setting 'stpes'; did you mean 'steps'?"),
        (["steps"], "--set wants key=value, got 'steps'"),
        (["steps=0"], "setting 'steps' is at least 1, got 0"),
        (["steps=many"], "setting 'steps' wants a whole number"),
        (["jobs=0"], "setting 'jobs'"),
        (["hw.x=1", "hw=3"], "setting 'hw'"),
        (["hw=3", "hw.x=1"], "'hw' is a value, not a table"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(sets: list[str], message: str) -> None:
    with pytest.raises(UserMistake, match=None) as told:
        read_config(None, sets)
    assert message in str(told.value)


def test_a_wrong_file_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"no such file: .*none\.toml"):
        read_config(str(tmp_path / "none.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("steps = = 3")
    with pytest.raises(UserMistake, match="is not TOML"):
        read_config(str(broken))
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(UserMistake, match="cannot read"):
        read_config(str(broken))
    broken.write_text("budget = 3\n")
    with pytest.raises(UserMistake, match=r"unknown setting 'budget'.*\(in .*broken\.toml\)"):
        read_config(str(broken))
    with pytest.raises(UserMistake, match="cannot read"):
        read_config(str(tmp_path))


def test_a_workload_is_read_from_pairs() -> None:
    assert pairs("b=4, h=32,scale=0.5,causal=true") == {"b": 4, "h": 32, "scale": 0.5, "causal": True}


@pytest.mark.parametrize("text", ["b", "b=", "b=4,,h=2", "b=four", "b=1,b=2", ""])
def test_a_workload_that_is_no_list_of_pairs_is_a_mistake(text: str) -> None:
    with pytest.raises(UserMistake):
        pairs(text)


def test_versions_name_everything_that_may_change_a_result() -> None:
    assert {"python", "avo-kernels", "torch", "triton", "numpy"} <= set(versions())


def test_a_word_in_place_of_sizes_names_a_set_of_the_target() -> None:
    from avo.workloads import retarget
    from evaluators.targets import target

    job = target("attention")
    found = retarget(job, ["d64"])
    assert {w.sizes["d"] for w in found.workloads} == {64} == {w.sizes["d"] for w in found.hidden}
    both = retarget(job, ["d64", "grouped"])
    assert len(both.workloads) == len(found.workloads) + len(job.sets["grouped"].workloads)
    mixed = retarget(job, ["d64", "b=1,m=512,n=512"])
    assert mixed.workloads[-1].sizes["m"] == 512 and mixed.hidden == job.hidden
    with pytest.raises(UserMistake, match="unknown set of workloads of attention 'd46'; did you mean 'd64'"):
        retarget(job, ["d46"])
    with pytest.raises(UserMistake, match="unknown set of workloads of swiglu 'long'"):
        retarget(target("swiglu"), ["long"])


def test_a_name_in_another_case_is_the_nearest() -> None:
    from avo.errors import unknown
    from dsl.diagnostics import nearest

    assert unknown("axis", "R", ["c", "r"]) == "unknown axis 'R'; did you mean 'r'? known: r, c"
    assert nearest("R", ["c", "r"]) == "r" and nearest("z", ["c", "r"]) == ""


def test_files_of_people_may_begin_with_a_mark_of_the_byte_order(tmp_path):
    from avo.files import read_text

    file = tmp_path / "kernel.py"
    file.write_bytes(b"\xef\xbb\xbfdef run(x):\n    return x\n")
    assert read_text(str(file)).startswith("def run")
