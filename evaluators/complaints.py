"""What a compiler complains of, heard and told: from exceptions and the noise on stderr to a few lines for a person."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator

MOST_LINES = 12


@contextlib.contextmanager
def heard() -> Iterator[Callable[[], str]]:
    """Gives a function that returns what was written to stderr so far: MLIR and LLVM complain there, from C++."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)

        def told() -> str:
            sys.stderr.flush()
            file.seek(0)
            return file.read(1 << 20).decode("utf-8", "replace")

        try:
            yield told
        finally:
            text = told()
            os.dup2(kept, 2)
            os.close(kept)
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(text[-4096:])


def clean_error(error: BaseException, told: str, source: str) -> str:
    """The lines of a compiler's complaint that tell a person something: no traceback, no paths, no dump of the IR.

    Triton's front end gives the place in the source and the reason; the passes and ptxas complain on stderr (`told`).
    """
    placed = None
    while True:  # from the kernel down to the function that it calls, and to what went wrong there
        if getattr(error, "node", None) is not None and isinstance(getattr(error, "src", None), str):
            placed = error
        if error.__cause__ is None:
            break
        error = error.__cause__
    message = str(error)
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    if placed is not None:
        # The front end's message is the place, the source down to a caret, then the reason.
        carets = [i for i, line in enumerate(lines) if re.fullmatch(r"\s*\^", line)]
        reasons = lines[carets[-1] + 1 :] if carets else lines
        function, row = placed.src, placed.node.lineno  # type: ignore[attr-defined]
        first = source[: max(0, source.find(function))].count("\n")
        code = (function.splitlines()[row - 1 : row] or [""])[0].strip()
        lines = [f"line {first + row}: {code}", *(reasons or [type(error).__name__])]
    elif telling := telling_lines(f"{told}\n{message}"):
        lines = telling
    lines = [re.sub(r"(/[\w.+-]+)+/([\w.+-]+)", r"\2", line.strip()) for line in lines]
    if isinstance(error, AssertionError) and not lines:
        lines = ["an assertion of the compiler failed"]
    return "\n".join(line[:400] for line in lines[:MOST_LINES]) or f"the compiler refused: {error!r}"


def telling_lines(text: str) -> list[str]:
    """Distinct lines with an error in them."""
    marks = re.compile(
        r"\berror\b|\bfatal\b|LLVM ERROR|Assertion|out of resource|not supported|unsupported", re.IGNORECASE
    )
    lines = [line.strip() for line in text.splitlines() if marks.search(line) and "#loc" not in line]
    return list(dict.fromkeys(line for line in lines if not line.startswith(("Fatal Python error", "#"))))
