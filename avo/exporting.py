"""From names to a package: finds programs and their verdicts, judges files that have none, and builds it."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from avo.errors import UserMistake

if TYPE_CHECKING:
    from avo.candidates import Named
    from avo.export import Package, Variant
    from dsl.hardware import Hardware
    from evaluators.benchmark_result import Benchmark
    from evaluators.target import Target


def exported(
    names: Sequence[str],
    *,
    name: str | None = None,
    backward: str | None = None,
    bench: Path | None = None,
    target: str | None = None,
    hw: str | None = None,
    workloads: Sequence[str] = (),
    licence: str | None = None,
    archive: str | None = None,
) -> tuple[Package, list[Variant]]:
    """The package of these candidates or files, and what is known of each.

    A candidate brings its target, chip and verdict. A file needs `bench`, or `target` and `hw`: then it is judged now.
    Raises UserMistake, ProgramError, TargetError, HarnessUnavailable, archive.errors.ArchiveError.
    """
    from avo import choosing, plugins
    from avo.candidates import find, find_all
    from avo.export import build, variant_of_benchmark, variant_of_candidate
    from avo.export.package import LICENCE
    from evaluators.loading import complete

    found = find_all(names, archive)
    _for_files(found, {"--bench": bench, "--target": target, "--hw": hw, "--workload": workloads or None})
    if licence is not None and not re.fullmatch(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*", licence):
        raise UserMistake(f"--licence {licence!r}: an SPDX name, such as MIT or Apache-2.0 OR MIT")
    table = _benchmark(bench) if bench is not None else None
    variants: list[Variant] = []
    job: Target | None = None
    for one in found:
        if one.candidate is not None:
            variants.append(variant_of_candidate(one))
            job = job or target_of_run(one)
        elif table is not None:
            variants.append(variant_of_benchmark(one.text, one.program, table))
            job = job or complete(plugins.load("target", target or table.target))
        else:
            if target is None or hw is None:
                raise UserMistake(
                    f"{one.name} is a file: give --bench JSON of a benchmark that it took part in, "
                    "or --target and --hw to have it judged now"
                )
            variant, judged = _judged(one, target, hw, workloads)
            variants.append(variant)
            job = job or judged
    if job is None:
        raise UserMistake("there is nothing to export")
    chip = choosing.chip(variants[0].hardware)
    gradient = find(backward, archive) if backward is not None else None
    package = build(
        job,
        chip,
        variants,
        backward=gradient.program if gradient else None,
        backward_text=gradient.text if gradient else "",
        name=name,
        licence=licence or LICENCE,
    )
    return package, variants


def _for_files(found: Sequence[Named], given: Mapping[str, Any]) -> None:
    """Raises UserMistake for an option of program files where none of them is one, or where a table answers it: a
    kernel for another chip than the person named would come of it."""
    named = [option for option, value in given.items() if value is not None]
    files = [one.name for one in found if one.candidate is None]
    if named and found and not files:
        raise UserMistake(
            f"{found[0].name} is a candidate: target, chip, sizes and verdict are its run's, and {named[0]} is for "
            "program files. `avo show ID --program > FILE.avo` makes one, which is then judged for what you name"
        )
    beside = [option for option in named if option in ("--hw", "--workload")]
    if given["--bench"] is not None and beside:
        raise UserMistake(f"chip and sizes are those of the table that --bench names; {beside[0]} cannot change them")


def callable_of(name: str, archive: str | None = None) -> tuple[Callable[..., Any], Variant, Hardware]:
    """The function of the package that `avo export NAME` would write, imported from a temporary folder.

    Raises as `exported` does, HarnessUnavailable without torch or Triton.
    """
    from avo import choosing
    from avo.compiling import require_torch, require_triton
    from avo.export import write

    require_torch("running a kernel")
    require_triton("running a kernel")
    first, (variant,) = exported([name], archive=archive)
    unique = f"avo_export_{first.name}_{variant.digest[:16]}"
    if unique not in sys.modules:
        package, _ = exported([name], name=unique, archive=archive)
        folder = Path(tempfile.mkdtemp(prefix="avo-export-"))
        write(package, folder)
        place = folder / unique / "__init__.py"
        spec = importlib.util.spec_from_file_location(unique, place, submodule_search_locations=[str(place.parent)])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[unique]
            raise
    return getattr(sys.modules[unique], first.function), variant, choosing.chip(variant.hardware)


def _benchmark(path: Path) -> Benchmark:
    from pydantic import ValidationError

    from avo.files import read_text
    from evaluators.benchmark_result import Benchmark

    try:
        found = json.loads(read_text(str(path)))
    except ValueError as error:
        raise UserMistake(f"{path} is not JSON: {error}") from None
    if isinstance(found, dict) and "benchmark" in found:  # as benchmarks/data/bench keeps it, with more beside it
        found = found["benchmark"]
    try:
        return Benchmark.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise UserMistake(f"{path} is no table of `avo bench -o`: {where}: {first['msg']}") from None


def target_of_run(named: Named) -> Target:
    """The target as the run had it. Raises UserMistake where it was begun in Python, without a name."""
    from avo import plugins, workloads
    from avo.config import RunConfig
    from evaluators.loading import complete

    assert named.run is not None
    given: Mapping[str, Any] = named.run.given
    kept = {k: v for k, v in given.items() if k in RunConfig.model_fields}
    config = RunConfig.model_validate(kept)
    if config.target.startswith("<"):
        raise UserMistake(f"run {named.run.id} was begun in Python with {config.target[1:-1]}; it has no name to go by")
    return complete(workloads.retarget(plugins.load("target", config.target), config.workloads.values()))


def _judged(named: Named, target: str, hw: str, sizes: Sequence[str]) -> tuple[Variant, Target]:
    from avo import choosing, plugins
    from avo.compiling import require_torch, require_triton
    from avo.export import variant_of_judgement
    from avo.plugin_answers import evaluation_of
    from avo.workloads import job
    from evaluators.protocol import Evaluator

    require_torch("judging")
    require_triton("judging")
    chip, found = choosing.chip(hw), job(target, sizes, run=True)
    judge: Evaluator = plugins.create("evaluator", choosing.judge("local", chip), {"jobs": 1, "hardware": chip})
    try:
        evaluation = evaluation_of(judge, judge.evaluate(named.text, found, chip))
    finally:
        judge.close()
    return variant_of_judgement(named.text, named.program, evaluation, found.name, chip.name), found
