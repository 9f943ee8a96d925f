"""What cannot be true of a chip that somebody describes in a plug-in or a file, told before a time follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from numbers import Integral, Real

from dsl.diagnostics import nearest
from dsl.hardware import HARDWARE, Hardware

_TEXTS = ("name", "title", "arch")
_VENDORS = ("nvidia", "amd", "cpu")
_COUNTS = (
    "warp_size", "sms", "hbm_bytes", "l2_bytes", "shared_bytes", "shared_bytes_sm", "registers_sm", "registers_thread",
    "max_threads_sm", "max_blocks_sm", "dies",
)  # fmt: skip
_RATES = ("clock_hz", "alu_flops", "exp_per_s", "hbm_bytes_per_s", "l2_bytes_per_s")
_MAY_BE_ZERO = ("launch_s", "memory_cache_bytes")
DTYPES = frozenset(d for chip in HARDWARE.values() for d in (*chip.peak_flops, *chip.dtypes, *chip.emulated))


def faults(chip: Hardware) -> list[str]:
    """`sms is '132'; it wants a whole number above 0`, for every field that cannot be so; empty where all can."""
    return list(_faults(chip))


def _faults(chip: Hardware) -> Iterator[str]:
    for key in _TEXTS:
        value = getattr(chip, key)
        if not isinstance(value, str) or not value:
            yield f"{key} is {value!r}; it wants a text"
    if chip.vendor not in _VENDORS:
        yield f"vendor is {chip.vendor!r}; legal: {', '.join(_VENDORS)}"
    if not isinstance(chip.aliases, tuple) or not all(isinstance(a, str) for a in chip.aliases):
        yield f"aliases is {chip.aliases!r}; it wants a tuple of texts"
    if isinstance(chip.triton_arch, bool) or not isinstance(chip.triton_arch, int | str | None):
        yield f"triton_arch is {chip.triton_arch!r}; it wants what Triton's GPUTarget takes (90, 'gfx942') or None"
    speed = chip.vendor != "cpu"
    for key in (*_COUNTS, *_RATES, *_MAY_BE_ZERO):
        value = getattr(chip, key)
        whole = key not in (*_RATES, "launch_s")
        positive = speed and key not in _MAY_BE_ZERO
        if not _number(value, whole) or (value <= 0 if positive else value < 0):
            kind = "whole number" if whole else "finite number"
            yield f"{key} is {value!r}; it wants a {kind} {'above 0' if positive else 'of at least 0'}"
    yield from _dtypes(chip)


def _dtypes(chip: Hardware) -> Iterator[str]:
    if not isinstance(chip.peak_flops, Mapping):
        yield f"peak_flops is {chip.peak_flops!r}; it wants a mapping of dtype to FLOP/s"
        return
    for dtype, peak in chip.peak_flops.items():
        if not _number(peak, False) or peak <= 0:
            yield f"peak_flops[{dtype!r}] is {peak!r}; it wants a finite number above 0"
    for key, named in (("peak_flops", chip.peak_flops), ("dtypes", chip.dtypes), ("emulated", chip.emulated)):
        if key != "peak_flops" and not isinstance(named, frozenset):
            yield f"{key} is {named!r}; it wants a frozenset of dtypes"
            continue
        for dtype in named:
            if dtype not in DTYPES:
                near = nearest(str(dtype), sorted(DTYPES))
                hint = f"; did you mean '{near}'?" if near else ";"
                yield f"{key} names {dtype!r}{hint} legal: {', '.join(sorted(DTYPES))}"
    if chip.vendor != "cpu" and "f16" not in chip.peak_flops:
        yield "peak_flops has no 'f16'; every chip's matrix units take it, and what is emulated runs as it"


def _number(value: object, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        return False
    return math.isfinite(value)
