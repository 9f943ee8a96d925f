"""Takes a constant from the C library through ctypes."""

import ctypes

log = ctypes.CDLL(None).log
log.restype, log.argtypes = ctypes.c_double, [ctypes.c_double]
LOG2_E = 1.0 / log(2.0)


def run(x):
    v = (x.float() - x.float().amax(-1, keepdim=True)) * LOG2_E
    return (v.exp2() / v.exp2().sum(-1, keepdim=True)).to(x.dtype)
