"""Models without a network: one that says what it was given, and one that says what a journal holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from archive.records import Exchange
from avo.models.prices import Price
from avo.models.protocol import Reply, Request, Trouble, Usage

Line = str | Reply | Trouble | Callable[[Request], "str | Reply"]


class ScriptedModel:
    """Answers the n-th request with the n-th entry: a text, a Reply, a Trouble to raise, or a function of the request.

    A text costs a token for every four characters. After the last entry the last one holds.
    """

    def __init__(
        self,
        script: Sequence[Line],
        name: str = "scripted",
        price: Price | None = None,
        takes: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.takes = frozenset(takes)
        self.price = price
        self.requests: list[Request] = []
        self._script = tuple(script)
        self._lock = threading.Lock()

    def send(self, request: Request, timeout_s: float) -> Reply:
        with self._lock:
            entry = self._script[min(len(self.requests), len(self._script) - 1)]
            self.requests.append(request)
        if isinstance(entry, Trouble):
            raise entry
        made = entry(request) if callable(entry) else entry
        if isinstance(made, Reply):
            return made
        return Reply(made, "ok" if made.strip() else "empty", Usage(len(request.to_json()) // 4, len(made) // 4))

    def close(self) -> None: ...


class ReplayModel:
    """Answers a request with the reply that a journal holds for it; equal ones in the order in which they were made.

    One that the journal does not hold is a Trouble: then the run goes another way than the recorded one. What the
    endpoint did not take, and what was not sent because the budget was spent, is so again. takes: of the endpoint.
    """

    def __init__(self, name: str, exchanges: Iterable[Exchange], takes: Iterable[str] = ()) -> None:
        self.name = name
        self.price: Price | None = Price(source="replay")
        self.takes = frozenset(takes)
        self._lock = threading.Lock()
        self._replies: dict[str, list[str]] = {}
        self._instead: dict[str, tuple[str, str]] = {}
        for e in exchanges:
            if e.reply is not None and e.outcome in ("ok", "truncated", "refused", "empty"):
                self._replies.setdefault(e.request, []).append(e.reply)
            elif e.outcome in ("no tools", "no grammar", "no schema", "withheld"):
                self._instead[e.request] = (e.outcome, e.reply or "")

    def send(self, request: Request, timeout_s: float) -> Reply:
        from avo.models.secrets import redacted

        with self._lock:
            text = redacted(request.to_json())
            found = self._replies.get(text)
            if not found and text in self._instead:
                kind, message = self._instead[text]
                raise Trouble(kind, message, again=False)
            if not found:
                raise Trouble("not recorded", "the journal holds no reply to this request", again=False)
            return Reply.from_json(found.pop(0))

    def close(self) -> None: ...
