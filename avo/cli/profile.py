"""`avo profile ID`: what limits a program on the device that is here, by counters where they are allowed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.candidates import Named
    from evaluators.profiling import Profile


_INSTEAD = (
    "a profile is of a device. `avo show` has the machine code's evidence and the predicted limiter of each size, "
    "`avo sol` the time of each pipe"
)


class Choice(StrEnum):
    """Which tool looks; auto is the first of the others that works here."""

    AUTO = "auto"
    NCU = "ncu"
    ROCPROFV3 = "rocprofv3"
    PROTON = "proton"
    EVENTS = "events"


def profile(
    id: Annotated[str, typer.Argument(help="A candidate (RUN/K or a digest) or a program file.", metavar="ID")],
    target: Annotated[str | None, typer.Option(help="For a file: its job.", metavar="TARGET")] = None,
    hw: Annotated[str | None, typer.Option(help="For a file: the chip that is here.", metavar="CHIP")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Sizes instead of the target's first workload.", metavar="k=v,...")
    ] = None,
    tool: Annotated[Choice, typer.Option(help="Counters (NVIDIA's, AMD's), Proton or events alone.")] = Choice.AUTO,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the JSON here too.", metavar="PATH")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Profile a program on the device: time, busiest units, the named bottleneck. Kept as a note of its run.

    Nsight Compute (AMD: rocprofv3) where counters are allowed, else Proton or events with each pipe's time at its peak.

    Example: avo profile 1/17
    """
    from avo import choosing, plugins, workloads
    from avo.candidates import find
    from avo.cli.console import say, show_json
    from avo.compiling import require_torch, require_triton
    from avo.errors import HarnessUnavailable, UserMistake
    from avo.exporting import target_of_run
    from avo.files import refuse_existing, write_text
    from avo.profiling_access import access
    from dsl.knobs import fill
    from dsl.lowering import lower
    from evaluators.device import NoDevice, local_devices, matching
    from evaluators.loading import complete
    from evaluators.profiling import profile as profiled

    named = find(id, archive)
    if named.run is not None:
        if target is not None:
            raise UserMistake(f"{id} is a candidate and has its run's target; --target is for program files")
        job = target_of_run(named)
    elif target is None:
        raise UserMistake(f"{id} is a file: say which job it does with --target")
    else:
        job = complete(plugins.load("target", target))
    size = workloads.workload(workload, job) if workload else job.workloads[0]
    refuse_existing(output, force)
    if hw is None and named.run is None and not local_devices():
        raise HarnessUnavailable(f"no GPU was found here: {_INSTEAD}")
    chip = choosing.chip(hw or (named.run.hardware if named.run is not None else choosing.AUTO))
    if not chip.claims_speed:
        raise UserMistake(f"{chip.name} makes no speed claim; name a chip that is here")
    try:
        matching(local_devices(), chip)
    except NoDevice as error:
        raise HarnessUnavailable(f"{error.measuring}: {_INSTEAD}") from None
    require_torch("profiling")
    require_triton("profiling")
    filled = fill(named.program, chip)
    here = access(chip.vendor)
    tools = {Choice.AUTO: (here.tool, "proton", "events")}.get(tool, (tool.value,))
    found = profiled(
        job,
        filled,
        lower(filled, chip),
        size,
        chip,
        tools=tools,  # type: ignore[arg-type]
        counters=here.path,
        why_no_counters=here.why_not,
    )
    if output is not None:
        write_text(output, found.model_dump_json(indent=1) + "\n", force)
    if as_json:
        show_json(found.model_dump(mode="json"))
    else:
        say(page(named.name, found))
    if named.candidate is not None:
        _keep(named, found, archive)


def page(name: str, found: Profile) -> str:
    """The bottleneck first, then the figures behind it."""
    from avo.cli.console import duration, table, tame

    lines = [f"{name} on {found.device}, {found.workload}: {tame(found.bottleneck)}", f"  {tame(found.why)}", ""]
    if found.seconds is not None:
        state = ", ".join(f"{found.state[k]} {u}" for k, u in (("sm_mhz", "MHz"), ("watts", "W")) if found.state.get(k))
        lines.append(f"measured {duration(found.seconds)} a call, sustained" + (f"; {state}" if state else ""))
    rows = [[pipe, f"{share:.0%}"] for pipe, share in found.shares.items() if share >= 0.001]
    lines += ["", table(["pipe at its peak", "share of the time"], rows, right=(1,))] if rows else []
    if found.kernels:
        rows = [
            [tame(k.name)[:48], duration(k.seconds) if k.seconds else "-", k.bottleneck or "-"] for k in found.kernels
        ]
        lines += ["", table([f"kernel ({found.tool})", "time", "bottleneck"], rows, right=(1,))]
    lines += [f"{tool} was not used: {tame(why)}" for tool, why in found.tried.items()]
    return "\n".join(lines)


def _keep(named: Named, found: Profile, archive: str | None) -> None:
    """As a note of the run, where agents read it; a run that is under way or was broken off is left alone."""
    from archive.archive import open_archive
    from avo.cli.console import warn
    from avo.config import DEFAULT_ARCHIVE

    assert named.run is not None and named.candidate is not None
    with open_archive(archive or DEFAULT_ARCHIVE, create=False) as store:
        record = store.run(named.run.id)
        if record.state != "ended":
            warn(f"not kept: run {record.id} is {record.state}")
            return
        writer = store.claim(record.id)
        try:
            body = (
                f"{found.workload} on {found.device}: {found.bottleneck}. {found.why} ({found.tool}, {found.date[:10]})"
            )
            writer.note(named.candidate.k, body, topic="profile")
        finally:
            writer.release(record.ended or "done", record.message)
