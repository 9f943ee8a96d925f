"""OpenAI's Responses API, and the chat completions that every OpenAI-compatible server has."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import Any, ClassVar

from avo.errors import UserMistake
from avo.models.endpoint import key_from, lacking, sdk, trouble
from avo.models.prices import Price
from avo.models.protocol import Call, Message, Outcome, Reply, Request, Trouble, Usage


class _Endpoint:
    """A client that is made at the first request: without a key or an SDK, nothing else of avo fails."""

    def __init__(self, name: str, model: str, base_url: str | None, price: Price | None, key_env: str | None) -> None:
        self.name = name
        self.price = price
        self._model = model
        self._base_url = base_url
        self._key_env = key_env
        self._client: Any = None
        self._lock = threading.Lock()

    def _key(self) -> str:
        return key_from(self._key_env or "OPENAI_API_KEY")

    def check(self) -> None:
        """Raises UserMistake where the SDK or the key is missing."""
        with self._lock:
            if self._client is None:
                kit = sdk("openai")
                # Retries are avo's own: each attempt is journalled.
                self._client = kit.OpenAI(api_key=self._key(), base_url=self._base_url, max_retries=0)

    def send(self, request: Request, timeout_s: float) -> Reply:
        self.check()
        kit = sdk("openai")
        try:
            return self._send(request, timeout_s)
        except (Trouble, UserMistake):
            raise
        except Exception as error:
            raise lacking(trouble(kit, error, self._client.api_key), request) from None

    def _send(self, request: Request, timeout_s: float) -> Reply:
        raise NotImplementedError

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


class OpenAIModel(_Endpoint):
    """The Responses API; nothing is stored at the provider, so what the model thought is sent back, encrypted by it."""

    takes: ClassVar = frozenset({"tools", "lark", "schema"})

    def __init__(
        self,
        name: str,
        model: str,
        base_url: str | None,
        price: Price | None,
        key_env: str | None,
        stream: bool = True,
    ) -> None:
        super().__init__(name, model, base_url, price, key_env)
        self._stream = stream

    def _send(self, request: Request, timeout_s: float) -> Reply:
        more: dict[str, Any] = {}
        if request.tools:
            more["tools"] = [_response_tool(t) for t in request.tools]
            more["parallel_tool_calls"] = False
            if not self._model.startswith(("gpt-4", "gpt-3")):  # these think nothing
                more["include"] = ["reasoning.encrypted_content"]
        if request.schema:
            form = {"type": "json_schema", "name": "answer", "schema": request.schema, "strict": True}
            more["text"] = {"format": form}
        answer = self._client.responses.create(
            model=self._model,
            instructions=request.system,
            input=[item for m in request.messages for item in _response_items(m)],
            max_output_tokens=request.max_tokens,
            store=False,
            timeout=timeout_s,
            stream=self._stream,
            **more,
        )
        if self._stream:
            answer = _last(answer)
        texts, refusals, calls = [], [], []
        if not isinstance(answer.output, list):
            raise ValueError("the reply has no output")
        for item in answer.output:
            if item.type == "function_call":
                calls.append(Call(item.call_id, item.name, item.arguments or ""))
            elif item.type == "custom_tool_call":
                calls.append(Call(item.call_id, item.name, item.input or "", free=True))
            for part in getattr(item, "content", None) or ():
                if part.type == "output_text":
                    texts.append(part.text)
                elif part.type == "refusal":
                    refusals.append(part.refusal)
        kept = ""
        if calls and any(item.type == "reasoning" for item in answer.output):
            kept = json.dumps([item.model_dump(mode="json", exclude_none=True) for item in answer.output])
        usage = answer.usage
        counted = (
            Usage()
            if usage is None
            else Usage(
                usage.input_tokens,
                usage.output_tokens,
                getattr(usage.input_tokens_details, "cached_tokens", 0) or 0,
                getattr(usage.input_tokens_details, "cache_write_tokens", 0) or 0,
            )
        )
        why = getattr(answer.incomplete_details, "reason", "") or ""
        if answer.status == "failed":
            failure = getattr(answer.error, "message", "") or "the provider gives no reason"
            raise Trouble("server error", failure, again=True, billed=True)
        return _reply("".join(texts), refusals, why, counted, calls, kept)


def _last(events: Iterable[Any]) -> Any:
    """The whole reply, which the last event of a stream repeats."""
    for event in events:
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            return event.response
        if event.type == "error":
            raise Trouble("server error", str(getattr(event, "message", "")), again=True, billed=True)
    raise ValueError("the stream ended before the reply did")


def _response_tool(tool: Any) -> dict[str, Any]:
    if tool.grammar:
        form = {"type": "grammar", "syntax": "lark", "definition": tool.grammar}
        return {"type": "custom", "name": tool.name, "description": tool.doc, "format": form}
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.doc,
        "parameters": tool.schema,
        "strict": False,
    }


def _response_items(m: Message) -> Iterable[dict[str, Any]]:
    if m.kept:
        yield from json.loads(m.kept)
        return
    for r in m.results:
        kind = "custom_tool_call_output" if r.free else "function_call_output"
        yield {"type": kind, "call_id": r.id, "output": r.text}
    if m.text:
        yield {"role": m.role, "content": m.text}
    for c in m.calls:
        if c.free:
            yield {"type": "custom_tool_call", "call_id": c.id, "name": c.name, "input": c.arguments}
        else:
            yield {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments}


class ChatModel(_Endpoint):
    """Chat completions at an address of one's own: vLLM, Ollama, llama.cpp and others.

    A grammar goes out under the names of llama.cpp (`grammar`) and vLLM (`structured_outputs`); a server that knows
    neither leaves the reply free.
    """

    takes: ClassVar = frozenset({"tools", "gbnf", "schema"})

    def _key(self) -> str:
        return key_from(self._key_env) if self._key_env else "none"

    def _send(self, request: Request, timeout_s: float) -> Reply:
        messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
        messages += [part for m in request.messages for part in _chat_messages(m)]
        more: dict[str, Any] = {}
        tools = [t for t in request.tools if not t.grammar]
        if tools:
            shown = [{"name": t.name, "description": t.doc, "parameters": t.schema} for t in tools]
            more["tools"] = [{"type": "function", "function": f} for f in shown]
        if request.grammar:
            more["extra_body"] = {"grammar": request.grammar, "structured_outputs": {"grammar": request.grammar}}
        if request.schema:
            form = {"name": "answer", "schema": request.schema, "strict": True}
            more["response_format"] = {"type": "json_schema", "json_schema": form}
        answer = self._client.chat.completions.create(
            model=self._model, messages=messages, max_tokens=request.max_tokens, timeout=timeout_s, **more
        )
        if not answer.choices:
            raise ValueError("the reply has no choices")
        choice = answer.choices[0]
        usage = answer.usage
        details = getattr(usage, "prompt_tokens_details", None)
        counted = (
            Usage()
            if usage is None
            else Usage(
                usage.prompt_tokens or 0, usage.completion_tokens or 0, getattr(details, "cached_tokens", 0) or 0
            )
        )
        refusals = [choice.message.refusal] if getattr(choice.message, "refusal", None) else []
        why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(choice.finish_reason or "", "")
        calls = [
            Call(c.id or f"call-{n}", c.function.name or "", c.function.arguments or "")
            for n, c in enumerate(choice.message.tool_calls or ())
            if getattr(c, "function", None) is not None
        ]
        return _reply(choice.message.content or "", refusals, why, counted, calls)


def _chat_messages(m: Message) -> Iterable[dict[str, Any]]:
    for r in m.results:
        yield {"role": "tool", "tool_call_id": r.id, "content": r.text}
    if m.calls:
        called = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in m.calls
        ]
        yield {"role": m.role, "content": m.text or None, "tool_calls": called}
    elif m.text or not m.results:
        yield {"role": m.role, "content": m.text}


def _reply(
    text: str, refusals: list[str], why: str, usage: Usage, calls: list[Call] | None = None, kept: str = ""
) -> Reply:
    outcome: Outcome = "ok"
    detail = ""
    if refusals or why == "content_filter":
        outcome, detail = "refused", " ".join(refusals) or "stopped by the provider's content filter"
    elif why:
        outcome, detail = "truncated", f"cut: {why}"
    elif not text.strip() and not calls:
        outcome, detail = "empty", "the reply has no text"
    return Reply(text, outcome, usage, detail, tuple(calls or ()), kept)
