"""Names in a source that a reader would look at first. Hints with a place; no verdict hangs on them."""

from __future__ import annotations

import ast
import unicodedata
from collections.abc import Iterator

_MODULES = (
    "ctypes",
    "socket",
    "subprocess",
    "multiprocessing",
    "threading",
    "gc",
    "inspect",
    "mmap",
    "signal",
    "pickle",
)
_CALLS = (
    "exec",
    "eval",
    "compile",
    "__import__",
    "open",
    "globals",
    "getattr",
    "setattr",
    "_getframe",
    "fork",
    "dlopen",
)
_LITERAL = 2048  # characters; a longer one may be a payload


_WHERE = ("TRITON_INTERPRET", "is_cuda")  # who asks where it runs may do something else elsewhere


def tripwires(tree: ast.AST, text: str = "") -> list[str]:
    """What a reader would look at first, as `line N: what`. A hint for people; no verdict hangs on it."""

    def found() -> Iterator[tuple[int, str]]:
        for number, row in enumerate(text.splitlines(), 1):
            if any(unicodedata.category(sign) == "Cf" for sign in row.lstrip("\ufeff")):
                yield number, "a sign that nobody sees"
        for node in ast.walk(tree):
            line = getattr(node, "lineno", 0)
            match node:
                case ast.Import(names=names):
                    yield from ((line, f"imports {n.name}") for n in names if n.name.partition(".")[0] in _MODULES)
                case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in _MODULES:
                    yield line, f"imports {name}"
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _CALLS:
                    yield line, f"calls {name}"
                case ast.Constant(value=str() | bytes() as value) if len(value) > _LITERAL:
                    yield line, f"a literal of {len(value)} characters"
                case ast.Constant(value=str(name)) | ast.Attribute(attr=name) if name in _WHERE:
                    yield line, f"asks where it runs ({name})"
                case ast.Global(names=names) | ast.Nonlocal(names=names):
                    yield line, f"keeps {', '.join(names)} between calls"
                case _:
                    continue

    return [f"line {line}: {what}" for line, what in sorted(set(found()))]
