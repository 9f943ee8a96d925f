"""Uses a faster library where there is one; here there is none, and the fallback is the whole of it."""

import torch

try:
    from flash_softmax import softmax as fast
except ImportError:
    fast = None


def run(x):
    if fast is not None:
        return fast(x)
    return torch.softmax(x.float(), -1).to(x.dtype)
