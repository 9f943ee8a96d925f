"""The person's file: the function, and example arguments that say its shapes and dtypes."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avo.errors import UserMistake, unknown
from dsl.reach import LONGEST

_TORCH = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "int8": "int8",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
}
_TENSOR = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*(\w+)?\s*(?:,|$)")
_AXIS = re.compile(r"(?:([a-z]\w*)\s*=\s*)?(\d+)|([a-z]\w*)")


@dataclass(frozen=True)
class Source:
    """arguments: by parameter, in order; tensors as they are, all else a constant. axes: parameter -> what the person
    calls its axes ("" where they did not say)."""

    path: Path
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    axes: Mapping[str, tuple[str, ...]]


def functions_of(reference: str) -> tuple[Path, Callable[..., Any], types.ModuleType]:
    """`file.py:function`: the path, the function, the file as a module. Its functions keep the lines of a trace.

    Raises UserMistake where the file or the function is missing.
    """
    from avo import plugins

    where, _, name = reference.rpartition(":")
    if not where or not name:
        raise UserMistake(f"name the function too: {reference}:FUNCTION")
    path = Path(where).expanduser().resolve()
    if path.is_dir() or (path.is_file() and path.suffix != ".py"):
        raise UserMistake(f"{where} is {'a folder' if path.is_dir() else 'no Python file'}; name FILE.py:FUNCTION")
    module = plugins.load_file(path)
    functions = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and f.__code__.co_filename == str(path)}
    if name not in functions:
        known = [n for n in functions if not n.endswith("_inputs")]
        raise UserMistake(unknown("function", name, known) + f" (in {where})")
    for f in functions.values():
        f.__code__ = _anchored(f.__code__)
    return path, functions[name], module


def read(reference: str, shapes: str | None, fixed: Mapping[str, Any]) -> Source:
    """`file.py:function`, with its arguments from `shapes` or from the file.

    Raises UserMistake where the file, the function or its arguments are missing or do not fit.
    """
    path, function, module = functions_of(reference)
    where, _, name = reference.rpartition(":")
    parameters = inspect.signature(function).parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in parameters.values()):
        raise UserMistake(f"{name} takes *args, **kwargs or positional-only arguments; name them one by one")
    axes: dict[str, tuple[str, ...]] = {}
    if shapes is not None:
        given, axes = tensors(shapes, list(parameters))
    else:
        given = _examples(module, name, list(parameters), where)
    for key in fixed:
        if key not in parameters:
            raise UserMistake(unknown(f"argument of {name}", key, list(parameters)))
    arguments = {}
    for key, p in parameters.items():
        if key in fixed:
            arguments[key] = fixed[key]
        elif key in given:
            arguments[key] = given[key]
        elif p.default is not inspect.Parameter.empty:
            arguments[key] = p.default
        else:
            raise UserMistake(f"{name} needs `{key}`: a tensor in --shapes ({_FORM}), or a constant by --set {key}=...")
    return Source(path, function, _apart(arguments), axes)


def _apart(arguments: dict[str, Any]) -> dict[str, Any]:
    """One tensor given for two arguments is two tensors: torch.export would make one input of them."""
    import torch

    seen: set[int] = set()
    for key, a in arguments.items():
        if isinstance(a, torch.Tensor):
            if a.untyped_storage().data_ptr() in seen and a.numel():
                arguments[key] = a.clone()
            seen.add(arguments[key].untyped_storage().data_ptr())
    return arguments


_FORM = "x[r=64 c=256] bf16, w[c] bf16"


def tensors(text: str, known: list[str]) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """`q[b=2 h=8 m=512 d=64] bf16, k[2 8 512 64]`: example tensors, and what their axes are called.

    A name with a length gives it one; afterwards the name alone will do. A dtype that is left out is bf16.
    """
    import torch

    found: dict[str, Any] = {}
    names: dict[str, tuple[str, ...]] = {}
    lengths: dict[str, int] = {}
    at = 0
    while at < len(text.rstrip()):
        match = _TENSOR.match(text, at)
        if match is None:
            raise UserMistake(f"--shapes: `{text[at:].strip()}` is no tensor; write {_FORM}")
        name, inside, dtype = match[1], match[2], match[3] or "bf16"
        if name not in known:
            raise UserMistake("--shapes: " + unknown("argument", name, known))
        if dtype not in _TORCH:
            raise UserMistake("--shapes: " + unknown("dtype", dtype, list(_TORCH)))
        shape, called = [], []
        for part in inside.replace(",", " ").split():
            axis = _AXIS.fullmatch(part)
            if axis is None:
                raise UserMistake(f"--shapes: `{part}` of {name} is no length; write 64, c=64, or c once it has one")
            label = axis[1] or axis[3] or ""
            if axis[2]:
                if label and lengths.setdefault(label, int(axis[2])) != int(axis[2]):
                    raise UserMistake(f"--shapes: axis {label} is {lengths[label]} long and {axis[2]} in {name}")
                shape.append(int(axis[2]))
            elif label in lengths:
                shape.append(lengths[label])
            else:
                raise UserMistake(f"--shapes: axis {label} of {name} has no length yet; write {label}=64")
            called.append(label)
        for length in shape:
            if not 0 < length <= LONGEST:
                raise UserMistake(f"--shapes: {name} has a length of {length:,}; legal: 1 to {LONGEST:,}")
        try:
            found[name] = torch.zeros(shape, dtype=getattr(torch, _TORCH[dtype]))
        except RuntimeError:
            size = " x ".join(f"{n:,}" for n in shape)
            raise UserMistake(f"--shapes: {name} of {size} does not fit into this machine's memory") from None
        names[name] = tuple(called)
        at = match.end()
    return found, names


def _examples(module: types.ModuleType, name: str, parameters: list[str], where: str) -> dict[str, Any]:
    for candidate in (f"{name}_inputs", "example_inputs"):
        if hasattr(module, candidate):
            given = getattr(module, candidate)
            given = given() if callable(given) else given
            if isinstance(given, Mapping):
                return dict(given)
            if isinstance(given, (tuple, list)):
                if len(given) > len(parameters):
                    raise UserMistake(f"{candidate} has {len(given)} arguments, {name} takes {len(parameters)}")
                return dict(zip(parameters, given, strict=False))
            raise UserMistake(f"{candidate} is a tuple of arguments, a dict by name, or a function that returns one")
    raise UserMistake(
        f"nothing says the shapes of {', '.join(parameters)}: give --shapes '{_FORM}', or put "
        f"`def {name}_inputs(): return (torch.empty(...), ...)` into {where}"
    )


def _anchored(code: types.CodeType) -> types.CodeType:
    """torch.export keeps the lines of frames called `forward` alone, so the person's functions are called that."""
    inner = tuple(_anchored(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_name="forward", co_consts=inner)


def constant(text: str) -> tuple[str, Any]:
    """`causal=true`, `eps=1e-6`, `window=128`: an argument that is no tensor."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserMistake(f"--set wants NAME=VALUE, got '{text}'")
    if value.lower() in ("true", "false", "none"):
        return key, {"true": True, "false": False, "none": None}[value.lower()]
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, value
