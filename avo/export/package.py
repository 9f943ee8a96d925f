"""Writes the package: text from templates and from the facts of its variants. Nothing of it needs avo to run."""

from __future__ import annotations

import datetime as dt
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from avo.errors import UserMistake
from avo.export import reference
from avo.export.evidence import Variant
from avo.export.pages import facts_text, init, pyproject, readme, template

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from dsl.lowering.lowered import Lowered
    from dsl.syntax import Algorithm, Program
    from evaluators.target import Target, Workload

LICENCE = "Apache-2.0"
_TORCH = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "int8": "int8", "i32": "int32", "bool": "bool",
}  # fmt: skip
_INTERPRETED = {"f32", "f16", "i32", "int8", "bool"}  # Triton's own interpreter computes garbage on the others
_KINDS = {"bool": "bool", "int": "SymInt", "f32": "float"}


@dataclass(frozen=True)
class Package:
    """name: of the package and its folder. files: path below the folder -> text."""

    name: str
    function: str
    files: Mapping[str, str]


def build(
    target: Target,
    hardware: Hardware,
    variants: Sequence[Variant],
    *,
    backward: Program | None = None,
    backward_text: str = "",
    name: str | None = None,
    licence: str = LICENCE,
) -> Package:
    """All files of a package of these variants, which are programs of one target on one chip, in one mode.

    Raises UserMistake where they are not, where the name is no Python name, and where the reference cannot stand alone;
    ProgramError for a program that does not lower.
    """
    _insist_alike(target, hardware, variants)
    variants = useful(variants)
    function = re.sub(r"\W", "_", target.name)
    package = name or f"{function}_{hardware.name}"
    if not package.isidentifier() or keyword.iskeyword(package):
        raise UserMistake(f"--name {package}: a package is called by a Python name")
    algorithm = variants[0].program.algorithm
    lowered = [_lowered(v, hardware) for v in variants]
    sources = [(one.source, one.entry) for one in lowered]
    kernels = {f"kernel_{place}": source for place, (source, _) in enumerate(sources)}
    table = _table(target, variants)
    facts = _facts(target, hardware, algorithm, variants, table)
    facts["INTERPRETED"] &= all(one.language == "triton" for one in lowered)  # Gluon has no interpreter
    words = {
        "PACKAGE": package,
        "NAME": function,
        "NAMESPACE": f"{package}_{variants[0].digest[:8]}",
        "KERNEL_IMPORTS": "\n".join(
            f"from .{module} import {entry} as _{module}" for module, (_, entry) in zip(kernels, sources, strict=True)
        ),
        "KERNEL_NAMES": ", ".join(f"_{module}" for module in kernels),
        "AUTOGRAD": template("forward_only.txt"),
    }
    if backward is not None:
        source, entry = _backward(backward, hardware, algorithm, facts)
        kernels["kernel_backward"] = source
        words["KERNEL_IMPORTS"] += f"\nfrom .kernel_backward import {entry} as _kernel_backward"
        words["BACKWARD_KERNEL"] = "_kernel_backward"
        words["AUTOGRAD"] = template("backward.txt")
    provenance = _provenance(target, hardware, variants, backward_text)
    inner = {
        "__init__.py": init(package, function, algorithm, target, hardware, variants, backward is not None),
        "calls.py": (resources.files("avo.export") / "calls.py").read_text(encoding="utf-8"),
        "dispatch.py": template("dispatch.py.txt"),
        "ops.py": template("ops.py.txt").replace("@AUTOGRAD@", words.pop("AUTOGRAD").strip("\n")),
        "facts.py": facts_text(facts, algorithm),
        "reference.py": f'"""What is right: the reference of the target {target.name}, in torch."""\n\n'
        + reference.source_of(target.reference),
        **{f"{module}.py": source for module, source in kernels.items()},
    }
    files = {f"{package}/{path}": text for path, text in inner.items()}
    files |= {
        f"{package}/provenance.json": json.dumps(provenance, indent=1, default=str) + "\n",
        "tests/conftest.py": template("conftest.py.txt"),
        f"tests/test_{package}.py": template("test_package.py.txt"),
        "pyproject.toml": pyproject(package, target, hardware, variants, licence),
        "README.md": readme(package, function, target, hardware, variants, table, backward is not None, licence),
    }
    made = {}
    for path, text in files.items():
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        made[path] = _licensed(text, licence) if path.endswith(".py") else text
    return Package(package, function, made)


def refuse_filled(folder: Path, force: bool) -> None:
    """Raises UserMistake where something is there already, without `force`."""
    if folder.exists() and not folder.is_dir():
        raise UserMistake(f"{folder} is no folder; a package is one")
    if not force and folder.exists() and any(folder.iterdir()):
        raise UserMistake(f"{folder} is there already and not empty; --force writes into it")


def write(package: Package, folder: Path, force: bool = False) -> None:
    """Writes it below the folder. Raises UserMistake as `refuse_filled` does, and where it cannot be written."""
    refuse_filled(folder, force)
    for path, text in package.files.items():
        place = folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserMistake(f"cannot write {place}: {error.strerror or error}") from None
    for old in (folder / package.name).glob("kernel_*.py"):  # of a package of more kernels that was here before
        ours = old.stem == "kernel_backward" or old.stem.removeprefix("kernel_").isdecimal()
        if ours and f"{package.name}/{old.name}" not in package.files:
            old.unlink()


# Parts --------------------------------------------------------------------------------------------


def _insist_alike(target: Target, hardware: Hardware, variants: Sequence[Variant]) -> None:
    if not variants:
        raise UserMistake("there is nothing to export")
    for v in variants:
        if v.target != target.name or v.hardware != hardware.name:
            raise UserMistake(
                f"{v.digest[:8]} is for {v.target} on {v.hardware}, not {target.name} on {hardware.name}: "
                "a package has programs of one target on one chip"
            )
        if v.mode != variants[0].mode:
            raise UserMistake(
                f"{v.digest[:8]} was {v.mode}, {variants[0].digest[:8]} {variants[0].mode}: "
                "measured and predicted times never stand in one table"
            )
        if _interface(v.program.algorithm) != _interface(variants[0].program.algorithm):
            raise UserMistake(f"{v.digest[:8]} has other inputs, outputs or params than {variants[0].digest[:8]}")


def _interface(algorithm: Algorithm) -> Any:
    tensors = [(t.name, t.axes, t.dtype) for t in (*algorithm.inputs, *algorithm.outputs)]
    return tensors, [(p.name, p.dtype, p.default) for p in algorithm.params]


def _lowered(variant: Variant, hardware: Hardware) -> Lowered:
    from dsl.knobs import fill
    from dsl.lowering import lower

    return lower(fill(variant.program, hardware), hardware)


def useful(variants: Sequence[Variant]) -> list[Variant]:
    """Those that are the fastest at some size, in their order: no size would ever go to the others."""
    best = set()
    for name in dict.fromkeys(n for v in variants for n in v.seconds):
        known = {place: v.seconds[name] for place, v in enumerate(variants) if name in v.seconds}
        best.add(min(known, key=lambda place: known[place]))
    return [v for place, v in enumerate(variants) if place in best] or list(variants)


def _table(target: Target, variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """For each size that any variant was judged at, the one that is fastest there."""
    rows = []
    workloads: dict[str, Workload] = {w.name: w for w in target.workloads}
    for one in target.sets.values():
        workloads |= {w.name: w for w in one.workloads}
    names = dict.fromkeys(n for v in variants for n in v.seconds)
    for name in names:
        known = {place: v.seconds[name] for place, v in enumerate(variants) if name in v.seconds}
        best = min(known, key=lambda place: known[place])
        workload = workloads.get(name) or _read(name, variants[0].program)
        rows.append(
            {
                "sizes": dict(workload.sizes),
                "params": {p.name: workload.params.get(p.name, p.default) for p in _params(variants[0])},
                "kernel": best,
                "seconds": float(f"{known[best]:.6g}"),
            }
        )
    if not rows:
        raise UserMistake("no size was judged with a time, so there is nothing to dispatch on; judge it on a chip")
    return rows


def _params(variant: Variant) -> Any:
    return variant.program.algorithm.params


def _read(name: str, program: Program) -> Workload:
    """A workload from its canonical name, `b=4,m=8192,causal=1`: one that a person gave."""
    from evaluators.target import Workload

    kinds = {p.name: p.dtype for p in program.algorithm.params}
    sizes, params = {}, {}
    for part in name.split(","):
        key, _, value = part.partition("=")
        if key in kinds:
            params[key] = bool(int(value)) if kinds[key] == "bool" else float(value) if "." in value else int(value)
        else:
            sizes[key] = int(value)
    return Workload(sizes, params)


def _facts(
    target: Target, hardware: Hardware, algorithm: Algorithm, variants: Sequence[Variant], table: list[dict[str, Any]]
) -> dict[str, Any]:
    from evaluators.inputs import indexed_axes
    from evaluators.oracle import output_dtypes

    dtypes = output_dtypes(algorithm)
    inputs = tuple((t.name, tuple(t.axes or ()), _TORCH[t.dtype or "f32"]) for t in algorithm.inputs)
    outputs = tuple((t.name, tuple(t.axes or ()), _TORCH[dtypes[t.name]]) for t in algorithm.outputs)
    every = {t.dtype or "f32" for t in algorithm.inputs} | set(dtypes.values())
    params = tuple((p.name, p.dtype, p.default) for p in algorithm.params)
    arguments = [f"Tensor {name}" for name, _, _ in inputs]
    arguments += [f"{_KINDS[kind]} {name}" for name, kind, _ in params]
    returned = ["Tensor"] * len(outputs)
    indexes = {name: min(axes) for name, axes in indexed_axes(algorithm).items()}
    return {
        "INPUTS": inputs,
        "OUTPUTS": outputs,
        "PARAMS": params,
        "SCHEMA": f"({', '.join(arguments)}) -> " + (returned[0] if len(returned) == 1 else f"({', '.join(returned)})"),
        "ARCH": hardware.arch,
        "MODE": variants[0].mode,
        "INTERPRETED": every <= _INTERPRETED,
        "INDEXES": indexes,
        "TABLE": tuple(table),
        "CHECKS": tuple(
            {
                "sizes": _whole(algorithm, w),
                "params": {p.name: w.params.get(p.name, p.default) for p in algorithm.params},
            }
            for w in target.checks[:4]
        ),
        "GRADIENTS": {},
        "BACKWARD_INPUTS": (),
        "BACKWARD_PARAMS": (),
        "BACKWARD_SCHEMA": "",
    }


def _whole(algorithm: Algorithm, workload: Workload) -> dict[str, int]:
    from evaluators.inputs import extents

    return extents(algorithm, workload)


def _backward(program: Program, hardware: Hardware, forward: Algorithm, facts: dict[str, Any]) -> tuple[str, str]:
    """Source and entry of the backward program; its facts go into `facts`.

    It may read the forward's inputs and outputs by name, and `gX`, the gradient of output X; it gives `gY` of inputs Y.
    """
    from dsl.knobs import fill
    from dsl.lowering import lower
    from evaluators.oracle import output_dtypes

    algorithm = program.algorithm
    inputs, outputs = {t.name: t for t in forward.inputs}, {t.name: t for t in forward.outputs}
    readable = {*inputs, *outputs, *(f"g{name}" for name in outputs)}
    for t in algorithm.inputs:
        if t.name not in readable:
            raise UserMistake(
                f"the backward program reads {t.name}; it may read {', '.join(sorted(readable))}: the forward's inputs "
                "and outputs, and gX, the gradient of output X"
            )
        of = inputs.get(t.name) or outputs.get(t.name)
        if of is not None and of.dtype and t.dtype and of.dtype != t.dtype:
            raise UserMistake(f"the backward program has {t.name} in {t.dtype}, the forward one in {of.dtype}")
    gradients = output_dtypes(algorithm)
    for name in gradients:
        if name.removeprefix("g") not in inputs or not name.startswith("g"):
            legal = ", ".join(f"g{n}" for n in inputs)
            raise UserMistake(f"the backward program gives {name}; it gives gradients of inputs: {legal}")
    known = {p.name for p in forward.params}
    for p in algorithm.params:
        if p.name not in known:
            raise UserMistake(f"the backward program has a param {p.name} that the forward one has not")
    missing = [p.name for p in forward.params if p.name not in {q.name for q in algorithm.params}]
    if missing:
        raise UserMistake(f"the backward program has no param {', '.join(missing)}, which changes what is right")
    kinds = {p.name: _KINDS[p.dtype] for p in forward.params}
    arguments = [f"Tensor {t.name}" for t in algorithm.inputs] + [f"{kinds[p.name]} {p.name}" for p in algorithm.params]
    facts["GRADIENTS"] = {name: _TORCH[dtype] for name, dtype in gradients.items()}
    facts["BACKWARD_INPUTS"] = tuple((t.name, _TORCH[t.dtype or "f32"]) for t in algorithm.inputs)
    facts["BACKWARD_PARAMS"] = tuple(p.name for p in algorithm.params)
    facts["BACKWARD_SCHEMA"] = f"({', '.join(arguments)}) -> ({', '.join(['Tensor'] * len(gradients))})"
    found = lower(fill(program, hardware), hardware)
    return found.source, found.entry


def _provenance(target: Target, hardware: Hardware, variants: Sequence[Variant], backward: str) -> dict[str, Any]:
    from avo.config import versions

    return {
        "made_by": "avo export",
        "made_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "target": target.name,
        "hardware": {"name": hardware.name, "title": hardware.title, "arch": hardware.arch},
        "mode": variants[0].mode,
        "variants": [dict(v.provenance) for v in variants],
        **({"backward": backward} if backward else {}),
    }


def _licensed(text: str, licence: str) -> str:
    return f"# SPDX-License-Identifier: {licence}\n{text}"
