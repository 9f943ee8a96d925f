"""The tools of the agent avo for an agent from outside, over the Model Context Protocol: `avo mcp`.

`Desk` carries the tools out on a run and knows nothing of the protocol; `serve` speaks it, by the official SDK.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from avo.agents.protocol import Brief
from avo.agents.reading import look_at
from avo.agents.toolbox import Commit, Evaluate, GiveUp, Misused, Noted, Toolbox, refusal
from avo.errors import HarnessUnavailable, UserMistake

if TYPE_CHECKING:
    from archive.archive import Archive
    from avo.config import RunConfig
    from avo.launch import Parts
    from avo.outside import Told

INSTRUCTIONS = (
    "Make a GPU kernel faster. Call read_brief first: it has the program, what limits it, every legal value and how to "
    "answer. Then check, evaluate, and read the verdict; evaluate costs a judgement, everything else is free. "
    "write_note what a later step should know. Only the judge says what is fast."
)


class Desk:
    """The tools over one run of an archive. Each call opens what it needs, so other processes may work beside it.

    run: its number, None for the newest. config: begins a new run at the first call instead. by: who proposes.
    """

    def __init__(
        self,
        archive: str,
        run: int | None = None,
        config: RunConfig | None = None,
        by: str = "outside",
        folders: tuple[str, ...] = (),
    ) -> None:
        self._archive = archive
        self._run = run
        self._config = config
        self._by = by
        self._folders = folders
        self._parts: Parts | None = None
        self._lock = threading.Lock()

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """(what the tool says, whether it went wrong). One call after the other."""
        import json

        from archive.errors import ArchiveError
        from avo.models.protocol import Call

        with self._lock:
            try:
                Toolbox.arguments(name, json.dumps(dict(arguments)))
                return self._call(Call("", name, json.dumps(dict(arguments)))), False
            except (Misused, UserMistake, HarnessUnavailable, ArchiveError) as error:
                return str(error), True

    def close(self) -> None:
        if self._parts is not None:
            self._parts.evaluator.close()
            self._parts = None

    def _call(self, call: Any) -> str:
        from archive.archive import open_archive
        from avo.outside import begin, brief_of

        if self._config is not None:
            self._run = begin(self._config)
            self._config = None
        with open_archive(self._archive, create=False) as store:
            record = store.run(self._run)
            self._run = record.id
            brief = brief_of(store, record)
            act = Toolbox(brief, self._folders).run(call)
            match act:
                case Evaluate():
                    return self._evaluate(store, brief, act)
                case Noted():
                    return self._noted(store, brief, act.topic, act.text, "Kept.")
                case Commit():
                    wrong = refusal(brief, act.digest)
                    if wrong:
                        raise Misused(wrong)
                    topic = f"committed {act.digest[:8]}"
                    return self._noted(
                        store, brief, topic, act.lesson, "Ended. read_brief begins the next line of work."
                    )
                case GiveUp():
                    return self._noted(store, brief, "given up", act.why, "Ended. read_brief begins the next line.")
            return act

    def _evaluate(self, store: Archive, brief: Brief, act: Evaluate) -> str:
        from dataclasses import replace

        from avo import outside
        from avo.agents.reading import candidate
        from avo.launch import prepare, stored

        answer, problem = look_at(act.answer, brief, act.parent)
        if answer is None or problem:
            raise Misused(f"Not judged: {problem}")
        assert self._run is not None
        if self._parts is None:
            self._parts = prepare(stored(store, self._run), agent=outside.OutsideAgent())
        parent = candidate(brief, answer.parent) or brief.parent
        proposal = outside.proposal_of(replace(answer, why=act.why or answer.why), parent, act.why, act.expect)
        return _told(outside.tell(store, self._parts, self._run, proposal, self._by))

    def _noted(self, store: Archive, brief: Brief, topic: str, text: str, said: str) -> str:
        from avo.models.secrets import redacted

        assert self._run is not None
        with store.claim(self._run) as writer:
            writer.note(brief.candidates[-1].k, redacted(text), redacted(topic))
        return said


def _told(found: Told) -> str:
    from avo.agents.brief_page import profile, reason

    c, unit = found.judged, found.judged.evaluation.unit
    score = f"{c.value:.5g} {unit} {c.evaluation.mode}" if c.value else c.status.value
    rows = [f"Verdict on proposal {c.k}, `{c.digest}`: {score}"]
    if why := reason(c):
        rows.append(f"Rejected: {why}")
    if found.known:
        rows.append("This program was judged before; its verdict holds.")
    elif found.comparison is not None:
        rows.append(f"{found.comparison.verdict}: {1 / found.comparison.ratio:.3f}x the best that it came from.")
    if c.value:
        rows += ["", profile(c), ""]
    best = found.best
    rows.append(f"The best of the run is proposal {best.k}, `{best.digest[:8]}`: {best.value:.5g} {unit}.")
    return "\n".join(rows)


def serve(desk: Desk, port: int | None = None) -> None:
    """Speaks over stdio, or over HTTP at 127.0.0.1:port/mcp, until the client leaves.

    Raises UserMistake where the SDK is not installed.
    """
    try:
        import anyio
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise UserMistake(f"avo mcp needs the SDK of the protocol: pip install 'avo-kernels[mcp]' ({error})") from None

    server = _server(desk, Server)

    async def over_stdio() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    async def over_http() -> None:
        import uvicorn

        app = server.streamable_http_app(host="127.0.0.1")
        await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port or 0, log_level="warning")).serve()

    try:
        anyio.run(over_stdio if port is None else over_http)
    finally:
        desk.close()


def _server(desk: Desk, kind: Any) -> Any:
    """The protocol's server over a desk: the list of tools, and calls carried out in a thread."""
    import anyio
    from mcp import types

    import avo
    from avo.agents.toolbox import tools

    async def listed(context: Any, asked: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=t.name, description=t.doc, input_schema=t.schema) for t in tools()]
        )

    async def called(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        text, wrong = await anyio.to_thread.run_sync(desk.call, asked.name, asked.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=wrong)

    return kind("avo", version=avo.__version__, instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=called)
