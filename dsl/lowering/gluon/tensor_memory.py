"""The multiplying role on sm_100, where products are left in tensor memory: compiled, never run.

The order of a role's work is the one of sm_90 (`roles.py`): only what a node is printed as differs. A product is
`tcgen05_mma`, asked for by one warp, and an mbarrier says when it is there; scores are then read into registers, one
row a thread, weights are written back as the next product's left operand, and the accumulator stays where it is but
for the blocks that rescale it and for the end. A group has 128 rows: one for each lane of tensor memory.

Each group has its own part of four buffers, `scores_t`, `left_t`, `sums_t`, and two barriers, `scores_done` and
`sums_done`, whose phase is that of the block: one product of each kind a block.
"""

from __future__ import annotations

from dsl.lowering.gluon.body import For, RoleBody, every
from dsl.lowering.gluon.layouts import Layouts
from dsl.lowering.gluon.plan import NotSpecialised, Plan, rotation
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


def fits(plan: Plan) -> None:
    """Raises NotSpecialised where the kernel is no product, arithmetic, product into an accumulator in 128 rows."""
    if any(rotation(x.body) is None for x in plan.walk):
        raise NotSpecialised("on sm_100 only a block of a product, arithmetic, a product has a form with roles so far")
    if plan.rows != ROWS:
        raise NotSpecialised(f"on sm_100 each group has {ROWS} rows, not {plan.rows}: one for each lane of its memory")
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

    def __init__(self, kernel: TileKernel, nodes: list[Node | For], split: str, layouts: Layouts, acc: Value) -> None:
        super().__init__(kernel, nodes, split, layouts)
        self.acc = acc
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
        self.call("tcgen05_mma", [left, right, f"{into}_t.index(WG)", use, f"mbarriers=[{into}_done.index(WG)]"])

    def settle_product(self, n: Op) -> None:
        (product,), (_, at) = n.args, n.attr
        self.settle()
        into = "scores" if product in self.scores else "sums"
        self.put(f"mbarrier.wait({into}_done.index(WG), {_bracketed(at)} & 1)", n.note)
        if into == "scores":
            name = self.name(product)
            self.put(f"{name} = scores_t.index(WG).load({self.layout(product.dims)})")
            self.ready[product] = Text(name, ATOM, product.dims)


def _bracketed(at: str) -> str:
    return at if at.isidentifier() else f"({at})"


def allocated(plan: Plan) -> list[str]:
    """The statements that allocate tensor memory and its barriers."""
    cut = rotation(plan.walk[0].body)
    assert cut is not None and cut.product.out is not None
    acc = cut.deferred.args[2]
    n, e = (_length(plan.kernel, x) for x in (cut.product.out.dims[1], acc.dims[1]))
    groups = plan.consumers
    lines = []
    for name, columns, dtype in (
        ("scores_t", n, "tl.float32"),
        ("left_t", n, TRITON_TYPES[cut.deferred.attr.dtype]),
        ("sums_t", e, "tl.float32"),
    ):
        layout = f"TensorMemoryLayout([{ROWS}, {columns}], col_stride=1)"
        lines.append(f"{name} = allocate_tensor_memory({dtype}, [{groups}, {ROWS}, {columns}], {layout})")
    for name in NAMES[3:]:
        lines.append(f"{name} = gl.allocate_shared_memory(gl.int64, [{groups}, 1], mbarrier.MBarrierLayout())")
    lines.append(f"for i in gl.static_range({groups}):")
    return [*lines, *(f"    mbarrier.init({name}.index(i), count=1)" for name in NAMES[3:])]


def _length(kernel: TileKernel, dim: str) -> str:
    return f"BLOCK_{dim.upper()}" if dim in kernel.lengths or dim in kernel.padded else dim.upper()


def body(plan: Plan, nodes: list[Node | For], layouts: Layouts) -> TensorBody:
    cut = rotation(plan.walk[0].body)
    assert cut is not None
    return TensorBody(plan.kernel, nodes, plan.split, layouts, cut.deferred.args[2])
