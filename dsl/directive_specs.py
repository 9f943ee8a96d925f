"""What the knob table is made of: a directive, its items, and the words and numbers that an item may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dsl.anatomy import Anatomy
from dsl.hardware import Hardware

ForChip = Callable[[Hardware], str]  # "" where the chip has it, else why not
ForKernel = Callable[[Anatomy], str]  # "" where it means something for the kernel, else why not

POWERS = tuple(2**i for i in range(16))


def any_chip(hw: Hardware) -> str:
    return ""


def any_kernel(kernel: Anatomy) -> str:
    return ""


@dataclass(frozen=True)
class Choice:
    """A word that an item may be. `argument`: what it takes in parentheses: nothing, a number of `numbers`, an axis."""

    word: str
    doc: str
    argument: Literal["", "number", "axis"] = ""
    numbers: tuple[int, ...] = ()
    chip: ForChip = any_chip
    kernel: ForKernel = any_kernel
    lowered: bool = True

    @property
    def form(self) -> str:
        return {"": self.word, "number": f"{self.word}(N)", "axis": f"{self.word}(AXIS)"}[self.argument]


@dataclass(frozen=True)
class Slot:
    """One item of a directive. `key` "" is by position, "AXIS" stands for any axis of the kernel.

    names: the item is a name: of an axis, a tensor or a bool of the program; `many` takes all that follow. size: bytes.
    default: what holds where the item is absent; None: the item must be there (where the directive is).
    """

    key: str
    doc: str
    choices: tuple[Choice, ...] = ()
    numbers: tuple[int, ...] = ()
    names: Literal["", "axis", "tensor", "bool"] = ""
    many: bool = False
    size: bool = False
    default: int | str | None = None

    @property
    def form(self) -> str:
        """`stages=N`, `AXIS...`, `pointer | tma`: for documents and messages."""
        words = [c.form for c in self.choices]
        if self.numbers:
            words.insert(0, "N")
        if self.names:
            words.insert(
                0, {"axis": "AXIS", "tensor": "TENSOR", "bool": "NAME"}[self.names] + ("..." if self.many else "")
            )
        if self.size:
            words.insert(0, "SIZE")
        value = " | ".join(words)
        return value if not self.key else f"{self.key}={value}"


@dataclass(frozen=True)
class DirectiveSpec:
    """One directive. `lowered`: who follows it: every lowering, only the one that gives warps roles (elsewhere checks
    say so and plain code results), or none yet (lowering refuses)."""

    name: str
    doc: str
    slots: tuple[Slot, ...]
    chip: ForChip = any_chip
    kernel: ForKernel = any_kernel
    scope: Literal["kernel", "pipeline"] = "kernel"
    lowered: Literal["yes", "roles", "refused"] = "yes"

    @property
    def form(self) -> str:
        """`stream AXIS stages=N`."""
        return " ".join((self.name, *(s.form if s.default is None else f"[{s.form}]" for s in self.slots)))

    def slot(self, key: str) -> Slot | None:
        """The slot of a key; for a directive over axes, of any key."""
        return next((s for s in self.slots if s.key and s.key in (key, "AXIS")), None)

    @property
    def positional(self) -> tuple[Slot, ...]:
        return tuple(s for s in self.slots if not s.key)
