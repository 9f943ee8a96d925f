"""Makes a target ready: fills in what its author left out, and says at once what is wrong with it.

A target needs a reference, a seed program and workloads. Small sizes for the checks follow from these:

- an axis that a reduction runs over keeps its extent up to 128 and else becomes one of 200, 152, 328, or in a last
  check 256, for kernels are specialised to sizes without tails;
- of the axes of an output, the last two keep theirs up to 128 and else become one of those;
- the others become at most 2, or 70 where they are longer than 64;
- an axis of blocks (`axis nb = n // 64`) keeps n at three blocks and a ragged tail;
- where an input fixes a coarse axis (`axis g = h // (H // G)`), the ratio H // G is kept, up to 4, over <= 2 groups;
- tiny sizes, for the meaning alone, are even numbers from 4 to 14 by the same rules;
- a hidden workload is a public one with its longest axes cut to three quarters;
- where no check has the params of a public workload, or an axis of length 1 as it has, one like it is added.

A reference that cannot take such sizes needs `checks` and `tiny` of its author's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dsl.assembly import walk
from dsl.diagnostics import ProgramError, nearest
from dsl.parser import parse
from dsl.syntax import Algorithm, AxisDecl, Call, Number, Program
from evaluators.inputs import draw_inputs, extents, generator
from evaluators.target import Target, TargetError, Workload

_CHECK_LENGTHS = (200, 152, 328)  # tails on every tile, and multiples of 8, which 16-byte rows of bf16 need
_EVEN_LENGTHS = (256,)  # no tails: kernels are specialised to that
_TINY_LENGTHS = (6, 10, 4, 14, 8, 12)
_KEPT = 128
_BATCH = 64  # a longer axis that is neither reduced nor one of an output's last two is tiled all the same


def ready(target: Target) -> Target:
    """The completed target, after everything that can be known about it without a candidate has been tried.

    Imports torch and runs the reference on the tiny sizes. Raises TargetError, also where an answer that skips the job
    (zeros, a copy of an input, one that ignores an input) would pass the checks.
    """
    from evaluators.equivalence import insist
    from evaluators.integrity.targets import insist_fit

    found = complete(target)
    program = seed_program(found)
    for workload in (*found.checks, *found.tiny):
        draw_inputs(found, program.algorithm, workload, "normal", generator(0, workload.name))
    insist(found, program)
    insist_fit(found)
    return found


def complete(target: Target) -> Target:
    """The target with checks, tiny and hidden sizes; the same object where it had them. Imports no torch.

    Raises TargetError for a seed program that does not parse or check, and for workloads that do not fit it.
    """
    if not isinstance(target.name, str) or not target.name:
        raise TargetError("a target needs a name")
    if not callable(target.reference):
        raise TargetError(f"target {target.name}: the reference is no function but {type(target.reference).__name__}")
    for what, value, legal in (
        ("unit", target.unit, ("TFLOP/s", "GB/s")),
        ("opens", target.opens, ("schedule", "numerics", "all")),
        ("torch", target.torch, ("glue", "any")),
    ):
        if value not in legal:
            raise TargetError(f"target {target.name}: {what} is {value!r}; legal: {', '.join(legal)}")
    if not target.workloads:
        raise TargetError(f"target {target.name}: it needs at least one workload")
    algorithm = seed_program(target).algorithm
    _memory(target, algorithm)
    for workload in (*target.workloads, *target.hidden, *target.checks, *target.tiny):
        fits(target, algorithm, workload)
    kinds = _by_params(target.workloads)
    turned = (_CHECK_LENGTHS, _CHECK_LENGTHS[1:] + _CHECK_LENGTHS[:1], _EVEN_LENGTHS)
    checks = target.checks or tuple(_shrunk(algorithm, w, lengths, _KEPT) for lengths in turned for w in kinds)
    special = [_shrunk(algorithm, w, _CHECK_LENGTHS, _KEPT) for w in target.workloads if not _covered(w, checks)]
    if target.checks and target.tiny and target.hidden and not special:
        return target
    tiny = target.tiny or tuple(_shrunk(algorithm, w, _TINY_LENGTHS, 4) for w in kinds)
    hidden = target.hidden or _unlike([_shorter(w) for w in kinds], target.workloads)
    found = replace(target, checks=_distinct((*checks, *special)), tiny=_distinct(tiny), hidden=hidden)
    for workload in (*found.hidden, *found.checks, *found.tiny):
        fits(found, algorithm, workload)
    return found


def seed_program(target: Target) -> Program:
    """The parsed seed. Raises TargetError with its diagnostics."""
    try:
        program = parse(target.seed, f"<seed of {target.name}>")
    except ProgramError as error:
        raise TargetError(f"target {target.name}: the seed program does not parse.\n{error}") from error
    from dsl.check import check

    errors = [d for d in check(program) if d.severity == "error"]
    if errors:
        text = "\n".join(d.render(target.seed, f"<seed of {target.name}>") for d in errors)
        raise TargetError(f"target {target.name}: the seed program is wrong.\n{text}")
    return program


def fits(target: Target, algorithm: Algorithm, workload: Workload) -> None:
    """Raises TargetError unless the workload gives every axis an extent and every param a value, and nothing else."""
    where = f"target {target.name}, workload {workload.name or '(empty)'}"
    known = _axes(algorithm)
    for axis, extent in workload.sizes.items():
        if axis not in known:
            near = nearest(axis, sorted(known))
            hint = f"; did you mean '{near}'?" if near else ";"
            raise TargetError(f"{where}: the program has no axis '{axis}'{hint} it has {', '.join(sorted(known))}")
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            raise TargetError(f"{where}: the extent of {axis} is a whole number of at least 1, got {extent!r}")
    try:
        sizes = extents(algorithm, workload)
    except TargetError as error:
        raise TargetError(f"target {target.name}, {error}") from None
    for axis_line in algorithm.axes:
        _divides(where, axis_line, sizes)
    params = {p.name: p for p in algorithm.params}
    for name in workload.params:
        if name not in params:
            raise TargetError(f"{where}: the program has no param '{name}'; it has {', '.join(params) or 'none'}")
    for name, param in params.items():
        if param.default is None and name not in workload.params:
            raise TargetError(f"{where}: param '{name}' has no value and no default")


def _memory(target: Target, algorithm: Algorithm) -> None:
    """In-place outputs lie in the memory of an input of their shape and dtype, each in one of its own."""
    from evaluators.oracle import output_dtypes

    inputs, outputs = {t.name: t for t in algorithm.inputs}, {t.name: t for t in algorithm.outputs}
    dtypes = output_dtypes(algorithm)
    for output, given in target.inplace.items():
        where = f"target {target.name}: inplace {output!r}: {given!r}"
        if output not in outputs or given not in inputs:
            raise TargetError(
                f"{where}: it wants an output ({', '.join(outputs)}) and the input that it overwrites "
                f"({', '.join(inputs)})"
            )
        if inputs[given].axes != outputs[output].axes or (inputs[given].dtype or "f32") != dtypes[output]:
            raise TargetError(f"{where}: the two differ in axes or dtype, so they cannot share memory")
    if len(set(target.inplace.values())) < len(target.inplace):
        raise TargetError(f"target {target.name}: inplace names one input for several outputs")


def _divides(where: str, line: AxisDecl, sizes: dict[str, int]) -> None:
    """A coarse axis that an input fixes must cut its fine axis evenly (rule 2)."""
    if line.fine is None or isinstance(line.value, Number):
        return
    fine, coarse = sizes.get(line.fine, 0), sizes.get(line.name, 0)
    if coarse and fine % coarse:
        why = f"the axis {line.name} is coarse over {line.fine}"
        raise TargetError(f"{where}: {line.name}={coarse} must divide {line.fine}={fine}, for {why}")


# Derived sizes -----------------------------------------------------------------------------------


def _shrunk(algorithm: Algorithm, workload: Workload, lengths: Sequence[int], kept: int) -> Workload:
    reduced = {a for s in algorithm.statements for e in walk(s.value) if isinstance(e, Call) for a in _names(e)}
    last_two = {a for t in algorithm.outputs for a in (t.axes or ())[-2:]}
    inner = reduced | last_two
    sizes: dict[str, int] = {}
    turn = 0
    for axis, extent in workload.sizes.items():
        if axis not in inner:
            sizes[axis] = min(extent, 2 if extent <= _BATCH else lengths[-1] if kept < _BATCH else _BATCH + 6)
        elif extent <= kept:
            sizes[axis] = extent
        else:
            sizes[axis] = min(extent, lengths[turn % len(lengths)])
            turn += 1
    for line in algorithm.axes:
        if line.fine is None or line.fine not in sizes:
            continue
        if isinstance(line.value, Number):
            block = int(line.value.value)
            sizes[line.fine] = min(workload.sizes[line.fine], 3 * block + max(1, block // 2 - 1))
        elif line.name in sizes:
            ratio = max(1, workload.sizes[line.fine] // workload.sizes[line.name])
            sizes[line.name] = min(workload.sizes[line.name], 2)
            sizes[line.fine] = sizes[line.name] * min(ratio, 4)
    return Workload(sizes, workload.params)


def _shorter(workload: Workload) -> Workload:
    longest = max(workload.sizes.values())
    return Workload(
        {a: max(1, n * 3 // 4) if n == longest and n >= 256 else n for a, n in workload.sizes.items()}, workload.params
    )


def _covered(workload: Workload, checks: Sequence[Workload]) -> bool:
    """Whether the checks know its params, and each axis of length 1: kernels are specialised to both."""
    alike = [c for c in checks if dict(c.params) == dict(workload.params)]
    return bool(alike) and all(any(c.sizes.get(a) == 1 for c in alike) for a, n in workload.sizes.items() if n == 1)


def _by_params(workloads: Sequence[Workload]) -> list[Workload]:
    """The first workload of each setting of the params."""
    kinds: dict[tuple[tuple[str, object], ...], Workload] = {}
    for workload in workloads:
        kinds.setdefault(tuple(sorted(workload.params.items())), workload)
    return list(kinds.values())


def _distinct(workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    return tuple({w.name: w for w in workloads}.values())


def _unlike(workloads: Sequence[Workload], others: Sequence[Workload]) -> tuple[Workload, ...]:
    taken = {w.name for w in others}
    return tuple(w for w in _distinct(workloads) if w.name not in taken)


def _axes(algorithm: Algorithm) -> set[str]:
    """Every axis of a tensor or an `axis` line."""
    tensors = (*algorithm.inputs, *algorithm.outputs)
    return {a for t in tensors for a in t.axes or ()} | {a.name for a in algorithm.axes}


def _names(call: Call) -> Iterator[str]:
    for axis in call.axes or ():
        yield axis.axis
