"""The second lowering: the same tile programs as warp-specialised kernels in Gluon, Triton's lower language."""

from dsl.lowering.gluon.kernel import TESTED, specialised_kernel, why_plain
from dsl.lowering.gluon.plan import NotSpecialised

__all__ = ["TESTED", "NotSpecialised", "specialised_kernel", "why_plain"]
