"""What the machine code says: registers, spills, shared memory, occupancy, instruction mix, and whether a chip runs it.

Pure text in, facts out: nothing here imports torch or triton. The compiler itself does not check a chip's limits, so
`check_fits` does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from dsl.hardware import Hardware

_RESERVED_SHARED = 1024  # what CUDA takes of shared memory for each block from sm_80 on (CUDA C++ Programming Guide)
_TENSOR_MEMORY_COLUMNS = 512  # of one SM of sm_100 (PTX ISA, tensor memory)
_REGISTER_STEP = 8  # registers of a thread are given out in eights: 256 a warp (CUDA occupancy rules), 8 a wave (LLVM)
_PARTITIONS = 4  # register files of an SM or a compute unit; a warp lives in one of them
_MAX_THREADS_BLOCK = 1024


class MachineCode(BaseModel):
    """One kernel, compiled for one chip. Counts are static: instructions in the text, not instructions executed.

    registers: 32-bit vector registers a thread (AMD: VGPRs with AGPRs). spills: 32-bit words of local (scratch) memory
    a thread, as Triton's `n_spills` counts them. scalar_registers, scalar_spills: AMD's SGPRs. shared_bytes: of one
    block. tensor_memory_columns: of sm_100's 512. threads: of one block, the compiler's own warps included.
    occupancy_blocks: resident blocks per SM (compute unit); occupancy: resident threads over the most there can be;
    occupancy_limit: "registers", "shared memory", "threads", "blocks", "tensor memory"; 0 blocks do not fit at all.
    instructions: class -> count, see `CLASSES`; the classes' sum is the number of instructions. matrix: full name of
    each matrix instruction -> count. loops: the instruction classes within each loop, in the order of the text,
    inner and outer ones alike. texts: what was asked for by `emit`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: str
    arch: str
    compiler: str
    registers: int
    spills: int
    shared_bytes: int
    threads: int
    code_bytes: int
    scalar_registers: int = 0
    scalar_spills: int = 0
    tensor_memory_columns: int = 0
    occupancy_blocks: int = 0
    occupancy: float = 0.0
    occupancy_limit: str = ""
    instructions: dict[str, int] = Field(default_factory=dict)
    matrix: dict[str, int] = Field(default_factory=dict)
    loops: tuple[dict[str, int], ...] = ()
    texts: dict[str, str] = Field(default_factory=dict)


# -- what instructions there are ---------------------------------------------------------------------------------------

MATRIX_CLASSES = ("mma.sync", "wgmma", "tcgen05.mma", "mfma", "wmma")

# class -> pattern of a SASS opcode without its modifiers. The first that matches whole counts.
_SASS = {
    "mma.sync": r"[HIQODB]MMA",
    "wgmma": r"[HIQB]GMMA",
    "tcgen05.mma": r"UTC[A-Z]*MMA",
    "ffma2": r"FFMA2",
    "fmul2": r"FMUL2",
    "fadd2": r"FADD2",
    "ffma": r"FFMA\d*I?",
    "fmul": r"FMUL\d*I?",
    "fadd": r"FADD\d*I?",
    "fmnmx": r"FMNMX3?|FMNMX2",
    "fcmp": r"FSEL|FSET|FSETP|FCHK|FSWZADD",
    "half": r"H(ADD|MUL|FMA|MNMX|SET|SETP)2?.*",
    "double": r"D(ADD|MUL|FMA|SETP|MNMX)",
    "cvt": r"F2FP?|F2IP?|I2FP?|I2IP?|F2F|FRND",
    "tma": r"UTMA(LDG|STG|REDG|PF)|UBLK(CP|RED|PF)",
    "cp.async": r"LDGSTS",
    "ldg": r"LDG|LD|LDC?TL",
    "stg": r"STG|ST",
    "ldsm": r"LDSM",
    "stsm": r"STSM",
    "lds": r"LDS",
    "sts": r"STS",
    "ldl": r"LDL",
    "stl": r"STL",
    "tmem": r"LDTM|STTM|UTC(CP|SHIFT|ATOMSWS)",
    "atom": r"ATOM[GS]?|RED[GS]?|ATOMG",
    "shfl": r"SHFL|MOVM|REDUX|CREDUX",
    "bar": r"U?BAR|WARPSYNC|WARPGROUP(SET)?|DEPBAR|LDGDEPBAR|UTCBAR|MEMBAR|FENCE|UTMACMDFLUSH|CCTL|ERRBAR",
    "mbarrier": r"SYNCS|ARRIVES|NANOSLEEP",
    "branch": r"BRA|BRX|JMP|JMX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|BMOV|BPT|KILL|YIELD|PLOP3|VOTEU?|ELECT|R2P|P2R|PSETP",
    "uniform": r"U[A-Z0-9]+|R2UR|S2UR|LDCU|REDUX",
    "mov": r"MOV|CS2R|S2R|SEL|PRMT|LDC|MOV32I|R2B|B2R|ACQBULK|GETLMEMBASE",
    "int": r"I(ADD|MAD|MUL|SETP|SET|ABS|MNMX|DP)[0-9A-Z]*|LOP3?|SHF|SHL|SHR|LEA|BREV|FLO|POPC|BMSK|SGXT|VI.*|XMAD",
    "nop": r"NOP",
}
_AMD = {
    "mfma": r"v_s?mfmac?_.*",
    "wmma": r"v_s?wmmac?_.*",
    "ex2": r"v_exp_.*",
    "mufu": r"v_(rcp|rsq|sqrt|log|sin|cos|tanh)_.*",
    "ffma2": r"v_pk_fma_f32",
    "fmul2": r"v_pk_mul_f32",
    "fadd2": r"v_pk_add_f32",
    "ffma": r"v_(fma|fmac|fmaak|fmamk|mad|mac|div_fmas|div_fixup|div_scale)_f32.*",
    "fmul": r"v_(mul|ldexp|mul_legacy)_f32.*",
    "fadd": r"v_(add|sub|subrev)_f32.*",
    "fmnmx": r"v_(max|min|max3|min3|med3|maximum|minimum|maximum3|minimum3|pk_max|pk_min).*_f32.*",
    "double": r"v_(add|mul|fma|max|min|ldexp|div_[a-z]+|cmpx?_[a-z]+)_f64.*",
    "fcmp": r"v_(cmpx?_[a-z]+|cndmask)_(f32|f16|b32).*",
    "half": r"v_(pk_)?(add|mul|fma|fmac|max|min|sub|dot[0-9a-z_]*|mad|max3|min3)_(b?f16|f16_b?f16|f32_f16).*|v_dot.*",
    "cvt": r"v_cvt_.*|v_rndne_.*|v_trunc_.*|v_floor_.*|v_ceil_.*|v_fract_.*",
    "cp.async": r"(global|buffer)_load_lds.*",
    "ldg": r"(global|buffer|flat|tbuffer)_load_.*",
    "stg": r"(global|buffer|flat|tbuffer)_store_.*",
    "ldl": r"scratch_load_.*",
    "stl": r"scratch_store_.*",
    "shfl": r"ds_(bpermute|permute|swizzle)_.*|v_permlane.*|v_mov_b32_dpp.*",
    "lds": r"ds_(read|load)_?.*",
    "sts": r"ds_(write|store)_?.*",
    "atom": r"(global|buffer|flat|ds)_(atomic|add|max|min|cmpst).*",
    "bar": r"s_barrier.*|s_waitcnt.*|s_wait_.*|s_setprio|s_sleep|buffer_(inv|wbl2|gl\d_inv).*|s_wakeup",
    "branch": r"s_(c?branch.*|endpgm.*|setpc.*|swappc.*|getpc.*|call.*)",
    "nop": r"s_nop|v_nop|s_code_end",
    "mov": r"v_(mov|accvgpr|readlane|writelane|readfirstlane|perm|swap|pk_mov|bfi).*",
    "uniform": r"s_.*",
    "int": r"v_.*",
}
_PTX_EX2 = "ex2"
CLASSES = tuple(dict.fromkeys((*_SASS, _PTX_EX2, "mufu", *_AMD, "other")))


def _table(patterns: Mapping[str, str]) -> list[tuple[str, re.Pattern[str]]]:
    return [(name, re.compile(pattern)) for name, pattern in patterns.items()]


_SASS_TABLE, _AMD_TABLE = _table(_SASS), _table(_AMD)


@dataclass(frozen=True)
class Instruction:
    """`name`: with its modifiers, "HGMMA.64x128x16.F32.BF16". `target`: where a branch goes, in the unit of `at`."""

    at: int
    name: str
    kind: str
    target: int | None = None
    always: bool = True  # a branch that is not conditional


def _kind(opcode: str, table: Iterable[tuple[str, re.Pattern[str]]]) -> str:
    return next((kind for kind, pattern in table if pattern.fullmatch(opcode)), "other")


_SASS_LINE = re.compile(
    r"^\s*/\*([0-9a-f]{4,6})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9]*(?:\.[A-Za-z0-9_]+)*)([^;]*);", re.MULTILINE
)


def read_sass(text: str) -> list[Instruction]:
    """The instructions of a `cuobjdump -sass` listing, without the padding behind the last one."""
    kinds: dict[str, str] = {}
    found = []
    for match in _SASS_LINE.finditer(text):
        at, predicate, name, operands = int(match[1], 16), match[2], match[3], match[4]
        if name not in kinds:
            opcode, _, modifiers = name.partition(".")
            kinds[name] = (
                ("ex2" if modifiers.startswith("EX2") else "mufu") if opcode == "MUFU" else _kind(opcode, _SASS_TABLE)
            )
        target = None
        if name.startswith("BRA") and (goal := re.search(r"0x([0-9a-f]+)\s*$", operands)):
            target = int(goal[1], 16)
        always = predicate is None and not re.search(r"\bU?P\d", operands)
        found.append(Instruction(at, name, kinds[name], target, always))
    while found and found[-1].kind == "nop":
        found.pop()
    if found and found[-1].target == found[-1].at:  # the branch to itself that ends every kernel
        found.pop()
    return found


_AMD_LINE = re.compile(r"^(?:([.\w$]+):|[ \t]+([a-z]\w+)(?:[ \t]+([^;\n]*))?)", re.MULTILINE)


def read_amdgcn(text: str) -> list[Instruction]:
    """The instructions of the first function of an AMDGCN assembly text, counted from 0."""
    kinds: dict[str, str] = {}
    labels: dict[str, int] = {}
    rows: list[tuple[str, str]] = []
    for match in _AMD_LINE.finditer(text.partition("s_code_end")[0].partition(".Lfunc_end0")[0]):
        if match[1]:
            labels[match[1]] = len(rows)
        elif match[2]:
            rows.append((match[2], (match[3] or "").strip()))
    found = []
    for at, (name, operands) in enumerate(rows):
        if name not in kinds:
            kinds[name] = _kind(name, _AMD_TABLE)
        kind = "cp.async" if kinds[name] == "ldg" and re.search(r"\blds\b", operands) else kinds[name]
        is_branch = name.startswith(("s_cbranch", "s_branch"))
        target = labels.get(operands) if is_branch else None
        found.append(Instruction(at, name, kind, target, not name.startswith("s_cbranch")))
    return found


def find_loops(code: list[Instruction]) -> tuple[dict[str, int], ...]:
    """Instruction classes of each loop: of the text between the target of a backward branch and that branch.

    A wait is a loop too, of a few instructions, often behind the kernel's end with a jump back; those are left out.
    """
    places = {instruction.at: i for i, instruction in enumerate(code)}
    last_exit = max((i for i, c in enumerate(code) if c.name.startswith("EXIT") and c.always), default=len(code))
    ends: dict[int, int] = {}
    for i, instruction in enumerate(code[:last_exit]):
        start = places.get(instruction.target) if instruction.target is not None else None
        if start is None or start > i or i - start < 16:
            continue
        before = code[i - 1]
        spin = places.get(before.target) if before.target is not None else None
        if instruction.always and spin is not None and 0 <= i - spin <= 4:
            continue
        ends[start] = max(i, ends.get(start, 0))
    return tuple(mix(code[start : end + 1]) for start, end in sorted(ends.items()))


def mix(code: Iterable[Instruction]) -> dict[str, int]:
    """class -> count, most frequent first."""
    return dict(Counter(instruction.kind for instruction in code).most_common())


def matrix_instructions(code: Iterable[Instruction]) -> dict[str, int]:
    return dict(Counter(c.name for c in code if c.kind in MATRIX_CLASSES).most_common())


# -- what a chip can hold ----------------------------------------------------------------------------------------------


def occupancy(machine: MachineCode, hw: Hardware) -> tuple[int, str]:
    """(blocks that an SM or compute unit holds at once, what limits them).

    Formulas: CUDA C++ Programming Guide and occupancy calculator (registers in units of 256 a warp, per partition;
    1 KiB of shared memory reserved a block); LLVM AMDGPU usage guide (registers in units of 8 a lane, per SIMD).
    """
    warps = max(1, -(-machine.threads // hw.warp_size))
    warp_registers = max(1, -(-machine.registers // _REGISTER_STEP) * _REGISTER_STEP) * hw.warp_size
    resident_warps = hw.registers_sm // _PARTITIONS // warp_registers * _PARTITIONS
    limits = {
        "registers": resident_warps // warps,
        "threads": hw.max_threads_sm // (warps * hw.warp_size),
        "blocks": hw.max_blocks_sm,
    }
    reserved = _RESERVED_SHARED if hw.vendor == "nvidia" else 0
    if machine.shared_bytes + reserved:
        limits["shared memory"] = hw.shared_bytes_sm // (machine.shared_bytes + reserved)
    if machine.tensor_memory_columns:
        limits["tensor memory"] = _TENSOR_MEMORY_COLUMNS // machine.tensor_memory_columns
    limit = min(limits, key=lambda name: limits[name])
    return limits[limit], limit


def with_occupancy(machine: MachineCode, hw: Hardware) -> MachineCode:
    """The same facts with the occupancy that this chip gives them."""
    blocks, limit = occupancy(machine, hw)
    share = min(1.0, blocks * machine.threads / hw.max_threads_sm)
    return machine.model_copy(
        update={"occupancy_blocks": blocks, "occupancy": round(share, 6), "occupancy_limit": limit}
    )


def check_fits(machine: MachineCode, hw: Hardware) -> list[str]:
    """Why this chip cannot run the kernel; empty where it can. Each reason has the need and the limit."""
    reasons = []
    if machine.shared_bytes > hw.shared_bytes:
        reasons.append(
            f"{machine.kernel} needs {_kib(machine.shared_bytes)} of shared memory a block; "
            f"{hw.name} has {_kib(hw.shared_bytes)}: use smaller tiles or fewer stages"
        )
    if machine.threads > _MAX_THREADS_BLOCK:
        reasons.append(
            f"{machine.kernel} has {machine.threads} threads a block; {hw.name} takes {_MAX_THREADS_BLOCK}: "
            "use fewer warps"
        )
    if machine.tensor_memory_columns > _TENSOR_MEMORY_COLUMNS:
        reasons.append(
            f"{machine.kernel} needs {machine.tensor_memory_columns} columns of tensor memory; {hw.name} has "
            f"{_TENSOR_MEMORY_COLUMNS}: use smaller tiles"
        )
    if not reasons and occupancy(machine, hw)[0] < 1:
        reasons.append(
            f"{machine.kernel} needs {machine.registers} registers for each of {machine.threads} threads; an SM of "
            f"{hw.name} has {hw.registers_sm}: use fewer warps or smaller tiles"
        )
    return reasons


def _kib(size: int) -> str:
    return f"{size / 1024:.4g} KiB"
