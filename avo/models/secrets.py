"""Keeping keys out of everything that is stored or shown: journals, messages, notes."""

from __future__ import annotations

import os
import re

_NAMES = re.compile(r"(?:API_?KEY|TOKEN|SECRET)$", re.IGNORECASE)
# Forms of the providers' keys, whole or cut as their own messages quote them, and of an authorization header.
_FORMS = re.compile(
    r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_*.\-]{6,}"
    r"|(?i:\bbearer\s+)[A-Za-z0-9_.~+/=\-]{8,}"
    r"|(?i:x-api-key['\": =]+)[^\s'\",}]{8,}"
)
GONE = "[key removed]"


def redacted(text: str, *keys: str) -> str:
    """The text without `keys`, without the values of environment variables that hold keys, and without what looks like
    one."""
    known = {value for name, value in os.environ.items() if _NAMES.search(name)} | set(keys)
    for value in sorted((v for v in known if len(v) >= 8), key=len, reverse=True):
        text = text.replace(value, GONE)
    return _FORMS.sub(GONE, text)
