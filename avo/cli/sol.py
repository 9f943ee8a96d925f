"""`avo sol --target T --hw X`: the speed of light: how fast the chip could do the job, and what sets that."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from avo.cli.options import JsonOption, WorkloadOption


def sol(
    target: Annotated[
        str, typer.Option(help="The job: a name, module:NAME or a file.", metavar="TARGET")
    ] = "attention",
    hw: Annotated[str, typer.Option(help="The chip; auto: the one that is here.", metavar="CHIP")] = "b200",
    workload: WorkloadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the speed of light per workload: the time of each pipe at cited peaks, the floor, the bottleneck.

    Example: avo sol --target attention --hw b200
    """
    from avo import choosing, plugins
    from avo.cli.console import duration, say, show_json, table
    from avo.errors import UserMistake
    from avo.workloads import job
    from dsl.parser import parse
    from dsl.work import work
    from evaluators.roofline import speed_of_light

    chip = choosing.chip(hw)
    if not chip.claims_speed:
        others = ", ".join(n for n in plugins.names("hardware") if n != chip.name)
        raise UserMistake(f"{chip.name} makes no speed claim; name a chip: {others}")
    found = job(target, workload or [])
    program = parse(found.seed)
    answer: list[dict[str, Any]] = []
    for w in found.workloads:
        amount = work(program, w.sizes, w.params)
        floor = speed_of_light(amount, chip)
        counted = sum(amount.flops.values()) if found.unit == "TFLOP/s" else amount.bytes_in + amount.bytes_out
        answer.append(
            {
                "workload": w.name,
                "floor_s": floor.floor_s,
                "bottleneck": floor.bottleneck,
                "rate": counted * (1e-12 if found.unit == "TFLOP/s" else 1e-9) / floor.floor_s,
                "times_s": dict(floor.times),
                "flops": dict(amount.flops),
                "exponentials": amount.exps,
                "bytes_in": amount.bytes_in,
                "bytes_out": amount.bytes_out,
            }
        )
    if as_json:
        show_json({"target": found.name, "hardware": chip.name, "unit": found.unit, "workloads": answer})
        return
    say(f"{found.name} on {chip.title}: no kernel can be faster than the floor\n")
    pipes = list(dict.fromkeys(p for a in answer for p in a["times_s"]))
    rows = [
        [
            str(n),
            *[duration(a["times_s"][p]) if p in a["times_s"] else "-" for p in pipes],
            duration(a["floor_s"]),
            f"{a['rate']:.4g}",
        ]
        for n, a in enumerate(answer, 1)
    ]
    say(table(["", *pipes, "floor", found.unit], rows, right=tuple(range(len(pipes) + 3))))
    say("\nWhat sets the floor:")
    for n, a in enumerate(answer, 1):
        say(f"{n}  {a['bottleneck']}: {a['workload']}")
    say(f"\nPeaks and their sources: avo hardware {chip.name}")
