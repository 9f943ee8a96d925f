"""Asking a model until it replies: every attempt journalled, waits that respect the provider, no wait that outlives the
run, and an end within a moment of being told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from archive.records import Exchange, Hypothesis, Spend
from avo.errors import Halted, HarnessUnavailable, UserMistake
from avo.models.prices import most, spend
from avo.models.protocol import Call as ToolCall
from avo.models.protocol import Model, Reply, Request, Trouble, Usage
from avo.models.secrets import redacted
from avo.plugins import ours
from dsl.wording import counted

if TYPE_CHECKING:
    from archive.writer import RunWriter

REPLIED = ("ok", "truncated", "refused", "empty")
_MISTAKES = ("not allowed", "unknown model", "bad request")


@dataclass(frozen=True)
class Waits:
    """timeout_s: one attempt. Between attempts first_s, doubling up to longest_s, or what the provider asks for, if
    that is not above patience_s."""

    timeout_s: float = 600.0
    attempts: int = 6
    first_s: float = 1.0
    longest_s: float = 60.0
    patience_s: float = 300.0


WAITS = Waits()


class Lacks(Exception):
    """The endpoint takes no tools, no grammar or no schema. what: which of them."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


class Journal(Protocol):
    """Where requests and replies are kept, and who says whether one may be sent; and where an agent's notes go.

    `withheld`: a request that was not sent, and which limit it would have passed. `at`: what was asked for an earlier
    proposal, one whose verdict the brief shows; empty for any other.
    """

    def recall(self, model: str, request: str) -> str | None: ...

    def ask(self, model: str, request: str, maximum: Spend) -> int: ...

    def answered(self, exchange: int, reply: str, outcome: str, spent: Spend) -> None: ...

    def withheld(self, model: str, request: str, reason: str) -> None: ...

    def at(self, k: int) -> list[Exchange]: ...

    def note(self, topic: str, body: str) -> None: ...

    def nominate(self, hypothesis: Hypothesis, detail: Mapping[str, Any]) -> None: ...


class Unkept:
    """No journal: for an agent that is called without a run."""

    def recall(self, model: str, request: str) -> str | None:
        return None

    def ask(self, model: str, request: str, maximum: Spend) -> int:
        return 0

    def answered(self, exchange: int, reply: str, outcome: str, spent: Spend) -> None: ...

    def withheld(self, model: str, request: str, reason: str) -> None: ...

    def at(self, k: int) -> list[Exchange]:
        return []

    def note(self, topic: str, body: str) -> None: ...

    def nominate(self, hypothesis: Hypothesis, detail: Mapping[str, Any]) -> None: ...


class RunJournal:
    """The journal of proposal k of a run, in its archive.

    A reply that an earlier session journalled and could not use, because it was killed, is used and not bought again.
    limit: called with the most that a request can cost, gives the reason why it may not be sent, or None. seen: the
    last proposal whose verdict counts; past: the exchanges of one proposal.
    """

    def __init__(
        self,
        writer: RunWriter,
        k: int,
        earlier: Sequence[Exchange],
        limit: Callable[[Spend], str | None],
        seen: int = 0,
        past: Callable[[int], list[Exchange]] | None = None,
    ) -> None:
        self._writer = writer
        self._k = k
        self._limit = limit
        self._seen = seen
        self._past = past
        self._lock = threading.Lock()
        self._earlier = [e for e in earlier if e.reply is not None and e.outcome in REPLIED]

    def recall(self, model: str, request: str) -> str | None:
        with self._lock:
            for at, e in enumerate(self._earlier):
                if e.model == model and e.request == request:
                    return self._earlier.pop(at).reply
        return None

    def ask(self, model: str, request: str, maximum: Spend) -> int:
        reason = self._limit(maximum)
        if reason is not None:
            raise Halted(reason)
        return self._writer.ask(self._k, model, request, maximum)

    def answered(self, exchange: int, reply: str, outcome: str, spent: Spend) -> None:
        self._writer.answered(exchange, reply, outcome, spent)

    def withheld(self, model: str, request: str, reason: str) -> None:
        self._writer.answered(self._writer.ask(self._k, model, request, Spend()), reason, "withheld", Spend())

    def at(self, k: int) -> list[Exchange]:
        return self._past(k) if self._past is not None and 0 < k <= self._seen else []

    def note(self, topic: str, body: str) -> None:
        self._writer.note(self._k, redacted(body), redacted(topic))

    def nominate(self, hypothesis: Hypothesis, detail: Mapping[str, Any]) -> None:
        self._writer.nominate(self._k, hypothesis, detail)


def converse(
    model: Model,
    request: Request,
    journal: Journal,
    *,
    stop: threading.Event | None = None,
    seconds: float | None = None,
    waits: Waits = WAITS,
) -> Reply:
    """The model's reply. stop: set when the run is to end at once; seconds: what is left of its time, after which a
    request that is under way is waited for and none is sent again. What it takes is booked by whoever calls.

    Raises Halted, HarnessUnavailable where the provider stays away, UserMistake where it does not take the request,
    Lacks where what it does not take is the tools, the grammar or the schema.
    """
    stop = stop or threading.Event()
    end = None if seconds is None else time.monotonic() + seconds
    text = redacted(request.to_json())
    kept = journal.recall(model.name, text)
    if kept is not None:
        return Reply.from_json(kept)
    maximum = most(model.price, request)
    wait_s = waits.first_s
    for attempt in range(1, waits.attempts + 1):
        try:
            exchange = journal.ask(model.name, text, maximum)
        except Halted as halted:
            journal.withheld(model.name, text, halted.reason)
            raise
        try:
            reply = _checked(model, _attempt(model, request, stop, waits.timeout_s))
        except Halted:
            journal.answered(exchange, "", "cancelled", maximum)  # it may be billed, and nobody will tell
            raise
        except Trouble as error:
            journal.answered(exchange, redacted(str(error)), error.kind, maximum if error.billed else Spend())
            if error.kind == "withheld":  # in a replay
                raise Halted(str(error)) from None
            if error.kind.removeprefix("no ") in ("tools", "grammar", "schema"):
                raise Lacks(error.kind.removeprefix("no "), str(error)) from None
            if not error.again:
                raise _final(model, error) from None
            wait = wait_s if error.after_s is None else error.after_s
            if attempt == waits.attempts or wait > waits.patience_s:
                raise HarnessUnavailable(
                    f"{model.name}: {error.kind}: {redacted(str(error))} ({counted(attempt, 'attempt')}"
                    + (f"; it asks to wait {wait:.0f} s)" if wait > waits.patience_s else ")")
                ) from None
            if end is not None and time.monotonic() + wait > end:
                raise Halted("minutes") from None
            if stop.wait(wait):
                raise Halted("interrupted") from None
            wait_s = min(2 * wait_s, waits.longest_s)
        except BaseException as error:
            journal.answered(exchange, redacted(f"{type(error).__name__}: {error}"), "failed", Spend())
            raise
        else:
            calls = tuple(replace(c, arguments=redacted(c.arguments)) for c in reply.calls)
            reply = replace(reply, text=redacted(reply.text), detail=redacted(reply.detail), calls=calls)
            journal.answered(exchange, reply.to_json(), reply.outcome, spend(model.price, reply.usage))
            return reply
    raise AssertionError("unreachable")


def _checked(model: Model, found: Any) -> Reply:
    """What `send` of a model gave, looked at where it comes in: it is journalled, paid for and sent back. Raises
    UserMistake for a plug-in's that is no Reply or has a field of another type."""
    if ours(type(model).__module__):
        assert isinstance(found, Reply)
        return found
    who = f"the model {model.name}"
    if not isinstance(found, Reply):
        raise _wrong(f"{who} returned {type(found).__name__}, not a Reply")
    usage, calls = found.usage, found.calls if isinstance(found.calls, tuple) else ()
    fields: list[tuple[str, Any, type, str]] = [
        (key, getattr(found, key), str, "text") for key in ("text", "detail", "kept")
    ]
    fields += [("calls", found.calls, tuple, "a tuple of Calls"), ("usage", usage, Usage, "a Usage")]
    fields += [("call", c, ToolCall, "a Call") for c in calls]
    fields += [
        (f"call.{key}", getattr(c, key), str, "text")
        for c in calls
        if isinstance(c, ToolCall)
        for key in ("id", "name", "arguments")
    ]
    for key, value, kind, wanted in fields:
        if not isinstance(value, kind):
            raise _wrong(f"{who} returned a Reply whose {key} is {value!r:.80}; it wants {wanted}")
    if found.outcome not in REPLIED:
        raise _wrong(f"{who} returned a Reply of outcome {found.outcome!r:.80}; legal: {', '.join(REPLIED)}")
    for key, count in vars(usage).items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise _wrong(f"{who} says usage.{key}={count!r:.80}; it wants a number of tokens")
    return found


def _wrong(text: str) -> UserMistake:
    return UserMistake(f"{text}: see docs/agents.md")


def _attempt(model: Model, request: Request, stop: threading.Event, timeout_s: float) -> Reply:
    """In a thread of its own, since a read from a network cannot be broken off: it is left behind where it hangs."""
    if stop.is_set():
        raise Halted("interrupted")
    box: list[Reply | BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            box.append(model.send(request, timeout_s))
        except BaseException as error:  # handed over to the one who waits
            box.append(error)
        done.set()

    threading.Thread(target=work, name=f"ask {model.name}", daemon=True).start()
    limit = time.monotonic() + timeout_s
    while not done.wait(0.1):
        if stop.is_set():
            raise Halted("interrupted")
        if time.monotonic() > limit:  # drop by drop, no single read timed out
            raise Trouble("timeout", f"no whole reply in {timeout_s:g} s", again=True, billed=True)
    found = box[0]
    if isinstance(found, BaseException):
        raise found
    return found


def _final(model: Model, error: Trouble) -> Exception:
    message = f"{model.name}: {error.kind}: {redacted(str(error))}"
    return UserMistake(message) if error.kind in _MISTAKES else HarnessUnavailable(message)
