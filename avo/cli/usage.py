"""A command line that cannot be read, in the words of the other messages: what was wrong, what is legal, what to do."""

from __future__ import annotations

from typing import Any

from avo.errors import unfit, unknown


def is_usage(error: BaseException) -> bool:
    """Whether the option parser, whose classes are not public, refused the command line."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def explain_usage(error: Any, verbs: list[str]) -> str:
    """The message of a refused command line. verbs: those that there are."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "avo"
    return f"error: {_problem(error, context, command, verbs)}\n{command} --help shows how it is called"


def _problem(error: Any, context: Any, command: str, verbs: list[str]) -> str:
    parameter = getattr(error, "param", None)
    said = str(error.message)
    match type(error).__name__:
        case "NoSuchOption":
            known = [o for p in context.command.params for o in p.opts if o.startswith("--")] if context else []
            return unknown(f"option of {command}:", error.option_name, [*known, "--help"])
        case "MissingParameter" if parameter is not None:
            what = getattr(parameter, "help", "") or ""
            return f"{command} needs {_name(parameter)}" + (
                f": {what[:1].lower()}{what[1:].rstrip('.')}" if what else ""
            )
        case "BadParameter" if parameter is not None:
            return _value(error, _name(parameter))
        case "BadOptionUsage":
            return f"{error.option_name} needs a value"
    if said.startswith("No such command"):
        word = said.split("'")[1]
        if word == "load":
            return (
                "load is of Python: avo.load('1/17') is a candidate as a function; `avo export` writes it as a package"
            )
        return unknown("verb", word, verbs)
    if said.startswith("Got unexpected extra argument"):
        return (
            f"{command} takes no more arguments, got {said.partition('(')[2].rpartition(')')[0].removeprefix('s) (')}"
        )
    return said[:1].lower() + said[1:].rstrip(".")


def _name(parameter: Any) -> str:
    """`--steps`, or the name of an argument as the help shows it."""
    longest: str = max(parameter.opts, key=len)
    return longest if longest.startswith("-") else str(parameter.metavar or longest.upper()).strip("[]{}")


def _value(error: Any, name: str) -> str:
    """What a value should have been."""
    said = str(error.message).removeprefix("Value error, ").rstrip(".")
    if "is not one of" in said:
        choices = [c.strip().strip("'") for c in said.partition("is not one of")[2].split(",")]
        return unknown(f"value of {name}:", said.split("'")[1], choices)
    reasons = getattr(error.__cause__, "errors", None)
    return unfit(name, reasons()[0]) if callable(reasons) else f"{name}: {said[:1].lower()}{said[1:]}"
