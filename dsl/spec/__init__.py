"""The language on one page, for a reader who has nothing else: a person, or a model in its context.

`spec()` is the whole page; `narrowed(...)` what is legal for one program on one chip. Tables and grammar are generated.
"""

from __future__ import annotations

from importlib import resources

from dsl.hardware import Hardware
from dsl.printer import LANGUAGE_VERSION
from dsl.spec.narrow import narrowed
from dsl.spec.pages import WIDTH, filled
from dsl.spec.programs import ATTENTION, PIPELINE, QUANTISED
from dsl.spec.tables import tables

__all__ = ["MAX_LINES", "MAX_TOKENS", "MAX_TOKENS_NARROWED", "WIDTH", "narrowed", "spec"]

MAX_LINES, MAX_TOKENS, MAX_TOKENS_NARROWED = 170, 4500, 2500  # tokens of o200k_base


def spec(hw: Hardware | None = None) -> str:
    """The whole language, on every chip or with what one has: at most MAX_LINES lines of WIDTH, MAX_TOKENS tokens."""
    programs = {"attention": ATTENTION, "pipeline": PIPELINE, "quantised": QUANTISED}
    values = {**tables(hw), **{k: v.rstrip("\n") for k, v in programs.items()}, "version": str(LANGUAGE_VERSION)}
    return filled((resources.files("dsl.spec") / "text.md").read_text(encoding="utf-8"), values)
