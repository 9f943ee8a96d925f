"""`avo check FILE`: everything that is wrong with a program, at once, without a compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsl.diagnostics import Diagnostic
    from dsl.hardware import Hardware
    from dsl.repair import Change


def check(
    file: Annotated[str, typer.Argument(help="The program; - reads standard input.", metavar="FILE")],
    hw: Annotated[str | None, typer.Option(help="Also check what this chip can do.", metavar="CHIP")] = None,
    target: Annotated[
        str | None, typer.Option(help="Take sizes from this target: memory limits become exact.", metavar="TARGET")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Sizes instead of the target's first workload.", metavar="k=v,...")
    ] = None,
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
    from avo import plugins
    from avo.cli.console import say, show_json
    from avo.cli.lower import sizes_of
    from avo.files import read_text
    from dsl.check import check as complaints
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.printer import digest

    text = read_text(file)
    chip = plugins.load("hardware", hw) if hw else None
    name = ""
    changes: list[Change] = []
    if fix:
        text, changes = _mended(file, text, chip, target, workload)
    try:
        program = parse(text, file)
        name = digest(program)
        sizes = sizes_of(program, target, workload)
        found = list(complaints(program, chip, sizes.sizes if sizes else None))
    except ProgramError as error:
        found = list(error.diagnostics)
    errors = [d for d in found if d.severity == "error"]
    if as_json:
        answer = {"path": file, "ok": not errors, "digest": name or None, "hardware": chip.name if chip else None}
        mended = {"changes": [vars(c) for c in changes]} if fix else {}
        show_json({**answer, **mended, "diagnostics": [as_dict(d) for d in found]})
    else:
        for c in changes:
            new = f"`{c.new.strip()}`" if c.new.strip() else "nothing"
            say(f"{file}:{c.line}: mended[{c.rule}]: {f'`{c.old.strip()}` is now ' if c.old.strip() else 'new: '}{new}")
        for diagnostic in sorted(found, key=lambda d: (d.span.line, d.span.column)):
            say(diagnostic.render(text, file))
        on = f" on {chip.name}" if chip else ""
        if errors:
            say(f"{len(errors)} error{'s' if len(errors) > 1 else ''}{on}")
        else:
            more = " (limits on memory depend on sizes: name a --target)" if chip and target is None else ""
            say(f"ok{on}: {name}{more}")
    if errors:
        raise typer.Exit(1)


def _mended(
    file: str, text: str, chip: Hardware | None, target: str | None, workload: str | None
) -> tuple[str, list[Change]]:
    """The text after the repairs, written back to its file where anything changed."""
    from pathlib import Path

    from avo.cli.lower import sizes_of
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
            sizes = sizes_of(program, target, workload)
        except UserMistake:  # sizes that do not fit the program as it is now: checked without
            sizes = None
        return list(complaints(program, chip, sizes.sizes if sizes else None))

    mended, changes = repaired(text, wrong)
    if mended != text:
        write_text(Path(file), mended, force=True)
    return mended, changes


def as_dict(d: Diagnostic) -> dict[str, Any]:
    """One diagnostic in the JSON of `check` and `lower`; line and column count from 1."""
    place = {"line": d.span.line, "column": d.span.column, "end_column": d.span.end_column}
    return {"rule": d.rule, "severity": d.severity, "message": d.message, **place, "legal": d.legal, "fix": d.fix}
