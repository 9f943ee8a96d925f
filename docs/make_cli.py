"""Write docs/cli.md from the command line's own help: `python docs/make_cli.py` (`--check` only compares)."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import typer
from typer.testing import CliRunner

from avo.cli import VERBS, build

PAGE = Path(__file__).parent / "cli.md"
HEAD = """\
# The command line

Written by `python docs/make_cli.py` from the help of each command; do not edit.

Every command prints plain lines that fit 80 columns. `--json` prints one JSON document on stdout and nothing else.
Errors go to stderr. Exit codes: 0 judged and accepted (or done), 1 judged and rejected, 2 your mistake, 3 harness
unavailable; 130 after a Ctrl-C that stops at once (in `avo evolve` the first one finishes what is under way and leaves
with 0). `avo --debug ...` shows the traceback of a bug.
"""


def page() -> str:
    """The whole page as it has to be."""
    app, runner = build(), CliRunner()
    parts = [HEAD]
    for arguments in _commands():
        answer = runner.invoke(app, [*arguments, "--help"], prog_name="avo", env={"COLUMNS": "80"})
        title = " ".join(["avo", *arguments])
        text = "\n".join(line.rstrip() for line in answer.output.strip().splitlines())
        parts.append(f"\n{'##' if len(arguments) < 2 else '###'} {title}\n\n```\n{text}\n```\n")
    return "".join(parts)


def _commands() -> list[list[str]]:
    """Each verb, and below one that is a group, each of the group's."""
    found: list[list[str]] = [[]]
    for verb, (module, _) in VERBS.items():
        found.append([verb])
        group = getattr(import_module(f"avo.cli.{module}"), module)
        if isinstance(group, typer.Typer):
            found += [[verb, str(command.name)] for command in group.registered_commands]
    return found


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != wanted:
            print("docs/cli.md is not current: run python docs/make_cli.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
