"""A local HTTP server that speaks the wire formats of both providers, well and badly, as a test tells it to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Say:
    """One answer. status other than 200: an error with `text` as its message. hang_s: silence before it. cut: only half
    of the JSON is sent. raw: this body instead of a proper one. stop: "", "length" or "refusal". calls: of tools, each
    its name and its arguments, a dict, or a text as it is to be sent; a name that ends in `_edit` is a custom tool's.
    thinks: before them, in the provider's own form."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    cut: bool = False
    raw: str | None = None
    stop: str = ""
    code: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()
    thinks: bool = False


Script = Sequence["Say | Callable[[dict[str, Any]], Say]"]


class ModelServer:
    """`with ModelServer([...]) as server:` answers the n-th request with the n-th entry, then with the last one."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        script, lock, outer = list(script), threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    entry = script[min(len(outer.requests), len(script) - 1)]
                    outer.requests.append(body)
                    outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                    outer.times.append(time.monotonic())
                say = entry(body) if callable(entry) else entry
                outer.closing.wait(say.hang_s)
                streamed = bool(body.get("stream")) and say.status == 200 and say.raw is None
                made = _body(self.path, say) if say.raw is None else {}
                data = (_events(self.path, made) if streamed else say.raw or json.dumps(made)).encode()
                try:
                    self.send_response(say.status)
                    kind = "text/event-stream" if streamed else "application/json"
                    for key, value in {"Content-Type": kind, **say.headers}.items():
                        self.send_header(key, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data[: len(data) // 2] if say.cut else data)
                except OSError:
                    pass  # whoever asked has gone
                self.close_connection = True

            def do_GET(self) -> None:
                data = json.dumps({"object": "list", "data": [{"id": "small", "object": "model"}]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


def _body(path: str, say: Say) -> dict[str, Any]:
    if say.status != 200:
        error = {"type": "error", "message": say.text, "code": say.code or None}
        return {"type": "error", "error": error}
    if path.endswith("/messages"):
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [
                *([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}] if say.thinks else []),
                *([{"type": "text", "text": say.text}] if say.text else []),
                *[
                    {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": _object(arguments)}
                    for n, (name, arguments) in enumerate(say.calls)
                ],
            ],
            "stop_reason": {"length": "max_tokens", "refusal": "refusal"}.get(
                say.stop, "tool_use" if say.calls else "end_turn"
            ),
            "stop_sequence": None,
            "usage": {
                "input_tokens": 100,
                "cache_read_input_tokens": 800,
                "cache_creation_input_tokens": 100,
                "output_tokens": 50,
            },
        }
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": say.text, "annotations": []}
        if say.stop == "refusal":
            part = {"type": "refusal", "refusal": say.text}
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "status": "incomplete" if say.stop == "length" else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if say.stop == "length" else None,
            "error": None,
            "output": [
                *(
                    [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"}]
                    if say.thinks
                    else []
                ),
                *([message] if say.text else []),
                *[_response_call(n, name, arguments) for n, (name, arguments) in enumerate(say.calls)],
            ],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1000,
                "input_tokens_details": {"cached_tokens": 800, "cache_write_tokens": 100},
                "output_tokens": 50,
                "output_tokens_details": {"reasoning_tokens": 10},
                "total_tokens": 1050,
            },
        }
    content: dict[str, Any] = {"role": "assistant", "content": say.text}
    if say.stop == "refusal":
        content = {"role": "assistant", "content": None, "refusal": say.text}
    if say.calls:
        content["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
            for n, (name, arguments) in enumerate(say.calls)
        ]
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": content, "finish_reason": "length" if say.stop == "length" else "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050},
    }


def _text(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _object(arguments: dict[str, Any] | str) -> Any:
    return {"text": arguments} if isinstance(arguments, str) else arguments


def _response_call(n: int, name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
    if name.endswith("_edit"):
        return {"type": "custom_tool_call", "id": f"ctc_{n}", "call_id": f"call_{n}", "name": name, "input": arguments}
    found = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": name, "status": "completed"}
    return found | {"arguments": _text(arguments)}


def _events(path: str, whole: dict[str, Any]) -> str:
    """A reply as either provider streams it."""
    found = _pieces(whole) if path.endswith("/messages") else _steps(whole)
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in found)


def _steps(whole: dict[str, Any]) -> list[dict[str, Any]]:
    begun = {
        "type": "response.created",
        "sequence_number": 0,
        "response": whole | {"output": [], "status": "in_progress"},
    }
    return [begun, {"type": f"response.{whole['status']}", "sequence_number": 1, "response": whole}]


def _pieces(whole: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}]
    for n, block in enumerate(whole["content"]):
        match block["type"]:
            case "text":
                start, deltas = {"text": ""}, [{"type": "text_delta", "text": part} for part in _halves(block["text"])]
            case "thinking":
                start = {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case _:
                start = {"input": {}, "id": block["id"], "name": block["name"]}
                parts = _halves(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        found.append({"type": "content_block_start", "index": n, "content_block": {"type": block["type"], **start}})
        found += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": n})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": whole["usage"]["output_tokens"]}
    return [*found, {"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]


def _halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]
