"""`avo check FILE`: everything that is wrong with a program, at once, without a compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import SizesOption
from dsl.wording import counted

if TYPE_CHECKING:
    from dsl.diagnostics import Diagnostic
    from dsl.hardware import Hardware
    from dsl.repair import Change
    from dsl.syntax import Program
    from evaluators.target import Workload


def check(
    files: Annotated[list[str], typer.Argument(help="Programs; - reads standard input.", metavar="FILE...")],
    hw: Annotated[
        str | None, typer.Option(help="Also check what this chip can do; auto: the one that is here.", metavar="CHIP")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Take sizes from this target: memory limits become exact.", metavar="TARGET")
    ] = None,
    workload: SizesOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="First mend what needs no thought, in the file; comments stay.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the diagnostics as JSON.")] = False,
) -> None:
    """Say everything that is wrong with a program, with the place, what is legal and the nearest fix.

    --fix does what the messages name where that is mechanical: the nearest dtype, word or legal number, a form of
    another language for the one here, the cast that a product lacks, a line without a use. The rest is left to you.

    Example: avo check attention.avo --hw b200
    """
    from avo import choosing
    from avo.cli.console import show_json

    chip = choosing.chip(hw) if hw else None
    answers = [_checked(file, chip, target, workload, fix, as_json) for file in files]
    if as_json:
        show_json(answers if len(answers) > 1 else answers[0])
    if not all(answer["ok"] for answer in answers):
        raise typer.Exit(1)


def _checked(
    file: str, chip: Hardware | None, target: str | None, workload: str | None, fix: bool, quiet: bool
) -> dict[str, Any]:
    """One program: says what is wrong with it, unless `quiet`, and returns the same as the JSON of `check`."""
    from avo.cli.console import say
    from avo.cli.lower import all_sizes
    from avo.files import read_text
    from dsl.check import check as complaints
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.printer import digest

    text = read_text(file)
    name, sizes = "", None
    changes: list[Change] = []
    if fix:
        text, changes = _mended(file, text, chip, target, workload)
    try:
        program = parse(text, file)
        name = digest(program)
        every = all_sizes(program, target, workload)
        sizes = every[0] if every else None
        # once for all sizes what is alike for all
        found = list(dict.fromkeys(d for w in every for d in complaints(program, chip, w.sizes)))
        found = found if every else list(complaints(program, chip))
    except ProgramError as error:
        found = list(error.diagnostics)
    errors = [d for d in found if d.severity == "error"]
    answer = {"path": file, "ok": not errors, "digest": name or None, "hardware": chip.name if chip else None}
    if quiet and not errors and sizes is not None:
        answer["kernels"], answer["moves"] = traffic(program, sizes)
    if not quiet:
        for c in changes:
            new = f"`{c.new.strip()}`" if c.new.strip() else "nothing"
            say(f"{file}:{c.line}: mended[{c.rule}]: {f'`{c.old.strip()}` is now ' if c.old.strip() else 'new: '}{new}")
        for diagnostic in sorted(found, key=lambda d: (d.span.line, d.span.column)):
            say(diagnostic.render(text, file))
        on = f" on {chip.name}" if chip else ""
        if errors:
            say(f"{counted(len(errors), 'error')}{on}")
        else:
            more = " (limits on memory depend on sizes: name a --target or --workload)" if chip and not sizes else ""
            lowers = ", but it does not lower yet" if any(d.rule == "not-lowered" for d in found) else ""
            say(f"ok{on}{lowers}: {name}{more}")
            for line in stored_lines(program, sizes):
                say(line)
    mended = {"changes": [vars(c) for c in changes]} if fix else {}
    return {**answer, **mended, "diagnostics": [as_dict(d) for d in found]}


def stored_lines(program: Program, sizes: Workload | None) -> list[str]:
    """What a pipeline stores between its kernels, and what fusing or storing a stage would cost, in bytes."""
    from avo.cli.console import table
    from dsl.pipeline import formula, stages

    if sizes is None:
        found = [n for names in stages(program) for n in names]
        if not found:
            return []
        parts = ", ".join(f"{n} ({formula(program, n)} bytes)" for n in found)
        return [f"stored between kernels, written once and read again: {parts}; --workload or --target says how much"]
    kernels, moved = traffic(program, sizes)
    lines = []
    if len(kernels) > 1:
        rows = [(" ".join(k["writes"]), _size(k["bytes_in"]), _size(k["bytes_out"])) for k in kernels]
        rows.append(("all", _size(sum(k["bytes_in"] for k in kernels)), _size(sum(k["bytes_out"] for k in kernels))))
        lines.append(table(("kernel of", "reads", "writes"), rows, right=(1, 2)))
    for m in moved:
        names = " ".join(m["names"])
        flops = f", {m['flops_more'] / 1e9:+.3g} GFLOP" if m["flops_more"] else ""
        what = "fused into what uses it" if m["stored"] else "stored by a kernel of its own"
        lines.append(f"{names} {what}: {'+' if m['bytes_more'] >= 0 else '-'}{_size(abs(m['bytes_more']))}{flops}")
    return lines


def traffic(program: Program, sizes: Workload) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The compulsory bytes of each kernel, and of every stage that could move: as in the JSON of `check`."""
    from dsl.pipeline import moves
    from dsl.work import work

    counted = work(program, sizes.sizes, sizes.params)
    kernels = [{"writes": list(k.writes), "bytes_in": k.bytes_in, "bytes_out": k.bytes_out} for k in counted.kernels]
    return kernels, [{**vars(m), "names": list(m.names)} for m in moves(program, sizes.sizes, sizes.params)]


def _size(n: float) -> str:
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= one:
            return f"{n / one:.1f} {unit}"
    return f"{n:.0f} B"


def _mended(
    file: str, text: str, chip: Hardware | None, target: str | None, workload: str | None
) -> tuple[str, list[Change]]:
    """The text after the repairs, written back to its file where anything changed."""
    from pathlib import Path

    from avo.cli.lower import all_sizes
    from avo.errors import UserMistake
    from avo.files import write_text
    from dsl.check import check as complaints
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.repair import repaired

    if file == "-":
        raise UserMistake("--fix needs a file, not standard input")

    def wrong(source: str) -> list[Diagnostic]:
        try:
            program = parse(source, file)
        except ProgramError as error:
            return list(error.diagnostics)
        try:
            sizes = all_sizes(program, target, workload)
        except UserMistake:  # sizes that do not fit the program as it is now: checked without
            sizes = ()
        found = dict.fromkeys(d for w in sizes for d in complaints(program, chip, w.sizes))
        return list(found) if sizes else list(complaints(program, chip))

    mended, changes = repaired(text, wrong)
    if mended != text:
        write_text(Path(file), mended, force=True)
    return mended, changes


def as_dict(d: Diagnostic) -> dict[str, Any]:
    """One diagnostic in the JSON of `check` and `lower`; line and column count from 1."""
    place = {"line": d.span.line, "column": d.span.column, "end_column": d.span.end_column}
    return {"rule": d.rule, "severity": d.severity, "message": d.message, **place, "legal": d.legal, "fix": d.fix}
