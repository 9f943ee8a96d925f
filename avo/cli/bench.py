"""`avo bench [PROGRAM...] --target T --hw X`: programs beside the libraries that people use, measured in one run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption, WorkloadOption

if TYPE_CHECKING:
    from avo.candidates import Named
    from dsl.hardware import Hardware
    from evaluators.benchmark import Entry
    from evaluators.benchmark_result import Benchmark
    from evaluators.target import Target


def bench(
    programs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Program files, or candidates of the archive; RUN/each for the best of each size.",
            metavar="[PROGRAM]...",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(help="The job: a name, module:NAME or a file.", metavar="TARGET")
    ] = "attention",
    hw: Annotated[str, typer.Option(help="The chip that is here; auto finds it.", metavar="CHIP")] = "auto",
    workload: WorkloadOption = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="A function of yours of the inputs and params; repeatable.", metavar="module:FUNCTION"),
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Leave out this arm, or `seed`; repeatable.", metavar="NAME")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Compare with this arm, not each workload's best baseline.", metavar="NAME")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of all arms a workload.", min=1, max=1000)] = 12,
    fail_below: Annotated[
        float | None,
        typer.Option(help="Exit with 1 where the programs are slower than this ratio, beyond noise.", metavar="RATIO"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write PATH.json and PATH.md.", metavar="PATH")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output files.")] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure programs beside the best libraries, the seed and the limits of this card, all in one run.

    1 where a program is wrong or --fail-below is missed, 3 where the chip is not here.

    Example: avo bench best.avo --target attention --hw h200 --fail-below 0.97
    """
    from avo import choosing
    from avo.benchmark_page import markdown
    from avo.candidates import find_all
    from avo.cli.console import say, show_json, warn
    from avo.compiling import require_torch, require_triton
    from avo.errors import HarnessUnavailable, UserMistake
    from avo.files import refuse_existing, write_text
    from avo.workloads import job
    from evaluators import benchmark
    from evaluators.device import NoDevice, local_devices, matching

    if fail_below is not None and not (programs and 0 < fail_below < math.inf):
        raise UserMistake(
            "--fail-below judges programs: name one"
            if not programs
            else f"--fail-below is a ratio of speeds above 0, as 0.97; got {fail_below:g}"
        )
    try:  # what a person got wrong is told on any machine, before a device is asked for
        found, wanted = job(target, workload or []), find_all(programs or [], archive)
        functions = [_function(given) for given in baseline or []]
        stem = None
        if output is not None:
            stem = output.with_suffix("") if output.suffix in (".json", ".md") else output
            for suffix in (".json", ".md"):
                refuse_existing(stem.with_suffix(suffix), force)
        if hw == choosing.AUTO and not local_devices():
            raise NoDevice("no GPU was found here, and times of `avo bench` are measured, never predicted")
        chip = choosing.chip(hw)
        if not chip.claims_speed:
            raise UserMistake(f"{chip.name} makes no speed claim; name a chip that is here")
        entries = _entries(found, chip, wanted, functions, skip or [])
        names = [e.arm.name for e in entries]
        if against is not None and against not in names:
            raise UserMistake(f"--against {against}: no such arm; there are {', '.join(names)}")
        matching(local_devices(), chip)
        require_torch("measuring")
        require_triton("measuring")
        began = time.monotonic()

        def watch(so_far: Benchmark) -> None:
            row = so_far.rows[-1]
            if not as_json:
                done = ", ".join(f"{o.arm} {o.rate:.4g}" for o in row.outcomes if o.rate is not None)
                warn(f"{time.monotonic() - began:6.0f} s  {row.workload}: {done} {found.unit}")
            if stem is not None:  # a table that is stopped keeps its rows
                write_text(stem.with_suffix(".json"), so_far.model_dump_json(indent=1) + "\n", True)

        with benchmark.Bench(chip) as card:
            result = card.run(found, entries, rounds=rounds, watch=watch)
    except NoDevice as error:
        raise HarnessUnavailable(
            f"{error.measuring}. `avo eval` and `avo evolve` predict times without a GPU; "
            "`avo doctor` says what is here"
        ) from None
    if stem is not None:
        write_text(stem.with_suffix(".json"), result.model_dump_json(indent=1) + "\n", True)
        write_text(stem.with_suffix(".md"), markdown(result, against), True)
    if as_json:
        show_json(result.model_dump(mode="json"))
    else:
        say(page(result, against))
    _leave(result, fail_below, against)


def _function(given: str) -> Entry:
    """A function of the person's as an arm."""
    from avo.errors import UserMistake
    from evaluators.benchmark import Entry
    from evaluators.benchmark_result import Arm

    module, colon, attribute = given.rpartition(":")
    if not colon or not module or not attribute.isidentifier():
        raise UserMistake(f"--baseline wants module:FUNCTION or file.py:FUNCTION, got '{given}'")
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise UserMistake(f"--baseline {given}: no such file: {module}")
        module = str(Path(module).resolve())
    return Entry(Arm(name=given, kind="function", about="your own"), module=module)


def _entries(
    target: Target, chip: Hardware, programs: Sequence[Named], functions: Sequence[Entry], skip: Sequence[str]
) -> list[Entry]:
    """All arms in the order of the table: programs, the seed, a person's own functions, libraries, limits."""
    from avo.errors import UserMistake
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from evaluators import baselines
    from evaluators.benchmark import Entry, program_entry
    from evaluators.benchmark_result import Arm
    from evaluators.contract import breaches

    known = baselines.of(target.name)
    found: list[Entry] = []
    taken = {"seed", *(b.name for b in known), *(e.arm.name for e in functions)}  # a file may be called so
    for one in programs:
        name = one.name if one.name not in taken else f"{one.name} ({len(found) + 1})"
        taken.add(name)
        if other := breaches(parse(target.seed).algorithm, one.program.algorithm, "all"):
            raise ProgramError(other, one.text, name)
        found.append(program_entry(name, one.text, one.program, target, chip))
    if "seed" not in skip:
        found.append(program_entry("seed", target.seed, parse(target.seed), target, chip))
    found += functions
    found += [Entry(Arm(name=b.name, kind=b.role, about=b.about)) for b in known if b.name not in skip]
    strange = [s for s in skip if s != "seed" and s not in {b.name for b in known}]
    if strange:
        raise UserMistake(f"--skip {strange[0]}: no such arm; there are seed, {', '.join(b.name for b in known)}")
    if not found:
        raise UserMistake("nothing is left to measure")
    return found


def page(result: Benchmark, against: str | None = None) -> str:
    """For a terminal: rates by workload, then a line an arm, then what did not work."""
    from avo.benchmark_page import conditions, summary, sustained, trouble
    from avo.cli.console import table, tame
    from avo.report.derive import workload_infos

    facts = {row.workload: (row.work, row.floor_s, row.bottleneck) for row in result.rows}
    infos, shared = workload_infos(list(facts), facts)
    letters = [chr(ord("A") + n) if n < 26 else f"A{n}" for n in range(len(result.arms))]
    rows = []
    for row, info in zip(result.rows, infos, strict=True):
        cells = []
        for arm in result.arms:
            o = row.outcome(arm.name)
            cells.append("-" if o is None or o.rate is None else f"{o.rate:.4g}" + ("*" if o.reason else ""))
        rows.append([info.label, *cells])
    lines = [f"{result.target} on {result.hardware}, measured, {result.unit}", ""]
    lines.append(table(["workload", *letters], rows, right=range(1, len(letters) + 1)))
    lines += [f"all with {shared}"] if shared else []
    lines.append("")
    for letter, arm in zip(letters, result.arms, strict=True):
        lines.append(f"{letter}  {arm.name}" + (f": {arm.about}" if arm.about else ""))
    over = f"speed over {against or 'best baseline'}"
    lines += [
        "",
        table(["arm", "ran", result.unit, over, "floor", "ceiling"], summary(result, against), right=(2, 4, 5)),
    ]
    lines += [
        "",
        "floor, ceiling: share of the speed of light, and of what this card sustains.",
        conditions(result) + ";",
    ]
    lines.append(sustained(result) + ".")
    lines += [f"warning: {w}" for w in result.warnings]
    if failed := trouble(result):
        lines += ["", "what did not work", *[f"  {tame(one)}" for one in failed]]
    return "\n".join(lines)


def _leave(result: Benchmark, fail_below: float | None, against: str | None) -> None:
    """Exits with 1 where a named program is wrong, or where the named ones together miss --fail-below beyond noise,
    or cannot be held against the baseline that a person brought."""
    from avo.cli.console import warn

    named = [a.name for a in result.arms if a.kind == "program" and a.name != "seed"]
    wrong = [o for row in result.rows for o in row.outcomes if o.arm in named and o.reason]
    if wrong:
        raise typer.Exit(1)
    if fail_below is None:
        return
    own = {a.name for a in result.arms if a.kind == "function"}
    if lost := [o for row in result.rows for o in row.outcomes if o.arm in own and o.reason]:
        warn(f"--fail-below: nothing can be said beside your {lost[0].arm}: {lost[0].reason}")
        raise typer.Exit(1)
    speed = result.dispatched(against, among=named)
    if speed is None:
        warn("--fail-below: there is no ratio, for a workload has no right program or no right baseline")
        raise typer.Exit(1)
    if speed.high < fail_below:
        warn(f"--fail-below {fail_below:g}: {speed.value:.3f} [{speed.low:.3f}, {speed.high:.3f}] is below it")
        raise typer.Exit(1)
