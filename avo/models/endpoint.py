"""What the SDKs of both providers have in common: keys, and errors as Trouble."""

from __future__ import annotations

import datetime as dt
import email.utils
import os
import re
from typing import Any

from avo.errors import UserMistake
from avo.models.protocol import Request, Trouble
from avo.models.secrets import redacted

_MISSING = "the models need their SDKs: pip install 'avo-kernels[models]'"


def key_from(variable: str) -> str:
    """The key in an environment variable. Raises UserMistake where there is none."""
    value = os.environ.get(variable, "").strip()
    if not value:
        raise UserMistake(f"no key: set the environment variable {variable}")
    return value


def sdk(name: str) -> Any:
    """The SDK's module. Raises UserMistake where it is not installed."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserMistake(f"{_MISSING} ({error})") from None


def trouble(kit: Any, error: Exception, *keys: str) -> Trouble:
    """What an SDK raised, by its status code; the message without keys."""
    text = redacted(" ".join(str(getattr(error, "message", "") or error).split())[:500], *keys)
    if isinstance(error, kit.APITimeoutError):
        return Trouble("timeout", "no reply in time", again=True, billed=True)
    if isinstance(error, kit.APIStatusError):
        code = int(error.status_code)
        after = _wait(error.response.headers)
        body = str(getattr(error, "code", None) or getattr(error, "body", "") or "")
        if code == 429 and "insufficient_quota" in body:
            return Trouble("no credit", text, again=False)
        if code in (408, 409, 425, 429):
            return Trouble("rate limited" if code == 429 else "timeout", text, again=True, after_s=after)
        if code >= 500:
            return Trouble("overloaded" if code in (503, 529) else "server error", text, again=True, after_s=after)
        kinds = {401: "not allowed", 402: "no credit", 403: "not allowed", 404: "unknown model"}
        return Trouble(kinds.get(code, "bad request"), f"{code}: {text}", again=False)
    if isinstance(error, kit.APIConnectionError):
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        return Trouble("no connection", redacted(f"{text}{cause}", *keys), again=True)
    # A reply that is cut or is no JSON: it was made, so it may be billed.
    return Trouble("broken reply", f"{type(error).__name__}: {text}", again=True, billed=True)


_LACKS = {
    "tools": re.compile(r"\btools?\b|tool_choice|function call|--jinja", re.IGNORECASE),
    "grammar": re.compile(r"grammar|structured.?output|guided", re.IGNORECASE),
    "schema": re.compile(r"response_format|json_schema|output_config|output_format|schema", re.IGNORECASE),
}


def lacking(found: Trouble, request: Request) -> Trouble:
    """An error that says that the endpoint takes no tools, grammar or schema, as "no tools" and so on; others as they
    are. Servers answer with 400, 404, 422, 500 or 501, so what the message names decides."""
    if found.kind not in ("bad request", "unknown model", "server error"):
        return found
    for part, pattern in _LACKS.items():
        if getattr(request, part) and pattern.search(str(found)):
            return Trouble(f"no {part}", str(found), again=False)
    return found


def _wait(headers: Any) -> float | None:
    """Retry-After in seconds: a number, or a date; None where there is none."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = str(headers.get(name) or "").strip()
        if not value:
            continue
        try:
            return max(0.0, float(value) * scale)
        except ValueError:
            pass
        try:
            then = email.utils.parsedate_to_datetime(value)
        except (TypeError, ValueError):
            continue
        now = dt.datetime.now(dt.UTC)
        return max(0.0, ((then if then.tzinfo else then.replace(tzinfo=dt.UTC)) - now).total_seconds())
    return None
