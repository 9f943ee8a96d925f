"""The schedule of one kernel on one chip, resolved: directives applied in order, `for` lines of the chip last."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsl.syntax import Directive, Item, Program, Word


@dataclass(frozen=True)
class KernelSchedule:
    """What the lowering reads. Defaults are the naive legal schedule of a kernel without a block.

    tile: axis -> block length, or "all" for a whole axis. An axis that is absent is a grid axis with tile 1, or whole
    where it is reduced and not streamed. grid: slowest first (empty: derived). stream: the axis whose blocks a loop
    walks, or None. order: (name, args), e.g. ("grouped", (8,)). rescale: ("always", ()) or ("lazy", (8,)).
    exponent: ("exp", ()), ("exp2", ()) or ("poly", (4,)).
    roles: (warps that load, groups of 4 warps that multiply), or None; role_registers: of a thread of each. hold:
    (tensor, "registers" or "shared"). rows: who reduces a row. buffers: (tensor, blocks held), where that is not
    `stages`. turns: "free" or "ping_pong". sums: "auto", "first" or "free".
    """

    writes: tuple[str, ...] = ()
    tile: dict[str, int | str] = field(default_factory=dict)
    grid: tuple[str, ...] = ()
    order: tuple[str, tuple[int | str, ...]] = ("row", ())
    l2_bytes: int | None = None
    swizzle: str | None = None
    persistent: bool = False
    stream: str | None = None
    stages: int = 1
    split_masked: bool = False
    load: str = "pointer"
    rescale: tuple[str, tuple[int | str, ...]] = ("always", ())
    exponent: tuple[str, tuple[int | str, ...]] = ("exp", ())
    warps: int = 4
    skip: tuple[str, ...] = ()
    waves_per_eu: int = 0
    matrix_instr: int = 0
    roles: tuple[int, int] | None = None
    role_registers: tuple[int, int] = (24, 240)
    hold: tuple[tuple[str, str], ...] = ()
    buffers: tuple[tuple[str, int], ...] = ()
    turns: str = "free"
    sums: str = "auto"
    issue: str = "next_contraction"
    rows: str = "per_thread"
    directives: tuple[Directive, ...] = ()  # those that took effect, for comments and messages


def held_blocks(schedule: KernelSchedule, tensor: str) -> int:
    """How many blocks of a walked tensor are held at a time."""
    return dict(schedule.buffers).get(tensor, schedule.stages)


def kernels_of(program: Program) -> tuple[tuple[str, ...], ...]:
    """Per kernel, the names that it writes; outputs that no `kernels` line names form the last one (rule 16)."""
    outputs = tuple(t.name for t in program.algorithm.outputs)
    named = [w for k in program.schedule.kernels for w in k]
    rest = tuple(o for o in outputs if o not in named)
    return (*program.schedule.kernels, rest) if rest else program.schedule.kernels


def resolve(program: Program, kernel: int, arch: str, chip: str = "") -> KernelSchedule:
    """The schedule of kernel number `kernel` (order of `kernels_of`) on an architecture such as "sm_100".

    A `for` line may name the architecture or the chip. Assumes checked directives; unknown ones are ignored here.
    """
    writes = kernels_of(program)
    last = kernel == len(writes) - 1
    directives: list[Directive] = []
    for block in program.schedule.blocks:
        if set(block.writes) == set(writes[kernel]) or (not block.writes and last):
            directives += block.directives
    common = [d for d in directives if not d.chips]
    special = [d for d in directives if d.chips and (arch in d.chips or chip in d.chips)]
    values: dict[str, object] = {"writes": writes[kernel], "tile": {}}
    for d in (*common, *special):
        _apply(values, d)
    shown = (*(d for d in common if not any(_covers(x, d) for x in special)), *special)
    return KernelSchedule(**values, directives=shown)  # type: ignore[arg-type]


def _covers(special: Directive, common: Directive) -> bool:
    """Whether a `for` line leaves nothing of a directive: same name, and at least its keys (rule 32)."""
    keys = {i.key for i in common.items if i.key is not None}
    return special.name == common.name and keys <= {i.key for i in special.items}


def _apply(values: dict[str, object], d: Directive) -> None:
    keyed: dict[str, Item] = {i.key: i for i in d.items if i.key is not None}
    bare = [i.value for i in d.items if i.key is None]
    words = [v for v in bare if isinstance(v, Word)]

    def plain(v: int | Word) -> int | str:
        return v.id if isinstance(v, Word) else v

    match d.name:
        case "tile":
            tile = values["tile"]
            assert isinstance(tile, dict)
            tile.update({k: plain(i.value) for k, i in keyed.items()})
        case "grid":
            values["grid"] = tuple(w.id for w in words)
        case "order":
            if words:
                values["order"] = (words[0].id, words[0].args)
            if "l2" in keyed:
                values["l2_bytes"] = keyed["l2"].value
        case "swizzle":
            values["swizzle"] = words[0].id if words[0].id != "none" else None
        case "persistent":
            values["persistent"] = not words or words[0].id != "off"
        case "stream":
            values["stream"] = words[0].id
            if "stages" in keyed:
                values["stages"] = keyed["stages"].value
        case "split":
            values["split_masked"] = words[0].id == "masked"
        case "load":
            values["load"] = words[0].id
        case "rescale":
            values["rescale"] = (words[0].id, words[0].args)
        case "exponent":
            values["exponent"] = (words[0].id, words[0].args)
        case "warps" | "waves_per_eu" | "matrix_instr":
            values[d.name] = bare[0]
        case "roles" | "registers":
            loads, groups = (1, 2) if d.name == "roles" else (24, 240)
            given = {k: i.value for k, i in keyed.items()}
            values["roles" if d.name == "roles" else "role_registers"] = (
                given.get("load", loads),
                given.get("mma", groups),
            )
        case "hold":
            if len(words) == 2:
                values["hold"] = (*values.get("hold", ()), (words[0].id, words[1].id))  # type: ignore[misc]
        case "buffers":
            if len(bare) == 2 and isinstance(bare[1], int):
                values["buffers"] = (*values.get("buffers", ()), (words[0].id, bare[1]))  # type: ignore[misc]
        case "issue":
            if words:
                values["issue"] = words[0].id
            if "turns" in keyed:
                values["turns"] = keyed["turns"].value.id  # type: ignore[union-attr]
        case "reduce":
            for key in keyed.keys() & {"rows", "sums"}:
                values[key] = keyed[key].value.id  # type: ignore[union-attr]
        case "skip":
            values["skip"] = (*values.get("skip", ()), *(w.id for w in words))  # type: ignore[misc]
