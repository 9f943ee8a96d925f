"""The name and the text under which a program is kept."""

from __future__ import annotations

import hashlib


def named(text: str) -> tuple[str, str]:
    """(digest, text) of a program: canonical where it parses, so that equal programs have equal texts; else as it is.

    What does not parse, or is no program of the language, is named by a hash of its bytes.
    """
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.printer import digest, print_program

    try:
        program = parse(text)
        return digest(program), print_program(program)
    except (ProgramError, RecursionError):
        return hashlib.sha256(b"avo raw text\n" + text.encode("utf-8", "surrogatepass")).hexdigest()[:16], text
