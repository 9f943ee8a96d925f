"""What passes between avo and one endpoint of a language model: a request goes in, a reply or a trouble comes out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from avo.models.prices import Price


@dataclass(frozen=True)
class Tool:
    """What a model may call. schema: JSON schema of its arguments. grammar: it takes one text instead, which follows
    this Lark grammar (OpenAI's custom tools; others are not shown it)."""

    name: str
    doc: str
    schema: dict[str, Any] = field(default_factory=dict)
    grammar: str = ""


@dataclass(frozen=True)
class Call:
    """A tool that a model called. arguments: as it wrote them, JSON or (free) the text of a tool with a grammar."""

    id: str
    name: str
    arguments: str
    free: bool = False


@dataclass(frozen=True)
class Result:
    """What a call gave, as the model reads it."""

    id: str
    text: str
    free: bool = False


@dataclass(frozen=True)
class Message:
    """calls: of the assistant. results: to them, of the user. kept: the provider's own form of what the assistant said
    (JSON), with what it thought, where that has to be sent back as it came."""

    role: Literal["user", "assistant"]
    text: str
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    kept: str = ""


@dataclass(frozen=True)
class Request:
    """system: what stays the same from step to step, so that a provider may cache it. max_tokens: of the reply, with
    what the model thinks. tools: what it may call. grammar: GBNF that the reply follows, and schema: JSON schema of the
    reply, where the endpoint can keep a model to them (`Model.takes`)."""

    system: str
    messages: tuple[Message, ...]
    max_tokens: int
    tools: tuple[Tool, ...] = ()
    grammar: str = ""
    schema: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One text for one request: what the journal keeps and a replay compares. What is empty is left out."""
        return json.dumps(_filled(asdict(self)), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Raises ValueError, TypeError or KeyError for a text that `to_json` did not write."""
        found: dict[str, Any] = json.loads(text)
        return cls(
            found["system"],
            tuple(_message(m) for m in found["messages"]),
            found["max_tokens"],
            tuple(Tool(**t) for t in found.get("tools", ())),
            found.get("grammar", ""),
            found.get("schema", {}),
        )


def _filled(found: dict[str, Any]) -> dict[str, Any]:
    """Without the empty fields of a request, its messages and its tools; a text may be empty."""
    kept = {k: v for k, v in found.items() if v or k in ("system", "text", "max_tokens")}
    for name in ("messages", "tools"):
        if name in kept:
            kept[name] = [_filled(part) for part in kept[name]]
    return kept


def _message(found: dict[str, Any]) -> Message:
    return Message(
        found["role"],
        found["text"],
        tuple(Call(**c) for c in found.get("calls", ())),
        tuple(Result(**r) for r in found.get("results", ())),
        found.get("kept", ""),
    )


@dataclass(frozen=True)
class Usage:
    """Tokens as the provider counted them. tokens_in: all input, with what was cached (read from its cache) and written
    (to its cache); tokens_out: with what the model thought."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_written: int = 0


Outcome = Literal["ok", "truncated", "refused", "empty"]


@dataclass(frozen=True)
class Reply:
    """What a model said. detail: why it stopped, where it is not "ok". calls: the tools that it called. kept: see
    Message."""

    text: str
    outcome: Outcome = "ok"
    usage: Usage = field(default_factory=Usage)
    detail: str = ""
    calls: tuple[Call, ...] = ()
    kept: str = ""

    @property
    def said(self) -> Message:
        """As the message that the next request holds."""
        text = self.text if self.calls else self.text.strip() or "(nothing)"
        return Message("assistant", text, self.calls, kept=self.kept)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Reply:
        """Raises ValueError, TypeError or KeyError for a text that `to_json` did not write."""
        found: dict[str, Any] = json.loads(text)
        calls = tuple(Call(**c) for c in found.get("calls", ()))
        usage = Usage(**found["usage"])
        return cls(found["text"], found["outcome"], usage, found["detail"], calls, found.get("kept", ""))


class Trouble(Exception):
    """No reply came. kind: "rate limited", "overloaded", "server error", "timeout", "no connection", "broken reply";
    or, where asking again is no use, "not allowed", "unknown model", "bad request", "no credit"; or "no tools",
    "no grammar", "no schema", where the endpoint takes none.

    after_s: how long the provider asks to wait. billed: whether it may cost, so that the maximum stays booked.
    """

    def __init__(
        self, kind: str, message: str, *, again: bool, after_s: float | None = None, billed: bool = False
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.again = again
        self.after_s = after_s
        self.billed = billed


def takes(model: Model) -> frozenset[str]:
    """What of "tools", "lark", "gbnf", "schema" a request to this model may hold."""
    return frozenset(getattr(model, "takes", ()))


@runtime_checkable
class Model(Protocol):
    """One endpoint. `name` stands in the journal and the ledger. `send` makes one attempt, may be called from several
    threads, and raises Trouble. price None: tokens are counted, money is unknown; `Price()` is free.

    It may have `takes`, a set of "tools", "lark" (tools with a grammar), "gbnf" and "schema": what of a request it
    passes on; without it none of them is asked of it."""

    name: str
    price: Price | None

    def send(self, request: Request, timeout_s: float) -> Reply: ...

    def close(self) -> None: ...
