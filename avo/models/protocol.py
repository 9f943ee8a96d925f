"""What passes between avo and one endpoint of a language model: a request goes in, a reply or a trouble comes out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from avo.models.prices import Price


@dataclass(frozen=True)
class Message:
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Request:
    """system: what stays the same from step to step, so that a provider may cache it. max_tokens: of the reply, with
    what the model thinks."""

    system: str
    messages: tuple[Message, ...]
    max_tokens: int

    def to_json(self) -> str:
        """One text for one request: what the journal keeps and a replay compares."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)


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
    """What a model said. detail: why it stopped, where it is not "ok"."""

    text: str
    outcome: Outcome = "ok"
    usage: Usage = field(default_factory=Usage)
    detail: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Reply:
        """Raises ValueError, TypeError or KeyError for a text that `to_json` did not write."""
        found: dict[str, Any] = json.loads(text)
        return cls(found["text"], found["outcome"], Usage(**found["usage"]), found["detail"])


class Trouble(Exception):
    """No reply came. kind: "rate limited", "overloaded", "server error", "timeout", "no connection", "broken reply";
    or, where asking again is no use, "not allowed", "unknown model", "bad request", "no credit".

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


@runtime_checkable
class Model(Protocol):
    """One endpoint. `name` stands in the journal and the ledger. `send` makes one attempt, may be called from several
    threads, and raises Trouble. price None: tokens are counted, money is unknown; `Price()` is free."""

    name: str
    price: Price | None

    def send(self, request: Request, timeout_s: float) -> Reply: ...

    def close(self) -> None: ...
