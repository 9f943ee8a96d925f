"""Kernels whose warps have roles: the source, what it falls back from, and the table of tiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from dsl.check import check
from dsl.hardware import hardware
from dsl.knobs import knob_named, knobs, set_knob
from dsl.lowering import lower
from dsl.lowering.lowered import Lowered
from dsl.parser import parse

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SM90 = (EXAMPLES / "attention_sm90.avo").read_text(encoding="utf-8")
SIZES = {"d": 128, "e": 128}
GEMM = """kernel gemm
in  a[m k] bf16, b[k n] bf16, bias[n] f32
out c[m n] bf16
c = relu(sum[k](a * b) + bias)

schedule
tile m=128 n=256 k=64
grid m n
order grouped(8)
persistent
stream k stages=3
load tma
roles load=1 mma=2
"""


def lowered(text: str, chip: str = "h200", triton: str = "") -> Lowered:
    return lower(parse(text), hardware(chip), SIZES, triton)


@pytest.mark.parametrize(
    ("name", "text"),
    [("speculative", SM90), ("roles", SM90.replace("rescale speculative", "rescale always")), ("gemm_roles", GEMM)],
)
def test_emitted_source(name: str, text: str, golden: Callable[[str, str], None]) -> None:
    found = lowered(text)
    assert found.language == "gluon" and not found.warnings
    assert "gluon" not in found.interpretable and "tl.dot" in found.interpretable
    golden(f"{name}.h200.py", found.source)


WHY = [
    (SM90, "roles load=1 mma=2", "roles load=1 mma=4", "`tile m=128` is no 64 rows or more for each of 4 groups"),
    (SM90, "load tma", "load pointer", "`k`, the right operand of a product, does not come from memory by `load tma`"),
    (GEMM, "bf16", "f32", "a product of f32 into f32 has no specialised form yet"),
    (GEMM, "stream k stages=3", "", "it has no loop over one axis whose blocks warps could load ahead"),
]


@pytest.mark.parametrize(("text", "old", "new", "why"), WHY)
def test_what_has_no_such_form_is_plain_and_says_why(text: str, old: str, new: str, why: str) -> None:
    text = text.replace(old, new).replace(" k=64", "" if not new else " k=64").replace("rescale speculative", "")
    found = lowered(text)
    assert found.language == "triton" and found.source == found.interpretable
    (warning,) = found.warnings
    assert warning.severity == "warning" and warning.message.endswith(why) and warning.span.line


def test_an_untried_triton_gives_plain_code_and_a_warning() -> None:
    assert lowered(SM90, triton="3.6.0").language == lowered(SM90, triton="3.9.1").language == "gluon"
    found = lowered(SM90, triton="3.12.0")
    assert (
        found.language == "triton"
        and "tried with triton 3.6, 3.7, 3.8, 3.9, and this is 3.12.0" in found.warnings[0].message
    )


def test_other_chips_lower_plainly() -> None:
    assert lowered(SM90, "b200").language == "triton"
    said = [d.message for d in check(parse(SM90), hardware("b200")) if d.rule == "plain-lowering"]
    assert any("`roles` is checked, but lowers to plain Triton: only sm_90" in m for m in said)


def test_what_a_schedule_asks_in_vain_is_told() -> None:
    text = SM90.replace("reduce rows=per_thread", "reduce rows=across")
    (warning,) = lowered(text).warnings
    assert "`rescale speculative` is lowered as `always`" in warning.message


def test_one_edit_gives_warps_their_roles() -> None:
    program = parse((EXAMPLES / "attention.avo").read_text(encoding="utf-8"))
    hw = hardware("h200")
    (knob,) = (k for k in knobs(program, hw, None) if k.name == "roles mma")
    assert knob.value == 0 and knob.legal == (0, 1, 2)
    changed = set_knob(program, knob, 2)
    found = lower(changed, hw, SIZES)
    assert found.language == "gluon" and "p_left" in found.source  # the next product is issued ahead
    assert lower(set_knob(changed, knob_named(changed, hw, "roles mma"), 0), hw, SIZES).language == "triton"


def test_a_search_finds_no_roles_where_there_are_none() -> None:
    program = parse((EXAMPLES / "attention.avo").read_text(encoding="utf-8"))
    assert not any(k.name == "roles mma" for k in knobs(program, hardware("b200"), None))
    small = parse((EXAMPLES / "attention.avo").read_text(encoding="utf-8").replace("tile m=128", "tile m=64"))
    (knob,) = (k for k in knobs(small, hardware("h200"), None) if k.name == "roles mma")
    assert knob.legal == (0, 1)


def table(module: ModuleType, *args: object) -> tuple[list[int], list[tuple[int, ...]]]:
    programs = args[-1]
    assert isinstance(programs, int)
    flat = module.attention_kernel_tiles(*args, None)
    rows = [tuple(flat[i : i + 3]) for i in range(programs + 1, len(flat), 3)]
    return flat[: programs + 1], rows[:-1]  # one more row is read ahead


@pytest.mark.parametrize(
    ("b", "h", "m", "n", "causal", "together", "programs"),
    [
        (2, 3, 1000, 700, True, 2, 5),
        (1, 16, 4096, 4096, True, 1, 132),
        (3, 1, 100, 9, False, 9, 3),
        (2, 2, 700, 50, True, 3, 4),
    ],
)
def test_every_tile_is_computed_once_and_programs_end_together(
    b: int, h: int, m: int, n: int, causal: bool, together: int, programs: int
) -> None:
    source = lowered(SM90).source
    head = source.index("@functools.lru_cache")
    functions = (
        source[head : source.index("@gluon.jit", head)] + source[source.index("def shared_out") :].split("\n\n\n")[0]
    )
    module = ModuleType("tables")
    fake = ModuleType("torch")
    fake.tensor = lambda x, **k: x  # type: ignore[attr-defined]
    fake.int32 = None  # type: ignore[attr-defined]
    space = vars(module)
    exec("import functools, heapq\n" + functions, space)
    space["torch"] = fake
    begins, rows = table(module, b, h, m, n, causal, together, programs)
    tiles = -(-m // 128)
    assert begins[0] == 0 and begins[-1] == len(rows) and begins == sorted(begins)
    assert sorted(rows) == [(x, y, z) for x in range(b) for y in range(h) for z in range(tiles)]

    def cost(tile: int) -> float:
        end = min(n, tile * 128 + 128) if causal else n
        return 1.5 + max(1, -(-end // 128))

    loads = [sum(cost(t) for _, _, t in rows[lo:hi]) for lo, hi in itertools.pairwise(begins)]
    longest = max(cost(t) for _, _, t in rows)
    assert max(loads) - min(loads) <= longest
