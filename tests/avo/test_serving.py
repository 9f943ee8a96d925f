"""`avo mcp`: a real client of the protocol over stdio and HTTP has changes judged in a run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archive import open_archive
from avo.agents.toolbox import TOOLS
from avo.config import read_config
from avo.errors import UserMistake
from avo.serving import Desk

pytest.importorskip("mcp")
EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
FLAGS = {"target": str(EXAMPLE / "target.py"), "evaluator": str(EXAMPLE / "evaluator.py"), "hw": "h200"}
LINE = [part for kind, value in FLAGS.items() for part in (f"--{kind}", value)]


async def work(client: Any) -> list[tuple[bool, str]]:
    """What an operator does: looks, is told of a mistake, has a change judged, notes, commits or gives up."""

    async def call(name: str, **arguments: Any) -> tuple[bool, str]:
        found = await client.call_tool(name, arguments)
        return bool(found.is_error), found.content[0].text

    listed = await client.list_tools()
    assert {t.name for t in listed.tools} == set(TOOLS) and all(t.description for t in listed.tools)
    return [
        await call("read_brief"),
        await call("check", answer="warps 7"),
        await call("evaluate", answer="warps 7", why="x", expect=1.1),
        await call("evaluate", answer="warps 8"),
        await call("evaluate", answer="warps 8", why="more warps", expect=1.1),
        await call("read_lineage"),
        await call("write_note", topic="warps", text="eight are legal"),
        await call("read_notes", query="eight"),
        await call("commit", digest="9", lesson="x"),
        await call("give_up", why="enough"),
    ]


def check(found: list[tuple[bool, str]]) -> None:
    brief, illegal, refused, missing, verdict, lineage, kept, notes, none, ended = found
    assert not brief[0] and brief[1].startswith("# Step 1: make") and "How to answer" in brief[1]
    assert not illegal[0] and "warps 7" in illegal[1]
    assert refused[0] and refused[1].startswith("Not judged: ")
    assert missing[0] and "why: field required" in missing[1]
    assert not verdict[0] and verdict[1].startswith("Verdict on proposal 1, `"), verdict
    assert "2 candidates" in lineage[1] and "more warps" in lineage[1]
    assert kept == (False, "Kept.") and "eight are legal" in notes[1]
    assert none[0] and "9 is no candidate" in none[1] and not ended[0]


def test_a_client_over_stdio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import anyio
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    monkeypatch.chdir(tmp_path)
    paths = os.pathsep.join(p for p in sys.path if p)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "avo", "mcp", *LINE, "--by", "my-agent"],
        env={"PYTHONPATH": paths},
        cwd=tmp_path,
    )

    async def talk() -> list[tuple[bool, str]]:
        async with Client(server) as client:
            return await work(client)

    check(anyio.run(talk))
    with open_archive(tmp_path / "avo.db", readonly=True) as store:
        assert [(c.k, c.agent) for c in store.candidates(1)] == [(0, "seed"), (1, "my-agent")]
        assert store.hypotheses(1)[0].hypothesis.expected_gain == 1.1
        assert [n.topic for n in store.notes()] == ["warps", "given up"]
        assert store.run(1).state == "ended"


@pytest.mark.slow
def test_a_client_over_http_on_this_machine_alone(tmp_path: Path) -> None:
    import anyio
    from mcp import Client

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [sys.executable, "-m", "avo", "mcp", *LINE, "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = subprocess.Popen(arguments, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and child.poll() is None:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)

        async def talk() -> list[tuple[bool, str]]:
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                return await work(client)

        check(anyio.run(talk))
    finally:
        child.terminate()
        child.wait(20)


def test_calls_at_once_are_carried_out_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.chdir(tmp_path)
    desk = Desk("avo.db", config=read_config(None, (), FLAGS | {"archive": "avo.db"}), by="two")
    try:
        with ThreadPoolExecutor(2) as pool:
            asked = [{"answer": f"warps {n}", "why": "x", "expect": 1.1} for n in (2, 8)]
            found = list(pool.map(lambda a: desk.call("evaluate", a), asked))
        assert sorted(text.split(",")[0] for text, _ in found) == ["Verdict on proposal 1", "Verdict on proposal 2"]
        assert desk.call("fly", {})[0].startswith("unknown tool 'fly'")
    finally:
        desk.close()


def test_mistakes_are_told(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no archive at avo.db" in cli("mcp").err
    assert "give one of them" in cli("mcp", "--run", 1, *LINE).err
    assert "names folders of Markdown" in cli("mcp", *LINE, "--knowledge", "none").err
    for line, said in (
        (["--target", "nope"], "unknown target 'nope'"),
        (["--target", "rmsnorm", "--hw", "b20"], "unknown hardware 'b20'"),
        (["--target", "rmsnorm", "--evaluator", "lokal"], "unknown evaluator 'lokal'"),
        (["--target", "rmsnorm", "--workload", "q=3"], "unknown axis or param of rmsnorm: 'q'"),
        (["--target", "rmsnorm", "--port", 99999999], "--port is at most 65535"),
    ):
        answer = cli("mcp", *line)
        assert answer.code == 2 and said in answer.err, answer
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    answer = cli("mcp", *LINE)
    assert answer.code == 2 and "pip install 'avo-kernels[mcp]'" in answer.err
    with pytest.raises(UserMistake):
        from avo.knowledge import pages

        pages(["none"])
