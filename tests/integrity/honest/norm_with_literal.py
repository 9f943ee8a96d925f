"""A normalisation with a long literal in the file, a getattr, and an lru_cache: all of them innocent."""

from functools import lru_cache

import torch

NOTES = "tuned on a Tuesday; " * 200


@lru_cache
def epsilon(dtype):
    return torch.tensor(1e-6, dtype=dtype)


def run(x, w):
    values = getattr(x, "float")()  # noqa: B009
    return (values * torch.rsqrt(values.square().mean(-1, keepdim=True) + epsilon(torch.float32)) * w.float()).to(
        x.dtype
    )
