"""Facts read from listings, and what a chip can hold: by hand, without a compiler."""

from __future__ import annotations

import pytest

from dsl.hardware import hardware
from evaluators.machine import (
    CLASSES,
    MachineCode,
    check_fits,
    find_loops,
    matrix_instructions,
    mix,
    occupancy,
    read_amdgcn,
    read_sass,
    with_occupancy,
)


def machine(**facts) -> MachineCode:
    given = {"kernel": "f", "arch": "sm_90", "compiler": "triton", "registers": 32, "spills": 0, "code_bytes": 16}
    return MachineCode(**{**given, "shared_bytes": 0, "threads": 128, **facts})


def sass(*lines: str) -> str:
    return "\tFunction : f\n" + "".join(
        f"        /*{16 * i:04x}*/   {line} ;  /* 0x00 */\n" for i, line in enumerate(lines)
    )


def test_sass_is_classed():
    code = read_sass(
        sass(
            *("S2R R0, SR_TID.X", "LDG.E.128 R4, desc[UR4][R2.64]", "@!P0 LDS.U.64 R4, [R0+UR4]", "STS.128 [R3], R4"),
            *("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24", "@P1 MUFU.EX2 R3, R4", "MUFU.RCP R3, R4"),
            *("UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR30]", "@UP0 UTMALDG.4D [UR8], [UR6], desc[UR4]", "LDL R1, [R2]"),
            *(
                "FFMA R0, R1, R2, R3",
                "FADD2 R0, R1, R2",
                "HMMA.16816.F32.BF16 R0, R1, R2, R3",
                "LDTM.x64 R4, tmem[UR29]",
            ),
            *("SHFL.BFLY PT, R0, R1, 0x2, 0x1f", "BAR.SYNC.DEFER_BLOCKING 0x0", "SYNCS.ARRIVE.TRANS64 RZ, [UR4], RZ"),
            *("F2FP.BF16.F32.PACK_AB R0, R1, R2", "IMAD.MOV.U32 R1, RZ, RZ, R2", "FMNMX3 R0, R1, R2, R3, !PT", "EXIT"),
            *("BRA 0x150", "NOP", "NOP"),
        )
    )
    kinds = [instruction.kind for instruction in code]
    assert kinds == [
        *("mov", "ldg", "lds", "sts", "wgmma", "ex2", "mufu", "tcgen05.mma", "tma", "ldl", "ffma", "fadd2", "mma.sync"),
        *("tmem", "shfl", "bar", "mbarrier", "cvt", "int", "fmnmx", "branch"),
    ]
    assert set(kinds) <= set(CLASSES)
    assert code[4].name == "HGMMA.64x128x16.F32.BF16"
    assert matrix_instructions(code) == {"HGMMA.64x128x16.F32.BF16": 1, "UTCHMMA": 1, "HMMA.16816.F32.BF16": 1}
    assert sum(mix(code).values()) == len(code)


def test_a_loop_is_found_and_a_wait_is_not():
    body = ["MUFU.EX2 R3, R4"] * 20
    code = read_sass(
        sass(
            "MOV R0, R1",
            *body,  # 0x10
            "@!P0 BRA 0x1c0",  # 0x150, out of line to the wait
            "@P1 BRA 0x10",
            *["FADD R0, R1, R2"] * 4,
            "EXIT",  # 0x1b0
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR5], R0",
            "@!P0 BRA 0x1c0",
            "BRA 0x160",
            "BRA 0x1f0",
        )
    )
    assert find_loops(code) == ({"ex2": 20, "branch": 2},)
    assert len(code) == 31  # without the branch to itself at the end


def test_nested_loops_are_both_there():
    code = read_sass(
        sass(*["FADD R0, R1, R2"] * 10, *["FFMA R0, R1, R2"] * 20, "@P0 BRA 0xa0", "BRA.U UP0, 0x0", "EXIT")
    )
    assert find_loops(code) == ({"ffma": 20, "fadd": 10, "branch": 2}, {"ffma": 20, "branch": 1})


def test_amdgcn_is_classed():
    text = """
f:                                      ; @f
; %bb.0:
	s_load_dwordx8 s[4:11], s[0:1], 0x8
	buffer_load_dword v1, v2, s[4:7], 0 offen lds
	global_load_dwordx4 v[0:3], v[4:5], off
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
	v_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[2:3], a[0:15]
	ds_read_b128 v[0:3], v4
	v_exp_f32_e32 v1, v2
	v_fma_f32 v1, v2, v3, v4
	v_pk_mul_f32 v[0:1], v[2:3], v[4:5]
	scratch_store_dword off, v1, off
	s_waitcnt vmcnt(0)
	s_barrier
	v_cvt_pk_bf16_f32 v1, v2, v3
	v_add_u32_e32 v1, v2, v3
	v_add_u32_e32 v1, v2, v3
	v_add_u32_e32 v1, v2, v3
	v_add_u32_e32 v1, v2, v3
	v_add_u32_e32 v1, v2, v3
	v_add_u32_e32 v1, v2, v3
	v_add_u32_e32 v1, v2, v3
	s_cbranch_scc1 .LBB0_1
; %bb.2:
	s_endpgm
.Lfunc_end0:
	v_nop
"""
    code = read_amdgcn(text)
    assert [c.kind for c in code[:6]] == ["uniform", "cp.async", "ldg", "mfma", "lds", "ex2"]
    assert matrix_instructions(code) == {"v_mfma_f32_32x32x8_bf16": 1}
    (loop,) = find_loops(code)
    assert loop["int"] == 7 and loop["stl"] == 1 and loop["ffma"] == 1 and loop["fmul2"] == 1 and loop["bar"] == 2
    assert "other" not in mix(code)


@pytest.mark.parametrize(
    ("facts", "chip", "blocks", "limit"),
    [
        # 65,536 registers: 168 x 32 x 4 warps = 21,504 a block
        ({"registers": 168}, "h200", 3, "registers"),
        ({"registers": 255}, "h200", 2, "registers"),
        ({"registers": 255, "threads": 256}, "h200", 1, "registers"),
        ({"registers": 129}, "h200", 3, "registers"),  # rounded up to 136
        ({"registers": 24}, "h200", 16, "threads"),
        ({"registers": 16, "threads": 32}, "h200", 32, "blocks"),
        ({"registers": 16, "threads": 32}, "rtx4090", 24, "blocks"),
        # 228 KiB an SM, 1 KiB reserved a block
        ({"shared_bytes": 75 << 10}, "h200", 3, "shared memory"),
        ({"shared_bytes": 76 << 10}, "h200", 2, "shared memory"),
        ({"shared_bytes": 227 << 10}, "b200", 1, "shared memory"),
        ({"tensor_memory_columns": 256}, "b200", 2, "tensor memory"),
        # 512 registers a lane of a SIMD, 4 SIMDs, no reserve in LDS
        ({"registers": 128, "threads": 256}, "mi300x", 4, "registers"),
        ({"registers": 250, "threads": 256}, "mi300x", 2, "registers"),
        ({"registers": 257, "threads": 256}, "mi300x", 1, "registers"),
        ({"registers": 64, "threads": 256, "shared_bytes": 32 << 10}, "mi300x", 2, "shared memory"),
        ({"registers": 64, "threads": 256, "shared_bytes": 32 << 10}, "mi355x", 5, "shared memory"),
    ],
)
def test_occupancy(facts, chip, blocks, limit):
    hw = hardware(chip)
    assert occupancy(machine(**facts), hw) == (blocks, limit)
    full = with_occupancy(machine(**facts), hw)
    assert full.occupancy_blocks == blocks and full.occupancy_limit == limit
    assert full.occupancy == pytest.approx(blocks * full.threads / hw.max_threads_sm, abs=1e-6)


def test_what_does_not_fit_says_why():
    h200, mi300x = hardware("h200"), hardware("mi300x")
    assert check_fits(machine(shared_bytes=227 << 10), h200) == []
    assert check_fits(machine(shared_bytes=(227 << 10) + 1), h200)
    (reason,) = check_fits(machine(shared_bytes=320 << 10), h200)
    assert reason == "f needs 320 KiB of shared memory a block; h200 has 227 KiB: use smaller tiles or fewer stages"
    assert "mi300x has 64 KiB" in check_fits(machine(shared_bytes=131072), mi300x)[0]
    assert "2048 threads a block; h200 takes 1024" in check_fits(machine(threads=2048), h200)[0]
    assert "600 columns" in check_fits(machine(tensor_memory_columns=600), hardware("b200"))[0]
    assert "255 registers for each of 512 threads" in check_fits(machine(registers=255, threads=512), h200)[0]


def test_facts_cross_the_border_as_json():
    facts = with_occupancy(machine(loops=({"ex2": 3},), matrix={"UTCHMMA": 2}), hardware("b200"))
    assert MachineCode.model_validate_json(facts.model_dump_json()) == facts
