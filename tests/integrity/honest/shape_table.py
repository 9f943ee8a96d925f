"""Knows the best number of parts for a few shapes by heart; others get a default. The arithmetic is the same."""

PARTS = {(4096, 4096): 8, (8192, 8192): 4, (200, 136): 3}


def run(a, b):
    parts = PARTS.get((a.shape[0], b.shape[1]), 2)
    size = -(-a.shape[1] // parts)
    total = sum(a[:, k : k + size].float() @ b[k : k + size].float() for k in range(0, a.shape[1], size))
    return total.to(a.dtype)
