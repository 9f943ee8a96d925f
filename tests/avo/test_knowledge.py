"""Knowledge pages and prompts: found by what one asks, kept short, replaced by a person's own, shown by their verbs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from avo import plugins
from avo.agents.brief_page import tokens
from avo.agents.prompting import names, prompts, signature, template
from avo.agents.toolbox import TOOLS, Toolbox
from avo.errors import UserMistake
from avo.knowledge import pages, search
from avo.models.protocol import Call
from avo.testing import brief
from dsl.hardware import HARDWARE, hardware

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_a_page_is_short_and_says_when_how_and_what_was_measured(page: Any) -> None:
    assert tokens(page.text) <= 700 and page.title and page.text.startswith("# ")
    assert re.search(r"\*\*(Helps|Rule|So|Hurts)|Only where|Triton's AMD|A candidate|A block has", page.text), "when"
    arches = {c.arch for c in HARDWARE.values()} | {c.vendor for c in HARDWARE.values()} | set(HARDWARE)
    assert set(page.chips) <= arches and set(page.targets) <= set(plugins.builtins("target"))
    if "**Measured**" in page.text:
        assert re.search(r"benchmarks/data/\S+\.json|H200", page.text), "a figure says where it is from"


@pytest.mark.parametrize(
    ("query", "chip", "target", "limit", "first"),
    [
        ("lazy rescale", "h200", "attention", "", "lazy_rescale"),
        ("spills registers", "h200", "attention", "spills", "tile_and_warps"),
        ("swizzle dies", "mi300x", "attention", "", "swizzles"),
        ("ping pong", "mi300x", "gemm", "", "amd_ping_pong"),
        ("", "b200", "rmsnorm", "HBM bandwidth", "memory_bound"),
        ("quantize e4m3", "rtx4090", "attention", "", "quantisation"),
    ],
)
def test_pages_are_found_by_words_chip_target_and_bottleneck(
    query: str, chip: str, target: str, limit: str, first: str
) -> None:
    assert search(query, hardware(chip), target=target, limit=limit)[0].name == first


def test_pages_for_other_chips_are_left_out_and_nonsense_finds_none() -> None:
    assert all("amd" not in p.chips for p in search("warps tile stages load", hardware("h200"), most=99))
    assert "tma" not in [p.name for p in search("tma descriptor", hardware("a100"), most=99)]
    assert search("zebra", hardware("h200")) == []


def test_a_folder_of_ones_own_stands_beside_and_instead(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "zebra.md").write_text("# Stripes\nchips: h200\n\nZebra stripes help.\n")
    (tmp_path / "tma.md").write_text("# TMA, ours\nNever use a zebra.\n")
    found = {p.name: p for p in pages([str(tmp_path)])}
    assert found["tma"].title == "TMA, ours" and found["zebra"].chips == ("h200",) and len(found) == len(PAGES) + 1
    box = Toolbox(brief(plugins.load("target", "softmax"), hardware("h200")), (str(tmp_path),))
    told = box.run(Call("1", "search_knowledge", '{"query": "zebra"}'))
    assert isinstance(told, str) and "Zebra stripes help." in told and "chips:" not in told
    with pytest.raises(UserMistake, match="names folders of Markdown"):
        pages([str(tmp_path / "none")])


def test_prompts_have_versions_digests_and_fill_their_words(tmp_path: Path) -> None:
    assert {"system", "operator", "repair", "supervisor", "mantis", "nominate"} <= set(names())
    for name in names():
        one = template(name)
        assert one.version.startswith("version ") and one.owner == "avo" and not one.text.startswith("<!--")
    assert all(f"`{tool}`" in template("operator").text for tool in ("check", "evaluate", "commit", "give_up"))
    assert template("repair").fill(problem="{x} is wrong").count("{x} is wrong") == 1
    before = signature("avo", prompts(("system", "repair"), None))
    (tmp_path / "repair.md").write_text("<!-- version 9 -->\nAgain: {problem}")
    after = signature("avo", prompts(("system", "repair"), str(tmp_path)))
    assert before != after and re.fullmatch(r"avo [0-9a-f]{12}", after)
    assert template("repair", str(tmp_path)).version == "version 9"
    with pytest.raises(UserMistake, match="unknown prompt 'sistem'; did you mean 'system'"):
        template("sistem")


def test_every_tool_has_a_schema_that_a_provider_takes() -> None:
    from avo.agents.toolbox import tools

    found = {t.name: t for t in tools()}
    assert set(found) == set(TOOLS)
    for tool in found.values():
        assert tool.schema["type"] == "object" and tool.schema["additionalProperties"] is False
        assert all("description" in p for p in tool.schema["properties"].values())
        json.dumps(tool.schema)
    assert found["evaluate"].schema["required"] == ["answer", "why", "expect"]


def test_the_verbs(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = cli("knowledge").out
    assert "lazy_rescale" in listed and max(map(len, listed.splitlines())) <= 80
    assert cli("knowledge", "tma").out.startswith("# TMA") and "amd_limits" not in cli("knowledge", "--hw", "h200").out
    assert cli("knowledge", "zebra").code == 2
    assert json.loads(cli("knowledge", "tma", "--json").out)[0]["name"] == "tma"
    shown = cli("prompts").out
    assert "operator" in shown and max(map(len, shown.splitlines())) <= 80
    Path("own").mkdir()
    Path("own/operator.md").write_text(cli("prompts", "operator").out.replace("GPU", "very fast GPU"))
    assert json.loads(cli("prompts", "operator", "--folder", "own", "--json").out)["owner"] == "own/operator.md"
    assert template("operator", "own").version == template("operator").version
    assert cli("prompts", "none").code == 2
