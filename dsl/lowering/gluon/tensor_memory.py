"""The multiplying role on sm_100, where products are left in tensor memory: compiled, never run.

The order of a role's work is the one of sm_90 (`roles.py`): only what a node is printed as differs. A product is
`tcgen05_mma`, asked for by one warp, and an mbarrier says when it is there; scores are then read into registers, one
row a thread, weights are written back as the next product's left operand, and the accumulator stays where it is but
for the blocks that rescale it and for the end. A group has 128 rows: one for each lane of tensor memory.

Each group has its own part of the buffers `scores_t`, `left_t`, `sums_t`, and of the barriers `scores_done` and
`sums_done`, whose phase is that of the block: one product of each kind a block. Where a block is a product into the
accumulator alone (a matrix product), there is `sums_t` alone, and `sums_done` has two barriers for each group, which
take turns: the next product is asked for before the last one is waited for, so both may be done by then.
"""

from __future__ import annotations

from dsl.lowering.gluon.body import For, RoleBody, every
from dsl.lowering.gluon.layouts import Layouts
from dsl.lowering.gluon.plan import NotSpecialised, Plan, only_accumulates, rotation
from dsl.lowering.text import ATOM, TRITON_TYPES, Text
from dsl.tile import Node, Op, TileKernel, Value

ARCH = "sm_100"
ROWS = 128
COLUMNS = 512  # of 32 bits: all that an SM has
LABEL = "compiled for sm_100, never run: no GPU of that kind was at hand"
IMPORT = """\
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_mma,
)"""
NAMES = ("scores_t", "left_t", "sums_t", "scores_done", "sums_done")


def adds(plan: Plan) -> bool:
    """Whether all that is walked is products into one accumulator."""
    return all(only_accumulates(x) for x in plan.walk)


def names(plan: Plan) -> tuple[str, ...]:
    """What the roles are given of tensor memory and its barriers."""
    return tuple(n for n in NAMES if n.startswith("sums") or not adds(plan))


def accumulator(plan: Plan) -> Value:
    body = plan.walk[0].body
    cut = rotation(body)
    if cut is not None:
        return cut.deferred.args[2]
    (dot,) = (n for n in body if isinstance(n, Op) and n.kind == "dot")
    return dot.args[2]


def fits(plan: Plan) -> None:
    """Raises NotSpecialised where a block is neither a product into an accumulator nor a product, arithmetic, and a
    product into one, in 128 rows a group."""
    if not adds(plan) and any(rotation(x.body) is None for x in plan.walk):
        raise NotSpecialised("on sm_100 only products, or a product, arithmetic, a product have a form with roles")
    if plan.rows != ROWS:
        raise NotSpecialised(f"on sm_100 each group has {ROWS} rows, not {plan.rows}: one for each lane of its memory")
    if adds(plan):
        e = plan.kernel.lengths.get(accumulator(plan).dims[1])
        if not isinstance(e, int) or e > COLUMNS // plan.consumers:
            raise NotSpecialised(f"tensor memory has {COLUMNS} columns, and the groups' sums need too many")
        return
    n, e = _columns(plan)
    if not isinstance(n, int) or n + n // 2 + (e or 128) > COLUMNS // plan.consumers:
        raise NotSpecialised(f"tensor memory has {COLUMNS} columns, and a block's {n} scores and weights need too many")


def _columns(plan: Plan) -> tuple[int | None, int | None]:
    cut = rotation(plan.walk[0].body)
    assert cut is not None and cut.product.out is not None
    lengths = plan.kernel.lengths
    return lengths.get(cut.product.out.dims[1]), lengths.get(cut.deferred.args[2].dims[1])


class RowLayouts(Layouts):
    """A row of a product lies in one thread."""

    def _add(self, dims: tuple[str, ...], source: str) -> None:
        if len(dims) == 2 and "NVMMA" in source:
            columns = source[source.index("[16, ") + 5 :].split(",")[0]
            source = f"gl.BlockedLayout([1, {columns}], [32, 1], [4, 1], [0, 1])"
        super()._add(dims, source)


class TensorBody(RoleBody):
    """Prints a role's nodes with products in tensor memory. `acc`: the accumulator, a variable that lives there."""

    def __init__(self, plan: Plan, nodes: list[Node | For], layouts: Layouts) -> None:
        super().__init__(plan.kernel, nodes, plan.split, layouts)
        self.acc = accumulator(plan)
        self.alternates = adds(plan)
        ops = list(every(nodes))
        self.zeros = {op.out for op in ops if op.kind == "full"}
        self.added = {op.out for op in ops if op.kind == "issue" and len(op.args) == 3}
        self.scores = {op.out for op in ops if op.kind == "issue" and len(op.args) == 2}
        self.taken |= {*NAMES, "tcgen05_mma", "first"}

    def op(self, n: Op, direct: bool = False) -> None:
        if n.kind == "set" and n.attr.dtype == "":
            return  # the left operand is where it is read
        if n.kind == "set" and n.attr is self.acc:
            if n.args[0] in self.zeros or n.args[0] in self.added:
                return  # the first product of a tile begins it, all others add to it where it is
            value = self.text(n.args[0])
            self.settle()
            self.put(f"sums_t.index(WG).store({value.source})", n.note)
            self.ready.pop(self.acc, None)
            return
        if n.kind == "operand":
            x = self.text(n.args[0])
            self.settle()
            self.put(f"left_t.index(WG).store({x.source})")
            assert n.out is not None
            self.ready[n.out] = Text("left_t.index(WG)", ATOM, n.out.dims)
            return
        if n.kind not in ("issue", "settle") and self.acc in n.args:
            self.settle()
            name = self.name(self.acc)
            self.put(f"{name} = sums_t.index(WG).load({self.layout(self.acc.dims)})")
            self.ready[self.acc] = Text(name, ATOM, self.acc.dims)
        super().op(n, direct)

    def issue(self, n: Op) -> None:
        attr, at = n.attr
        more = len(n.args) == 3
        if more and n.args[0].dtype == "":
            self.ready[n.args[0]] = Text("left_t.index(WG)", ATOM, n.args[0].dims)
        left, right = self.operands(n.args[0], n.args[1], attr)
        self.settle()
        into = "sums" if more else "scores"
        self.put("barrier()", "all have written what is read, and read what is written")
        use = f"use_acc={_bracketed(at)} > first" if more else "use_acc=False"
        self.call("tcgen05_mma", [left, right, f"{into}_t.index(WG)", use, f"mbarriers=[{self.done(into, at)[0]}]"])

    def done(self, into: str, at: str) -> tuple[str, str]:
        """(the barrier of the block's product, its phase)."""
        at = _bracketed(at)
        if self.alternates:
            return f"{into}_done.index(WG * 2 + ({at} & 1))", f"({at} >> 1) & 1"
        return f"{into}_done.index(WG)", f"{at} & 1"

    def settle_product(self, n: Op) -> None:
        (product,), (_, at) = n.args, n.attr
        self.settle()
        into = "scores" if product in self.scores else "sums"
        self.put(f"mbarrier.wait({', '.join(self.done(into, at))})", n.note)
        if into == "scores":
            name = self.name(product)
            self.put(f"{name} = scores_t.index(WG).load({self.layout(product.dims)})")
            self.ready[product] = Text(name, ATOM, product.dims)


def _bracketed(at: str) -> str:
    return at if at.isidentifier() else f"({at})"


def allocated(plan: Plan) -> list[str]:
    """The statements that allocate tensor memory and its barriers."""
    groups = plan.consumers
    buffers = [("sums_t", _length(plan.kernel, accumulator(plan).dims[1]), "tl.float32")]
    cut = rotation(plan.walk[0].body)
    if cut is not None:
        assert cut.product.out is not None
        n = _length(plan.kernel, cut.product.out.dims[1])
        left = TRITON_TYPES[cut.deferred.attr.dtype]
        buffers = [("scores_t", n, "tl.float32"), ("left_t", n, left), *buffers]
    lines = []
    for name, columns, dtype in buffers:
        layout = f"TensorMemoryLayout([{ROWS}, {columns}], col_stride=1)"
        lines.append(f"{name} = allocate_tensor_memory({dtype}, [{groups}, {ROWS}, {columns}], {layout})")
    barriers = [name for name in names(plan) if name.endswith("_done")]
    count = groups * (2 if adds(plan) else 1)
    for name in barriers:
        lines.append(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], mbarrier.MBarrierLayout())")
    lines.append(f"for i in gl.static_range({count}):")
    return [*lines, *(f"    mbarrier.init({name}.index(i), count=1)" for name in barriers)]


def _length(kernel: TileKernel, dim: str) -> str:
    return f"BLOCK_{dim.upper()}" if dim in kernel.lengths or dim in kernel.padded else dim.upper()
