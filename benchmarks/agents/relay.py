"""A server of the OpenAI chat protocol behind which an operator sits: each request becomes a file, its answer is read
from a file. So any agent of avo that asks a model can be driven by whoever reads what the model would, and no more.

python benchmarks/agents/relay.py FOLDER [--port 8399] [--no-tools]
avo evolve --agent mantis --model http://127.0.0.1:8399/v1#NAME ...

Request N is FOLDER/N.request.md: the tools, and of the messages those that the request before did not hold. The answer
is FOLDER/N.answer.md: a text; tool calls stand in it as lines `call NAME {...}` with the JSON of their arguments. It is
taken up when FOLDER/N.done exists.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_CALL = re.compile(r"^call (\w+) (\{.*\})\s*$", re.MULTILINE)


class Relay:
    """The requests of one operator, one after the other."""

    def __init__(self, folder: Path, tools: bool) -> None:
        self.folder = folder
        self.tools = tools
        self._n = 0
        self._last: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._n += 1
            (self.folder / f"{self._n}.request.md").write_text(self._page(asked), encoding="utf-8")
            self._last = asked["messages"]
            done = self.folder / f"{self._n}.done"
            while not done.exists():
                time.sleep(0.1)
            text = (self.folder / f"{self._n}.answer.md").read_text(encoding="utf-8")
        calls = [
            {"id": f"c{self._n}-{i}", "type": "function", "function": {"name": m[1], "arguments": m[2]}}
            for i, m in enumerate(_CALL.finditer(text))
        ]
        said = _CALL.split(text)[0].strip() if calls else text
        message: dict[str, Any] = {"role": "assistant", "content": said or None}
        if calls:
            message["tool_calls"] = calls
        # Nobody counted tokens here, so about four characters count as one.
        usage = {"prompt_tokens": len(json.dumps(asked)) // 4, "completion_tokens": len(text) // 4}
        usage["total_tokens"] = sum(usage.values())
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return {
            "id": f"relay-{self._n}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": asked.get("model", ""),
            "choices": [choice],
            "usage": usage,
        }

    def _page(self, asked: dict[str, Any]) -> str:
        messages, last = asked["messages"], self._last
        same = 0
        while same < min(len(messages), len(last)) and messages[same] == last[same]:
            same += 1
        rows = [f"(messages 1 to {same} as in the request before)"] if same else []
        if not same:
            for tool in asked.get("tools", ()):
                f = tool["function"]
                rows.append(f"tool {f['name']} {json.dumps(f['parameters'].get('properties', {}))}: {f['description']}")
        for m in messages[same:]:
            rows += [f"--- {m['role']}", str(m.get("content") or "")]
            rows += [f"call {c['function']['name']} {c['function']['arguments']}" for c in m.get("tool_calls", ())]
        if "response_format" in asked:
            rows.append("--- the reply is JSON of the schema " + json.dumps(asked["response_format"]["json_schema"]))
        return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8399)
    parser.add_argument("--no-tools", action="store_true", help="refuse tools, as some servers do")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    relay = Relay(given.folder, not given.no_tools)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if asked.get("tools") and not relay.tools:
                self._send(400, {"error": {"message": "tools are not supported"}})
                return
            self._send(200, relay.answer(asked))

        def _send(self, code: int, found: dict[str, Any]) -> None:
            body = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
