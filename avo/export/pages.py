"""The texts of a package that are written for it: facts, front door, README, pyproject."""

from __future__ import annotations

import pprint
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from avo.errors import UserMistake
from avo.export.evidence import circumstances

if TYPE_CHECKING:
    from avo.export.evidence import Variant
    from dsl.hardware import Hardware
    from dsl.syntax import Algorithm, Expr
    from evaluators.target import Target

_COMMENTS = {
    "INPUTS": "name, axes, dtype; an axis is as long wherever it stands",
    "PARAMS": "name, kind, default",
    "ARCH": "the kernels run on this chip alone",
    "MODE": "where the seconds of TABLE come from",
    "INTERPRETED": "whether Triton's own interpreter is right on these dtypes",
    "INDEXES": "integer inputs -> the axis that they index",
    "TABLE": "sizes -> kernel: those that were judged, each with the kernel that is fastest there",
    "CHECKS": "small sizes for the tests",
    "GRADIENTS": "gradient -> dtype, where there is a backward kernel",
}


def facts_text(facts: Mapping[str, Any], algorithm: Algorithm) -> str:
    lines = ['"""What the package is made of, as data."""', ""]
    for name, value in facts.items():
        if name in _COMMENTS:
            lines.append(f"# {_COMMENTS[name]}")
        lines.append(f"{name} = {pprint.pformat(value, width=116, sort_dicts=False)}")
    lines += [
        "",
        "",
        "def derived(sizes):",
        '    """The extents that follow from those of the inputs."""',
        "    n = dict(sizes)",
    ]
    known = {a for t in algorithm.inputs for a in t.axes or ()}
    for axis in algorithm.axes:
        if axis.name in known:
            continue
        value = _expression(axis.value)
        lines.append(
            f'    n["{axis.name}"] = ' + (value if axis.fine is None else f'-(-n["{axis.fine}"] // ({value}))')
        )
    lines.append("    return n")
    return "\n".join(lines) + "\n"


def _expression(e: Expr) -> str:
    """Integer arithmetic in extents as Python on the dict `n`."""
    from dsl.syntax import Binary, Name, Number, Unary

    match e:
        case Number(value=value):
            return str(int(value))
        case Name(id=name):
            return f'n["{name.lower()}"]'
        case Unary(op="-", operand=operand):
            return f"-({_expression(operand)})"
        case Binary(op=op, left=left, right=right):
            return f"({_expression(left)} {op} {_expression(right)})"
    raise UserMistake("an axis' extent is no integer arithmetic, so its fake shape cannot be written down")


def init(
    package: str,
    function: str,
    algorithm: Algorithm,
    target: Target,
    hardware: Hardware,
    variants: Sequence[Variant],
    backward: bool,
) -> str:
    inputs = [t.name for t in algorithm.inputs]
    taken = [p.name if p.default is None else f"{p.name}={p.default!r}" for p in algorithm.params]
    tensors = "; ".join(f"{t.name} [{' '.join(t.axes or ())}] {t.dtype or 'f32'}" for t in algorithm.inputs)
    given = "; ".join(f"{t.name} [{' '.join(t.axes or ())}]" for t in algorithm.outputs)
    more = f"\n    Params: {', '.join(f'{p.name} {p.dtype}' for p in algorithm.params)}." if algorithm.params else ""
    grads = "It has gradients" if backward else "Forward only: a backward pass raises NotImplementedError"
    return f'''"""{target.summary or target.name}, for {hardware.title}. Made by avo; runs without it."""

from .dispatch import set_unseen
from .ops import call

__all__ = ["{function}", "set_unseen"]


def {function}({", ".join([*inputs, *taken])}):
    """{tensors}
    -> {given}{more}

    At sizes of `facts.TABLE` a kernel runs; any other is computed in torch by the reference, which is slow and takes
    much memory, unless `set_unseen("kernel")`. {grads}.
    torch.compile takes it as one operator.
    """
    return call({", ".join([*inputs, *(p.name for p in algorithm.params)])})
'''


def pyproject(package: str, target: Target, hardware: Hardware, variants: Sequence[Variant], licence: str) -> str:
    return f'''[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{package.replace("_", "-")}"
version = "0.1.0+{variants[0].digest[:8]}"
description = "{target.name} for {hardware.title}, made by avo"
requires-python = ">=3.10"
license = "{licence}"
dependencies = ["torch>=2.9", "triton>=3.6"]

[tool.setuptools]
packages = ["{package}"]

[tool.setuptools.package-data]
{package} = ["provenance.json"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
'''


def readme(
    package: str,
    function: str,
    target: Target,
    hardware: Hardware,
    variants: Sequence[Variant],
    table: Sequence[Mapping[str, Any]],
    backward: bool,
    licence: str,
) -> str:
    """What it is, how it is called, how fast it is, and what it does at other sizes."""
    algorithm = variants[0].program.algorithm
    floors = {n: f for v in variants for n, f in v.floors.items()}
    rows = []
    for row in table:
        both = {**row["sizes"], **{k: int(x) if isinstance(x, bool) else x for k, x in row["params"].items()}}
        name = ",".join(f"{k}={x}" for k, x in both.items())
        floor = floors.get(name)
        room = f"{row['seconds'] / floor:.2f}x" if floor else "-"
        rows.append(f"| {name} | {row['seconds'] * 1e6:.4g} us | {room} | kernel_{row['kernel']} |")
    mode = variants[0].mode
    words = {
        "SUMMARY": target.summary or target.name,
        "CHIP": hardware.title,
        "ARCH": hardware.arch,
        "OUTPUT": algorithm.outputs[0].name,
        "CALL": ", ".join([*(t.name for t in algorithm.inputs), *(f"{p.name}={p.name}" for p in algorithm.params)]),
        "MODE": mode,
        "HOW": f" ({'; '.join(dict.fromkeys(filter(None, map(circumstances, variants))))})"
        if mode == "measured"
        else " from the machine code and not measured on a chip",
        "ROWS": "\n".join(rows),
        "BACKWARD": "It has a backward kernel."
        if backward
        else "**Forward only.** A backward pass raises NotImplementedError.",
        "LICENCE": licence,
    }
    text = template("README.txt")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def template(name: str) -> str:
    return (resources.files("avo.export") / "templates" / name).read_text(encoding="utf-8")
