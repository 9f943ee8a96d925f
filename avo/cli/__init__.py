"""The command line: `avo VERB`, one file a verb.

Exit codes: 0 judged and accepted (or simply done), 1 judged and rejected, 2 the user's mistake, 3 harness unavailable.
Verbs import what they need when they run, so that `avo --help` and `avo check` stay quick.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NoReturn

import typer

EPILOG = "Exit codes: 0 accepted, 1 rejected, 2 your mistake, 3 harness unavailable."


# verb -> (its module in this package, what it does in a few words)
VERBS = {
    "evolve": ("evolve", "Evolve a kernel for a target on a chip."),
    "ask": ("ask", "Print what the next step of a run is told."),
    "tell": ("tell", "Judge an answer to it, and record it."),
    "mcp": ("mcp", "Serve a run's tools to a coding agent."),
    "replay": ("replay", "Do a run again from its journal, and compare."),
    "replay-budget": ("replay_budget", "What a rule for stopping would have saved."),
    "models": ("models", "List the models, their prices, and which are here."),
    "prompts": ("prompts", "Show what models are told."),
    "knowledge": ("knowledge", "Search the pages on techniques and chips."),
    "report": ("report", "Report a run: a table, and one HTML file."),
    "log": ("log", "List the runs of an archive and how they stand."),
    "status": ("status", "Say where a run stands, in a few lines."),
    "tree": ("tree", "Draw the lineage of a run in text."),
    "compare": ("compare", "Compare what several runs reached."),
    "best": ("best", "Show the best candidate of a run."),
    "show": ("show", "Show a candidate with all its evidence."),
    "diff": ("diff", "Compare two candidates or program files."),
    "import": ("importing", "Write a PyTorch function as a program."),
    "check": ("check", "Say everything that is wrong with a program."),
    "fmt": ("fmt", "Print a program in canonical form."),
    "knobs": ("knobs", "List what a program leaves open on a chip."),
    "spec": ("spec", "Print the language on one page."),
    "grammar": ("grammar", "Print a grammar for constrained decoding."),
    "lower": ("lower", "Print the Triton or machine code of a program."),
    "eval": ("evaluate", "Judge one program as a run does."),
    "reproduce": ("reproduce", "Judge a candidate again, and compare."),
    "recheck": ("recheck", "Judge the champions of an archive again."),
    "profile": ("profile", "Name what limits a program on the device."),
    "export": ("export", "Write a package that runs without avo."),
    "bench": ("bench", "Measure programs beside the best libraries."),
    "audit": ("audit", "Try a target, or raw Python, for cheats."),
    "review": ("review", "Look at what is suspicious, and decide."),
    "sol": ("sol", "Print the speed of light of a target."),
    "targets": ("targets", "List the targets, or show one."),
    "hardware": ("hardware", "List the chips, or every fact about one."),
    "init": ("init", "Write a target of your own to start from."),
    "doctor": ("doctor", "Look whether all is here that avo needs."),
    "archive": ("archive", "Check, export, import an archive; free room."),
}


def build(only: str | None = None) -> typer.Typer:
    """The application. Plain help: it reads the same in a terminal, a pipe and docs/cli.md.

    only: the verb that is called; the others are there by name alone, for loading all of them takes longer than most
    verbs do. None: every verb is whole.
    """
    app = typer.Typer(
        name="avo",
        help="Evolve GPU kernels: correct, explained against the speed of light, ready to import.",
        epilog=EPILOG,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80, "terminal_width": 80},
    )

    @app.callback()
    def options(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
        ] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug in avo.")] = False,
    ) -> None:
        """Read by `main` itself and by `_version`."""

    for verb, (module, short) in VERBS.items():
        if only is not None and verb != only:
            app.command(verb, short_help=short)(_elsewhere)
            continue
        found = getattr(import_module(f"avo.cli.{module}"), module)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb, short_help=short, epilog=EPILOG)
        else:
            app.command(verb, short_help=short, epilog=EPILOG)(found)
    return app


def _elsewhere() -> None:
    """Stands for a verb that is not the one called."""


def _version(wanted: bool) -> None:
    if wanted:
        import avo

        typer.echo(f"avo {avo.__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit. Known trouble is one message on stderr; the unknown says that it is a bug."""
    # NumPy's products here are small and run beside busy workers: a second thread for them costs seven times the work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if argv is None:  # a process of its own: what its start builds is no garbage, and looking for some takes a tenth
        atexit.register(_end)  # the first to be registered runs last
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)  # nor is what it leaves: with torch loaded the last look takes a second
        _show_anything()
    args = _asked_for_help(_optional_values(list(sys.argv[1:] if argv is None else argv)))
    debug = "--debug" in args[: args.index("--")] if "--" in args else "--debug" in args
    if debug:  # accepted anywhere, as people add it at the end of the line that failed
        args = ["--debug", *[a for a in args if a != "--debug"]]
    try:
        if not args:
            args = ["--help"]
        verb = next((a for a in args if not a.startswith("-")), "")
        code = build(verb)(args, prog_name="avo", standalone_mode=False) or 0
        if code == 130:
            print("stopped", file=sys.stderr)
        _leave(code)
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # the option parser answers it with 1
            _cut_off()
        from avo.cli.trouble import of_a_plugin

        if said := of_a_plugin(done):  # sys.exit() in a person's file: its code would be taken for ours
            from avo.cli.console import warn

            warn(said)
            _leave(2)
        _leave(done.code if isinstance(done.code, int) else 1 if done.code else 0)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        _leave(130)
    except BrokenPipeError:  # `avo report | head`
        _cut_off()
    except Exception as error:
        from avo.cli.console import warn
        from avo.cli.trouble import explain
        from avo.cli.usage import explain_usage, is_usage

        if is_usage(error):
            warn(explain_usage(error, list(VERBS)))
            _leave(2)
        if debug:
            raise
        code, message = explain(error)
        warn(message)
        _leave(code)
    _leave(0)


_code = 1  # what a process of ours ends with, as far as is known


def _show_anything() -> None:
    """What a terminal or a pipe has no character for stands as `\\u2212`, which JSON reads as the same."""

    def escaped(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4)), error.end

    codecs.register_error("avo", escaped)
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        # In the C locale Python writes UTF-8 and lets a path's bytes out as they came in, which is right.
        if stream.errors != "surrogateescape" or codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="avo")


def _leave(code: int) -> NoReturn:
    global _code
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _cut_off()
    _code = code
    raise SystemExit(code)


def _end() -> None:
    """Triton, which PyTorch's decompositions load, prints a page about itself when Python takes its modules apart."""
    if "triton" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(_code)


def _cut_off() -> NoReturn:
    """Whoever read our output has gone: left in silence, with what a shell reports of a program that SIGPIPE ended."""
    sys.stdout = sys.__stdout__  # the option parser has wrapped it
    void = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what is still buffered goes there
        if stream is not None:
            os.dup2(void, stream.fileno())
    global _code
    _code = 141
    raise SystemExit(141)


def _asked_for_help(args: list[str]) -> list[str]:
    """`--help` is no value of an option: wherever it stands, the verb's help is what is wanted."""
    own = args[: args.index("--")] if "--" in args else args
    if not {"-h", "--help"} & set(own):
        return args
    words = [a for a in own if a != "--debug"]
    first = next(place for place, a in enumerate(words) if a.startswith("-"))
    return [*words[:first], "--help"]


def _optional_values(args: list[str]) -> list[str]:
    """`--resume` and `--join` may stand without a value and then mean the last run; the option parser knows no such."""
    found = []
    for place, arg in enumerate(args):
        found.append(arg)
        following = args[place + 1] if place + 1 < len(args) else "-"
        if arg in ("--resume", "--join") and following.startswith("-"):
            found.append("last")
    return found
