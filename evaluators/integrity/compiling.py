"""What is said of a candidate that raised: that a compiler refused its kernel is another fault than a wrong answer.

In the candidate's process, which says what it likes: it chooses between statuses that are all refusals.
"""

from __future__ import annotations

import traceback

from evaluators.evaluation import Status

# The first word of what the process says, and what the parent makes of it.
REFUSED, TOO_LARGE = "CompilationError", "OutOfResources"
FAULTS = {REFUSED: Status.COMPILE_ERROR, TOO_LARGE: Status.RESOURCE}
# Where Triton compiles: by file, the functions; none stands for all.
_COMPILING: dict[str, tuple[str, ...]] = {
    "triton/compiler/code_generator.py": (),
    "triton/compiler/compiler.py": ("compile", "make_ir", "hash"),
    "triton/runtime/jit.py": ("_do_compile", "cache_key"),
}


def complaint(error: BaseException, path: str) -> str:
    """The place in the source and what went wrong there; of a kernel that a compiler refused the reason, and the line
    of its text."""
    from evaluators.cpu import _complaint

    if TOO_LARGE in _of_triton(error):
        return f"{TOO_LARGE}: {error}"
    if not is_compiling(error):
        return _complaint(error, path)
    inner = error
    while inner.__cause__ is not None and REFUSED in _of_triton(inner.__cause__):  # a function that a kernel calls
        inner = inner.__cause__
    said = getattr(inner, "error_message", None) or inner.__cause__ or inner
    return f"{REFUSED}: {' '.join(str(said).split())[:600]}{_line(inner)}"


def _line(error: BaseException) -> str:
    """Of the kernel, whose own text is all that the compiler knows."""
    number, text = getattr(getattr(error, "node", None), "lineno", None), getattr(error, "src", None)
    if not isinstance(number, int) or not isinstance(text, str):
        return ""
    lines = text.splitlines()
    return f", at {lines[number - 1].strip()[:120]}" if 0 < number <= len(lines) else ""


def _of_triton(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("triton.")}


def is_compiling(error: BaseException) -> bool:
    """Whether a compiler raised it, or what led to it."""
    if _of_triton(error) & {REFUSED, "PTXASError"}:
        return True
    for frame in traceback.extract_tb(error.__traceback__):
        for end, functions in _COMPILING.items():
            if frame.filename.endswith(end) and (not functions or frame.name in functions):
                return True
    return False


def of_compilers(error: BaseException) -> bool:
    """Whether Triton's compilers raised it, of an option say, and not glue that needs memory."""
    places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return any("triton/compiler/" in place or "triton/backends/" in place for place in places)
