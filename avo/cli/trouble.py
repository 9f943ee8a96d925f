"""From an exception to the exit code and the one message that a person reads."""

from __future__ import annotations

import errno
import sys

from avo.errors import HarnessUnavailable, UserMistake

REJECTED, MISTAKE, UNAVAILABLE = 1, 2, 3

# What the machine does to an archive, rather than the person: (SQLite's names).
_MACHINE = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR")

# What the operating system says no to, and what to do.
_LACKS = {
    errno.ENOSPC: ("the disk is full", "free some space and try again"),
    errno.EDQUOT: ("the disk quota is used up", "free some space and try again"),
    errno.EROFS: ("the file system is read-only", "write somewhere else"),
    errno.EMFILE: ("too many files are open", "raise `ulimit -n` and try again"),
    errno.ENFILE: ("too many files are open on this machine", "try again when less runs"),
    errno.ENOMEM: ("there is not enough memory", "try again when less runs"),
    errno.EIO: ("the disk cannot be read or written", "look at the machine's log"),
}

# module, class -> exit code. A class of a module that was never loaded cannot be the cause, so none is imported here.
_KNOWN: tuple[tuple[str, str, int], ...] = (
    ("dsl.diagnostics", "ProgramError", REJECTED),
    ("dsl.hardware", "UnknownHardware", MISTAKE),
    ("evaluators.target", "TargetError", MISTAKE),
    ("evaluators.device", "NoDevice", MISTAKE),
    ("evaluators.failures", "Unavailable", UNAVAILABLE),
    ("evaluators.failures", "WorkerFailure", REJECTED),
    ("archive.errors", "Held", UNAVAILABLE),
    ("archive.errors", "ArchiveError", MISTAKE),
)


def explain(error: BaseException) -> tuple[int, str]:
    """(exit code, message) of any exception."""
    if isinstance(error, UserMistake):
        return MISTAKE, f"error: {error}"
    if isinstance(error, HarnessUnavailable):
        return UNAVAILABLE, f"unavailable: {error}"
    if isinstance(error, OSError) and (said := _of_the_machine(error)):
        return UNAVAILABLE, f"unavailable: {said}"
    for module, name, code in _KNOWN:
        loaded = sys.modules.get(module)
        kind = getattr(loaded, name, None) if loaded is not None else None
        if kind is None or not isinstance(error, kind):
            continue
        if name == "ArchiveError" and _machine(error):
            code = UNAVAILABLE
        if code == REJECTED:
            return code, str(error)
        return code, f"{'error' if code == MISTAKE else 'unavailable'}: {error}"
    told = of_a_plugin(error)
    if told:
        return MISTAKE, told
    kind_name = f"{type(error).__module__}.{type(error).__name__}"
    # The harness failed: neither the candidate nor the person did.
    return UNAVAILABLE, (
        f"this is a bug in avo: {kind_name}: {error}\n"
        "Run it again with --debug for the traceback, and report it with the output of `avo doctor --json`."
    )


def _of_the_machine(error: OSError) -> str:
    """What the machine lacks and what to do; "" where that is not known to be the reason."""
    if isinstance(error, FileNotFoundError) and "No usable temporary directory" in str(error):
        return "there is no folder for temporary files; set TMPDIR to one that can be written to"
    lack = _LACKS.get(error.errno or 0)
    if lack is None:
        return ""
    where = f" ({error.filename})" if error.filename else ""
    return f"{lack[0]}{where}; {lack[1]}"


def of_a_plugin(error: BaseException) -> str:
    """The message for what was raised inside a person's own target, agent or evaluator; "" for anything else."""
    plugins = sys.modules.get("avo.plugins")
    foreign: set[str] = getattr(plugins, "FOREIGN", set())
    place = ""
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in foreign:
            place = f"{frame.f_code.co_filename}, line {step.tb_lineno}"
        step = step.tb_next
    if not place:
        return ""
    note = "".join(f" ({n})" for n in getattr(error, "__notes__", ()))
    said = _fields(error) or str(error) or "no message"
    return f"error: {place} raised {type(error).__name__}: {said}{note}; with --debug it shows the traceback"


def _fields(error: BaseException) -> str:
    """What pydantic found wrong with the fields of an object, in one line; "" of any other exception."""
    loaded = sys.modules.get("pydantic")
    if loaded is None or not isinstance(error, loaded.ValidationError):
        return ""
    said = [f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg'][:1].lower()}{e['msg'][1:]}" for e in error.errors()]
    return f"{error.title}: {'; '.join(said)} (docs/reference.md lists the fields)"


def _machine(error: BaseException) -> bool:
    cause = error.__cause__
    name = getattr(getattr(cause, "orig", None) or cause, "sqlite_errorname", "") or ""
    return name.startswith(_MACHINE)
