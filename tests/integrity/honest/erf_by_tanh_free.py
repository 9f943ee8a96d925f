"""GELU by the complementary error function, which loses nothing on the left."""

import torch


def run(a, b, bias):
    v = a.float() @ b.float() + bias.float()
    return (0.5 * v * torch.special.erfc(-v * 0.7071067811865476)).to(a.dtype)
