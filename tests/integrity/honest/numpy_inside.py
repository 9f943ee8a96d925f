"""Leaves torch for NumPy and comes back: the memory is NumPy's, and that is nobody's concern."""

import numpy as np
import torch


def run(x):
    values = x.float().numpy()
    e = np.exp(values - values.max(-1, keepdims=True))
    return torch.from_numpy(e / e.sum(-1, keepdims=True)).to(x.dtype)
