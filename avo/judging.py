"""Under what a verdict was given: evaluations are shared among runs that would judge alike, and among no others."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import json
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archive.documents import plain

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from evaluators.protocol import Evaluator
    from evaluators.target import Target

# Another version of these may give another verdict.
_VERSIONS = ("avo-kernels", "numpy", "torch", "triton")


@dataclasses.dataclass(frozen=True)
class Judge:
    """parts: what the verdicts depend on, for people; `key` is its hash.

    Under `new_key` a new run shares verdicts with those before it: it adds a hash of the judging code, since a version
    number stands still while that is worked on. Where the evaluator does not say how it is configured (it has no
    `key`), what is added is the run's own, and nothing is shared.
    """

    parts: Mapping[str, Any]
    private: bool
    code: str

    @property
    def key(self) -> str:
        text = json.dumps(plain(self.parts), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def new_key(self) -> str:
        return f"{self.key}-{secrets.token_hex(6) if self.private else self.code}"

    def agrees(self, stored: str) -> bool:
        """Whether a run that was begun under `stored` may go on under this one."""
        return stored.partition("-")[0] == self.key

    def differences(self, stored: Mapping[str, Any]) -> list[str]:
        """The parts that are not as they were stored, as `name: then -> now`."""
        here = plain(self.parts)
        names = sorted({*here, *stored})
        return [f"{n}: {stored.get(n)} -> {here.get(n)}" for n in names if here.get(n) != stored.get(n)]


def judge_of(target: Target, hardware: Hardware, evaluator: Evaluator, versions: Mapping[str, Any]) -> Judge:
    """An evaluator may have an attribute `key`: a string that names its configuration; and one that has others do its
    work `stands_for`, the evaluator whose verdicts they are."""
    evaluator = getattr(evaluator, "stands_for", evaluator)
    kind = type(evaluator)
    key = getattr(evaluator, "key", None)
    return Judge(
        parts={
            "target": target.name,
            "the target's definition": _hash(_facts(target)),
            "hardware": hardware.name,
            "the hardware's facts": _hash(_facts(hardware)),
            "evaluator": f"{kind.__module__}:{kind.__qualname__}",
            "the evaluator's configuration": key if isinstance(key, str) else None,
            **{name: versions.get(name) for name in _VERSIONS},
        },
        private=not isinstance(key, str),
        code="" if not isinstance(key, str) else _code(kind.__module__),
    )


def _code(*modules: str) -> str:
    """A hash of the language, the evaluators and the evaluator's own module as they stand on disk."""
    files = {path for package in ("dsl", "evaluators") for path in _folder(package).rglob("*") if path.is_file()}
    files |= {Path(sys.modules[m].__file__ or "") for m in modules if getattr(sys.modules.get(m), "__file__", None)}
    found = hashlib.sha256()
    for path in sorted(f for f in files if f.suffix in (".py", ".lark", ".avo")):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def _folder(package: str) -> Path:
    return Path(importlib.import_module(package).__file__ or "").parent


def _facts(thing: Any) -> Any:
    """The fields of a frozen dataclass as plain values, functions by their source."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {f.name: _facts(getattr(thing, f.name)) for f in dataclasses.fields(thing)}
    if isinstance(thing, Mapping):
        return {str(k): _facts(v) for k, v in thing.items()}
    if isinstance(thing, list | tuple):
        return [_facts(v) for v in thing]
    if callable(thing):
        return _source(thing)
    return plain(thing)


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # made at a prompt, or in C
        code = getattr(function, "__code__", None)
        return f"{getattr(function, '__qualname__', type(function).__qualname__)} {code.co_code.hex() if code else ''}"


def _hash(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
