"""Exponentials of which some come from a polynomial on the multiply-adds: `exponent poly(N)`.

PTX over neighbouring elements of a thread, so that no element is computed both ways and nothing moves. A thread has two
neighbouring columns of a row, the same of the row eight below, and so on eight columns further. The polynomial takes
odd columns, as in the other lowering, here in every second block of eight columns for 4 and in every fourth for 8.
"""

from __future__ import annotations

import struct

from dsl.lowering.text import MAGIC
from dsl.polynomial import COEFFICIENTS, HIGHEST, LOWEST

CHOSEN = {2: (2, (1,)), 4: (8, (5, 7)), 8: (16, (13, 15))}  # share -> (elements at once, which of them)


def _float(x: float) -> str:
    """As PTX spells it."""
    return f"0f{struct.pack('>f', x).hex().upper()}"


def _function(share: int, below: bool) -> str:
    pack, chosen = CHOSEN[share]
    c1, c2, c3 = COEFFICIENTS
    whole = _float(MAGIC + 127)
    lines = []
    for i in range(pack):
        if i not in chosen:
            lines.append(f"ex2.approx.ftz.f32 ${i}, ${pack + i}; ")
            continue
        high = "" if below else f"min.NaN.f32 x, x, {_float(HIGHEST)}; "
        lines += [
            f"{{ .reg .f32 x, n, f, p; max.NaN.f32 x, ${pack + i}, {_float(LOWEST)}; {high}",
            f"add.f32 n, x, {whole}; sub.f32 f, n, {whole}; sub.f32 f, x, f; ",
            f"fma.rn.f32 p, f, {_float(c3)}, {_float(c2)}; fma.rn.f32 p, p, f, {_float(c1)}; ",
            f"fma.rn.f32 p, p, f, {_float(1.0)}; .reg .b32 s; mov.b32 s, n; shl.b32 s, s, 23; mov.b32 x, s; ",
            f"mul.f32 ${i}, p, x; }} ",
        ]
    words = ",".join(["=f"] * pack + ["f"] * pack)
    name = called(share, below)
    return "\n".join(
        [
            f"def {name}(x):",
            f'    """2**x, one of every {share} elements by polynomial: 2**n p(x - n), n whole."""',
            "    return gl.inline_asm_elementwise(",
            *(f'        "{x}"' for x in lines[:-1]),
            f'        "{lines[-1]}",',
            f'        "{words}",',
            "        [x],",
            "        dtype=gl.float32,",
            "        is_pure=True,",
            f"        pack={pack},",
            "    )",
        ]
    )


def called(share: int, below: bool) -> str:
    """The function's name. `below`: no exponent can be so large that the polynomial would wrap around."""
    return f"exp2_one_in_{share}{'' if below else '_bounded'}"


SHARED = {called(s, b): _function(s, b) for s in CHOSEN for b in (True, False)}
