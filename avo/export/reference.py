"""A target's reference as source that stands alone: the function, and what it needs of its own module."""

from __future__ import annotations

import builtins
import dis
import inspect
import textwrap
from types import CodeType, FunctionType, ModuleType
from typing import Any

from avo.errors import UserMistake

_CONSTANTS = (int, float, str, bool, tuple, type(None))


def source_of(function: Any, called: str = "reference") -> str:
    """Python that defines `called`. Helpers and constants of the same module come along, modules are imported.

    Raises UserMistake for what cannot be carried over: a closure, a lambda, an object of another kind.
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise UserMistake(f"the reference {function!r} is no plain function, so it cannot be exported")
    if function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise UserMistake(
            f"the reference {function.__name__} uses {names} of the function around it, so it cannot be exported"
        )
    imports: dict[str, None] = {}
    pieces: dict[str, str] = {}
    _gather(function, imports, pieces)
    body = "\n\n\n".join(pieces.values())
    if function.__name__ != called:
        body += f"\n\n\n{called} = {function.__name__}"
    if "Tensor" in body and "from torch import Tensor" not in imports:  # as annotations have it
        imports["from torch import Tensor"] = None
    head = "\n".join(imports)
    return "\n".join(
        part
        for part in ("from __future__ import annotations\n", head, ("\n" if head else "") + "\n" + body + "\n")
        if part
    )


def _gather(function: FunctionType, imports: dict[str, None], pieces: dict[str, str]) -> None:
    """Depth first, so that what is used stands above its user."""
    if function.__name__ in pieces:
        return
    pieces[function.__name__] = ""  # a function may call itself
    for name in sorted(_globals(function.__code__)):
        if hasattr(builtins, name) or name not in function.__globals__:
            continue
        value = function.__globals__[name]
        if isinstance(value, ModuleType):
            imports[f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")] = None
        elif isinstance(value, FunctionType) and value.__module__ == function.__module__ and name == value.__name__:
            _gather(value, imports, pieces)
        elif isinstance(value, FunctionType | type) and value.__module__.partition(".")[0] in ("math", "torch"):
            imports[f"from {value.__module__} import {value.__qualname__} as {name}"] = None
        elif type(value) in _CONSTANTS:
            pieces[name] = f"{name} = {value!r}"
        else:
            raise UserMistake(
                f"the reference uses {name}, a {type(value).__name__} of its module, so it cannot stand alone; "
                "write it with torch and plain numbers"
            )
    text = pieces.pop(function.__name__)  # behind what it needs
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise UserMistake(f"the source of {function.__name__} is not at hand, so it cannot be exported") from None
    pieces[function.__name__] = text.rstrip()


def _globals(code: CodeType) -> set[str]:
    found = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _globals(constant)
    return found
