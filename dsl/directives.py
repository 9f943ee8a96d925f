"""The knob table: every directive of a schedule, its items, what each does, and which chips and kernels it is for.

One literal table. The checks, the documents, the grammar of directives, the prompts and mutation all read it, so that
none of them can drift from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dsl.anatomy import Anatomy
from dsl.directive_specs import POWERS, Choice, DirectiveSpec, Slot
from dsl.hardware import Hardware


def _amd(hw: Hardware) -> str:
    return "" if hw.vendor == "amd" else "is an AMD knob"


def _tma(hw: Hardware) -> str:
    return "" if hw.has_tma else "needs the tensor memory accelerator of sm_90 and later"


def _dies(hw: Hardware) -> str:
    return "" if hw.dies > 1 or hw.vendor == "cpu" else "needs several dies with an L2 each"


def _specialised(hw: Hardware) -> str:
    return "" if hw.has_tma else "needs the warp specialisation of sm_90 and later"


def _pivot(kernel: Anatomy) -> str:
    found = any(a in kernel.streamable for a in kernel.pivots)
    return "" if found else "this kernel keeps no running maximum"


def _exponential(kernel: Anatomy) -> str:
    return "" if kernel.exponentials else "this kernel has no exponential"


def _uneven(kernel: Anatomy) -> str:
    return "" if kernel.masked else "every tile of this kernel does the same work"


def _streams(kernel: Anatomy) -> str:
    return "" if kernel.streamable else "this kernel reduces no axis that a loop could walk"


def _contracts(kernel: Anatomy) -> str:
    return "" if kernel.contractions else "this kernel has no contraction"


def _ranks(kernel: Anatomy) -> str:
    return "" if kernel.graph.rank else "the program has no rank axis"


def _table(*specs: DirectiveSpec) -> Mapping[str, DirectiveSpec]:
    return MappingProxyType({s.name: s for s in specs})


DIRECTIVES: Mapping[str, DirectiveSpec] = _table(
    DirectiveSpec(
        "launch",
        "how the kernels of the program are started",
        (Slot("", "the launcher", (Choice("queue", "as tasks of one persistent kernel", lowered=False),)),),
        scope="pipeline",
        lowered="refused",
    ),
    DirectiveSpec(
        "comm",
        "how a collective moves its bytes",
        (
            Slot("", "what the collective is assigned to", names="tensor"),
            Slot("engine", "who copies", (Choice("copy", "the copy engines"), Choice("sm", "the SMs")), default="sm"),
            Slot("chunks", "pieces that are sent one by one", numbers=POWERS[:9], default=1),
        ),
        kernel=_ranks,
        scope="pipeline",
        lowered="refused",
    ),
    DirectiveSpec(
        "tile",
        "block length of an axis in one program instance or trip of a loop",
        (Slot("AXIS", "block length", (Choice("all", "the whole axis"),), POWERS),),
    ),
    DirectiveSpec(
        "grid",
        "the axes whose tiles are program instances, slowest first; the rest is whole",
        (Slot("", "axes", names="axis", many=True),),
    ),
    DirectiveSpec(
        "order",
        "in which order the tiles of the grid are started",
        (
            Slot(
                "",
                "the order",
                (
                    Choice("row", "as `grid` lists the axes, last one fastest"),
                    Choice(
                        "grouped",
                        "in strips of N tiles of the last but one axis, so that L2 is shared",
                        "number",
                        POWERS[1:7],
                    ),
                    Choice("reverse", "this axis backwards", "axis"),
                    Choice(
                        "longest_first", "tiles with the longest loop first, so that the tail is short", kernel=_uneven
                    ),
                    Choice("arrival", "as the chunks of a collective arrive", kernel=_ranks, lowered=False),
                ),
                default="row",
            ),
            Slot("l2", "bytes of L2 that concurrent tiles should share", size=True, default=0),
        ),
    ),
    DirectiveSpec(
        "swizzle",
        "which die gets which tiles",
        (
            Slot(
                "",
                "the map",
                (
                    Choice("none", "tiles go round the dies in turn"),
                    Choice(
                        "dies",
                        "each die takes one stretch of the tiles, such as a head, which share its L2",
                        chip=_dies,
                    ),
                ),
            ),
        ),
    ),
    DirectiveSpec(
        "persistent",
        "launch one program instance per SM and let each loop over its tiles",
        (Slot("", "whether", (Choice("on", "loop over tiles"), Choice("off", "one instance per tile")), default="on"),),
    ),
    DirectiveSpec(
        "stream",
        "the reduced axis that a loop walks by blocks, loads running ahead",
        (
            Slot("", "the axis", names="axis"),
            Slot(
                "stages",
                "blocks in flight: 1 loads when needed, N loads N - 1 ahead",
                numbers=tuple(range(1, 7)),
                default=1,
            ),
        ),
        kernel=_streams,
    ),
    DirectiveSpec(
        "split",
        "run the blocks of the loop that need a mask apart from those that need none",
        (Slot("", "what", (Choice("none", "one loop"), Choice("masked", "two loops, the first without masks"))),),
        kernel=_streams,
    ),
    DirectiveSpec(
        "load",
        "how tiles come from memory",
        (
            Slot(
                "",
                "the path",
                (
                    Choice("pointer", "each thread computes addresses"),
                    Choice("tma", "by tensor descriptors, whole", chip=_tma),
                ),
            ),
        ),
    ),
    DirectiveSpec(
        "roles",
        "specialise warps: some only load, some only multiply",
        (
            Slot("load", "warps that load", numbers=(1, 2, 4), default=1),
            Slot("mma", "groups of 4 warps that multiply", numbers=(1, 2, 3, 4), default=2),
        ),
        chip=_specialised,
        kernel=_contracts,
        lowered="roles",
    ),
    DirectiveSpec(
        "registers",
        "registers per thread of each role",
        (
            Slot("load", "of warps that load", numbers=tuple(range(24, 257, 8)), default=24),
            Slot("mma", "of warps that multiply", numbers=tuple(range(24, 257, 8)), default=240),
        ),
        chip=_specialised,
        lowered="roles",
    ),
    DirectiveSpec(
        "hold",
        "keep what no trip changes close to the matrix units",
        (
            Slot("", "the operand", names="tensor"),
            Slot("", "where", (Choice("shared", "in shared memory"), Choice("registers", "in registers"))),
        ),
        chip=_specialised,
        lowered="roles",
    ),
    DirectiveSpec(
        "buffers",
        "blocks in flight of one walked tensor, if not `stages`",
        (
            Slot("", "the tensor", names="tensor"),
            Slot("", "how many", numbers=(1, 2, 3, 4, 5, 6)),
        ),
        chip=_specialised,
        kernel=_streams,
        lowered="roles",
    ),
    DirectiveSpec(
        "issue",
        "when the next product is issued",
        (
            Slot(
                "",
                "when",
                (
                    Choice("next_contraction", "before this trip's arithmetic, to run beside it"),
                    Choice("in_order", "after this trip's arithmetic"),
                ),
                default="next_contraction",
            ),
            Slot(
                "turns",
                "whether groups take turns at the matrix units",
                (
                    Choice("free", "each group issues when it is ready"),
                    Choice("ping_pong", "one after the other, so that one's arithmetic runs beside another's products"),
                ),
                default="free",
            ),
        ),
        chip=_specialised,
        kernel=_contracts,
        lowered="roles",
    ),
    DirectiveSpec(
        "rescale",
        "when the sums are brought to a new running maximum",
        (
            Slot(
                "",
                "when",
                (
                    Choice("always", "at every block"),
                    Choice(
                        "lazy",
                        "only when the maximum rose by more than N in log2",
                        "number",
                        tuple(range(1, 17)),
                        kernel=_pivot,
                    ),
                    Choice(
                        "speculative",
                        "as if it never rose, else again; needs `roles`",
                        chip=_specialised,
                        kernel=_pivot,
                    ),
                ),
            ),
        ),
    ),
    DirectiveSpec(
        "reduce",
        "who reduces a row, and when",
        (
            Slot(
                "rows",
                "who",
                (
                    Choice("per_thread", "each thread its part, joined last"),
                    Choice("across", "threads of a warp together"),
                ),
                default="per_thread",
            ),
            Slot(
                "sums",
                "when a block's sums are taken",
                (
                    Choice("auto", "first where an operand is held in registers, else free"),
                    Choice("first", "before the last product is waited for"),
                    Choice("free", "where the compiler puts them"),
                ),
                default="auto",
            ),
        ),
        chip=_specialised,
        lowered="roles",
    ),
    DirectiveSpec(
        "exponent",
        "how exponentials are computed",
        (
            Slot(
                "",
                "how",
                (
                    Choice("exp", "times log2(e), then exp2"),
                    Choice("exp2", "log2(e) in the scale", kernel=_exponential),
                    Choice(
                        "poly",
                        "the same, one of every N by a polynomial on the FMA units",
                        "number",
                        (2, 4, 8),
                        kernel=_exponential,
                    ),
                ),
            ),
        ),
    ),
    DirectiveSpec(
        "skip",
        "jump over a tile where this bool is false everywhere",
        (Slot("", "the bool", names="bool", many=True),),
        kernel=_streams,
    ),
    DirectiveSpec("warps", "warps (waves) of a program instance", (Slot("", "how many", numbers=(1, 2, 4, 8, 16)),)),
    DirectiveSpec(
        "waves_per_eu",
        "waves per SIMD that registers are left for; 0: the compiler chooses",
        (Slot("", "how many", numbers=(0, 1, 2, 3, 4)),),
        chip=_amd,
    ),
    DirectiveSpec(
        "matrix_instr",
        "rows of the matrix instruction",
        (Slot("", "rows", numbers=(16, 32)),),
        chip=_amd,
        kernel=_contracts,
    ),
)

# What holds where a directive is absent (`KernelSchedule` has the same values). None: no such item.
DEFAULTS: Mapping[str, int | str] = MappingProxyType(
    {
        "order": "row",
        "l2": 0,
        "swizzle": "none",
        "persistent": "off",
        "stages": 1,
        "split": "none",
        "load": "pointer",
        "issue": "next_contraction",
        "rescale": "always",
        "rows": "per_thread",
        "turns": "free",
        "sums": "auto",
        "exponent": "exp",
        "warps": 4,
        "waves_per_eu": 0,
        "matrix_instr": 0,
    }
)

SELDOM = ("issue", "rows", "turns", "sums")  # for warps with roles alone: the spec's page has no room for them

# What people and models write by habit -> the directive that says it here.
HABITS: Mapping[str, str] = MappingProxyType(
    {
        "num_warps": "warps",
        "num_stages": "stream AXIS stages=N",
        "stages": "stream AXIS stages=N",
        "pipeline": "stream AXIS stages=N",
        "loop": "stream AXIS",
        "block": "tile",
        "block_size": "tile",
        "swizzle_dies": "swizzle dies",
        "mask": "split masked",
        "tma": "load tma",
        "exp2": "exponent exp2",
        "poly": "exponent poly(4)",
        "polynomial": "exponent poly(4)",
        "lazy": "rescale lazy(8)",
        "num_ctas": "persistent",
    }
)
