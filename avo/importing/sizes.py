"""Small sizes that an imported function takes, where those that are derived for a target are none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from evaluators.loading import complete
from evaluators.target import Target, Workload

_STEPS = 32  # lengths that are tried beyond the one that does not fit
_MOST = 1 << 22  # elements of all axes together, so that a try is quick


def fitting(target: Target, agrees: Callable[[Workload], bool]) -> Target:
    """The target with check and tiny sizes at which the function and the program agree, as near as can be to those
    that are derived; as it is where none are found or these are good.

    A function may fix what its example shows: groups of channels, a reshape to heads of 64.
    """
    whole = complete(target)
    found: dict[str, Workload | None] = {}

    def near(workload: Workload) -> Workload | None:
        if workload.name not in found:
            found[workload.name] = next(filter(agrees, _around(workload, target.workloads[0])), None)
        return found[workload.name]

    checks, tiny = (tuple(w for x in sizes if (w := near(x))) for sizes in (whole.checks, whole.tiny))
    if not checks or not tiny or (checks, tiny) == (whole.checks, whole.tiny):
        return target
    return replace(target, checks=tuple(dict((w.name, w) for w in checks).values()), tiny=tiny)


def _around(workload: Workload, example: Workload) -> Iterator[Workload]:
    """The workload; then with one axis longer; then with two, and with all, as long as in the example."""
    yield workload
    sizes, whole = workload.sizes, example.sizes
    for axis, length in sizes.items():
        steps = {*range(length + 1, length + 1 + _STEPS), *(n for n in range(1, _STEPS) if whole[axis] % n == 0)}
        for n in sorted(n for n in {*steps, whole[axis]} if length < n <= whole[axis]):
            yield from _quick(workload, {axis: n})
    for count in range(2, len(sizes) + 1):
        for axes in combinations(sizes, count):
            yield from _quick(workload, {a: whole[a] for a in axes})


def _quick(workload: Workload, longer: dict[str, int]) -> Iterator[Workload]:
    found = Workload({**workload.sizes, **longer}, workload.params)
    count = 1
    for n in found.sizes.values():
        count *= n
    if count <= _MOST:
        yield found
