"""What every emitted module with roles begins with."""

IMPORTS = (
    "import functools",
    """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as TileDescriptor

# what newer versions call otherwise
fetch = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
write = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@functools.cache
def layout_of(block, dtype):
    \"\"\"Found once: it takes longer than the rest of a descriptor, and kernels of 0.1 ms wait for the host.\"\"\"
    return gl.NVMMASharedLayout.get_default_for(block, dtype)


def tiles_of(x, *block, dtype):
    \"\"\"A tensor as tiles that are copied into shared memory, as matrix products want them there.\"\"\"
    return TileDescriptor.from_tensor(x, list(block), layout_of(block, dtype))""",
)


WGMMA = "    warpgroup_mma,\n    warpgroup_mma_wait,\n"


def in_tensor_memory(more: str) -> tuple[str, ...]:
    """Without the products of sm_90, with `more` imported."""
    at = "from triton.experimental.gluon.nvidia.hopper import"
    return (*IMPORTS[:-1], IMPORTS[-1].replace(WGMMA, "").replace(at, f"{more}\n{at}"))
