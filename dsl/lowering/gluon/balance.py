"""Who computes which tiles, where tiles differ: a table that the launcher builds once for each size.

Tiles are taken in the schedule's order, each by the program that has the least to do so far, counted in blocks of the
loop. Dealt out in turn instead, the programs of causal attention end 3 to 5% apart; and a row of the table saves the
divisions that turn a tile's number into its place.
"""

from __future__ import annotations

from dsl.lowering.gluon.plan import NotSpecialised, Plan
from dsl.lowering.launch import together
from dsl.printer import print_expr
from dsl.tile import Op, Value

OVERHEAD = 1.5  # blocks: what a tile costs beside its blocks; measured where attention was written by hand

SHARED_OUT = '''def shared_out(tiles, costs, programs, device):
    """For each program the range of its rows, then the rows: whoever has the least to do takes the next tile."""
    queue = [(0.0, p) for p in range(programs)]
    mine = [[] for _ in range(programs)]
    for tile, cost in zip(tiles, costs):
        done, p = heapq.heappop(queue)
        mine[p].append(tile)
        heapq.heappush(queue, (done + cost, p))
    begins = [0]
    for rows in mine:
        begins.append(begins[-1] + len(rows))
    flat = [x for rows in mine for tile in rows for x in tile]
    return torch.tensor([*begins, *flat, *tiles[0]], dtype=torch.int32, device=device)'''
IMPORTS = ("import functools", "import heapq")


def uneven(plan: Plan) -> bool:
    """Whether tiles differ in how many blocks they visit, and programs walk over tiles."""
    k = plan.kernel
    plain = k.schedule.order[0] in ("row", "longest_first") and k.schedule.swizzle is None
    return k.schedule.persistent and plain and k.reversed_axis is not None


def table_name(plan: Plan) -> str:
    return f"{plan.kernel.name}_tiles"


def table_source(plan: Plan) -> tuple[str, str]:
    """(the function that builds the table, the call of it in the launcher)."""
    k = plan.kernel
    printer = _Printer(plan)
    ends = [(printer.text(x.lo), printer.text(x.hi)) for x in plan.walk]
    loops = [f"max(0, -(-({hi}{'' if lo == '0' else f' - {lo}'}) // {_block(plan)}))" for lo, hi in ends]
    counts = {a: f"-(-{a.upper()} // {k.lengths[a]})" if a in k.lengths else a.upper() for a in k.grid}
    axes = list(dict.fromkeys([*k.grid, *printer.extents]))
    params = list(dict.fromkeys(printer.params))
    inner, outer = k.grid[-1], k.grid[:-1]
    name = {a: f"tile_{a}" if a in k.lengths else a for a in k.grid}
    backwards = k.schedule.order[0] == "longest_first" and k.reversed_axis == inner
    walk = f"reversed(range({counts[inner]}))" if backwards else f"range({counts[inner]})"
    given = [*(a.upper() for a in axes), *params]
    lines = [
        "@functools.lru_cache(maxsize=64)",
        f"def {table_name(plan)}({', '.join([*given, 'together', 'programs', 'device'])}):",
        '    """Every tile, by the program that computes it, in its order."""',
        f"    outer = [({', '.join(name[a] for a in outer)}{',' * (len(outer) == 1)})"
        + "".join(f" for {name[a]} in range({counts[a]})" for a in outer)
        + "]",
        "    groups = [outer[i : i + together] for i in range(0, len(outer), together)]",
        f"    tiles = [(*x, {name[inner]}) for group in groups for {name[inner]} in {walk} for x in group]",
        "",
        f"    def cost({', '.join(name[a] for a in k.grid)}):",
        f"        blocks = {loops[0]}",
        *(f"        blocks += {x}" for x in loops[1:]),
        f"        return blocks + {OVERHEAD}",
        "",
        "    return shared_out(tiles, [cost(*x) for x in tiles], programs, device)",
    ]
    shared = together(k)
    number = " * ".join(counts[a] for a in outer)
    size = " + ".join(f"{t}.nbytes" for t in shared)
    group = f"max(1, {k.schedule.l2_bytes} * {number} // ({size}))" if shared else "1"
    first = next(iter(plan.channels[0].tensors))
    call = f"{table_name(plan)}({', '.join([*given, group, 'programs', f'{first}.device'])})"
    return "\n".join(lines), call


def _block(plan: Plan) -> int:
    return plan.kernel.lengths.get(plan.walk[0].axis, 1)


class _Printer:
    """Scalars of the tile program as Python."""

    def __init__(self, plan: Plan) -> None:
        self.k = plan.kernel
        self.made = {n.out: n for n in plan.before if isinstance(n, Op) and n.out is not None}
        self.extents: list[str] = []
        self.params: list[str] = []

    def text(self, v: Value) -> str:
        n = self.made[v]
        match n.kind:
            case "const":
                return repr(n.attr)
            case "extent":
                self.extents.append(n.attr)
                return str(n.attr.upper())
            case "block":
                return str(self.k.lengths[n.attr])
            case "start":
                return f"tile_{n.attr} * {self.k.lengths[n.attr]}" if n.attr in self.k.lengths else str(n.attr)
            case "param":
                self.params.append(n.attr)
                return str(n.attr)
            case "ratio":
                expr = self.k.graph.axes[n.attr].ratio
                assert expr is not None
                self.extents += [a for a in self.k.graph.axes if a.upper() in print_expr(expr)]
                return f"({print_expr(expr)})"
            case "select":
                flag, a, b = (self.text(x) for x in n.args)
                return f"({a} if {flag} else {b})"
            case "tail":
                self.extents.append(n.attr)
                return f"({n.attr.upper()} % {self.k.lengths[n.attr]} != 0)"
            case "map" if n.attr in ("+", "-", "*", "//", "%"):
                a, b = (self.text(x) for x in n.args)
                return f"({a} {n.attr} {b})"
            case "map" if n.attr == "neg":
                return f"(-{self.text(n.args[0])})"
            case "map" if n.attr in ("min", "max"):
                return f"{n.attr}({', '.join(self.text(x) for x in n.args)})"
        raise NotSpecialised(f"the launcher cannot count its blocks: {n.kind} {n.attr}")
